const VARIABLE: &str = "QIM_TEST_CQL_URL";

/// The CQL server that tests may use, `scylla://HOST:PORT`, from `QIM_TEST_CQL_URL`.
pub fn cql_url() -> String {
    let url = std::env::var(VARIABLE).unwrap_or_default();
    assert!(
        url.starts_with("scylla://"),
        "this test needs a CQL server: `export {VARIABLE}=$(scripts/cassandra start)` starts one, and \
         `scripts/cassandra stop` ends it (or name a ScyllaDB or Cassandra of yours: scylla://HOST:PORT)"
    );
    url.trim_end_matches('/').to_owned()
}

/// The same with a keyspace, which should be the test's own: the server is shared.
pub fn cql_keyspace_url(keyspace: &str) -> String {
    format!("{}/{keyspace}", cql_url())
}
