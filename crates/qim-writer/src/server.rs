use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::Either;
use qim_daemon::{Readiness, WriterConfig};
use qim_proto::encoding_server::history_server::HistoryServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_health::ServingStatus;

use crate::access::Refusals;
use crate::service::History;
use crate::tls::{self, ServerTls};
use crate::transport::{self, Limits, Metered, PING_TIMEOUT, STREAM_WINDOW};

/// Largest request, in bytes: 500 ordinary messages, or 100 of the largest.
const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Unread bytes of one connection. The transport closes one that has so many small unread frames that what they take beside
/// their bytes is half as much: several streams of small messages that wait stay below.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Of the headers of one request, in bytes: far above what gRPC sends.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;
/// Requests of one connection that their client took back before they were looked at; with more it is closed.
const RESETS_MAX: usize = 64;
const HEALTH_INTERVAL: Duration = Duration::from_millis(100);
const SERVICE: &str = "qim.v1.History";

/// The gRPC listener with its services: history, health and reflection.
pub(crate) struct Server {
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    limits: Limits,
    history: History,
    readiness: Readiness,
    refusals: Arc<Refusals>,
}

impl Server {
    pub(crate) async fn bind(
        config: &WriterConfig,
        limits: Limits,
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
        Ok(Self { listener, tls, limits, history, readiness, refusals })
    }

    /// What its connections are secured with, if they are.
    pub(crate) fn tls(&self) -> Option<Arc<ServerTls>> {
        self.tls.clone()
    }

    /// Answers until `token`; then takes no more and finishes what it took.
    pub(crate) async fn serve(self, token: CancellationToken) -> anyhow::Result<()> {
        let server = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(self.limits.keepalive))
            .http2_keepalive_timeout(Some(PING_TIMEOUT))
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
            .http2_max_header_list_size(HEADERS_BYTES_MAX)
            .http2_max_pending_accept_reset_streams(Some(RESETS_MAX))
            .max_concurrent_streams(self.limits.requests_max);
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
        let services =
            Metered::new(Routes::new(health).add_service(reflection).add_service(history).prepare());
        let incoming = transport::incoming(self.listener, self.limits);
        let serving = match self.tls {
            None => Either::Left(server.serve_with_incoming_shutdown(services, incoming, token.cancelled())),
            Some(tls) => {
                let incoming = tls::secured(incoming, tls, self.refusals);
                Either::Right(server.serve_with_incoming_shutdown(services, incoming, token.cancelled()))
            }
        };
        tokio::select! {
            result = serving => result.context("gRPC server"),
            () = health_follows_readiness => unreachable!("it never ends"),
        }
    }
}
