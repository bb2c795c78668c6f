use std::time::Duration;

use anyhow::Context as _;
use qim_daemon::{Readiness, WriterConfig};
use qim_proto::encoding_server::history_server::HistoryServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, ServerTlsConfig};
use tonic_health::ServingStatus;

use crate::service::History;

/// Largest request, in bytes: 500 ordinary messages, or 100 of the largest.
const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Requests of one connection at once.
const STREAMS_MAX: u32 = 1024;
/// Notices a client that vanished without a word.
const KEEPALIVE: Duration = Duration::from_secs(30);
const HEALTH_INTERVAL: Duration = Duration::from_millis(100);
const SERVICE: &str = "qim.v1.History";

/// The gRPC listener with its services: history, health and reflection.
pub(crate) struct Server {
    listener: TcpListener,
    tls: Option<ServerTlsConfig>,
    history: History,
    readiness: Readiness,
}

impl Server {
    pub(crate) async fn bind(
        config: &WriterConfig,
        history: History,
        readiness: Readiness,
    ) -> anyhow::Result<Self> {
        let listener = qim_daemon::listen("QIM_LISTEN_ADDR", config.listen_addr).await?;
        let tls = match &config.tls {
            None => None,
            Some(paths) => {
                let read = async |variable: &str, path: &std::path::Path| {
                    tokio::fs::read(path)
                        .await
                        .with_context(|| format!("{variable}: cannot read {}", path.display()))
                };
                let identity = Identity::from_pem(
                    read("QIM_TLS_CERT_FILE", &paths.cert_file).await?,
                    read("QIM_TLS_KEY_FILE", &paths.key_file).await?,
                );
                Some(ServerTlsConfig::new().identity(identity))
            }
        };
        tracing::info!(addr = %listener.local_addr()?, tls = tls.is_some(), "gRPC port");
        Ok(Self { listener, tls, history, readiness })
    }

    /// Answers until `token`; then takes no more and finishes what it took.
    pub(crate) async fn serve(self, token: CancellationToken) -> anyhow::Result<()> {
        let mut server = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .max_concurrent_streams(STREAMS_MAX);
        if let Some(tls) = self.tls {
            server = server
                .tls_config(tls)
                .context("QIM_TLS_CERT_FILE and QIM_TLS_KEY_FILE do not fit together")?;
        }
        let (reporter, health) = tonic_health::server::health_reporter();
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(qim_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let history = HistoryServer::new(self.history).max_decoding_message_size(REQUEST_BYTES_MAX);
        let health_follows_readiness = async {
            loop {
                let status = if self.readiness.report().ready {
                    ServingStatus::Serving
                } else {
                    ServingStatus::NotServing
                };
                reporter.set_service_status(SERVICE, status).await;
                reporter.set_service_status("", status).await;
                tokio::time::sleep(HEALTH_INTERVAL).await;
            }
        };
        // Without it a small answer may wait 40 ms for the acknowledgement of the one before; the setting of the server
        // itself does not reach a listener that it was given.
        let incoming =
            TcpIncoming::from(self.listener).with_nodelay(Some(true)).with_keepalive(Some(KEEPALIVE));
        let serving = server
            .add_service(health)
            .add_service(reflection)
            .add_service(history)
            .serve_with_incoming_shutdown(incoming, token.cancelled());
        tokio::select! {
            result = serving => result.context("gRPC server"),
            () = health_follows_readiness => unreachable!("it never ends"),
        }
    }
}
