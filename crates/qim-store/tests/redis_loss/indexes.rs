//! A shard moves key by key from one node of a cluster to another. Where that one loses data just then, some of its keys are
//! there without the others.

use std::collections::BTreeSet;

use crate::support::*;
use crate::{Writer, check};

#[tokio::test]
async fn a_list_that_is_left_without_its_index_entries_is_entered_again() {
    let tiers = tiers();
    let mut writer = Writer::of(tiers.store.clone());
    // What the archive has of it, no writer puts back.
    writer.send("partly", 0..2).await;
    copy_all(&writer.store, &conversation("partly"), NOW).await;
    writer.send("partly", 2..3).await;
    writer.send("acknowledged", 3..6).await;
    let mut another = Writer::beside(&tiers);
    let names = ["unarchived", "trim"];
    for name in names {
        (0..4).for_each(|shard| _ = tiers.redis.command(&["DEL", &format!("qim:{{{shard}}}:{name}")]));
    }
    tiers.redis.kill();
    tiers.redis.restart();
    for id in ["partly", "acknowledged"] {
        // One comes back to what is put back, the other one to what was settled.
        another.send_until_taken(&[&writer], id, &format!("again-{id}")).await;
    }
    for name in names {
        let members = index(&tiers.redis, name).await.into_iter().map(|(member, _)| member);
        assert_eq!(
            members.collect::<BTreeSet<_>>(),
            ["acknowledged", "partly"].map(String::from).into(),
            "{name}"
        );
    }
    check(&[&writer, &another]).await;
    for id in ["partly", "acknowledged"] {
        copy_all(&writer.store, &conversation(id), NOW).await;
        let marks = writer.store.marks(&conversation(id), NOW).await.unwrap();
        assert_eq!(marks.archived, marks.last);
    }
}
