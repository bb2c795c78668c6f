//! What a variable gets: text, parts that cannot be known here, and how either is shown.

use std::collections::BTreeSet;

/// A longer value is cut where it is shown.
const SHOWN_CHARS_MAX: usize = 120;

/// A part of a value that the manifests do not tell. Two are the same where their `identity` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unknown {
    /// `${NAME}`, `key K of Secret S`, …
    pub(crate) identity: String,
    /// Completes the sentence "the identity …".
    pub(crate) why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Unknown(Unknown),
}

/// The value of a variable: pieces of text and unknown pieces, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Value {
    pieces: Vec<Piece>,
    /// The compose variables that were asked for on the way, known or not.
    pub(crate) inputs: BTreeSet<String>,
}

impl Value {
    pub(crate) fn of(text: impl Into<String>) -> Self {
        let mut value = Self::default();
        value.push_text(&text.into());
        value
    }

    pub(crate) fn unknown(identity: impl Into<String>, why: &'static str) -> Self {
        let pieces = vec![Piece::Unknown(Unknown { identity: identity.into(), why })];
        Self { pieces, inputs: BTreeSet::new() }
    }

    /// What the process that starts the containers passes on under its own name.
    pub(crate) fn passed_through(name: &str) -> Self {
        let mut value = Self::unknown(format!("{name} from the caller"), "is passed on as the caller has it");
        value.inputs.insert(name.to_owned());
        value
    }

    pub(crate) fn push_text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    pub(crate) fn push(&mut self, value: Self) {
        for piece in value.pieces {
            match piece {
                Piece::Text(text) => self.push_text(&text),
                Piece::Unknown(_) => self.pieces.push(piece),
            }
        }
        self.inputs.extend(value.inputs);
    }

    /// The same text and the same unknown parts; the inputs do not count.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.pieces == other.pieces
    }

    /// The whole text, where nothing in it is unknown.
    pub(crate) fn known(&self) -> Option<String> {
        self.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => Some(text.as_str()),
                Piece::Unknown(_) => None,
            })
            .collect()
    }

    pub(crate) fn first_unknown(&self) -> Option<&Unknown> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Unknown(unknown) => Some(unknown),
            Piece::Text(_) => None,
        })
    }

    /// The value as a message may show it: in quotes unless it is one unknown, on one line, cut, without secrets.
    pub(crate) fn shown(&self) -> String {
        if let [Piece::Unknown(unknown)] = self.pieces.as_slice() {
            return redacted(&unknown.identity);
        }
        let text: String = self
            .pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.as_str(),
                Piece::Unknown(unknown) => unknown.identity.as_str(),
            })
            .collect();
        let text = redacted(&text);
        let cut: String = text.chars().take(SHOWN_CHARS_MAX).collect();
        let mark = if cut.len() < text.len() { "…" } else { "" };
        format!("{:?}", cut + mark)
    }
}

/// Hides what a URL may carry of a secret: all between the scheme and the last `@`, and all after a `?` or `#`.
///
/// Passwords are not always encoded, and a list of servers may repeat them, so this takes rather too much.
pub(crate) fn redacted(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let (hidden, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => ("***@", rest),
        None => ("", rest),
    };
    match rest.find(['?', '#']).filter(|_| !scheme.is_empty()) {
        Some(end) => format!("{scheme}{hidden}{}***", &rest[..=end]),
        None => format!("{scheme}{hidden}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Value, redacted};

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis://:pw@redis:6379/0", "redis://***@redis:6379/0"),
            ("redis://user:p/w?d@x@redis:6379", "redis://***@redis:6379"),
            ("redis-cluster://:a@one:1,:b@two:2", "redis-cluster://***@two:2"),
            ("scylla://one,two/qim?password=pw#x", "scylla://one,two/qim?***"),
            (":pw@redis", "***@redis"),
            ("30", "30"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }

    #[test]
    fn a_value_is_shown_on_one_line_and_cut() {
        assert_eq!(Value::of("3\n0").shown(), r#""3\n0""#);
        assert!(Value::of("9".repeat(500)).shown().chars().count() < 130);
        let mut mixed = Value::of("redis://:");
        mixed.push(Value::unknown("${PW}", "is not resolved"));
        mixed.push_text("@redis:6379");
        assert_eq!(mixed.shown(), r#""redis://***@redis:6379""#);
        assert_eq!(mixed.known(), None);
    }
}
