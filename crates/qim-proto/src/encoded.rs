use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};

/// A [`crate::v1::PullResponse`] as it is sent. A server that has records as they are stored writes it at once, without
/// a value for each field of each record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EncodedPullResponse(pub Bytes);

impl Message for EncodedPullResponse {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.0);
    }

    /// Whoever reads one takes it for what it is, a [`crate::v1::PullResponse`].
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buf, ctx)
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
