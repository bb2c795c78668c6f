use std::path::Path;
use std::time::Duration;

use qim_proto::v1::history_client::HistoryClient;
use tonic::codegen::http::Uri;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::credentials::{Bearer, Credentials};
use crate::failure::Failure;

/// The API, over one connection that is made again when it is lost.
pub(crate) type History = HistoryClient<InterceptedService<Channel, Bearer>>;

/// A connection that cannot be made in this time is not made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that does not even answer a ping for this long is gone; a new connection may find another.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// A page of 500 records of 64 KiB, which the usual 4 MiB would refuse.
const ANSWER_BYTES_MAX: usize = 48 << 20;
/// Flow-control windows that let a page come without a pause for each 64 KiB.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// A URL that can be a server's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl(String);

impl ServerUrl {
    /// Refuses what has no scheme or host, or more than that and a port.
    pub(crate) fn parse(url: &str) -> Result<Self, &'static str> {
        const INVALID: &str = "is not http://HOST:PORT or https://HOST:PORT";
        let uri: Uri = url.parse().map_err(|_| INVALID)?;
        let scheme_is_known = matches!(uri.scheme_str(), Some("http" | "https"));
        let names_host_only = uri.path_and_query().is_none_or(|rest| rest.as_str() == "/");
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        if scheme_is_known && names_host_only && has_host { Ok(Self(url.to_owned())) } else { Err(INVALID) }
    }

    /// As it was given.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ServerUrl {
    fn default() -> Self {
        Self("http://127.0.0.1:7400".to_owned())
    }
}

/// Prepares a connection; it is made by the first call.
pub(crate) fn connect(server: &ServerUrl, credentials: &Credentials) -> Result<History, Failure> {
    let mut endpoint = Endpoint::from_shared(server.as_str().to_owned())
        .map_err(|error| Failure::Usage(format!("{:?} is not a URL: {error}", server.as_str())))?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    if server.as_str().starts_with("https:") {
        endpoint = endpoint.tls_config(tls(credentials)?).map_err(|error| {
            Failure::Configuration(format!("cannot set up TLS: {}", crate::grpc::root_cause(&error)))
        })?;
    }
    let client = HistoryClient::with_interceptor(endpoint.connect_lazy(), credentials.bearer.clone());
    Ok(client.max_decoding_message_size(ANSWER_BYTES_MAX))
}

fn tls(credentials: &Credentials) -> Result<ClientTlsConfig, Failure> {
    let mut config = match &credentials.ca_file {
        Some(path) => {
            // Without this check a file without certificates would trust nobody, which shows only as a failed handshake.
            let pem = read("--ca-file", path, "CERTIFICATE")?;
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
        }
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let Some((cert, key)) = &credentials.identity {
        let cert = read("--client-cert-file", cert, "CERTIFICATE")?;
        config = config.identity(Identity::from_pem(cert, read("--client-key-file", key, "PRIVATE KEY")?));
    }
    Ok(config)
}

/// A PEM file that holds one of these at least.
fn read(option: &str, path: &Path, kind: &str) -> Result<String, Failure> {
    let unusable = |reason: &str| Failure::Configuration(format!("{option} {}: {reason}", path.display()));
    let pem = std::fs::read_to_string(path).map_err(|error| unusable(&error.to_string()))?;
    let has_one = pem
        .lines()
        .any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&format!("{kind}-----")));
    if has_one { Ok(pem) } else { Err(unusable(&format!("holds no PEM {}", kind.to_lowercase()))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_url_is_a_scheme_a_host_and_a_port() {
        for good in ["http://127.0.0.1:7400", "https://qim.example", "http://[::1]:7400/"] {
            assert!(ServerUrl::parse(good).is_ok(), "{good}");
        }
        for bad in
            ["", "127.0.0.1:7400", "ftp://h:1", "http://", "http://h:1/path", "unix:///x", "http://h:1?q"]
        {
            assert!(ServerUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_ca_file_must_hold_a_certificate() {
        let server = ServerUrl::parse("https://127.0.0.1:1").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let credentials = Credentials { ca_file: Some(path.clone()), ..Credentials::default() };
        assert_eq!(connect(&server, &credentials).unwrap_err().exit_status(), 78);
        std::fs::write(&path, "no certificate").unwrap();
        assert!(connect(&server, &credentials).unwrap_err().to_string().contains("holds no PEM certificate"));
    }
}
