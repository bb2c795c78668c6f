//! What only a server that speaks CQL shows: TTLs, timestamps, null columns, the schema.

use std::time::Duration;

use qim_core::{ConversationKey, RetentionClass, UnixMillis};
use qim_store::archive::{ArchiveError, Direction, PutReport};
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;

use crate::backend::{
    Cluster, Subject, fresh_conversation, now, on_cql, open, row_of, runtime, server_url, unused_keyspace,
};
use crate::cases::{ALL, range, readable, seqs};
use crate::messages::{DAY, Draft, RETENTION, records};

const SECOND: Duration = Duration::from_secs(1);

/// The rows of a query past the archive; `KS.` stands for the keyspace.
async fn select<R>(cluster: &Cluster, cql: &str) -> Vec<R>
where
    R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
{
    query(&cluster.session, &cql.replace("KS.", &cluster.prefix())).await
}

async fn query<R>(session: &Session, cql: &str) -> Vec<R>
where
    R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
{
    let result = session.query_unpaged(cql, ()).await.unwrap().into_rows_result().unwrap();
    result.rows::<R>().unwrap().map(Result::unwrap).collect()
}

/// TTL and write time of a record; `None` when its row is gone.
async fn ttl_of(
    cluster: &Cluster,
    table: &str,
    conversation: &ConversationKey,
    seq: u64,
) -> Option<(Option<i32>, i64)> {
    let row = row_of(conversation, seq);
    let cql = format!("SELECT ttl(record), writetime(record) FROM KS.{table} WHERE {row}");
    select(cluster, &cql).await.first().copied()
}

#[test]
fn a10_the_ttl_is_the_time_left() {
    on_cql(async |Subject { store, conversation, .. }| {
        let cluster = Cluster::shared().await;
        let begun = now();
        let drafts = [
            Draft::new(1, begun),
            Draft::new(2, begun - 29 * DAY),
            Draft::new(3, begun - DAY / 2).class(RetentionClass::Ephemeral24h),
            Draft::new(4, begun - RETENTION + Duration::from_mins(1)),
        ];
        let put: Vec<_> = drafts.into_iter().map(|draft| draft.commit(&conversation)).collect();
        store.put(&conversation, &put, begun).await.unwrap();
        for record in &put {
            let (ttl, written_at) = ttl_of(&cluster, "records", &conversation, record.seq).await.unwrap();
            let left = record.encoded.expires_at().unwrap().since(now());
            let ttl = Duration::from_secs(ttl.unwrap().try_into().unwrap());
            assert!(ttl.abs_diff(left) <= 2 * SECOND, "{ttl:?} where {left:?} are left");
            assert_eq!(written_at, record.encoded.created_at().as_i64() * 1000);
        }
    });
}

#[test]
fn a10_a_repeated_put_does_not_prolong_a_row() {
    on_cql(async |Subject { store, conversation, now: begun, .. }| {
        let cluster = Cluster::shared().await;
        let put = records(&conversation, [1], begun);
        store.put(&conversation, &put, begun).await.unwrap();
        tokio::time::sleep(2 * SECOND).await;
        let (before, _) = ttl_of(&cluster, "records", &conversation, 1).await.unwrap();
        // By a caller whose clock is a day behind.
        store.put(&conversation, &put, begun - DAY).await.unwrap();
        let (after, _) = ttl_of(&cluster, "records", &conversation, 1).await.unwrap();
        assert!(after <= before, "{after:?} after {before:?}");
    });
}

#[test]
fn a10_an_expired_record_is_written_with_one_second_and_goes() {
    on_cql(async |Subject { store, conversation, now: begun, .. }| {
        let cluster = Cluster::shared().await;
        store.put(&conversation, &records(&conversation, [1], begun - RETENTION), begun).await.unwrap();
        match ttl_of(&cluster, "records", &conversation, 1).await {
            None | Some((Some(0..=1), _)) => {}
            other => panic!("an expired row has the TTL {other:?}"),
        }
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(ttl_of(&cluster, "records", &conversation, 1).await, None);
    });
}

