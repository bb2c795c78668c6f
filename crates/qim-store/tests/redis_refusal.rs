//! A Redis that does not let the store in for a while.

mod support;

use qim_core::RetentionClass::Default as DefaultClass;
use qim_store::hot::{CommitError, HotError};
use qim_testkit::RedisServer;
use support::*;

#[tokio::test]
async fn a_store_that_was_not_let_in_for_a_while_is_let_in_again() {
    let redis = RedisServer::options().append_only().start();
    let url = redis.url().replace("redis://", "redis://app:right@");
    redis.command(&["ACL", "SETUSER", "app", "on", ">right", "~*", "&*", "+@all"]);
    let store = connect_to(&url);
    let conv = conversation("c");
    let commit = async |id: &str| store.commit(&conv, &[draft(id, DefaultClass, NOW)], NOW, None).await;
    commit("1").await.unwrap();

    redis.command(&["ACL", "SETUSER", "app", "resetpass", ">another"]);
    redis.command(&["CLIENT", "KILL", "USER", "app"]);
    let mut refused = false;
    for _ in 0..3 {
        match commit("2").await {
            Err(CommitError::Hot(HotError::Refused(_))) => refused = true,
            Err(CommitError::Hot(HotError::Unavailable(_))) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(refused, "the password is wrong");

    redis.command(&["ACL", "SETUSER", "app", "resetpass", ">right"]);
    let mut tries = 0;
    while let Err(error) = commit("2").await {
        tries += 1;
        assert!(tries < 20, "it is never let in again: {error}");
    }
    assert_eq!(commit("3").await.unwrap()[0].seq, 3);
}
