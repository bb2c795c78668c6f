//! Who may connect, and how both sides know each other: addresses, TLS and tokens.

use std::net::SocketAddr;

use qim_access::TokenFile;
use qim_core::{ArchiveUrl, ClientIdentity, ClientTls, RedisUrl};

use super::environment::Raw;
use super::validate::{Check, shown_path};
use super::{ClientTlsFiles, ClientTlsPaths, TlsPaths, TokensConfig, value};

/// A variable that names a file, and the path it was given.
type FileOf<'r> = (&'static str, Option<&'r str>);

impl Check<'_> {
    pub(super) fn admin_addr(&mut self, raw: &Raw, allow_plaintext: bool) -> SocketAddr {
        let addr = self.value("QIM_ADMIN_ADDR", raw.admin_addr.as_deref(), value::socket_addr);
        if !addr.ip().is_loopback() && !allow_plaintext {
            let problem = format!(
                "\"{addr}\" is not a loopback address, and this port has no TLS; set QIM_ALLOW_PLAINTEXT=true where \
                 the network is trusted"
            );
            self.fault("QIM_ADMIN_ADDR", problem);
        }
        addr
    }

    pub(super) fn listen_addr(&mut self, raw: &Raw, allow_plaintext: bool) -> SocketAddr {
        let addr = self.value("QIM_LISTEN_ADDR", raw.listen_addr.as_deref(), value::socket_addr);
        let tls_intended = raw.tls_cert_file.is_some() || raw.tls_key_file.is_some();
        if !addr.ip().is_loopback() && !allow_plaintext && !tls_intended {
            let problem = format!(
                "\"{addr}\" is not a loopback address; set QIM_TLS_CERT_FILE and QIM_TLS_KEY_FILE, or \
                 QIM_ALLOW_PLAINTEXT=true where the network is trusted"
            );
            self.fault("QIM_LISTEN_ADDR", problem);
        }
        addr
    }

    pub(super) fn tls(&mut self, raw: &Raw) -> Option<TlsPaths> {
        let [cert, key, client_ca] = [
            ("QIM_TLS_CERT_FILE", raw.tls_cert_file.as_deref()),
            ("QIM_TLS_KEY_FILE", raw.tls_key_file.as_deref()),
            ("QIM_TLS_CLIENT_CA_FILE", raw.tls_client_ca_file.as_deref()),
        ];
        for file in [cert, key, client_ca] {
            self.content(file);
        }
        let Some((cert_file, key_file)) = self.both_or_neither(cert, key) else {
            if client_ca.1.is_some() && cert.1.is_none() && key.1.is_none() {
                self.fault(
                    client_ca.0,
                    "is set without QIM_TLS_CERT_FILE: without TLS nobody shows a certificate",
                );
            }
            return None;
        };
        Some(TlsPaths {
            cert_file: cert_file.into(),
            key_file: key_file.into(),
            client_ca_file: client_ca.1.map(Into::into),
        })
    }

    pub(super) fn tokens(&mut self, raw: &Raw) -> Option<TokensConfig> {
        let path = raw.tokens_file.as_deref()?;
        let content = self.content(("QIM_TOKENS_FILE", Some(path)))?;
        match TokenFile::parse(&content) {
            Ok(file) => Some(TokensConfig { path: path.into(), file }),
            Err(faults) => {
                for fault in faults.faults() {
                    self.fault("QIM_TOKENS_FILE", format!("{} {fault}", shown_path(path)));
                }
                None
            }
        }
    }

    pub(super) fn redis_tls(&mut self, raw: &Raw, url: &RedisUrl) -> ClientTlsFiles {
        let files = [
            ("QIM_REDIS_CA_FILE", raw.redis_ca_file.as_deref()),
            ("QIM_REDIS_CLIENT_CERT_FILE", raw.redis_client_cert_file.as_deref()),
            ("QIM_REDIS_CLIENT_KEY_FILE", raw.redis_client_key_file.as_deref()),
        ];
        self.client_tls(files, url.is_tls(), "QIM_REDIS_URL is not one of TLS (rediss://)")
    }

    pub(super) fn archive_tls(&mut self, raw: &Raw, url: &ArchiveUrl) -> ClientTlsFiles {
        let files = [
            ("QIM_ARCHIVE_CA_FILE", raw.archive_ca_file.as_deref()),
            ("QIM_ARCHIVE_CLIENT_CERT_FILE", raw.archive_client_cert_file.as_deref()),
            ("QIM_ARCHIVE_CLIENT_KEY_FILE", raw.archive_client_key_file.as_deref()),
        ];
        self.client_tls(files, url.is_tls(), "QIM_ARCHIVE_URL is not one of TLS (scyllas://)")
    }

    /// Whoever names such files means TLS: with a URL of clear text they would be without effect, and nobody would know.
    fn client_tls(
        &mut self,
        [ca, cert, key]: [FileOf<'_>; 3],
        is_tls: bool,
        otherwise: &str,
    ) -> ClientTlsFiles {
        let [ca_pem, cert_pem, key_pem] = [ca, cert, key].map(|file| self.content(file));
        if let Some((name, _)) = [ca, cert, key].into_iter().find(|(_, path)| path.is_some() && !is_tls) {
            self.fault(name, format!("is set, while {otherwise}"));
        }
        let identity_files = self.both_or_neither(cert, key).map(|(cert, key)| (cert.into(), key.into()));
        let identity = cert_pem.zip(key_pem).map(|(cert, key)| ClientIdentity { cert, key });
        ClientTlsFiles {
            paths: ClientTlsPaths { ca_file: ca.1.map(Into::into), identity_files },
            content: ClientTls { ca: ca_pem, identity },
        }
    }

    /// What is in a file that was named.
    fn content(&mut self, (name, path): FileOf<'_>) -> Option<String> {
        let path = path?;
        match self.environment.file(name) {
            Ok(content) => Some(content.to_owned()),
            Err(error) => {
                self.fault(name, format!("{} cannot be read: {error}", shown_path(path)));
                None
            }
        }
    }

    fn both_or_neither<'r>(&mut self, one: FileOf<'r>, other: FileOf<'r>) -> Option<(&'r str, &'r str)> {
        match [one, other] {
            [(_, Some(one)), (_, Some(other))] => Some((one, other)),
            [(_, None), (_, None)] => None,
            [(set, Some(_)), (missing, None)] | [(missing, None), (set, Some(_))] => {
                self.fault(missing, format!("is not set, while {set} is; set both or neither"));
                None
            }
        }
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
