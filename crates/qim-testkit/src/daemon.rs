use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::http::{HttpAnswer, http_get};
use crate::ports::free_port;
use crate::process::{await_exit, end, exit_status, send_signal};
use crate::samples::Samples;

/// For tests of other builds than the one the test belongs to.
const BIN_DIR_VARIABLE: &str = "QIM_TEST_BIN_DIR";
/// Many times what it takes, for a machine that compiles at the same time.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than the longest default of anything that has to end first.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);
const LINES_SHOWN: usize = 40;

/// How a program of the workspace is started: with what is said here, and without any `QIM_…` variable of the test's
/// own environment. Its working directory is a temporary one.
#[derive(Debug, Clone)]
pub struct Launch {
    program: String,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
}

/// A running daemon; killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    launch: Launch,
    dir: TempDir,
    admin: SocketAddr,
    grpc: SocketAddr,
    process: Mutex<Option<Child>>,
}

/// How a program ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Launch {
    /// qim-writer.
    pub fn writer() -> Self {
        Self::program("qim-writer")
    }

    /// qim-archiver.
    pub fn archiver() -> Self {
        Self::program("qim-archiver")
    }

    /// Any program that `cargo build --workspace --bins` makes.
    pub fn program(name: &str) -> Self {
        Self { program: name.to_owned(), arguments: Vec::new(), environment: BTreeMap::new() }
    }

    /// Another argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// A variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.insert(name.to_owned(), value.into());
        self
    }

    /// Starts a daemon on free ports, and waits until it is ready. Ports that were set stay.
    pub fn start(self) -> Daemon {
        let daemon = self.start_unready();
        daemon.await_ready(READY_TIMEOUT);
        daemon
    }

    /// The same, but waits only until its admin port answers.
    pub fn start_unready(self) -> Daemon {
        let daemon = self.start_detached();
        daemon.await_status(READY_TIMEOUT, "/healthz");
        daemon
    }

    /// The same without waiting.
    pub fn start_detached(mut self) -> Daemon {
        let admin = self.addr_in("QIM_ADMIN_ADDR");
        let grpc = self.addr_in("QIM_LISTEN_ADDR");
        let dir = temporary_dir();
        let daemon = Daemon { launch: self, dir, admin, grpc, process: Mutex::new(None) };
        daemon.respawn();
        daemon
    }

    /// Runs a program until it ends by itself.
    pub fn run(self, timeout: Duration) -> Ended {
        let dir = temporary_dir();
        let mut child = self.spawn(dir.path());
        let status = await_exit(&mut child, timeout, &self.program);
        let output = |name| fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        Ended { status, stdout: output("stdout"), stderr: output("stderr") }
    }

    fn addr_in(&mut self, variable: &str) -> SocketAddr {
        let free = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())).to_string();
        let addr = self.environment.entry(variable.to_owned()).or_insert_with(free);
        addr.parse().unwrap_or_else(|error| panic!("{variable}={addr}: {error}"))
    }

    fn spawn(&self, dir: &Path) -> Child {
        let file =
            |name| File::options().append(true).create(true).open(dir.join(name)).expect("a temporary file");
        let path = program_path(&self.program);
        let mut command = Command::new(&path);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("QIM_")) {
            command.env_remove(name);
        }
        command.envs(&self.environment).args(&self.arguments).current_dir(dir);
        command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr"));
        command.spawn().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

impl Daemon {
    /// `http://127.0.0.1:PORT` of `/metrics`, `/healthz` and `/readyz`; the same after a restart.
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// `http://127.0.0.1:PORT` of the gRPC API; the same after a restart.
    pub fn grpc_url(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// Its working directory, which outlives a restart.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What it wrote to stderr so far, over all restarts.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.dir.path().join("stderr")).unwrap_or_default()
    }

    /// What `/readyz` answers now.
    pub fn readyz(&self) -> HttpAnswer {
        http_get(&format!("{}/readyz", self.admin_url())).expect("the admin port answers")
    }

    /// What it counted so far.
    pub fn metrics(&self) -> Samples {
        let answer = http_get(&format!("{}/metrics", self.admin_url())).expect("the admin port answers");
        assert_eq!(answer.status, 200, "{}", answer.body);
        Samples::parse(&answer.body)
    }

    /// Waits until `/readyz` answers 200.
    pub fn await_ready(&self, timeout: Duration) {
        self.await_status(timeout, "/readyz");
    }

    /// Waits until it ends by itself.
    pub fn await_exit(&self, timeout: Duration) -> ExitStatus {
        let mut child = self.process().take().expect("it runs");
        await_exit(&mut child, timeout, &self.launch.program)
    }

    /// Sends SIGTERM, and waits until it has drained.
    pub fn terminate(&self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.await_exit(EXIT_TIMEOUT)
    }

    /// Ends it by SIGKILL.
    pub fn kill9(&self) {
        if let Some(mut child) = self.process().take() {
            end(&mut child);
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        send_signal(self.process().as_ref().expect("it runs"), signal);
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.process().as_ref().expect("it runs").id()
    }

    /// Holds it (SIGSTOP), like a machine that sleeps.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on after [`Daemon::pause`].
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Starts it again as before, and waits until its admin port answers. Kills it first where it runs.
    pub fn restart(&self) {
        self.respawn();
        self.await_status(READY_TIMEOUT, "/healthz");
    }

    /// The same without waiting: what it needs may be away.
    pub fn respawn(&self) {
        self.kill9();
        *self.process() = Some(self.launch.spawn(self.dir.path()));
    }

    /// How it ended, where it did so by itself.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.process().as_mut().and_then(exit_status)
    }

    /// What `path` of the admin port answers, where it does.
    pub fn try_get(&self, path: &str) -> io::Result<HttpAnswer> {
        http_get(&format!("{}{path}", self.admin_url()))
    }

    fn await_status(&self, timeout: Duration, path: &str) {
        let (url, deadline) = (format!("{}{path}", self.admin_url()), Instant::now() + timeout);
        let mut last = String::new();
        loop {
            match http_get(&url) {
                Ok(answer) if answer.status == 200 => return,
                Ok(answer) => last = answer.body,
                Err(error) => last = if last.is_empty() { error.to_string() } else { last },
            }
            let ended = exit_status(self.process().as_mut().expect("it runs"));
            assert!(ended.is_none(), "{} ended: {ended:?}\n{}", self.launch.program, self.stderr());
            assert!(Instant::now() < deadline, "{path} is not 200 in {timeout:?}: {last}\n{}", self.stderr());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill9();
        // A failed test is most often explained by what the daemon said last.
        if thread::panicking() {
            let stderr = self.stderr();
            let lines: Vec<&str> = stderr.lines().collect();
            let last = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
            eprintln!("--- last lines of {}\n{}\n---", self.launch.program, last.join("\n"));
        }
    }
}

fn temporary_dir() -> TempDir {
    TempDir::with_prefix("qim-test-").expect("a temporary directory")
}

/// Beside the test itself: tests are in `target/PROFILE/deps`, programs in `target/PROFILE`.
fn program_path(name: &str) -> PathBuf {
    let dir = std::env::var_os(BIN_DIR_VARIABLE).map_or_else(dir_above_this_test, PathBuf::from);
    let path = dir.join(name);
    assert!(path.is_file(), "{} is missing; build it first: cargo build --workspace --bins", path.display());
    path
}

fn dir_above_this_test() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.ancestors().nth(2).expect("a test is in target/PROFILE/deps").to_owned()
}
