//! TLS to clients and to Redis, with certificates that the tests make up.

use std::path::Path;

use qim_proto::v1;
use qim_proto::v1::history_client::HistoryClient;
use qim_testkit::{
    Authority, Daemon, Launch, PemFiles, RedisOptions, RedisServer, eventually, eventually_async, free_port,
};
use qim_tests::{PATIENCE, message, pull_all};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A writer whose gRPC port has this certificate.
fn writer(redis: &RedisServer, own: &PemFiles) -> Launch {
    let launch = Launch::writer().env("QIM_REDIS_URL", redis.url()).env("QIM_RELOAD_INTERVAL", "1s");
    launch.env("QIM_TLS_CERT_FILE", shown(&own.cert)).env("QIM_TLS_KEY_FILE", shown(&own.key))
}

/// Connects to it on trust in one authority.
async fn connect(
    daemon: &Daemon,
    trusted: &Authority,
    own: Option<&PemFiles>,
) -> Result<HistoryClient<Channel>, tonic::transport::Error> {
    let url = daemon.grpc_url().replace("http://127.0.0.1", "https://localhost");
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(trusted.pem()));
    if let Some(own) = own {
        let read = |path| std::fs::read(path).unwrap();
        tls = tls.identity(Identity::from_pem(read(&own.cert), read(&own.key)));
    }
    let channel = Channel::from_shared(url).unwrap().tls_config(tls)?.connect().await?;
    Ok(HistoryClient::new(channel))
}