#[test]
fn a10_a_row_stays_until_its_date_and_goes_within_five_seconds() {
    on_cql(async |Subject { store, conversation, .. }| {
        let cluster = Cluster::shared().await;
        // Late in a second, and the date earlier in one: counted from the server's full second, the time left would
        // be too short by most of a second.
        while now().get() % 1000 < 800 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let begun = now();
        let date = begun + Duration::from_millis(4700);
        let put = records(&conversation, [1], date - RETENTION);
        store.put(&conversation, &put, begun).await.unwrap();
        let there = async || ttl_of(&cluster, "records", &conversation, 1).await.is_some();
        loop {
            let asked_at = now();
            if asked_at + Duration::from_millis(100) >= date {
                break;
            }
            assert!(there().await || now() >= date, "the row went before its date");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_millis(4500)).await;
        assert!(!there().await, "the row outlived its date");
        let index = format!(
            "SELECT bucket FROM KS.conversations WHERE tenant = 'acme' AND conversation = '{}'",
            conversation.conversation()
        );
        // What is left is the high-water mark.
        let buckets: Vec<(Option<i64>,)> = select(&cluster, &index).await;
        assert_eq!(buckets, [(None,)]);
        assert_eq!(store.high_water(&conversation).await.unwrap(), 1);
    });
}

#[test]
fn a11_held_rows_have_no_ttl() {
    on_cql(async |Subject { store, conversation, now: begun, .. }| {
        let cluster = Cluster::shared().await;
        let put: Vec<_> = (1..=3)
            .map(|seq| Draft::new(seq, begun).class(RetentionClass::ComplianceHold).commit(&conversation))
            .collect();
        // One at a time, and in a batch.
        store.put(&conversation, &put[..1], begun).await.unwrap();
        store.put(&conversation, &put[1..], begun).await.unwrap();
        for seq in 1..=3 {
            let (ttl, _) = ttl_of(&cluster, "held_records", &conversation, seq).await.unwrap();
            assert_eq!(ttl, None);
            assert_eq!(ttl_of(&cluster, "records", &conversation, seq).await, None);
        }
        let defaults = format!(
            "SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = '{}'",
            cluster.url.keyspace
        );
        assert_eq!(select::<(i32,)>(&cluster, &defaults).await, [(0,); 6]);
    });
}

#[test]
fn a_date_beyond_what_the_server_can_expire_is_clamped_and_counted() {
    on_cql(async |Subject { store, conversation, now: begun, .. }| {
        let cluster = Cluster::shared().await;
        let last_second = UnixMillis::new(2_147_483_646_000); // 2038-01-19T03:14:06Z
        let put: Vec<_> = [(1, last_second - 2 * RETENTION), (2, last_second)]
            .map(|(seq, created_at)| Draft::new(seq, created_at).commit(&conversation))
            .into();
        let report = store.put(&conversation, &put, begun).await.unwrap();
        let modes = "SELECT value FROM system_views.settings WHERE name = 'storage_compatibility_mode'";
        let is_limited = match cluster.session.query_unpaged(modes, ()).await {
            Ok(_) => {
                // Null where it is the default.
                let modes: Vec<(Option<String>,)> = query(&cluster.session, modes).await;
                modes.first().is_none_or(|(mode,)| mode.as_deref().is_none_or(|mode| mode == "CASSANDRA_4"))
            }
            Err(_) => false,
        };
        assert_eq!(report, PutReport { written: 2, unchanged: 0, clamped: u64::from(is_limited) });
        let (ttl, _) = ttl_of(&cluster, "records", &conversation, 2).await.unwrap();
        let until = begun + Duration::from_secs(ttl.unwrap().try_into().unwrap());
        if is_limited {
            assert!(until <= last_second && last_second.since(until) < Duration::from_mins(3), "{until}");
        }
        assert_eq!(
            seqs(&store.read(&conversation, ALL, Direction::Forwards, 9, begun).await.unwrap()),
            [1, 2]
        );
    });
}

