//! Processes: started in a directory, looked at in /proc, ended with their owner.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Clock ticks per second in /proc; the same on every Linux.
const TICKS: f64 = 100.0;
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// A process of ours. Ends with this: asked first, then killed.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: std::path::PathBuf,
    stop: Signal,
}

impl Process {
    /// Starts it; what it says goes to `NAME.log` in the directory.
    pub(crate) fn start(name: &'static str, dir: &Path, command: &mut Command) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let file = File::options().append(true).create(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Self { name, child, log, stop: Signal::SIGTERM })
    }

    /// For one that takes another signal for an order to end.
    pub(crate) fn stopped_by(mut self, signal: Signal) -> Self {
        self.stop = signal;
        self
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it is ready; fails where it ends, or takes too long.
    pub(crate) fn await_ready(&mut self, mut is_ready: impl FnMut() -> bool) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !is_ready() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                bail!("{} is not ready ({ended:?}):\n{log}", self.name);
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Whether it has ended by itself, and well.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        match self.child.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => {
                bail!("{}: {status}\n{}", self.name, fs::read_to_string(&self.log).unwrap_or_default())
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), self.stop);
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU seconds that a process and its children have used so far.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let Some((own, _)) = ticks_and_parent(pid) else { return 0.0 };
    let children: f64 = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(ticks_and_parent)
        .filter(|(_, parent)| *parent == pid)
        .map(|(ticks, _)| ticks)
        .sum();
    (own + children) / TICKS
}

/// Of /proc/PID/stat: utime + stime, and the parent.
fn ticks_and_parent(pid: u32) -> Option<(f64, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows it does not.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let (user, system): (f64, f64) = (fields.get(11)?.parse().ok()?, fields.get(12)?.parse().ok()?);
    Some((user + system, fields.get(1)?.parse().ok()?))
}

/// The most memory that a process has had so far, in MiB.
pub(crate) fn peak_rss_mib(pid: u32) -> Option<f64> {
    status_mib(pid, "VmHWM:")
}

/// The memory that a process has now, in MiB.
pub(crate) fn rss_mib(pid: u32) -> Option<f64> {
    status_mib(pid, "VmRSS:")
}

fn status_mib(pid: u32, field: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

/// A TCP port that is free on the loopback now: below those that the system hands out by itself, and below those that
/// tests keep for their servers.
pub(crate) fn free_port() -> Result<u16> {
    (0..1000)
        .map(|_| rand::random_range(10_000..20_000_u16))
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .context("no free port on the loopback")
}

/// Whether something listens there.
pub(crate) fn answers(port: u16) -> bool {
    TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok()
}

/// What processes use while something runs.
#[derive(Debug)]
pub(crate) struct CpuMeter {
    before: Vec<(&'static str, u32, f64)>,
}

impl CpuMeter {
    /// Of these, and of this process as `client`.
    pub(crate) fn start(processes: &[(&'static str, u32)]) -> Self {
        let own = ("client", std::process::id());
        let all = std::iter::once(&own).chain(processes);
        Self { before: all.map(|(name, pid)| (*name, *pid, own_or_tree(*pid))).collect() }
    }

    /// CPU seconds since the start.
    pub(crate) fn used(&self) -> Vec<(&'static str, f64)> {
        self.before.iter().map(|(name, pid, before)| (*name, own_or_tree(*pid) - before)).collect()
    }
}

/// The servers are our children, and are not the client's CPU.
fn own_or_tree(pid: u32) -> f64 {
    if pid == std::process::id() {
        return ticks_and_parent(pid).map_or(0.0, |(ticks, _)| ticks / TICKS);
    }
    cpu_seconds(pid)
}
