//! The two tiers: the hot tier in Redis and the archive tier behind [`ArchiveStore`].

pub mod archive;

pub use archive::{ArchiveError, ArchiveStore};
pub use qim_core::RetentionPolicy;
