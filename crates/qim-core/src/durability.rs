use std::fmt;
use std::num::NonZeroU8;
use std::str::FromStr;

/// Most replicas that can be waited for.
const REPLICAS_MAX: u8 = 5;

/// When a message is acknowledged (`QIM_COMMIT_DURABILITY`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommitDurability {
    /// When Redis has it.
    #[default]
    Memory,
    /// When it is on the disk of Redis.
    Fsync,
    /// When so many replicas have it, too.
    Replicated(NonZeroU8),
}

impl FromStr for CommitDurability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let replicas = text.strip_prefix("replicated:").and_then(|number| number.parse::<NonZeroU8>().ok());
        match (text, replicas) {
            ("memory", _) => Ok(Self::Memory),
            ("fsync", _) => Ok(Self::Fsync),
            (_, Some(replicas))
                if Self::Replicated(replicas).to_string() == text && replicas.get() <= REPLICAS_MAX =>
            {
                Ok(Self::Replicated(replicas))
            }
            _ => Err(format!(
                "{text:?} is neither memory, fsync nor replicated:N with N from 1 to {REPLICAS_MAX}"
            )),
        }
    }
}

impl fmt::Display for CommitDurability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Fsync => f.write_str("fsync"),
            Self::Replicated(replicas) => write!(f, "replicated:{replicas}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_set_and_nothing_else() {
        for text in ["memory", "fsync", "replicated:1", "replicated:5"] {
            assert_eq!(text.parse::<CommitDurability>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "Memory",
            "replicated",
            "replicated:",
            "replicated:0",
            "replicated:6",
            "replicated:+1",
            "replicated:01",
        ] {
            assert!(text.parse::<CommitDurability>().is_err(), "{text}");
        }
    }
}
