//! What qim is about, without any I/O: ids, records and their encoding, and the one function that decides when a
//! record expires.
//!
//! Everything here is pure: time is a parameter ([`Clock`]), and nothing reads the environment, the network or a
//! file.

mod class;
mod client_tls;
mod clock;
pub mod codec;
pub mod dictionary;
mod encoded;
mod endpoint;
mod frame_head;
mod hash;
mod ids;
mod packed_text;
mod page;
mod payload;
mod record;
mod retention;
pub mod stub;
mod ttl;

pub use class::{RetentionClass, UnknownClass};
pub use client_tls::{ClientIdentity, ClientTls};
pub use clock::{Clock, SharedClock, SystemClock, UnixMillis};
pub use codec::CodecError;
pub use dictionary::{Dictionary, DictionaryError};
pub use encoded::{Decoder, EncodedRecord};
pub use endpoint::{ArchiveUrl, InvalidUrl, RedisUrl, ScyllaUrl};
pub use hash::{ClientIdHash, ShardCount, body_digest};
pub use ids::{ConversationKey, InvalidId, TenantId, validate_id};
pub use packed_text::PackedText;
pub use page::{PayloadEncoding, PayloadForm, Record, RecordsBuilder};
pub use payload::{COMPRESSED_PAYLOAD_BYTES_MAX, Compression, Compressor, Decompressor, StoredPayload};
pub use record::{DEFAULT_CONTENT_TYPE, Message, StoredMessage};
pub use retention::{
    DEFAULT_HISTORY_RETENTION_DAYS, DEFAULT_HISTORY_RETENTION_DAYS_MAX, EPHEMERAL_RETENTION,
    InvalidRetentionDays, PeerRetention, RetentionDays, RetentionPolicy,
};
pub use ttl::{MAX_TTL_SECS, RowTtl};
