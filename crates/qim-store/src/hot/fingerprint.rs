use qim_core::codec;
use sha1_smol::Sha1;

/// What stands for (sender, id) of a record where the record itself is not there to be compared: the first 8 bytes of
/// the SHA-1 of its identity. Redis' Lua has SHA-1 and no other hash, and makes the same of what is collected
/// (lua/fingerprints.lua).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 8]);

impl Fingerprint {
    /// Of a place whose record is lost. (A real one is the same once in 2^64.)
    pub(super) const LOST: Self = Self([0; 8]);
    /// Of a place whose record had expired before it could be put there.
    pub(super) const EXPIRED: Self = Self([u8::MAX; 8]);

    /// Of a record that was encoded here.
    pub(super) fn of(record: &[u8]) -> Self {
        let (form, identity) = codec::identity(record);
        let mut sha1 = Sha1::new();
        sha1.update(&[form]);
        sha1.update(identity);
        let digest = sha1.digest().bytes();
        Self(digest[..8].try_into().expect("SHA-1 has 20 bytes"))
    }

    pub(super) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Where to look first.
    pub(super) fn hint(&self) -> &[u8] {
        &self.0[..2]
    }
}
