use bytes::Bytes;
use qim_core::{Compressor, ConversationKey, Dictionary, DictionaryError, UnixMillis};

/// One conversation in so many is not trained on.
const HELD_OUT: u64 = 16;
/// Enough for two digits.
const MESSAGES_MAX: usize = 4_000;
/// A dictionary that leaves more of what is stored without one is not worth having.
const USEFUL_AT_MOST: f64 = 0.95;

/// Messages that a dictionary is measured on and was not trained on.
#[derive(Debug, Default)]
pub(super) struct HeldOut(Vec<Bytes>);

/// Bytes of the messages held out: as they came, and as they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gain {
    pub(super) messages: usize,
    pub(super) payload_bytes: usize,
    pub(super) without_bytes: usize,
    pub(super) with_bytes: usize,
}

impl HeldOut {
    /// Takes the message, where its conversation is held out. By conversations, since one repeats itself.
    pub(super) fn takes(&mut self, conversation: &ConversationKey, payload: &[u8]) -> bool {
        let takes = conversation.stable_hash().is_multiple_of(HELD_OUT);
        if takes && self.0.len() < MESSAGES_MAX {
            self.0.push(Bytes::copy_from_slice(payload));
        }
        takes
    }

    /// What the dictionary would save.
    pub(super) fn measure(&self, dictionary: &Bytes) -> Result<Gain, DictionaryError> {
        let compressor = Compressor::default();
        compressor.use_dictionary(Some(&Dictionary::new(1, UnixMillis::EPOCH, dictionary.clone())?))?;
        let sum = |bytes: &dyn Fn(&Bytes) -> usize| self.0.iter().map(bytes).sum();
        Ok(Gain {
            messages: self.0.len(),
            payload_bytes: sum(&Bytes::len),
            without_bytes: sum(&|payload| compressor.pack(payload).stored_bytes()),
            with_bytes: sum(&|payload| compressor.pack_expiring(payload).stored_bytes()),
        })
    }
}

impl Gain {
    /// What is stored, as a part of the payload.
    pub(super) fn ratio(self, stored: usize) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
        let ratio = stored as f64 / self.payload_bytes.max(1) as f64;
        ratio
    }

    /// Whether it is worth having, as far as that could be measured.
    pub(super) fn is_useful(self) -> bool {
        self.messages == 0 || self.ratio(self.with_bytes) <= self.ratio(self.without_bytes) * USEFUL_AT_MOST
    }
}
