use std::time::Duration;

use qim_core::ClientTls;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{Client, ClientTlsConfig, ConnectionInfo, RedisResult, TlsCertificates};

/// How servers are connected to.
#[derive(Clone)]
pub(super) struct Dialer {
    /// `Some`: over TLS.
    certificates: Option<TlsCertificates>,
    timeout: Duration,
}

impl Dialer {
    /// `tls`: where connections are over TLS. `timeout` bounds connecting, and each call.
    pub(super) fn new(tls: Option<&ClientTls>, timeout: Duration) -> Self {
        Self { certificates: tls.map(certificates), timeout }
    }

    /// The same with other certificates, where connections are over TLS at all.
    pub(super) fn with_tls(&self, tls: &ClientTls) -> Self {
        Self { certificates: self.certificates.as_ref().map(|_| certificates(tls)), timeout: self.timeout }
    }

    /// A connection that is made on the first call, and again after it was lost. Where that fails it is tried `retries`
    /// times more before the calls that wait for it hear so, and again on the next call.
    pub(super) fn dial(&self, info: ConnectionInfo, retries: usize) -> RedisResult<ConnectionManager> {
        let info = info.set_tcp_settings(tcp_settings(self.timeout));
        // The name of the library is of no use to anybody, and to say it takes one more right.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let info = info.set_redis_settings(settings);
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout))
            .set_number_of_retries(retries)
            .set_min_delay(Duration::from_millis(20))
            .set_max_delay(Duration::from_millis(500));
        let client = match self.certificates.clone() {
            Some(certificates) => Client::build_with_tls(info, certificates)?,
            None => Client::open(info)?,
        };
        ConnectionManager::new_lazy_with_config(client, config)
    }
}

fn certificates(tls: &ClientTls) -> TlsCertificates {
    let bytes = |pem: &String| pem.clone().into_bytes();
    let identity = tls.identity.as_ref();
    TlsCertificates {
        client_tls: identity
            .map(|own| ClientTlsConfig { client_cert: bytes(&own.cert), client_key: bytes(&own.key) }),
        root_cert: tls.ca.as_ref().map(bytes),
    }
}

/// A peer that vanished without a word is noticed: by keepalive when idle, by unacknowledged data when not.
fn tcp_settings(timeout: Duration) -> TcpSettings {
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(timeout.max(Duration::from_secs(1)) * 2);
    settings
}
