//! The commands that do one thing, each in its file.

pub(crate) mod append;
pub(crate) mod check_manifests;
pub(crate) mod describe;
pub(crate) mod health;
pub(crate) mod pull;
pub(crate) mod tail;
pub(crate) mod token;

/// What people should know while a command waits.
fn tell(text: &str) {
    eprintln!("qim: {text}");
}
