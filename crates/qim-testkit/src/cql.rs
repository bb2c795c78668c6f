use std::fs;
use std::path::PathBuf;

const VARIABLE: &str = "QIM_TEST_CQL_URL";
const SECURE_VARIABLE: &str = "QIM_TEST_CQL_SECURE_DIR";

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

/// A CQL server that wants TLS and a password.
#[derive(Debug, Clone)]
pub struct SecureCql {
    /// `HOST:PORT`.
    pub node: String,
    /// The only authority to trust, PEM.
    pub ca_file: PathBuf,
}

impl SecureCql {
    /// Its superuser, and that one's password, as the server comes.
    pub const SUPERUSER: [&str; 2] = ["cassandra", "cassandra"];

    /// The one that tests may use, from `QIM_TEST_CQL_SECURE_DIR`.
    pub fn of_environment() -> Self {
        let dir = PathBuf::from(std::env::var_os(SECURE_VARIABLE).unwrap_or_default());
        let port = fs::read_to_string(dir.join("port")).unwrap_or_else(|error| {
            panic!(
                "this test needs a CQL server with TLS: `scripts/cassandra start --secure --dir DIR` starts one; \
                 then `export {SECURE_VARIABLE}=DIR` ({error})"
            )
        });
        Self { node: format!("127.0.0.1:{}", port.trim()), ca_file: dir.join("tls/ca.pem") }
    }
}

/// [`cql_url`] with a keyspace, which should be the test's own: the server is shared.
pub fn cql_keyspace_url(keyspace: &str) -> String {
    format!("{}/{keyspace}", cql_url())
}
