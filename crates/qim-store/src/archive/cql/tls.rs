//! TLS to the cluster, with the process's one implementation of it.

use std::sync::Arc;

use qim_core::ClientTls;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::archive::ArchiveError;

/// How each connection is secured. A node is known by its address: its certificate has to name that.
pub(super) fn config(tls: &ClientTls) -> Result<Arc<ClientConfig>, ArchiveError> {
    let roots = match &tls.ca {
        Some(pem) => authorities(pem)?,
        None => of_the_system()?,
    };
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes());
            let key = key.map_err(|_| unfit("the client's key is no PEM private key"))?;
            let certificates = certificates(&identity.cert)?;
            let config = builder.with_client_auth_cert(certificates, key);
            config.map_err(|error| unfit(format!("the client's certificate and key: {error}")))?
        }
    };
    Ok(Arc::new(config))
}

fn authorities(pem: &str) -> Result<RootCertStore, ArchiveError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|error| unfit(format!("an authority's certificate: {error}")))?;
    }
    Ok(roots)
}

fn of_the_system() -> Result<RootCertStore, ArchiveError> {
    let mut roots = RootCertStore::empty();
    // Some of a system's certificates are always too old for somebody; the rest will do.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(unfit("the system trusts no authority; name one")) } else { Ok(roots) }
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, ArchiveError> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| unfit(format!("a certificate is not PEM: {error}")))?;
    if certificates.is_empty() { Err(unfit("a file holds no PEM certificate")) } else { Ok(certificates) }
}

fn unfit(reason: impl Into<String>) -> ArchiveError {
    ArchiveError::Refused(format!("TLS: {}", reason.into()))
}
