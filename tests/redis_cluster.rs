//! The daemons on a Redis Cluster of which nodes die.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use qim_core::{ConversationKey, ShardCount, TenantId};
use qim_testkit::{RedisCluster, RedisServer, eventually};
use qim_tests::{Fleet, PATIENCE, cql_keyspace, message};

/// The list of a conversation of tenant `default`.
fn list_key(conversation: &str) -> String {
    let key = ConversationKey::new(TenantId::default(), conversation).expect("an id");
    format!("qim:{{{}}}:c:{conversation}", ShardCount::DEFAULT.shard_of(&key))
}

async fn while_away(away: fn(&RedisServer), back: fn(&RedisServer)) {
    let cluster = RedisCluster::start(3);
    let fleet = Fleet::start((1, 1), &cluster.url(), &cql_keyspace(), &[]);
    let (writer, archiver) = (&fleet.writers[0], &fleet.archivers[0]);
    eventually(PATIENCE, "the archiver has all shards", || fleet.leases() == [256.0]);
    // The node with the deployment's own facts and the list of archivers stays.
    let dead = cluster
        .nodes()
        .iter()
        .find(|node| {
            let has = |key| cluster.primary_of(key).addr() == node.addr();
            !has("qim:deployment") && !has("qim:archivers")
        })
        .expect("two keys are on two nodes at most");
    let names = (0..60).map(|i| format!("c{i}"));
    let (down, up): (Vec<String>, Vec<String>) =
        names.partition(|name| cluster.primary_of(&list_key(name)).addr() == dead.addr());
    assert!(down.len() > 5 && up.len() > 5);
    let mut client = fleet.client(0);
    let copied = || archiver.metrics().get("qim_archived_rows_total").unwrap_or(0.0);
    // Each node has to be there when a deployment begins its first lineages.
    client.append(&up[0], message("zeroth")).await;
    eventually(PATIENCE, "the deployment has begun", || copied() >= 1.0);
    let before = copied();
    away(dead);
    for conversation in &up {
        client.append(conversation, message("first")).await;
    }
    let expected = before + f64::from(u32::try_from(up.len()).unwrap());
    eventually(PATIENCE, "what the other nodes have is copied", || copied() >= expected);
    for daemon in [writer, archiver] {
        eventually(PATIENCE, "it says that something is wrong", || daemon.readyz().body.contains("redis: "));
        let ready = daemon.readyz();
        assert_eq!(ready.status, 200, "{}", ready.body);
        assert!(ready.body.starts_with("degraded: "), "{}", ready.body);
    }
    back(dead);
    for conversation in down.iter().chain(&up) {
        client.append(conversation, message("second")).await;
    }
    let all = f64::from(u32::try_from(down.len() + 2 * up.len()).unwrap());
    eventually(PATIENCE, "everything is copied", || copied() >= before + all);
    eventually(PATIENCE, "nothing is wrong", || writer.readyz().body.starts_with("ready"));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_one_of_three_nodes_is_down_the_shards_of_the_others_are_served_copied_and_in_service() {
    while_away(RedisServer::kill, RedisServer::restart).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_one_of_three_nodes_hangs_the_shards_of_the_others_are_served_copied_and_in_service() {
    while_away(RedisServer::pause, RedisServer::resume).await;
}

/// Redis acknowledges before a replica has a write, so that a primary's death may lose the last of them. The writers put
/// them back: nothing is lost, in another order, or there twice, and no seq is left out.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_dies_under_load_and_clients_that_try_again_go_on_with_its_replica() {
    let cluster = RedisCluster::start_with_replicas(3);
    let fleet = Fleet::start((2, 1), &cluster.url(), &cql_keyspace(), &[]);
    let go_on = Arc::new(AtomicBool::new(true));
    let load: Vec<_> = (0..12)
        .map(|number| {
            let (mut client, go_on) = (fleet.client(number), go_on.clone());
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                while go_on.load(Ordering::Relaxed) {
                    let id = format!("0-{}", acknowledged.len());
                    let committed = client.append(&format!("c{number}"), message(&id)).await;
                    acknowledged.push((committed.seq, id));
                }
                (acknowledged, client.retries)
            })
        })
        .collect();
    let victim = cluster.primary_of(&list_key("c0"));
    tokio::task::block_in_place(|| {
        std::thread::sleep(Duration::from_secs(1));
        victim.kill();
        eventually(PATIENCE, "its replica is the primary", || {
            cluster.primary_of(&list_key("c0")).addr() != victim.addr()
        });
        victim.restart();
        cluster.await_whole();
        std::thread::sleep(Duration::from_secs(1));
    });
    go_on.store(false, Ordering::Relaxed);
    let (mut acknowledged, mut lost, mut retries) = (0, 0, 0);
    for (number, result) in join_all(load).await.into_iter().enumerate() {
        let (answers, tries) = result.expect("every append was committed");
        let records = fleet.client(0).pull_all(&format!("c{number}")).await;
        let seqs: Vec<u64> = records.iter().map(|record| record.seq).collect();
        assert_eq!(seqs, (1..=records.len() as u64).collect::<Vec<_>>(), "c{number}");
        let ids: BTreeSet<&str> = records.iter().map(|record| record.client_msg_id.as_str()).collect();
        assert_eq!(ids.len(), records.len(), "c{number}: a message is twice");
        lost += answers.iter().filter(|(_, id)| !ids.contains(id.as_str())).count();
        acknowledged += answers.len();
        retries += tries;
    }
    let restored: f64 =
        fleet.writers.iter().filter_map(|writer| writer.metrics().get("qim_restored_messages_total")).sum();
    eprintln!("{acknowledged} acknowledged, {restored} of them put back, {retries} tries again");
    assert_eq!(lost, 0);
    assert!(retries > 0, "clients noticed");
    for shard in 0..ShardCount::DEFAULT.get() {
        let key = format!("qim:{{{shard}}}:setaside");
        assert_eq!(cluster.primary_of(&key).command(&["HLEN", &key]).integer(), 0, "{key}");
    }
}
