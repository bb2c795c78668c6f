//! Who may do what: tokens, what each of them grants, and the file that lists them.
//!
//! Pure: nothing here reads a file or the network. The writer asks [`TokenFile`] what a token grants; `qim token create`
//! makes a [`Token`] and the [`Grant`] for it.

mod file;
mod grant;
mod right;
mod token;

pub use file::{FileFault, FileFaults, TokenFile};
pub use grant::{Grant, InvalidTokenId, Tenants, validate_token_id};
pub use right::{Right, Rights, UnknownRight};
pub use token::{Token, TokenDigest};
