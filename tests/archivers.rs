//! Several archivers share the shards.

use qim_testkit::{Daemon, Launch, RedisServer, eventually};
use qim_tests::PATIENCE;

/// A few shards, so that what one archiver has too few of is not made up for by chance.
const SHARDS: f64 = 4.0;

fn archiver(redis: &RedisServer, name: &str, dir: &tempfile::TempDir) -> Daemon {
    Launch::archiver()
        .env("QIM_REDIS_URL", redis.url())
        .env("QIM_ARCHIVE_URL", format!("sqlite:{}", dir.path().join("archive.db").display()))
        .env("QIM_SHARDS", SHARDS.to_string())
        .env("QIM_INSTANCE", name)
        .start()
}

fn held(archiver: &Daemon) -> f64 {
    archiver.metrics().get("qim_leases_held").unwrap_or(0.0)
}

/// An archiver begins to ask where its name says: "a" at the second shard, "b" at the third, and so on. Wherever that is,
/// it finds the shards that the other one gave up.
#[test]
fn a_second_archiver_takes_the_shards_that_the_first_one_gives_up_whichever_they_are() {
    for name in ["a", "b", "c", "d"] {
        let (redis, dir) = (RedisServer::options().append_only().start(), tempfile::tempdir().unwrap());
        let first = archiver(&redis, "first", &dir);
        eventually(PATIENCE, "the first has all of them", || held(&first) >= SHARDS);
        let second = archiver(&redis, name, &dir);
        eventually(PATIENCE, "each has its half", || {
            (held(&first), held(&second)) == (SHARDS / 2.0, SHARDS / 2.0)
        });
    }
}
