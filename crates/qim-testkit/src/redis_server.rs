use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::fault_proxy::FaultProxy;
use crate::ports::free_port;
use crate::process::{await_exit, end, exit_status, send_signal};
use crate::resp::{self, Reply};

const PROGRAM: &str = "redis-server";
/// Many times what it takes, for a machine that compiles at the same time.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const START_TRIES: usize = 5;

/// How a [`RedisServer`] is started.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    arguments: Vec<String>,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Server,
    /// Of a cluster, without a slot as yet.
    ClusterNode,
    WholeCluster,
}

/// Where a server listens, on the loopback.
#[derive(Debug, Clone, Copy)]
struct Ports {
    clients: u16,
    /// For the other nodes of a cluster. By default Redis adds 10 000 to that of the clients: a port that any outgoing
    /// connection may have.
    bus: Option<u16>,
}

/// An append-only file at some moment.
#[derive(Debug, Clone)]
pub struct AppendOnlyFile(Vec<(OsString, Vec<u8>)>);

impl AppendOnlyFile {
    /// Whether these bytes are in it.
    pub fn contains(&self, bytes: &[u8]) -> bool {
        self.0.iter().any(|(_, content)| content.windows(bytes.len()).any(|window| window == bytes))
    }
}

/// A real redis-server on a free loopback port, in a directory of its own; killed when dropped.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisOptions,
    dir: TempDir,
    ports: Ports,
    process: Mutex<Option<Child>>,
}

impl RedisOptions {
    /// A directive of redis.conf and its value, such as `.arg("hash-max-listpack-value", "1024")`.
    #[must_use]
    pub fn arg(mut self, directive: &str, value: &str) -> Self {
        self.arguments.extend([format!("--{directive}"), value.to_owned()]);
        self
    }

    /// Keeps an append-only file, so that data is there again after a restart.
    #[must_use]
    pub fn append_only(self) -> Self {
        self.arg("appendonly", "yes")
    }

    /// Refuses writes beyond this much memory (`maxmemory-policy noeviction`).
    #[must_use]
    pub fn maxmemory_bytes(self, bytes: u64) -> Self {
        self.arg("maxmemory", &bytes.to_string()).arg("maxmemory-policy", "noeviction")
    }

    /// It is a Redis Cluster of its own: one node, which has every slot.
    #[must_use]
    pub fn whole_cluster(self) -> Self {
        Self { mode: Mode::WholeCluster, ..self }
    }

    /// It can be a node of a cluster.
    pub(crate) fn cluster_node(self) -> Self {
        Self { mode: Mode::ClusterNode, ..self }
    }

    /// Starts it, and waits until it answers.
    pub fn start(self) -> RedisServer {
        let dir = TempDir::with_prefix("qim-redis-").expect("a temporary directory");
        for _ in 0..START_TRIES {
            let ports = Ports { clients: free_port(), bus: (self.mode != Mode::Server).then(free_port) };
            match launch(&self, dir.path(), ports) {
                Ok(child) => {
                    let process = Mutex::new(Some(child));
                    let server = RedisServer { options: self, dir, ports, process };
                    if server.options.mode == Mode::WholeCluster {
                        server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
                        server.await_slots();
                    }
                    return server;
                }
                // Taken by somebody else meanwhile.
                Err(log) if log.contains("Address already in use") => {}
                Err(log) => panic!("{PROGRAM} did not start:\n{log}"),
            }
        }
        panic!("no port stayed free for {PROGRAM}");
    }

    /// The same with a proxy before it; as a node of a cluster it tells everybody to come that way.
    pub fn start_behind_proxy(self) -> (RedisServer, FaultProxy) {
        // The server has to know the proxy, and gets a port of its own when it starts: nobody comes this way before that.
        let proxy = FaultProxy::start((Ipv4Addr::LOCALHOST, 0).into());
        let server = self.arg("cluster-announce-port", &proxy.addr().port().to_string()).start();
        proxy.lead_new_ones_to(server.addr());
        (server, proxy)
    }
}

impl RedisServer {
    /// Without persistence.
    pub fn start() -> Self {
        Self::options().start()
    }

    /// To be started with something special.
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    /// `redis://127.0.0.1:PORT`, or `redis-cluster://127.0.0.1:PORT` of a whole cluster.
    pub fn url(&self) -> String {
        self.url_by(self.addr())
    }

    /// The same by way of a proxy.
    pub fn url_by(&self, addr: SocketAddr) -> String {
        let scheme = if self.options.mode == Mode::WholeCluster { "redis-cluster" } else { "redis" };
        format!("{scheme}://{addr}")
    }

