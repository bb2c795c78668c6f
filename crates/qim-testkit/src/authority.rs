use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType,
};

/// An authority that a test makes up, and that nobody else trusts. Its keys end with the test.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PemFiles {
    /// The certificate.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Authority {
    /// A new one.
    pub fn new() -> Self {
        let mut params = named("qim test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, key()).expect("a certificate of its own"))
    }

    /// Its certificate, PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Writes its certificate into a file of this directory.
    pub fn write(&self, dir: &Path) -> PathBuf {
        let path = dir.join("ca.pem");
        fs::write(&path, self.pem()).expect("a temporary directory can be written to");
        path
    }

    /// Certifies a new key for a server on the loopback, and for clients; replaces what `name` had in this directory.
    pub fn certify(&self, dir: &Path, name: &str) -> PemFiles {
        let mut params = named(name);
        params.subject_alt_names = vec![
            SanType::DnsName("localhost".try_into().expect("a name")),
            SanType::IpAddress(Ipv4Addr::LOCALHOST.into()),
        ];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = key();
        let cert = params.signed_by(&key, &self.0).expect("a certificate");
        let files = PemFiles { cert: dir.join(format!("{name}.pem")), key: dir.join(format!("{name}.key")) };
        for (path, pem) in [(&files.cert, cert.pem()), (&files.key, key.serialize_pem())] {
            fs::write(path, pem).expect("a temporary directory can be written to");
        }
        files
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}