/// Whether a request is answered on a connection of its own. A server that wants a certificate says so only after the
/// connection stands.
async fn works(daemon: &Daemon, trusted: &Authority, own: Option<&PemFiles>) -> bool {
    match connect(daemon, trusted, own).await {
        Ok(mut client) => client.pull(pull_all("c")).await.is_ok(),
        Err(_) => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_reloaded_without_a_restart_and_bad_ones_change_nothing_but_are_told() {
    let (first, second) = (Authority::new(), Authority::new());
    let dir = tempfile::tempdir().unwrap();
    let own = first.certify(dir.path(), "server");
    let redis = RedisServer::start();
    let daemon = writer(&redis, &own).start();
    let mut open = connect(&daemon, &first, None).await.unwrap();
    assert!(works(&daemon, &first, None).await && !works(&daemon, &second, None).await);

    std::fs::write(&own.cert, "no certificate").unwrap();
    eventually(PATIENCE, "it is told", || daemon.readyz().body.starts_with("degraded: certificates: "));
    assert!(
        daemon.readyz().body.contains("QIM_TLS_CERT_FILE holds no PEM certificate"),
        "{:?}",
        daemon.readyz()
    );
    assert!(works(&daemon, &first, None).await, "the one before is in effect still");

    second.certify(dir.path(), "server");
    eventually_async(PATIENCE, "the new one is in effect", || works(&daemon, &second, None)).await;
    assert!(!works(&daemon, &first, None).await);
    eventually(PATIENCE, "all is well", || daemon.readyz().body == "ready\n");
    open.pull(pull_all("c")).await.expect("a connection that was open goes on");
    let refused = daemon.metrics().get("qim_access_refusals_total{reason=\"handshake\"}");
    assert!(refused >= Some(2.0), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_need_a_certificate_of_the_authority_that_is_configured() {
    let (ours, others) = (Authority::new(), Authority::new());
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let own = ours.certify(dir.path(), "server");
    let redis = RedisServer::start();
    let daemon = writer(&redis, &own).env("QIM_TLS_CLIENT_CA_FILE", shown(&ours.write(dir.path()))).start();
    let good = ours.certify(dir.path(), "client");
    let bad = others.certify(elsewhere.path(), "client");
    assert!(works(&daemon, &ours, Some(&good)).await);
    assert!(!works(&daemon, &ours, None).await && !works(&daemon, &ours, Some(&bad)).await);
    let refused = daemon.metrics().get("qim_access_refusals_total{reason=\"handshake\"}");
    assert!(refused >= Some(2.0), "{refused:?}");

    let url = daemon.grpc_url().replace("http://127.0.0.1", "https://localhost");
    let qim = || {
        Launch::program("qim")
            .arg("--server")
            .arg(&url)
            .arg("--ca-file")
            .arg(shown(&dir.path().join("ca.pem")))
    };
    let described = qim()
        .arg("--client-cert-file")
        .arg(shown(&good.cert))
        .arg("--client-key-file")
        .arg(shown(&good.key))
        .arg("describe")
        .arg("c");
    let ended = described.run(PATIENCE);
    assert!(ended.status.success(), "{ended:?}");
    let ended = qim().arg("describe").arg("c").run(PATIENCE);
    assert_eq!(ended.status.code(), Some(69), "{ended:?}");
}

#[test]
fn a_certificate_and_a_key_that_do_not_belong_together_end_the_start() {
    let (authority, dir) = (Authority::new(), tempfile::tempdir().unwrap());
    let (one, other) = (authority.certify(dir.path(), "one"), authority.certify(dir.path(), "other"));
    let redis = RedisServer::start();
    let own = PemFiles { cert: one.cert, key: other.key };
    let ports = |launch: Launch, name: &str| launch.env(name, format!("127.0.0.1:{}", free_port()));
    let launch = ports(ports(writer(&redis, &own), "QIM_LISTEN_ADDR"), "QIM_ADMIN_ADDR");
    let ended = launch.run(PATIENCE);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.contains("QIM_TLS_CERT_FILE and QIM_TLS_KEY_FILE do not fit together"), "{ended:?}");
}

/// A Redis that also speaks TLS, as a node of a cluster to the others as well, and wants a certificate of its clients; and
/// where it does.
fn redis_with_tls(authority: &Authority, dir: &Path, options: RedisOptions) -> (RedisServer, String) {
    let (own, port) = (authority.certify(dir, "redis"), free_port());
    let options = options
        .arg("tls-port", &port.to_string())
        .arg("tls-cluster", "yes")
        .arg("tls-cert-file", &shown(&own.cert))
        .arg("tls-key-file", &shown(&own.key))
        .arg("tls-ca-cert-file", &shown(&authority.write(dir)))
        .arg("tls-auth-clients", "yes");
    let server = options.start();
    let scheme = if server.url().starts_with("redis-cluster:") { "rediss-cluster" } else { "rediss" };
    (server, format!("{scheme}://localhost:{port}"))
}

fn with_certificate(launch: Launch, ca: &Path, own: Option<&PemFiles>) -> Launch {
    let launch = launch.env("QIM_REDIS_CA_FILE", shown(ca));
    match own {
        None => launch,
        Some(own) => launch
            .env("QIM_REDIS_CLIENT_CERT_FILE", shown(&own.cert))
            .env("QIM_REDIS_CLIENT_KEY_FILE", shown(&own.key)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_daemons_reach_redis_over_tls_with_a_certificate_of_their_own() {
    reach_redis_over_tls(RedisServer::options()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_daemons_reach_a_redis_cluster_over_tls_with_a_certificate_of_their_own() {
    reach_redis_over_tls(RedisServer::options().whole_cluster()).await;
}

async fn reach_redis_over_tls(redis: RedisOptions) {
    let (authority, dir) = (Authority::new(), tempfile::tempdir().unwrap());
    let (_redis, url) = redis_with_tls(&authority, dir.path(), redis);
    let (ca, own) = (dir.path().join("ca.pem"), authority.certify(dir.path(), "qim"));
    let archive = format!("sqlite:{}", dir.path().join("archive.db").display());
    let launch = |launch: Launch| {
        let launch = launch.env("QIM_REDIS_URL", &url).env("QIM_ARCHIVE_URL", &archive);
        with_certificate(launch, &ca, Some(&own))
    };
    let writer = launch(Launch::writer()).start();
    let archiver = launch(Launch::archiver()).env("QIM_COPY_DELAY", "0s").start();
    let mut client = HistoryClient::connect(writer.grpc_url()).await.unwrap();
    let messages = vec![message("1"), message("2")];
    let append = v1::AppendRequest { conversation: "c".into(), messages, ..Default::default() };
    client.append(append).await.unwrap();
    eventually(PATIENCE, "they are archived", || {
        archiver.metrics().get("qim_archived_rows_total") == Some(2.0)
    });

    let stranger = Authority::new();
    let elsewhere = tempfile::tempdir().unwrap();
    for (ca, own) in [
        (ca.clone(), None),
        (stranger.write(elsewhere.path()), Some(&own)),
        (ca.clone(), Some(&stranger.certify(elsewhere.path(), "qim"))),
    ] {
        let launch = with_certificate(Launch::archiver().env("QIM_REDIS_URL", &url), &ca, own);
        let ended = launch.env("QIM_ADMIN_ADDR", format!("127.0.0.1:{}", free_port())).run(PATIENCE);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.stderr.contains(&format!("hot tier at {url}")), "{ended:?}");
    }
}

/// A Redis and a writer that trust one authority go over to another one, the writer first.
async fn change_authority(redis: RedisOptions) {
    let (first, second) = (Authority::new(), Authority::new());
    let (of_redis, of_writer) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (redis, url) = redis_with_tls(&first, of_redis.path(), redis);
    let (ca, own) = (first.write(of_writer.path()), first.certify(of_writer.path(), "qim"));
    let launch = Launch::writer().env("QIM_REDIS_URL", &url).env("QIM_RELOAD_INTERVAL", "1s");
    let writer = with_certificate(launch, &ca, Some(&own)).start();
    let mut client = HistoryClient::connect(writer.grpc_url()).await.unwrap();
    let append = |id| v1::AppendRequest {
        conversation: "c".into(),
        messages: vec![message(id)],
        ..Default::default()
    };
    client.append(append("1")).await.unwrap();

    second.write(of_writer.path());
    second.certify(of_writer.path(), "qim");
    let is_told = || writer.readyz().body.starts_with("degraded: redis_certificates: ");
    eventually(PATIENCE, "it is told that Redis does not take them", is_told);
    client.append(append("2")).await.expect("those before are in effect");

    let ca = shown(&second.write(of_redis.path()));
    let files = second.certify(of_redis.path(), "redis");
    let (cert, key) = (shown(&files.cert), shown(&files.key));
    let set = ["CONFIG", "SET", "tls-ca-cert-file", &ca, "tls-cert-file", &cert, "tls-key-file", &key];
    assert_eq!(redis.command(&set).texts(), ["OK"]);
    eventually(PATIENCE, "all is well", || writer.readyz().body == "ready\n");
    // Nobody comes in with the first ones any more.
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let works = async || client.clone().append(append("3")).await.is_ok();
    eventually_async(PATIENCE, "it has connected with the second ones", works).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_for_redis_are_reloaded_and_those_that_it_does_not_take_change_nothing() {
    change_authority(RedisServer::options()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_for_a_redis_cluster_are_reloaded_and_those_that_it_does_not_take_change_nothing() {
    change_authority(RedisServer::options().whole_cluster()).await;
}
