use std::fmt;
use std::str::FromStr;

/// How long a record is kept (SPEC A3-A6). The numbers are part of the stored format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum RetentionClass {
    /// 24 hours, whatever is configured (SPEC A3).
    Ephemeral24h = 0,
    /// The configured retention (SPEC A4).
    #[default]
    Default = 1,
    /// Never expires by itself; only the compliance process ends it (SPEC A5).
    ComplianceHold = 2,
    /// The tenant's own policy; where there is none, never expires by itself (SPEC A6).
    TenantCustom = 3,
}

/// A class name or number that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a retention class; allowed are ephemeral_24h, default, compliance_hold and tenant_custom"
)]
pub struct UnknownClass(pub String);

impl RetentionClass {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Ephemeral24h, Self::Default, Self::ComplianceHold, Self::TenantCustom];

    /// The name used in files, metrics and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ephemeral24h => "ephemeral_24h",
            Self::Default => "default",
            Self::ComplianceHold => "compliance_hold",
            Self::TenantCustom => "tenant_custom",
        }
    }

    /// The class with this stored number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Ephemeral24h),
            1 => Some(Self::Default),
            2 => Some(Self::ComplianceHold),
            3 => Some(Self::TenantCustom),
            _ => None,
        }
    }
}

impl fmt::Display for RetentionClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RetentionClass {
    type Err = UnknownClass;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|class| class.name() == name).ok_or_else(|| UnknownClass(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back_to_the_class() {
        for class in RetentionClass::ALL {
            assert_eq!(class.name().parse(), Ok(class));
            assert_eq!(RetentionClass::from_number(class as u8), Some(class));
        }
        assert_eq!(RetentionClass::from_number(4), None);
        assert!("Default".parse::<RetentionClass>().is_err());
    }
}
