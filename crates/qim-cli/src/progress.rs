use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a line is printed where there is no terminal to draw a bar on.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// How far a long command is, on standard error: a bar on a terminal, else a line every few seconds.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    on_terminal: bool,
    /// What is done to messages: "imported".
    verb: &'static str,
    began: Instant,
    last_line: Cell<Instant>,
    messages: Cell<u64>,
}

impl Progress {
    /// `total` is the end of the way, where it is known.
    pub(crate) fn new(verb: &'static str, total: Option<u64>) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let target = if on_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target).with_style(style(total.is_some()));
        let now = Instant::now();
        Self { bar, on_terminal, verb, began: now, last_line: Cell::new(now), messages: Cell::new(0) }
    }

    /// Something for people to know; it leaves the bar in peace.
    pub(crate) fn tell(&self, text: &str) {
        self.say(&format!("qim: {text}"));
    }

    /// The same without the name of the command, for lines that name a file.
    pub(crate) fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    /// So much of the way is behind.
    pub(crate) fn advance(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// So many messages are done.
    pub(crate) fn count(&self, messages: u64) {
        self.messages.set(messages);
    }

    /// Shows it. To be called about once a second.
    pub(crate) fn show(&self) {
        let text = self.text();
        if self.on_terminal {
            self.bar.set_message(text);
            self.bar.tick();
        } else if self.last_line.get().elapsed() >= LINE_INTERVAL {
            self.last_line.set(Instant::now());
            eprintln!("qim: {text}{}", self.percent());
        }
    }

    fn text(&self) -> String {
        let messages = self.messages.get();
        let secs = self.began.elapsed().as_secs().max(1);
        format!("{} {messages} messages, {}/s", self.verb, messages / secs)
    }

    fn percent(&self) -> String {
        match self.bar.length() {
            Some(length) if length > 0 => {
                format!(" ({} %)", self.bar.position().saturating_mul(100) / length)
            }
            _ => String::new(),
        }
    }
}

impl Drop for Progress {
    /// The result takes the place of the bar.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(has_end: bool) -> ProgressStyle {
    let template =
        if has_end { "{bar:30} {percent:>3} %  {msg}  {eta} left" } else { "{spinner} {msg}  {elapsed}" };
    ProgressStyle::with_template(template).expect("the template is a constant")
}
