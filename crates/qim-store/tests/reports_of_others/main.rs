//! What users of similar systems reported, tried here: docs/requirements.md, "Reports of others", lists all of them.

mod clean_up;
mod clocks;
mod copies;
mod positions;
mod restarts;
#[path = "../support/mod.rs"]
mod support;
