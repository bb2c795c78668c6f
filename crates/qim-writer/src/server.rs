use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::Either;
use qim_daemon::{Readiness, WriterConfig};
use qim_proto::v1::history_server::HistoryServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;

use crate::access::Refusals;
use crate::service::History;
use crate::tls::{self, ServerTls};

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
    tls: Option<Arc<ServerTls>>,
    history: History,
    readiness: Readiness,
    refusals: Arc<Refusals>,
}

impl Server {
    pub(crate) async fn bind(
        config: &WriterConfig,
        history: History,
        readiness: Readiness,
        refusals: Arc<Refusals>,
    ) -> anyhow::Result<Self> {
        let listener = qim_daemon::listen("QIM_LISTEN_ADDR", config.listen_addr).await?;
        let tls = match &config.tls {
            None => None,
            Some(paths) => Some(Arc::new(ServerTls::load(paths).await?)),
        };
        let (addr, tokens) = (listener.local_addr()?, config.tokens.is_some());
        let client_certificates = config.tls.as_ref().is_some_and(|tls| tls.client_ca_file.is_some());
        tracing::info!(%addr, tls = tls.is_some(), client_certificates, tokens, "gRPC port");
        if !addr.ip().is_loopback() && !tokens && !client_certificates {
            tracing::warn!(%addr, "whoever reaches the gRPC port may read and write every tenant: set QIM_TOKENS_FILE");
        }
        Ok(Self { listener, tls, history, readiness, refusals })
    }

    /// What its connections are secured with, if they are.
    pub(crate) fn tls(&self) -> Option<Arc<ServerTls>> {
        self.tls.clone()
    }

    /// Answers until `token`; then takes no more and finishes what it took.
    pub(crate) async fn serve(self, token: CancellationToken) -> anyhow::Result<()> {
        let mut server = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .max_concurrent_streams(STREAMS_MAX);
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
        let server = server.add_service(health).add_service(reflection).add_service(history);
        let serving = match self.tls {
            None => Either::Left(server.serve_with_incoming_shutdown(incoming, token.cancelled())),
            Some(tls) => {
                let incoming = tls::secured(incoming, tls, self.refusals);
                Either::Right(server.serve_with_incoming_shutdown(incoming, token.cancelled()))
            }
        };
        tokio::select! {
            result = serving => result.context("gRPC server"),
            () = health_follows_readiness => unreachable!("it never ends"),
        }
    }
}
