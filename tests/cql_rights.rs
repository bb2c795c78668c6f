//! The user of deploy/cql/qim.cql, over TLS, has all the rights that qim needs of a CQL server, and no more.

use std::process;
use std::sync::Arc;

use qim_testkit::{Authority, Launch, RedisServer, SecureCql, eventually, eventually_async, free_port};
use qim_tests::{PATIENCE, Pair, demo_file, unique};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use serde_json::json;

const SETUP: &str = include_str!("../deploy/cql/qim.cql");
const PASSWORD: &str = "choose a password";

async fn session(server: &SecureCql, [user, password]: [&str; 2]) -> Option<Session> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&server.ca_file).unwrap()).unwrap();
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let builder = SessionBuilder::new().known_node(&server.node).tls_context(Some(Arc::new(tls)));
    builder.user(user, password).build().await.ok()
}

/// Does what the file says, under another name for keyspace and user: the server is shared.
async fn set_up(server: &SecureCql, name: &str) -> Session {
    let superuser = || session(server, SecureCql::SUPERUSER);
    eventually_async(PATIENCE, "the superuser is there", async || superuser().await.is_some()).await;
    let session = superuser().await.unwrap();
    let setup: String = SETUP.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
    for statement in setup.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
        let words = statement.split(' ').map(|word| if word == "qim" { name } else { word });
        let statement =
            words.collect::<Vec<_>>().join(" ").replace("EXISTS qim\n", &format!("EXISTS {name}\n"));
        session
            .query_unpaged(statement.as_str(), ())
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    session
}

/// As the file says: the administrator has the command make them.
fn make_tables(server: &SecureCql, name: &str) {
    let [user, password] = SecureCql::SUPERUSER;
    let redis = RedisServer::start();
    let launch = Launch::program("qim").arg("dictionary").arg("list").env("QIM_REDIS_URL", redis.url());
    let launch = launch
        .env("QIM_ARCHIVE_URL", format!("scyllas://{user}:{password}@{}/{name}", server.node))
        .env("QIM_ARCHIVE_CA_FILE", server.ca_file.display().to_string())
        .env("QIM_ARCHIVE_TIMEOUT", "1m");
    let ended = launch.run(PATIENCE);
    assert!(ended.status.success(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_archive_is_used_over_tls_by_a_user_with_these_rights() {
    let server = SecureCql::of_environment();
    let name = format!("qim_test_{}_{}", process::id(), unique());
    let superuser = set_up(&server, &name).await;
    let url = format!("scyllas://{name}:{}@{}/{name}", PASSWORD.replace(' ', "%20"), server.node);
    let ca = server.ca_file.display().to_string();
    make_tables(&server, &name);
    let pair = Pair::options().archive_url(&url).env("QIM_ARCHIVE_CA_FILE", &ca).start();
    let file = demo_file(&pair.writer, 1_000, 3);
    let path = file.to_str().unwrap();
    assert_eq!(pair.qim_json(&["import", path])["failed"], 0);
    pair.await_settled();
    let report = pair.qim_json(&["verify", path]);
    assert_eq!((&report["missing"], &report["different"]), (&json!(0), &json!(0)), "{report}");
    assert!(pair.archiver.metrics().get("qim_archived_rows_total") > Some(100.0));

    let own = session(&server, [&name, PASSWORD]).await.unwrap();
    for statement in [
        format!("CREATE TABLE {name}.other (a int PRIMARY KEY)"),
        format!("DROP TABLE {name}.records"),
        format!("ALTER TABLE {name}.records ADD extra int"),
        format!("DROP KEYSPACE {name}"),
        "CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
            .to_owned(),
        "SELECT * FROM system_auth.roles".to_owned(),
        format!("GRANT ALTER ON KEYSPACE {name} TO {name}"),
        "CREATE ROLE other".to_owned(),
    ] {
        let refused = own.query_unpaged(statement.as_str(), ()).await.expect_err(&statement).to_string();
        assert!(refused.contains("doesn't have the right"), "{statement}: {refused}");
    }
    superuser.query_unpaged(format!("DROP KEYSPACE {name}"), ()).await.unwrap();
    superuser.query_unpaged(format!("DROP ROLE {name}"), ()).await.unwrap();
}

#[test]
fn an_archive_that_is_not_trusted_is_not_used() {
    let server = SecureCql::of_environment();
    let dir = tempfile::tempdir().unwrap();
    let stranger = Authority::new().write(dir.path());
    let redis = RedisServer::start();
    let url = |scheme: &str| format!("{scheme}://cassandra:cassandra@{}/qim", server.node);
    let launch = || {
        Launch::archiver()
            .env("QIM_REDIS_URL", redis.url())
            .env("QIM_ARCHIVE_TIMEOUT", "3s")
            .env("QIM_ADMIN_ADDR", format!("127.0.0.1:{}", free_port()))
    };
    let secure = launch().env("QIM_ARCHIVE_URL", url("scyllas"));
    for daemon in [
        secure.env("QIM_ARCHIVE_CA_FILE", stranger.display().to_string()).start(),
        launch().env("QIM_ARCHIVE_URL", url("scylla")).start(),
    ] {
        let readyz = daemon.readyz();
        assert!(readyz.body.starts_with("degraded: archive: "), "{readyz:?}");
        assert!(!readyz.body.contains("cassandra:cassandra"), "{readyz:?}");
    }
}

#[test]
fn certificates_for_the_archive_are_reloaded_and_those_that_do_not_fit_change_nothing() {
    let server = SecureCql::of_environment();
    let dir = tempfile::tempdir().unwrap();
    let keyspace = format!("qim_test_{}_{}", process::id(), unique());
    let url = format!("scyllas://cassandra:cassandra@{}/{keyspace}", server.node);
    let (good, file) = (std::fs::read_to_string(&server.ca_file).unwrap(), dir.path().join("ca.pem"));
    std::fs::write(&file, &good).unwrap();
    let path = file.display().to_string();
    let options = Pair::options().archive_url(&url).env("QIM_RELOAD_INTERVAL", "1s");
    let pair = options.env("QIM_ARCHIVE_CA_FILE", &path).start();
    let says = |what: &'static str| {
        [&pair.writer, &pair.archiver].iter().all(|daemon| daemon.readyz().body.starts_with(what))
    };
    eventually(PATIENCE, "the archive is there", || says("ready"));

    let stranger = Authority::new().pem();
    std::fs::write(&file, &stranger).unwrap();
    eventually(PATIENCE, "it is told", || says("degraded: archive_certificates: "));
    assert_eq!(pair.qim_json(&["import", demo_file(&pair.writer, 100, 1).to_str().unwrap()])["failed"], 0);
    pair.await_settled();

    std::fs::write(&file, good + &stranger).unwrap();
    eventually(PATIENCE, "both connect with the new ones", || says("ready"));
}
