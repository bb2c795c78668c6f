//! Lets the faults begin and end in their time, and starts again what ended by itself, as a service manager does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Fleet;
use crate::client::now_ms;
use crate::kind::{Effect, Redis};
use crate::schedule::{Fault, Schedule};

const TICK: Duration = Duration::from_millis(20);
/// What a service manager waits.
const RESTART_AFTER: Duration = Duration::from_millis(200);
/// What is cut off Redis' file.
const TAIL_MS: u64 = 1_000;
/// A replica that is elected takes over within this; what the other one takes until it hears of that is lost.
const FAILOVER_MS: i64 = 3_000;

/// What was done to the fleet, and what it did by itself.
#[derive(Debug, Default)]
pub(crate) struct Happened {
    /// In the order of time; each with its moment in ms since 1970.
    pub(crate) log: Vec<(i64, String)>,
    /// When Redis lost data or may have lost some, ms since 1970.
    pub(crate) losses_ms: Vec<i64>,
    /// Daemons that ended by themselves, and not because what they need at start was away.
    pub(crate) ended: Vec<String>,
    /// Faults that could not be inflicted, and why.
    pub(crate) not_inflicted: Vec<(Fault, String)>,
}

/// The thread that does it.
pub(crate) struct Conductor {
    thread: JoinHandle<Happened>,
    stop: Arc<AtomicBool>,
    lifted: oneshot::Receiver<Instant>,
}

#[derive(Clone, Copy)]
enum Act {
    Sample(Fault),
    Begin(Fault),
    End(Fault),
}

impl Conductor {
    /// Begins now.
    pub(crate) fn start(fleet: Arc<Fleet>, schedule: &Schedule) -> Self {
        let mut acts: Vec<(u64, Act)> = Vec::new();
        for fault in &schedule.faults {
            if fault.kind.effect == Effect::CutTail {
                acts.push((fault.start_ms.saturating_sub(TAIL_MS), Act::Sample(*fault)));
            }
            acts.push((fault.start_ms, Act::Begin(*fault)));
            acts.push((fault.end_ms, Act::End(*fault)));
        }
        acts.sort_by_key(|(at, _)| *at);
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, lifted) = oneshot::channel();
        let (stopped, redis) = (stop.clone(), schedule.redis);
        let thread = thread::spawn(move || Stage::new(&fleet, redis).play(acts, tell, &stopped));
        Self { thread, stop, lifted }
    }

    /// When the last fault ended, once it has.
    pub(crate) async fn lifted(&mut self) -> Instant {
        (&mut self.lifted).await.expect("the conductor goes on until it is told to stop")
    }

    /// From here on nothing is started again.
    pub(crate) fn stop(self) -> Happened {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("the conductor tells what went wrong")
    }
}

struct Stage<'a> {
    fleet: &'a Fleet,
    redis: Redis,
    happened: Happened,
    /// Faults that are in force.
    in_force: Vec<Fault>,
    /// When each daemon is to be started again.
    restarts: Vec<(String, Instant)>,
    appended: u64,
}

impl<'a> Stage<'a> {
    fn new(fleet: &'a Fleet, redis: Redis) -> Self {
        let happened = Happened::default();
        Self { fleet, redis, happened, in_force: Vec::new(), restarts: Vec::new(), appended: 0 }
    }

    fn play(mut self, acts: Vec<(u64, Act)>, tell: oneshot::Sender<Instant>, stop: &AtomicBool) -> Happened {
        let began = Instant::now();
        let mut acts = acts.into_iter().peekable();
        let mut tell = Some(tell);
        while !stop.load(Ordering::SeqCst) {
            let elapsed = began.elapsed();
            while let Some((_, act)) = acts.next_if(|(at, _)| elapsed >= Duration::from_millis(*at)) {
                self.act(act);
            }
            self.supervise();
            if acts.peek().is_none()
                && let Some(tell) = tell.take()
            {
                let _ = tell.send(Instant::now());
            }
            thread::sleep(TICK);
        }
        self.happened
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Sample(fault) => self.appended = self.fleet.appended(&fault),
            Act::Begin(fault) => match self.fleet.inflict(&fault, self.appended) {
                Ok(()) => {
                    self.log(format!("{} {} begins", fault.kind, fault.instance));
                    if fault.kind.loses_data(self.redis) {
                        self.happened.losses_ms.push(now_ms());
                    }
                    self.in_force.push(fault);
                }
                Err(error) => self.happened.not_inflicted.push((fault, format!("{error:#}"))),
            },
            Act::End(fault) => {
                if let Some(at) = self.in_force.iter().position(|other| *other == fault) {
                    self.in_force.remove(at);
                    if self.redis == Redis::Cluster && fault.kind.loses_data(self.redis) {
                        self.happened.losses_ms.extend([now_ms(), now_ms() + FAILOVER_MS]);
                    }
                    match self.fleet.lift(&fault) {
                        Ok(()) => self.log(format!("{} {} is over", fault.kind, fault.instance)),
                        Err(error) => self.happened.ended.push(format!("{}: {error:#}", fault.kind)),
                    }
                }
            }
        }
    }

    fn supervise(&mut self) {
        for (name, daemon) in self.fleet.daemons() {
            let Some(status) = daemon.ended() else { continue };
            match self.restarts.iter().position(|(other, _)| *other == name) {
                Some(at) if self.restarts[at].1 <= Instant::now() => {
                    self.restarts.remove(at);
                    daemon.respawn();
                }
                Some(_) => {}
                None => {
                    let reason = last_words(&daemon.stderr());
                    self.happened.log.push((now_ms(), format!("{name} ended: {status}: {reason}")));
                    if !(status.code() == Some(1) && could_not_start(&reason)) {
                        self.happened.ended.push(format!("{name} ended by itself: {status}: {reason}"));
                    }
                    self.restarts.push((name, Instant::now() + RESTART_AFTER));
                }
            }
        }
    }

    fn log(&mut self, what: String) {
        self.happened.log.push((now_ms(), what));
    }
}

/// Why it failed, where it says so.
fn last_words(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().collect();
    let recent = &lines[lines.len().saturating_sub(20)..];
    let failure = recent.iter().rev().find(|line| line.contains("failed") || line.contains("panic"));
    (*failure.or(recent.last()).unwrap_or(&"")).to_owned()
}

/// A daemon starts only with Redis, and with an archive that is either away or fit.
fn could_not_start(reason: &str) -> bool {
    reason.contains("hot tier at ") || reason.contains("archive at ")
}
