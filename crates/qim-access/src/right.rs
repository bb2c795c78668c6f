use std::fmt;
use std::str::FromStr;

/// Something that a token may allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// To commit messages: `Append`, `AppendStream`.
    Append,
    /// To read: `Pull`, `Describe`.
    Pull,
    /// To commit messages with dates of one's own: `Import`, `ImportStream`.
    Import,
    /// To commit messages that never expire by themselves, class `compliance_hold`; beside `append` or `import`.
    Compliance,
    /// All of the others, and those that are still to come: for whoever operates the tenants of the token. It reaches no
    /// other tenant.
    Admin,
}

/// A set of rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights(u8);

/// A name that is no right's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is none of append, pull, import, compliance and admin")]
pub struct UnknownRight;

impl Right {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Append, Self::Pull, Self::Import, Self::Compliance, Self::Admin];

    /// As in the file of tokens.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Pull => "pull",
            Self::Import => "import",
            Self::Compliance => "compliance",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Right {
    type Err = UnknownRight;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|right| right.name() == name).ok_or(UnknownRight)
    }
}

impl Rights {
    /// Whether they allow what this one does: it is among them, or [`Right::Admin`] is.
    pub const fn include(self, right: Right) -> bool {
        self.0 & (right.bit() | Right::Admin.bit()) != 0
    }

    /// Each of them, as they were given.
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.0 & right.bit() != 0)
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().fold(0, |bits, right| bits | right.bit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in_and_a_name_finds_its_right() {
        let rights: Rights = [Right::Pull, Right::Compliance, Right::Pull].into_iter().collect();
        assert_eq!(rights.iter().collect::<Vec<_>>(), [Right::Pull, Right::Compliance]);
        assert!(!rights.include(Right::Admin) && !Rights::default().include(Right::Append));
        for right in Right::ALL {
            assert_eq!(right.name().parse(), Ok(right));
        }
        assert_eq!("Append".parse::<Right>(), Err(UnknownRight));
    }

    #[test]
    fn admin_allows_whatever_any_right_does_and_is_written_as_itself() {
        let admin: Rights = [Right::Admin].into_iter().collect();
        assert!(Right::ALL.into_iter().all(|right| admin.include(right)));
        assert_eq!(admin.iter().collect::<Vec<_>>(), [Right::Admin]);
        let others: Rights = Right::ALL.into_iter().filter(|right| *right != Right::Admin).collect();
        assert!(!others.include(Right::Admin));
    }
}
