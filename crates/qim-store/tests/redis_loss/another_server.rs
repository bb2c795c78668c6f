//! Another server stands at the address, and it has a history of its own.

use std::time::Duration;

use qim_store::TieredMessageStore;
use qim_store::hot::HotError;
use qim_store::tiered::TieredCommitError;
use qim_testkit::{FaultProxy, RedisServer};

use crate::support::*;
use crate::{Writer, check, connect_again, copy, until_it_follows};

/// What other deployments, or those who tried a copy out, leave behind: lineages that are in order, and not this writer's.
#[tokio::test]
async fn another_server_with_a_history_of_its_own_is_noticed_and_so_is_the_first_one_when_it_is_back() {
    let own = tiers();
    let link = FaultProxy::start(own.redis.addr());
    let url = format!("sqlite:{}", own.dir.path().join("archive.db").display());
    let hot = connect_to(&own.redis.url_by(link.addr()));
    let mut writer = Writer::of(TieredMessageStore::with_trim(hot, open_archive(&url), WINDOW));
    writer.send("c", 0..3).await;
    let copy_of_it = own.redis.append_only_file();
    writer.send("c", 3..5).await;

    let founded = tiers();
    Writer::of(founded.store.clone()).send("theirs", 0..2).await;
    // Somebody goes on with a copy, and its quarantine is over.
    let copied = tiers();
    copied.redis.kill();
    copied.redis.set_append_only_file(&copy_of_it);
    copied.redis.restart();
    let copied_url = format!("sqlite:{}", copied.dir.path().join("archive.db").display());
    let theirs =
        TieredMessageStore::with_trim(connect_again(&copied.redis), open_archive(&copied_url), WINDOW);
    Writer::of(theirs).send_until_taken(&[], "theirs", "id-0").await;

    let mut last = 5;
    for (i, there) in [&founded, &own, &copied].into_iter().enumerate() {
        link.lead_to(there.redis.addr());
        let first_try = writer.try_send("c", &format!("id-{}", 5 + i)).await;
        assert!(
            matches!(
                &first_try,
                Err(TieredCommitError::Hot(HotError::Checking { .. } | HotError::Unavailable(_)))
            ),
            "{first_try:?}"
        );
        // What is put back is copied, so that it can make room: the writers of the other servers are missed, and it goes on
        // higher up.
        let mut seq = None;
        while seq.is_none() {
            tokio::time::sleep(Duration::from_millis(200)).await;
            writer.look().await;
            if writer.store.marks(&conversation("c"), NOW).await.is_ok_and(|marks| marks.last > 0) {
                copy(&writer, "c").await;
            }
            seq = writer.try_send("c", &format!("id-{}", 5 + i)).await.ok();
        }
        assert!(seq > Some(last), "seq {seq:?} after {last}");
        last = seq.unwrap();
        check(&[&writer]).await;
    }
}

/// Its connection would live as long as the old master does.
#[tokio::test]
async fn a_writer_does_not_stay_with_a_master_that_lives_on_as_a_replica() {
    let own = tiers();
    let replica = RedisServer::options().append_only().start();
    let follow = |follower: &RedisServer, master: &RedisServer| {
        let (host, port) = (master.addr().ip().to_string(), master.addr().port().to_string());
        follower.command(&["REPLICAOF", &host, &port]);
    };
    follow(&replica, &own.redis);
    until_it_follows(&replica);
    let link = FaultProxy::start(own.redis.addr());
    let url = format!("sqlite:{}", own.dir.path().join("archive.db").display());
    let hot = connect_to(&own.redis.url_by(link.addr()));
    let mut writer = Writer::of(TieredMessageStore::with_trim(hot, open_archive(&url), WINDOW));
    writer.send("c", 0..3).await;
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    follow(&own.redis, &replica);
    until_it_follows(&own.redis);
    link.lead_new_ones_to(replica.addr());
    assert_eq!(writer.send_until_taken(&[], "c", "id-3").await, 4);
    check(&[&writer]).await;
}
