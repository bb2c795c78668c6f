use std::fs;

use tempfile::NamedTempFile;

use crate::config::{ConfigFaults, DaemonConfig, Environment, SharedConfig, WriterConfig};

fn file(content: &str) -> (NamedTempFile, String) {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), content).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    (file, path)
}

fn writer(pairs: &[(&str, &str)]) -> Result<WriterConfig, ConfigFaults> {
    WriterConfig::from_environment(&Environment::from_pairs(pairs.iter().copied()))
}

fn lines(pairs: &[(&str, &str)]) -> Vec<String> {
    writer(pairs).unwrap_err().to_string().lines().map(str::to_owned).collect()
}

#[test]
fn a_bad_file_of_tokens_is_told_line_by_line_with_its_fields() {
    let (_file, path) =
        file("\n# comment\n{\"id\":\"a b\",\"tenants\":\"*\",\"rights\":[\"pull\"]}\nnonsense\n");
    let found = lines(&[("QIM_TOKENS_FILE", &path)]);
    let begin = format!("QIM_TOKENS_FILE: {path:?} line ");
    let told: Vec<&str> = found.iter().map(|line| line.strip_prefix(&begin).unwrap()).collect();
    assert!(told[0].starts_with("3: id ") && told[1].starts_with("3: sha256 "), "{told:?}");
    assert_eq!(told[2..], ["4: is not one JSON object"]);
}

#[test]
fn a_token_in_the_place_of_the_path_is_not_shown() {
    let token = format!("qim_{}", "S".repeat(43));
    let found = lines(&[("QIM_TOKENS_FILE", &token)]);
    assert!(found[0].contains("cannot be read") && !found[0].contains("SSS"), "{found:?}");
}

#[test]
fn tokens_alone_open_no_address_beyond_the_loopback() {
    let digest = "0".repeat(64);
    let (_file, path) =
        file(&format!("{{\"id\":\"a\",\"sha256\":\"{digest}\",\"tenants\":\"*\",\"rights\":[\"pull\"]}}"));
    let tokens = ("QIM_TOKENS_FILE", path.as_str());
    assert_eq!(writer(&[tokens]).unwrap().tokens.unwrap().file.grants().len(), 1);
    let found = lines(&[tokens, ("QIM_LISTEN_ADDR", "0.0.0.0:7400")]);
    assert!(found[0].starts_with("QIM_LISTEN_ADDR: \"0.0.0.0:7400\" is not a loopback address"), "{found:?}");
}

#[test]
fn certificates_of_clients_need_tls() {
    let (_file, path) = file("PEM");
    let found = lines(&[("QIM_TLS_CLIENT_CA_FILE", &path)]);
    assert!(found[0].starts_with("QIM_TLS_CLIENT_CA_FILE: is set without QIM_TLS_CERT_FILE"), "{found:?}");
    let all =
        ["QIM_TLS_CERT_FILE", "QIM_TLS_KEY_FILE", "QIM_TLS_CLIENT_CA_FILE"].map(|name| (name, path.as_str()));
    assert_eq!(writer(&all).unwrap().tls.unwrap().client_ca_file.unwrap().to_str(), Some(path.as_str()));
}

#[test]
fn files_for_tls_to_a_tier_come_with_a_url_of_tls_and_a_certificate_with_its_key() {
    let (_file, path) = file("SECRET PEM");
    let path = path.as_str();
    let redis: fn(SharedConfig) -> _ = |shared| shared.redis_tls;
    let archive: fn(SharedConfig) -> _ = |shared| shared.archive_tls;
    for (tier, plain, secure, tls) in [
        ("REDIS", "redis://h", "rediss://h", redis),
        ("REDIS", "redis-cluster://h", "rediss-cluster://h", redis),
        ("ARCHIVE", "scylla://h/k", "scyllas://h/k", archive),
    ] {
        let name = |suffix: &str| format!("QIM_{tier}_{suffix}");
        let (url, ca) = (name("URL"), name("CA_FILE"));
        let (cert, key) = (name("CLIENT_CERT_FILE"), name("CLIENT_KEY_FILE"));
        let all = [(url.as_str(), secure), (&ca, path), (&cert, path), (&key, path)];
        let config = writer(&all).unwrap();
        assert!(!format!("{config:?}").contains("SECRET"));
        let tls = tls(config.shared);
        assert_eq!(tls.content.ca.as_deref(), Some("SECRET PEM"));
        assert_eq!(tls.content.identity.unwrap().key, "SECRET PEM");

        let found = lines(&[(&url, plain), (&ca, path)]);
        assert!(found[0].starts_with(&format!("{ca}: is set, while {url} is not one of TLS")), "{found:?}");
        let found = lines(&[(&url, secure), (&cert, path)]);
        assert_eq!(found, [format!("{key}: is not set, while {cert} is; set both or neither")]);
    }
}
