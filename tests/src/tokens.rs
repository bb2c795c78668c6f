use std::fs;
use std::path::PathBuf;

use qim_access::{Grant, Right, Tenants, Token};
use qim_core::TenantId;
use tonic::Request;

/// A token, and the line of the file that lists it.
pub fn token(id: &str, tenants: &[&str], rights: &[Right]) -> (Token, String) {
    let token = Token::generate().expect("the system has random numbers");
    let tenants = match tenants {
        ["*"] => Tenants::All,
        names => Tenants::Some(names.iter().map(|name| TenantId::new(name).expect("a tenant")).collect()),
    };
    let rights = rights.iter().copied().collect();
    let grant = Grant { id: id.to_owned(), digest: token.digest(), tenants, rights };
    (token, grant.to_line())
}

/// A file of tokens, which ends with its owner.
pub struct TokenFile {
    dir: tempfile::TempDir,
}

impl TokenFile {
    /// With these lines.
    pub fn of(lines: &[&str]) -> Self {
        let file = Self { dir: tempfile::tempdir().expect("a temporary directory") };
        file.replace(&lines.join("\n"));
        file
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("tokens")
    }

    /// Puts another content in its place at once, as an operator should.
    pub fn replace(&self, content: &str) {
        let next = self.dir.path().join("next");
        fs::write(&next, content).and_then(|()| fs::rename(&next, self.path())).expect("it can be written");
    }
}

/// The request with this token.
pub fn with_token<T>(token: &Token, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let header = format!("Bearer {}", token.reveal()).parse().expect("a token is ASCII");
    request.metadata_mut().insert("authorization", header);
    request
}
