use std::fmt;
use std::hash::{Hash, Hasher};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::TryRng as _;
use rand::rngs::{SysError, SysRng};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Makes a token known for what it is wherever it turns up: to people, and to programs that look for leaked secrets.
const PREFIX: &str = "qim_";
const SECRET_BYTES: usize = 32;
/// The prefix, and 32 bytes in base64url without padding.
const TOKEN_BYTES: usize = PREFIX.len() + 43;

/// A token in clear: `qim_` and 256 random bits in base64url. Its `Debug` shows nothing of it.
#[derive(Clone)]
pub struct Token(String);

/// The SHA-256 of a token's text, which is all that is kept of it. Compared in constant time.
///
/// A fast hash is enough, and a slow one would be a way to overload the server: nobody can try 2^256 tokens.
#[derive(Clone, Copy)]
pub struct TokenDigest([u8; 32]);

impl Token {
    /// A new one, from the random numbers of the operating system; fails where it has none.
    pub fn generate() -> Result<Self, SysError> {
        let mut secret = [0; SECRET_BYTES];
        SysRng.try_fill_bytes(&mut secret)?;
        let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(secret));
        assert_eq!(token.len(), TOKEN_BYTES, "32 bytes are 43 digits");
        Ok(Self(token))
    }

    /// Takes what looks like a token; `None` for anything else. What is too long is not even hashed.
    pub fn parse(text: &str) -> Option<Self> {
        Self::is_well_formed(text).then(|| Self(text.to_owned()))
    }

    /// The token itself: for whoever is to have it, and for no log.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub fn digest(&self) -> TokenDigest {
        TokenDigest::of(&self.0)
    }

    fn is_well_formed(text: &str) -> bool {
        let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        text.len() == TOKEN_BYTES
            && text.strip_prefix(PREFIX).is_some_and(|secret| secret.bytes().all(is_digit))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}***")
    }
}

impl TokenDigest {
    /// The digest of a text that looks like a token; `None` for anything else.
    pub fn of_text(text: &str) -> Option<Self> {
        Token::is_well_formed(text).then(|| Self::of(text))
    }

    /// Reads 64 lower-case hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digit = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let digits: Vec<u8> = text.bytes().map(digit).collect::<Option<_>>()?;
        let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] * 16 + pair[1]).collect();
        if digits.len().is_multiple_of(2) { bytes.try_into().ok().map(Self) } else { None }
    }

    fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

impl fmt::Display for TokenDigest {
    /// In hexadecimal, as in the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for TokenDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for TokenDigest {}

impl Hash for TokenDigest {
    /// For maps with a random key, as those of the standard library are: which bucket a digest falls into then tells
    /// nothing about it.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_new_each_time_is_recognisable_and_shows_nothing_of_itself() {
        let (one, other) = (Token::generate().unwrap(), Token::generate().unwrap());
        assert!(one.reveal().starts_with("qim_") && one.reveal().len() == 47);
        assert_ne!(one.reveal(), other.reveal());
        assert_ne!(one.digest(), other.digest());
        assert_eq!(format!("{one:?}"), "qim_***");
        assert_eq!(Token::parse(one.reveal()).unwrap().digest(), one.digest());
        assert_eq!(TokenDigest::of_text(one.reveal()), Some(one.digest()));
    }

    #[test]
    fn what_is_no_token_is_not_even_hashed() {
        let good = format!("qim_{}", "A".repeat(43));
        assert!(TokenDigest::of_text(&good).is_some());
        let long = format!("qim_{}", "A".repeat(44));
        for bad in [
            "",
            "qim_",
            &good[1..],
            &good[..46],
            &long,
            &good.replace("qim", "tok"),
            &good.replace("AA", "A="),
        ] {
            assert!(TokenDigest::of_text(bad).is_none() && Token::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_digest_is_what_sha256sum_prints_and_is_read_back() {
        // printf %s "qim_AAA…" | sha256sum
        let digest = TokenDigest::of_text(&format!("qim_{}", "A".repeat(43))).unwrap();
        let hex = "30e977e6bfdd38cca5fbdcf01f309043a190d5ebf2bb3380610b611bffcc3db7";
        assert_eq!(digest.to_string(), hex);
        assert_eq!(TokenDigest::from_hex(hex), Some(digest));
        for bad in ["", &hex[1..], &hex.to_uppercase(), &format!("{hex}00"), &hex.replace('a', "g"), "é"] {
            assert_eq!(TokenDigest::from_hex(bad), None, "{bad}");
        }
    }
}
