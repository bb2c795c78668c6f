use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{RetentionClass, TenantId, UnixMillis};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The retention of class `default` where nothing is configured, in days (SPEC A1).
pub const DEFAULT_HISTORY_RETENTION_DAYS: u16 = 30;
/// The longest retention that can be configured, in days: about ten years, below the archive's limit of twenty
/// (SPEC A1).
pub const DEFAULT_HISTORY_RETENTION_DAYS_MAX: u16 = 3650;
/// The retention of class `ephemeral_24h` (SPEC A3).
pub const EPHEMERAL_RETENTION: Duration = DAY;

/// A retention in whole days, 1..=3650 (SPEC A1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetentionDays(u16);

/// A value that is not a retention.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a whole number of days from 1 to {DEFAULT_HISTORY_RETENTION_DAYS_MAX}")]
pub struct InvalidRetentionDays(pub String);

impl RetentionDays {
    /// `None` outside 1..=3650.
    pub const fn new(days: u16) -> Option<Self> {
        if matches!(days, 1..=DEFAULT_HISTORY_RETENTION_DAYS_MAX) { Some(Self(days)) } else { None }
    }

    /// The number of days.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The same as a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_secs(DAY.as_secs() * self.0 as u64)
    }
}

impl Default for RetentionDays {
    fn default() -> Self {
        Self(DEFAULT_HISTORY_RETENTION_DAYS)
    }
}

impl fmt::Display for RetentionDays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for RetentionDays {
    type Err = InvalidRetentionDays;

    /// Digits only: no sign, no space, no unit, no leading zero (SPEC A1).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidRetentionDays(text.to_owned());
        if text.starts_with('0') || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(invalid());
        }
        text.parse().ok().and_then(Self::new).ok_or_else(invalid)
    }
}

/// The retention that another daemon says it runs with (SPEC A12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerRetention {
    /// `role:instance`.
    pub peer: String,
    /// What it reads from `QIM_DEFAULT_HISTORY_RETENTION_DAYS`, as it told it.
    pub days: String,
}

/// Decides when a record expires; the only thing that does, for both tiers (SPEC A2).
///
/// [`RetentionPolicy::default`] never expires anything of class `default` (SPEC A7): whoever assembles a service says
/// how long that is, with [`RetentionPolicy::from_days`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    default_class: Option<RetentionDays>,
    tenants: BTreeMap<TenantId, RetentionDays>,
}

impl RetentionPolicy {
    /// Class `default` expires after `days` (SPEC A4).
    pub fn from_days(days: RetentionDays) -> Self {
        Self { default_class: Some(days), tenants: BTreeMap::new() }
    }

    /// Class `tenant_custom` of these tenants expires as they say (SPEC A6).
    #[must_use]
    pub fn with_tenant_policies(self, tenants: BTreeMap<TenantId, RetentionDays>) -> Self {
        Self { tenants, ..self }
    }

    /// How long a record of this class and tenant is kept; `None`: until somebody ends it.
    pub fn retention(&self, class: RetentionClass, tenant: &TenantId) -> Option<Duration> {
        match class {
            RetentionClass::Ephemeral24h => Some(EPHEMERAL_RETENTION),
            RetentionClass::Default => self.default_class.map(RetentionDays::duration),
            RetentionClass::ComplianceHold => None,
            // Fail closed: without a policy nothing is deleted.
            RetentionClass::TenantCustom => self.tenants.get(tenant).copied().map(RetentionDays::duration),
        }
    }

    /// The moment from which the record cannot be read: `created_at` + retention, at most [`UnixMillis::MAX`].
    /// `None`: never by itself.
    pub fn expires_at(
        &self,
        class: RetentionClass,
        tenant: &TenantId,
        created_at: UnixMillis,
    ) -> Option<UnixMillis> {
        self.retention(class, tenant).map(|retention| created_at + retention)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: UnixMillis = UnixMillis::new(1_800_000_000_000);
    const DAY_MS: u64 = 86_400_000;

    fn days(days: u16) -> RetentionDays {
        RetentionDays::new(days).unwrap()
    }

    fn expiry(policy: &RetentionPolicy, class: RetentionClass) -> Option<u64> {
        policy.expires_at(class, &TenantId::default(), NOON).map(|at| at.get() - NOON.get())
    }

    #[test]
    fn a1_only_whole_days_from_1_to_3650_are_legal() {
        for bad in [
            "0",
            "3651",
            "-1",
            "+1",
            "3.5",
            "",
            "30d",
            " 30",
            "30 ",
            "030",
            "٣",
            "99999999999999999999",
            "0x1e",
        ] {
            assert_eq!(bad.parse::<RetentionDays>(), Err(InvalidRetentionDays(bad.to_owned())), "{bad:?}");
        }
        for good in ["1", "30", "3650"] {
            assert_eq!(good.parse::<RetentionDays>().unwrap().to_string(), good);
        }
        assert_eq!(RetentionDays::default().get(), 30);
        assert_eq!(
            " 30".parse::<RetentionDays>().unwrap_err().to_string(),
            "\" 30\" is not a whole number of days from 1 to 3650"
        );
    }

    #[test]
    fn a2_a4_default_expires_after_the_configured_days() {
        assert_eq!(expiry(&RetentionPolicy::from_days(days(30)), RetentionClass::Default), Some(30 * DAY_MS));
        assert_eq!(expiry(&RetentionPolicy::from_days(days(1)), RetentionClass::Default), Some(DAY_MS));
        assert_eq!(
            expiry(&RetentionPolicy::from_days(days(3650)), RetentionClass::Default),
            Some(3650 * DAY_MS)
        );
    }

    #[test]
    fn a3_ephemeral_expires_after_24_hours_whatever_is_configured() {
        for policy in [RetentionPolicy::default(), RetentionPolicy::from_days(days(3650))] {
            assert_eq!(expiry(&policy, RetentionClass::Ephemeral24h), Some(DAY_MS));
        }
    }

    #[test]
    fn a5_compliance_hold_never_expires_by_itself() {
        for policy in [RetentionPolicy::default(), RetentionPolicy::from_days(days(1))] {
            assert_eq!(expiry(&policy, RetentionClass::ComplianceHold), None);
        }
    }

    #[test]
    fn a6_tenant_custom_follows_the_tenant_and_fails_closed_without_a_policy() {
        let acme = TenantId::new("acme").unwrap();
        let policy = RetentionPolicy::from_days(days(30))
            .with_tenant_policies(BTreeMap::from([(acme.clone(), days(90))]));
        let expires_at = policy.expires_at(RetentionClass::TenantCustom, &acme, NOON);
        assert_eq!(expires_at, Some(NOON + 90 * DAY));
        assert_eq!(expiry(&policy, RetentionClass::TenantCustom), None);
    }

    #[test]
    fn a7_the_library_default_expires_nothing_of_class_default() {
        assert_eq!(expiry(&RetentionPolicy::default(), RetentionClass::Default), None);
    }

    #[test]
    fn a_date_beyond_what_can_be_stored_is_held_at_the_last_one() {
        let policy = RetentionPolicy::from_days(days(30));
        let late = UnixMillis::MAX - DAY;
        assert_eq!(
            policy.expires_at(RetentionClass::Default, &TenantId::default(), late),
            Some(UnixMillis::MAX)
        );
    }
}