#[test]
fn rows_with_null_columns_are_damaged() {
    on_cql(async |subject| {
        let cluster = Cluster::shared().await;
        let Subject { store, conversation, now: begun, .. } = &subject;
        let mut put = records(conversation, 1..=4, *begun);
        put.push(Draft::new(5, *begun).class(RetentionClass::ComplianceHold).commit(conversation));
        store.put(conversation, &put, *begun).await.unwrap();
        for (seq, table, column) in
            [(1, "records", "record"), (2, "records", "expires_at"), (5, "held_records", "record")]
        {
            cluster
                .run(&format!("DELETE {column} FROM KS.{table} WHERE {}", row_of(conversation, seq)))
                .await;
        }
        let page = store.read(conversation, ALL, Direction::Forwards, 10, *begun).await.unwrap();
        assert_eq!(seqs(&page), [3, 4]);
        assert_eq!(page.damaged.iter().map(|row| row.seq).collect::<Vec<_>>(), [1, 2, 5]);
        let page = store.read(conversation, ALL, Direction::Forwards, 10, *begun + RETENTION).await.unwrap();
        assert_eq!((seqs(&page), page.damaged.len()), (vec![], 1));
        // Whoever looks for these rows finds that something is missing, and is not told that they are in order.
        let marks = store.marks(conversation, range(1, 10), *begun).await.unwrap();
        assert_eq!(marks.iter().map(|mark| mark.seq).collect::<Vec<_>>(), [3, 4]);
        let error = store.put(conversation, &put[..1], *begun).await.unwrap_err();
        assert!(matches!(error, ArchiveError::Conflict { seq: 1 }), "{error}");
    });
}

#[test]
fn a_row_that_is_in_both_tables_is_served_once_and_as_held() {
    on_cql(async |subject| {
        let cluster = Cluster::shared().await;
        let Subject { store, conversation, now: begun, .. } = &subject;
        store.put(conversation, &records(conversation, 1..=3, *begun), *begun).await.unwrap();
        let held = Draft::new(9, *begun).class(RetentionClass::ComplianceHold).commit(conversation);
        store.put(conversation, std::slice::from_ref(&held), *begun).await.unwrap();
        let hex: String = held.encoded.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let row = row_of(conversation, 2);
        cluster.run(&format!("UPDATE KS.held_records SET record = 0x{hex} WHERE {row}")).await;
        for direction in [Direction::Forwards, Direction::Backwards] {
            let page = store.read(conversation, ALL, direction, 10, *begun).await.unwrap();
            assert_eq!(seqs(&page), [1, 2, 3, 9]);
            assert_eq!(page.records[1].message(), crate::messages::read(&held).message());
        }
        let marks = store.marks(conversation, range(1, 10), *begun).await.unwrap();
        let dates: Vec<_> = marks.iter().map(|mark| (mark.seq, mark.expires_at.is_none())).collect();
        assert_eq!(dates, [(1, false), (2, true), (3, false), (9, true)]);
        assert_eq!(readable(&subject, *begun + RETENTION).await, [2, 9]);
    });
}

#[test]
fn dead_buckets_are_not_read_for_the_earliest_record() {
    on_cql(async |subject| {
        let cluster = Cluster::shared().await;
        let Subject { store, conversation, now: begun, .. } = &subject;
        // Many buckets of records that are about to expire, and a live one behind them.
        let old: Vec<u64> = (0..400).map(|n| 1 + n * 4096).collect();
        let soon = *begun - RETENTION + 4 * SECOND;
        store.put(conversation, &records(conversation, old, soon), *begun).await.unwrap();
        store.put(conversation, &records(conversation, [2_000_000], *begun), *begun).await.unwrap();
        assert_eq!(store.earliest(conversation, ALL, *begun).await.unwrap().unwrap().seq, 1);
        tokio::time::sleep(5 * SECOND).await;
        let index = format!(
            "SELECT bucket FROM KS.conversations WHERE tenant = 'acme' AND conversation = '{}'",
            conversation.conversation()
        );
        assert_eq!(select::<(i64,)>(&cluster, &index).await, [(2_000_000 / 4096,)]);
        assert_eq!(store.earliest(conversation, ALL, now()).await.unwrap().unwrap().seq, 2_000_000);
        assert_eq!(readable(&subject, now()).await, [2_000_000]);
    });
}

