use std::net::SocketAddr;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::metrics::{METRICS_CONTENT_TYPE, Metrics};
use crate::readiness::Readiness;

/// Listens on an address that a variable configured; an error names both.
pub async fn listen(variable: &str, addr: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(addr).await.with_context(|| format!("{variable}: cannot listen on {addr}"))
}

/// The port for operators: `/metrics`, `/healthz` and `/readyz`.
#[derive(Debug)]
pub struct AdminServer(TcpListener);

#[derive(Clone)]
struct Shown {
    metrics: Metrics,
    readiness: Readiness,
}

impl AdminServer {
    /// Takes the port. Done before anything else, so that a second process on the same configuration does no harm.
    pub async fn bind(addr: SocketAddr) -> anyhow::Result<Self> {
        listen("QIM_ADMIN_ADDR", addr).await.map(Self)
    }

    /// The address in use; it has a port also where 0 was configured.
    pub fn local_addr(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.0.local_addr()?)
    }

    /// Answers until it is dropped: also while everything else drains.
    pub async fn serve(self, metrics: Metrics, readiness: Readiness) -> anyhow::Result<()> {
        let router = Router::new()
            .route("/metrics", get(render_metrics))
            .route("/healthz", get("ok\n"))
            .route("/readyz", get(report_readiness))
            .with_state(Shown { metrics, readiness });
        Ok(axum::serve(self.0, router).await?)
    }
}

async fn render_metrics(State(shown): State<Shown>) -> impl IntoResponse {
    ([(CONTENT_TYPE, METRICS_CONTENT_TYPE)], shown.metrics.render())
}

async fn report_readiness(State(shown): State<Shown>) -> impl IntoResponse {
    let report = shown.readiness.report();
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{report}\n"))
}

#[cfg(test)]
mod tests {
    use qim_testkit::{HttpAnswer, http_get};

    use super::*;
    use crate::readiness::Condition;

    const ANY_PORT: &str = "127.0.0.1:0";

    async fn ask(addr: SocketAddr, path: &'static str) -> HttpAnswer {
        let url = format!("http://{addr}{path}");
        tokio::task::spawn_blocking(move || http_get(&url).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn the_admin_port_tells_health_readiness_and_metrics() {
        let server = AdminServer::bind(ANY_PORT.parse().unwrap()).await.unwrap();
        let (addr, readiness) = (server.local_addr().unwrap(), Readiness::default());
        tokio::spawn(server.serve(Metrics::new(), readiness.clone()));

        let shown = |answer: HttpAnswer| (answer.status, answer.body);
        assert_eq!(shown(ask(addr, "/healthz").await), (200, "ok\n".to_owned()));
        assert_eq!(shown(ask(addr, "/readyz").await), (200, "ready\n".to_owned()));
        readiness.set("archive", Condition::Degraded("away".to_owned()));
        assert_eq!(shown(ask(addr, "/readyz").await), (200, "degraded: archive: away\n".to_owned()));
        readiness.set("redis", Condition::NotReady("away".to_owned()));
        assert_eq!(shown(ask(addr, "/readyz").await), (503, "not ready: redis: away\n".to_owned()));
        assert_eq!(ask(addr, "/healthz").await.status, 200);
        let (status, metrics) = shown(ask(addr, "/metrics").await);
        assert!(status == 200 && metrics.contains("qim_build_info{version=\""), "{metrics}");
        assert_eq!(ask(addr, "/nothing").await.status, 404);
    }

    #[tokio::test]
    async fn a_port_in_use_is_refused_with_the_name_of_the_variable() {
        let first = AdminServer::bind(ANY_PORT.parse().unwrap()).await.unwrap();
        let addr = first.local_addr().unwrap();
        let error = AdminServer::bind(addr).await.unwrap_err();
        let message = format!("{error:#}");
        assert!(message.starts_with(&format!("QIM_ADMIN_ADDR: cannot listen on {addr}: ")), "{message}");
        assert!(message.contains("in use"), "{message}");
    }
}
