use std::fmt::Display;
use std::io::{self, BufWriter, Write};

use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::failure::Failure;

/// Standard output: the result of a command, for people or for programs.
pub(crate) struct Output {
    writer: Box<dyn Write>,
    json: bool,
}

impl Output {
    /// The process's own.
    pub(crate) fn stdout(json: bool) -> Self {
        Self { writer: Box::new(BufWriter::with_capacity(64 << 10, io::stdout())), json }
    }

    /// Whether programs read it.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// One object on a line.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.writer, value)
            .map_err(io::Error::from)
            .and_then(|()| self.writer.write_all(b"\n"))
            .map_err(Failure::Output)
    }

    /// One line for people.
    pub(crate) fn line(&mut self, text: impl Display) -> Result<(), Failure> {
        writeln!(self.writer, "{text}").map_err(Failure::Output)
    }

    /// Names and values in two columns.
    pub(crate) fn pairs(&mut self, pairs: &[(&str, String)]) -> Result<(), Failure> {
        let widest = pairs.iter().map(|(name, _)| name.width()).max().unwrap_or_default();
        for (name, value) in pairs {
            self.line(format_args!("{}  {value}", pad(name, widest)))?;
        }
        Ok(())
    }

    /// Names and numbers in two columns, the numbers to the right.
    pub(crate) fn numbers(&mut self, numbers: &[(&str, String)]) -> Result<(), Failure> {
        let widest = numbers.iter().map(|(_, number)| number.len()).max().unwrap_or_default();
        let aligned: Vec<_> =
            numbers.iter().map(|(name, number)| (*name, format!("{number:>widest$}"))).collect();
        self.pairs(&aligned)
    }

    /// Hands on what was printed.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(Failure::Output)
    }
}

/// The text with spaces behind it, up to `width` columns of a terminal.
pub(crate) fn pad(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// The text without what would move a terminal's cursor or change its state.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped = if c.is_control() { Some(c.escape_default()) } else { None };
            let kept = if escaped.is_none() { Some(c) } else { None };
            escaped.into_iter().flatten().chain(kept)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_padded_by_what_a_terminal_shows() {
        assert_eq!(pad("ab", 4), "ab  ");
        assert_eq!(pad("会话", 6), "会话  ");
        assert_eq!(pad("abcdef", 4), "abcdef");
    }

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(printable("a\u{1b}[2Jb\u{9b}é"), "a\\u{1b}[2Jb\\u{9b}é");
    }
}
