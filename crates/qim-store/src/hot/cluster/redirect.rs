use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::slots::Address;

/// What to do after an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Give it to the caller.
    Give,
    /// Another node has the slot: send it there.
    Moved(u16, Address),
    /// The slot is on its way to another node, which has the keys: ask that one, this once.
    Ask(Address),
    /// It passes by itself, and soon: send it once more.
    Wait,
    /// It was not sent: the node is away.
    Away,
}

impl Next {
    /// `asked`: the node that the error is from.
    pub(super) fn after(error: &RedisError, asked: &Address) -> Self {
        let told = || {
            let (node, slot) = error.redirect_node()?;
            Some((slot, Address::told(node, asked)?))
        };
        match error.kind() {
            // Where it says to go nowhere, the watch finds out.
            ErrorKind::Server(ServerErrorKind::Moved) => {
                told().map_or(Self::Wait, |(slot, node)| Self::Moved(slot, node))
            }
            ErrorKind::Server(ServerErrorKind::Ask) => told().map_or(Self::Wait, |(_, node)| Self::Ask(node)),
            ErrorKind::Server(
                ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly,
            )
            | ErrorKind::Io => Self::Wait,
            ErrorKind::ClusterConnectionNotFound => Self::Away,
            // Also LOADING, which takes its time.
            _ => Self::Give,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Value;

    fn after(error: &[u8]) -> Next {
        let reply = redis::parse_redis_value(error).unwrap();
        let asked = Address { host: "asked".into(), port: 1 };
        Next::after(&Value::extract_error(reply).unwrap_err(), &asked)
    }

    #[test]
    fn a_slot_is_followed() {
        let other = |host: &str| Address { host: host.into(), port: 7002 };
        assert_eq!(after(b"-MOVED 5 other:7002\r\n"), Next::Moved(5, other("other")));
        assert_eq!(after(b"-MOVED 5 :7002\r\n"), Next::Moved(5, other("asked")));
        assert_eq!(after(b"-ASK 5 other:7002\r\n"), Next::Ask(other("other")));
        assert_eq!(after(b"-MOVED 5 ?:7002\r\n"), Next::Wait);
    }

    #[test]
    fn only_what_passes_soon_is_tried_again() {
        for error in ["TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY"] {
            assert_eq!(after(format!("-{error} for a while\r\n").as_bytes()), Next::Wait, "{error}");
        }
        for error in ["OOM", "NOSCRIPT", "NOPERM", "LOADING", "LINEAGE", "ERR"] {
            assert_eq!(after(format!("-{error} for good\r\n").as_bytes()), Next::Give, "{error}");
        }
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(Next::after(&broken, &Address { host: "asked".into(), port: 1 }), Next::Wait);
    }
}
