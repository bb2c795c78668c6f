//! A small history server in this process, to see what the command does with its answers. What real servers do is
//! tested elsewhere.
#![allow(dead_code, reason = "each test file uses another part of it")]

mod service;

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use qim_proto::v1::{Gap, Record, history_server::HistoryServer};
use tokio::runtime::Runtime;
use tonic::Status;
use tonic::transport::server::TcpIncoming;

use service::Service;

/// What the server keeps, and how it behaves; outlives the server.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// By tenant and conversation.
    pub(crate) conversations: HashMap<(String, String), Vec<Record>>,
    /// So many requests are refused with UNAVAILABLE before anything is done.
    pub(crate) unavailable: u32,
    /// So many requests are carried out, and answered with UNAVAILABLE.
    pub(crate) lost_answers: u32,
    /// So many pages say that the archive could not be read.
    pub(crate) archive_outages: u32,
    /// What each page names as lost.
    pub(crate) gaps: Vec<Gap>,
    /// How long an import takes.
    pub(crate) import_takes: Duration,
    /// A page holds no more, whatever is asked for; 0: no limit.
    pub(crate) page_records_max: usize,
    /// The size of each batch that was imported.
    pub(crate) batches: Vec<usize>,
    streams: usize,
    calls: usize,
    /// Streams are refused with this.
    pub(crate) streams_refused: Option<Status>,
    /// A stream is closed in peace after so many answers, whatever else is under way.
    pub(crate) stream_answers_max: Option<usize>,
    /// Two imports of one conversation were under way at once.
    pub(crate) overlapped: bool,
    under_way: HashSet<(String, String)>,
}

impl State {
    /// A conversation of the default tenant.
    pub(crate) fn conversation(&mut self, name: &str) -> &mut Vec<Record> {
        self.conversations.entry(("default".to_owned(), name.to_owned())).or_default()
    }

    /// How many streams were opened, and how many batches came by calls.
    pub(crate) fn transports(&self) -> (usize, usize) {
        (self.streams, self.calls)
    }

    /// All records of all conversations.
    pub(crate) fn records(&self) -> usize {
        self.conversations.values().map(Vec::len).sum()
    }
}

/// A running server.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    pub(crate) state: Arc<Mutex<State>>,
    runtime: Option<Runtime>,
}

impl Server {
    /// Empty, on a free port.
    pub(crate) fn start() -> Self {
        let mut server = Self { addr: "127.0.0.1:0".parse().unwrap(), state: Arc::default(), runtime: None };
        server.restart();
        server
    }

    /// Runs on the same port as before, with the same records.
    pub(crate) fn restart(&mut self) {
        let listener = TcpListener::bind(self.addr).unwrap();
        listener.set_nonblocking(true).unwrap();
        self.addr = listener.local_addr().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let service = HistoryServer::new(Service(self.state.clone()));
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
                .await
                .unwrap();
        });
        self.runtime = Some(runtime);
    }

    /// Breaks all connections, whatever is under way.
    pub(crate) fn kill(&mut self) {
        self.runtime.take().unwrap().shutdown_timeout(Duration::from_secs(5));
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// `qim --server … ARGS`, with nothing of this process's environment that it would read.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = qim(&["--server", &format!("http://{}", self.addr)]);
        command.args(args);
        command
    }

    /// The same, to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        Ended::from(self.command(args).stdin(Stdio::null()).output().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// `qim ARGS`.
pub(crate) fn qim(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qim"));
    for name in
        ["QIM_SERVER", "QIM_TOKEN", "QIM_TOKEN_FILE", "QIM_DEFAULT_HISTORY_RETENTION_DAYS", "QIM_ADMIN_ADDR"]
    {
        command.env_remove(name);
    }
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// The one JSON object on standard output.
    pub(crate) fn json(&self) -> serde_json::Value {
        let lines: Vec<_> = self.stdout.lines().collect();
        assert_eq!(lines.len(), 1, "{self:?}");
        serde_json::from_str(lines[0]).unwrap()
    }

    /// (committed, duplicate, expired, failed) of an import.
    pub(crate) fn imported(&self) -> [u64; 4] {
        let json = self.json();
        assert_eq!(json.as_object().unwrap().len(), 5, "{json}");
        assert!(json["seconds"].is_f64());
        ["committed", "duplicate", "expired", "failed"].map(|field| json[field].as_u64().unwrap())
    }

    /// (compared, missing, different, expired) of a verification.
    pub(crate) fn verified(&self) -> [u64; 4] {
        let json = self.json();
        ["compared", "missing", "different", "expired"].map(|field| json[field].as_u64().unwrap())
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A line of NDJSON, one hour old.
pub(crate) fn line(conversation: &str, id: &str, body: &str) -> String {
    let fields = serde_json::json!({
        "conversation": conversation, "sender": "alice", "client_msg_id": id, "body": body, "age_ms": 3_600_000,
    });
    fields.to_string()
}

/// Writes a file of lines and gives its path.
pub(crate) fn file(folder: &Path, lines: &[String]) -> String {
    let path = folder.join("file.ndjson");
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    path.to_str().unwrap().to_owned()
}
