//! The two tiers: the hot tier in Redis ([`RedisMessageStore`]) and the archive tier behind [`ArchiveStore`].

pub mod archive;
mod conversation_cache;
pub mod hot;
pub mod tiered;

pub use archive::{ArchiveError, ArchiveStore};
pub use hot::RedisMessageStore;
pub use qim_core::RetentionPolicy;
pub use tiered::TieredMessageStore;