    /// Where it listens; the same after a restart.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.clients).into()
    }

    /// Where it listens for the other nodes, where it is one of a cluster; the same after a restart.
    pub(crate) fn bus_port(&self) -> Option<u16> {
        self.ports.bus
    }

    /// Sends one command, and waits for its answer.
    pub fn command(&self, arguments: &[&str]) -> Reply {
        resp::command(self.addr(), arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    /// Ends it by SIGKILL: what the kernel has of its files stays, what it had in memory is lost.
    pub fn kill(&self) {
        if let Some(mut child) = self.process().take() {
            end(&mut child);
        }
    }

    /// Ends it in its own orderly way.
    pub fn stop(&self) {
        if let Some(mut child) = self.process().take() {
            send_signal(&child, Signal::SIGTERM);
            await_exit(&mut child, STOP_TIMEOUT, PROGRAM);
        }
    }

    /// Starts it again on the same port and directory, and waits until it answers. Stops it first where it runs.
    pub fn restart(&self) {
        self.stop();
        let child = launch(&self.options, self.dir.path(), self.ports);
        *self.process() = Some(child.unwrap_or_else(|log| panic!("{PROGRAM} did not start again:\n{log}")));
        if self.options.mode == Mode::WholeCluster {
            self.await_slots();
        }
    }

    /// A node serves its slots about two seconds after it has started again.
    fn await_slots(&self) {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let Reply::Text(info) = self.command(&["CLUSTER", "INFO"]) else {
                panic!("CLUSTER INFO is text")
            };
            if info.contains("cluster_state:ok") {
                return;
            }
            assert!(Instant::now() < deadline, "it does not serve its slots:\n{info}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts it again without any data, like a machine that lost its disk.
    pub fn restart_empty(&self) {
        self.kill();
        for name in ["appendonlydir", "dump.rdb"] {
            let path = self.dir.path().join(name);
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            if let Err(error) = removed {
                assert_eq!(error.kind(), io::ErrorKind::NotFound, "{}: {error}", path.display());
            }
        }
        self.restart();
    }

    /// Its append-only file as it is now: what a disk would have, had the machine ended here.
    pub fn append_only_file(&self) -> AppendOnlyFile {
        let dir = self.append_only_dir();
        let files = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let read = |entry: io::Result<fs::DirEntry>| {
            let path = entry.expect("an entry").path();
            (path.file_name().expect("a name").to_owned(), fs::read(&path).expect("its content"))
        };
        AppendOnlyFile(files.map(read).collect())
    }

    /// Puts this file in the place of its own. It must not be running.
    pub fn set_append_only_file(&self, AppendOnlyFile(files): &AppendOnlyFile) {
        assert!(self.process().is_none(), "it runs");
        let dir = self.append_only_dir();
        fs::remove_dir_all(&dir).expect("its append-only file");
        fs::create_dir(&dir).expect("a directory");
        for (name, content) in files {
            fs::write(dir.join(name), content).expect("room for a file");
        }
    }

    fn append_only_dir(&self) -> PathBuf {
        self.dir.path().join("appendonlydir")
    }

    /// How long the append-only file is that it writes to now, in bytes.
    pub fn append_only_bytes(&self) -> u64 {
        fs::metadata(self.append_only_part()).expect("it keeps an append-only file").len()
    }

    /// Ends it by SIGKILL and cuts the append-only file to this length, like a machine that lost what was not synced.
    pub fn kill_and_cut(&self, bytes: u64) {
        self.kill();
        let file = fs::File::options().write(true).open(self.append_only_part()).expect("its own file");
        file.set_len(bytes).expect("its own file");
    }

    /// The last one of those that the manifest names.
    fn append_only_part(&self) -> PathBuf {
        let dir = self.append_only_dir();
        let entries = fs::read_dir(&dir).expect("it keeps an append-only file");
        let names = entries.map(|entry| entry.expect("it can be listed").path());
        let parts = names.filter(|path| path.to_string_lossy().ends_with(".incr.aof"));
        let number = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?;
            name.split('.').nth(2)?.parse::<u64>().ok()
        };
        parts.max_by_key(number).expect("it has written something")
    }

    /// Holds it (SIGSTOP): connections stay, and nothing is answered.
    pub fn pause(&self) {
        send_signal(self.process().as_ref().expect("it runs"), Signal::SIGSTOP);
    }

    /// Lets it go on after [`RedisServer::pause`].
    pub fn resume(&self) {
        send_signal(self.process().as_ref().expect("it runs"), Signal::SIGCONT);
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The error is what it logged.
fn launch(options: &RedisOptions, dir: &Path, ports: Ports) -> Result<Child, String> {
    let log = dir.join("redis.log");
    let _ = fs::remove_file(&log);
    let mut command = Command::new(PROGRAM);
    command.args(["--bind", "127.0.0.1", "--save", "", "--enable-debug-command", "local"]);
    command.args(["--port", &ports.clients.to_string()]).arg("--dir").arg(dir).arg("--logfile").arg(&log);
    if let Some(bus) = ports.bus {
        command.args(["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()]);
    }
    command.args(&options.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            panic!("this test needs {PROGRAM} on PATH: apt-get install redis-server")
        }
        started => started.unwrap_or_else(|error| panic!("{PROGRAM}: {error}")),
    };
    let deadline = Instant::now() + START_TIMEOUT;
    while !answers((Ipv4Addr::LOCALHOST, ports.clients).into()) {
        if exit_status(&mut child).is_some() {
            return Err(fs::read_to_string(&log).unwrap_or_else(|_| "it left no log".to_owned()));
        }
        if Instant::now() > deadline {
            end(&mut child);
            return Err(format!("no answer within {START_TIMEOUT:?}"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}

fn answers(addr: SocketAddr) -> bool {
    matches!(resp::command(addr, &["PING"]), Ok(Reply::Text(pong)) if pong == "PONG")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(text.to_owned())
    }

    #[test]
    fn each_server_is_its_own_and_starts_empty() {
        let (one, other) = (RedisServer::start(), RedisServer::start());
        assert_eq!(one.command(&["SET", "key", "one"]), text("OK"));
        assert_eq!(other.command(&["GET", "key"]), Reply::Nil);
        assert_eq!(one.command(&["DBSIZE"]), Reply::Int(1));
    }

    #[test]
    fn an_append_only_file_outlives_a_kill_and_nothing_else_does() {
        let kept = RedisServer::options().append_only().arg("appendfsync", "always").start();
        let lost = RedisServer::start();
        for (redis, expected) in [(&kept, text("value")), (&lost, Reply::Nil)] {
            redis.command(&["SET", "key", "value"]);
            redis.kill();
            redis.restart();
            assert_eq!(redis.command(&["GET", "key"]), expected);
        }
        kept.restart();
        assert_eq!(kept.command(&["GET", "key"]), text("value"));
        kept.restart_empty();
        assert_eq!(kept.command(&["GET", "key"]), Reply::Nil);
    }

    #[test]
    fn what_is_cut_off_the_append_only_file_is_lost_and_nothing_else() {
        let redis = RedisServer::options().append_only().arg("appendfsync", "always").start();
        redis.command(&["SET", "kept", "1"]);
        let length = redis.append_only_bytes();
        redis.command(&["SET", "lost", "1"]);
        assert!(redis.append_only_bytes() > length);
        redis.kill_and_cut(length);
        redis.restart();
        assert_eq!(redis.command(&["MGET", "kept", "lost"]), Reply::Array(vec![text("1"), Reply::Nil]));
    }

    #[test]
    fn a_paused_server_answers_when_it_goes_on() {
        let redis = RedisServer::start();
        redis.pause();
        let addr = redis.addr();
        let waiting = thread::spawn(move || resp::command(addr, &["PING"]));
        thread::sleep(Duration::from_millis(200));
        assert!(!waiting.is_finished());
        redis.resume();
        assert_eq!(waiting.join().unwrap().unwrap(), text("PONG"));
    }

    #[test]
    fn a_cluster_behind_a_proxy_tells_its_address_and_keeps_a_port_of_ours_for_its_bus() {
        let (redis, proxy) = RedisServer::options().append_only().whole_cluster().start_behind_proxy();
        let listens = format!(":{}@{} ", proxy.addr().port(), redis.bus_port().unwrap());
        let is_there = || {
            let Reply::Text(nodes) = redis.command(&["CLUSTER", "NODES"]) else { panic!("no list of nodes") };
            assert!(nodes.contains(&listens), "{nodes}");
            assert_eq!(resp::command(proxy.addr(), &["PING"]).unwrap(), text("PONG"));
        };
        is_there();
        redis.kill();
        redis.restart();
        is_there();
        assert_eq!(RedisServer::start().bus_port(), None);
    }

    #[test]
    fn a_full_server_refuses_writes() {
        let redis = RedisServer::options().maxmemory_bytes(2_000_000).start();
        let big = "x".repeat(1_500_000);
        redis.command(&["SET", "key", &big]);
        let Reply::Error(error) = redis.command(&["SET", "other", &big]) else { panic!("it took both") };
        assert!(error.starts_with("OOM "), "{error}");
    }

    #[test]
    #[should_panic(expected = "did not start")]
    fn a_directive_that_redis_does_not_know_is_shown() {
        RedisServer::options().arg("no-such-directive", "1").start();
    }
}
