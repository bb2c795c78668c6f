//! TLS of the gRPC port. Its files are read again while it runs: connections that are made from then on use what they
//! say, and those that are open go on.

mod incoming;
mod reload;

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context as _;
use qim_daemon::TlsPaths;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

pub(crate) use incoming::secured;
pub(crate) use reload::CertificatesTask;

/// What gRPC speaks, and all that is offered.
const HTTP2: &[u8] = b"h2";

/// What new connections are secured with.
pub(crate) struct ServerTls {
    paths: TlsPaths,
    in_effect: RwLock<(Files, Arc<ServerConfig>)>,
}

/// What the files say. Without `Debug`: one of them is a private key.
#[derive(PartialEq, Eq)]
struct Files {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl ServerTls {
    /// Fails where a file cannot be read or they do not fit together.
    pub(crate) async fn load(paths: &TlsPaths) -> anyhow::Result<Self> {
        let files = Files::read(paths).await?;
        let config = Arc::new(files.config()?);
        Ok(Self { paths: paths.clone(), in_effect: RwLock::new((files, config)) })
    }

    /// For the next connection.
    fn config(&self) -> Arc<ServerConfig> {
        self.in_effect.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Whether the files have changed, and are in effect now. Where they cannot be used, nothing changes.
    async fn reload(&self) -> anyhow::Result<bool> {
        let files = Files::read(&self.paths).await?;
        if self.in_effect.read().unwrap_or_else(PoisonError::into_inner).0 == files {
            return Ok(false);
        }
        let config = Arc::new(files.config()?);
        *self.in_effect.write().unwrap_or_else(PoisonError::into_inner) = (files, config);
        Ok(true)
    }
}

impl Files {
    async fn read(paths: &TlsPaths) -> anyhow::Result<Self> {
        let client_ca = match &paths.client_ca_file {
            Some(path) => Some(read("QIM_TLS_CLIENT_CA_FILE", path).await?),
            None => None,
        };
        Ok(Self {
            cert: read("QIM_TLS_CERT_FILE", &paths.cert_file).await?,
            key: read("QIM_TLS_KEY_FILE", &paths.key_file).await?,
            client_ca,
        })
    }

    fn config(&self) -> anyhow::Result<ServerConfig> {
        let certs = certificates("QIM_TLS_CERT_FILE", &self.cert)?;
        let key =
            PrivateKeyDer::from_pem_slice(&self.key).context("QIM_TLS_KEY_FILE holds no PEM private key")?;
        let builder = match &self.client_ca {
            None => ServerConfig::builder().with_no_client_auth(),
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates("QIM_TLS_CLIENT_CA_FILE", authorities)? {
                    roots
                        .add(authority)
                        .context("QIM_TLS_CLIENT_CA_FILE holds no authority's certificate")?;
                }
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build()?;
                ServerConfig::builder().with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(certs, key);
        let mut config = config.context("QIM_TLS_CERT_FILE and QIM_TLS_KEY_FILE do not fit together")?;
        config.alpn_protocols.push(HTTP2.to_vec());
        Ok(config)
    }
}

async fn read(variable: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    tokio::fs::read(path).await.with_context(|| format!("{variable}: cannot read {}", path.display()))
}

fn certificates(variable: &str, pem: &[u8]) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.with_context(|| format!("{variable} is not PEM"))?;
    anyhow::ensure!(!certificates.is_empty(), "{variable} holds no PEM certificate");
    Ok(certificates)
}
