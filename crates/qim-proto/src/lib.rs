//! The gRPC API of qim: `proto/qim/v1/history.proto` and what is generated from it.

/// Package `qim.v1`. The documentation of each item is in the `.proto` file.
#[allow(missing_docs, clippy::pedantic, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("qim.v1");
}

mod encoded;

pub use encoded::EncodedPullResponse;

/// The server's side of `qim.v1` where pages are written as [`EncodedPullResponse`].
#[allow(missing_docs, clippy::pedantic, unreachable_pub)]
pub mod encoding_server {
    include!(concat!(env!("OUT_DIR"), "/server/qim.v1.rs"));
}

/// The encoded `FileDescriptorSet` of package `qim.v1`, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("qim.v1");