#[test]
fn a_page_below_the_floor_asks_for_the_index_once() {
    on_cql(async |Subject { store, conversation, now: begun, .. }| {
        let cluster = Cluster::shared().await;
        let put: Vec<_> = [
            (1, RetentionClass::Default),
            (2, RetentionClass::ComplianceHold),
            (5000, RetentionClass::Default),
        ]
        .map(|(seq, class)| Draft::new(seq, begun).class(class).commit(&conversation))
        .into();
        store.put(&conversation, &put, begun).await.unwrap();
        let page = async |below, direction| {
            let page = store
                .read_settled(
                    &conversation,
                    range(1, below),
                    direction,
                    (9, qim_core::PayloadForm::Plain),
                    begun,
                )
                .await;
            seqs(&page.unwrap())
        };
        assert_eq!(page(5001, Direction::Backwards).await, [1, 2, 5000]);
        cluster
            .run(&format!(
                "DELETE FROM KS.conversations WHERE tenant = 'acme' AND conversation = '{}'",
                conversation.conversation()
            ))
            .await;
        let asked = store.read(&conversation, range(1, 5001), Direction::Backwards, 9, begun).await.unwrap();
        assert_eq!(seqs(&asked), Vec::<u64>::new());
        for direction in [Direction::Forwards, Direction::Backwards] {
            assert_eq!(page(5001, direction).await, [1, 2, 5000]);
            assert_eq!(page(5000, direction).await, [1, 2]);
        }
        // What was not looked at is not known.
        assert_eq!(page(6000, Direction::Backwards).await, Vec::<u64>::new());
    });
}

#[test]
fn the_schema_is_made_once_and_then_left_alone() {
    runtime().block_on(async {
        let cluster = Cluster::shared().await;
        let mut url = server_url(&unused_keyspace());
        let replication = format!(
            "SELECT replication['replication_factor'], replication['datacenter1'] \
             FROM system_schema.keyspaces WHERE keyspace_name = '{}'",
            url.keyspace
        );
        let factor = async || {
            let found: Vec<(Option<String>, Option<String>)> = query(&cluster.session, &replication).await;
            found.into_iter().next().and_then(|(all, one)| all.or(one)).unwrap()
        };
        open(&url).prepare().await.unwrap();
        assert_eq!(factor().await, "1");
        url.replication_factor = 2;
        let store = open(&url);
        store.prepare().await.unwrap();
        assert_eq!(factor().await, "1");
        // The name is not case-sensitive, as usual in CQL.
        url.keyspace = url.keyspace.to_uppercase();
        open(&url).ping().await.unwrap();
        // One node cannot keep two copies; that is how the server says it was asked to.
        let mut url = server_url(&unused_keyspace());
        url.replication_factor = 2;
        let error = open(&url).prepare().await.unwrap_err();
        assert!(matches!(error, ArchiveError::Unavailable(_)), "{error}");
        cluster.run(&format!("DROP KEYSPACE {}", url.keyspace)).await;
    });
}

#[test]
fn a_newer_schema_is_refused() {
    runtime().block_on(async {
        let cluster = Cluster::shared().await;
        let url = server_url(&unused_keyspace());
        open(&url).prepare().await.unwrap();
        let keyspace = &url.keyspace;
        cluster.run(&format!("UPDATE {keyspace}.schema_version SET version = 3 WHERE id = 1")).await;
        let store = open(&url);
        for _ in 0..2 {
            let error = store.prepare().await.unwrap_err();
            assert!(matches!(error, ArchiveError::SchemaTooNew { found: 3, known: 2 }), "{error}");
        }
        let error = store.high_water(&fresh_conversation()).await.unwrap_err();
        assert!(!error.is_retryable(), "{error}");
        cluster.run(&format!("DROP KEYSPACE {keyspace}")).await;
    });
}

#[test]
fn a_missing_table_is_refused_and_not_retried() {
    runtime().block_on(async {
        let cluster = Cluster::shared().await;
        let url = server_url(&unused_keyspace());
        let store = open(&url);
        let conversation = fresh_conversation();
        store.put(&conversation, &records(&conversation, [1], now()), now()).await.unwrap();
        cluster.run(&format!("DROP TABLE {}.records", url.keyspace)).await;
        let error = store.put(&conversation, &records(&conversation, [2], now()), now()).await.unwrap_err();
        assert!(matches!(error, ArchiveError::Refused(_)), "{error}");
        // The next program finds it missing, and makes it.
        open(&url).put(&conversation, &records(&conversation, [2], now()), now()).await.unwrap();
        store.put(&conversation, &records(&conversation, [3], now()), now()).await.unwrap();
        cluster.run(&format!("DROP KEYSPACE {}", url.keyspace)).await;
    });
}
