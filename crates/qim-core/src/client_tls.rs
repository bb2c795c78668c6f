use std::fmt;

/// How a connection over TLS to a tier is checked, both ways: PEM texts. Its `Debug` shows none of them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// The only authorities that the server's certificate may come from; `None`: those of the system.
    pub ca: Option<String>,
    /// What this side shows of itself, where the server asks for it.
    pub identity: Option<ClientIdentity>,
}

/// A certificate and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate, and those between it and the root.
    pub cert: String,
    /// Its private key.
    pub key: String,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("own_ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientIdentity(***)")
    }
}
