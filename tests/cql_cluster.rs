//! The archive on three nodes, of which one dies under load and comes back. `scripts/test-cql-cluster` runs it: it takes
//! three nodes of Cassandra, which `scripts/test` does not start.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qim_proto::v1;
use qim_testkit::{RedisServer, eventually};
use qim_tests::{DAY_MS, Fleet, PATIENCE, await_settled, message, now_ms};

const MESSAGES: usize = 20;

/// Three nodes that `scripts/cassandra start --nodes 3` started in the directory of this variable.
struct Nodes(PathBuf);

impl Nodes {
    fn running() -> Self {
        let dir = std::env::var_os("QIM_TEST_CQL_CLUSTER_DIR");
        Self(dir.expect("QIM_TEST_CQL_CLUSTER_DIR is set: see scripts/test-cql-cluster").into())
    }

    /// Starts those that do not run; answers where all of them are.
    fn start(&self) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/cassandra");
        let start = Command::new(script).args(["start", "--nodes", "3", "--dir"]).arg(&self.0).output();
        let output = start.expect("scripts/cassandra");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("an address").trim().to_owned()
    }

    fn kill(&self, node: usize) {
        let file = self.0.join(format!("node-{node}/pid"));
        let pid =
            std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let killed = Command::new("kill").args(["-9", pid.trim()]).status().expect("kill");
        assert!(killed.success());
    }
}

/// Messages that have left the hot window: once they are copied, only the archive has them.
fn old_messages(batch: usize) -> Vec<v1::Message> {
    let created_at_ms = Some(now_ms() - 8 * DAY_MS);
    (0..MESSAGES).map(|i| v1::Message { created_at_ms, ..message(&format!("{batch}-{i}")) }).collect()
}

fn conversation(batch: usize) -> String {
    format!("c{batch}")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes three nodes: scripts/test-cql-cluster"]
async fn a_node_dies_under_load_and_comes_back_and_another_one_dies_and_nothing_is_lost() {
    let nodes = Nodes::running();
    let url = format!("{}/qim_test_{}?replication_factor=3", nodes.start(), process::id());
    let redis = RedisServer::options().append_only().start();
    let fleet = Fleet::start((1, 2), &redis.url(), &url, &[]);
    let go_on = Arc::new(AtomicBool::new(true));
    let load = tokio::spawn({
        let (mut client, go_on) = (fleet.client(0), go_on.clone());
        async move {
            let mut batches = 0;
            while go_on.load(Ordering::Relaxed) {
                client.import(&conversation(batches), old_messages(batches)).await;
                client.append("now", message(&format!("0-{batches}"))).await;
                batches += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(client.retries, 0, "commits do not wait for the archive");
            batches
        }
    });
    let copied = || {
        fleet.archivers.iter().map(|archiver| archiver.metrics().sum("qim_archived_rows_total", &[])).sum()
    };
    let copies_on = |what: &str| {
        let before: f64 = copied();
        eventually(PATIENCE, what, || copied() > before + 500.0);
    };
    tokio::task::block_in_place(|| {
        copies_on("copied with three nodes");
        nodes.kill(2);
        let killed = Instant::now();
        copies_on("copied with two of three nodes");
        eprintln!("500 more rows were copied {:?} after the kill", killed.elapsed());
        nodes.start();
        copies_on("copied with three nodes again");
    });
    go_on.store(false, Ordering::Relaxed);
    let batches = load.await.expect("every message was committed");
    tokio::task::block_in_place(|| await_settled(&redis));
    // What was written while node 2 was away has to be readable without node 3.
    nodes.kill(3);
    let mut client = fleet.client(0);
    for batch in 0..batches {
        let records = client.pull_all(&conversation(batch)).await;
        let ids: Vec<&str> = records.iter().map(|record| record.client_msg_id.as_str()).collect();
        let expected: Vec<String> = (0..MESSAGES).map(|i| format!("{batch}-{i}")).collect();
        assert_eq!(ids, expected);
    }
    let records = client.pull_all("now").await;
    assert_eq!(records.len(), batches);
    eprintln!("{batches} conversations were read with two of three nodes");
    tokio::task::block_in_place(|| nodes.start());
}
