use std::str::FromStr;
use std::time::Duration;

use qim_core::{RetentionClass, RetentionDays, RetentionPolicy, TenantId, UnixMillis};

/// A record so near to its date may be there or not: clocks differ, and an age counts from a moment that only the
/// import knew.
pub(crate) const SLACK: Duration = Duration::from_secs(600);

/// The retention of class `tenant_custom`, where the caller knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TenantRetention {
    /// There is no policy.
    Never,
    /// There is one, the same for all tenants of the file.
    Days(RetentionDays),
}

impl FromStr for TenantRetention {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "never" => Ok(Self::Never),
            days => days.parse().map(Self::Days).map_err(|error| format!("{error}, or never")),
        }
    }
}

/// Whether a record has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// It must be.
    Present,
    /// It may be.
    Either,
    /// It must not be.
    Absent,
}

/// Decides by class and date what has to be there.
#[derive(Debug)]
pub(crate) struct Rules {
    policy: RetentionPolicy,
    tenant: Option<TenantRetention>,
}

impl Rules {
    /// Without a tenant's retention a record of class `tenant_custom` may always be either.
    pub(crate) fn new(days: RetentionDays, tenant: Option<TenantRetention>) -> Self {
        Self { policy: RetentionPolicy::from_days(days), tenant }
    }

    /// What has to be true at `now` of a record of this date.
    pub(crate) fn due(&self, class: RetentionClass, created_at: UnixMillis, now: UnixMillis) -> Due {
        let expires_at = match (class, self.tenant) {
            (RetentionClass::TenantCustom, None) => return Due::Either,
            (RetentionClass::TenantCustom, Some(TenantRetention::Never)) => None,
            (RetentionClass::TenantCustom, Some(TenantRetention::Days(days))) => {
                Some(created_at + days.duration())
            }
            // Only class tenant_custom asks for the tenant.
            (class, _) => self.policy.expires_at(class, &TenantId::default(), created_at),
        };
        match expires_at {
            Some(at) if at + SLACK < now => Due::Absent,
            Some(at) if at <= now + SLACK => Due::Either,
            _ => Due::Present,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);
    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn a_record_must_be_there_before_its_date_and_gone_after_it() {
        let rules = Rules::new(RetentionDays::new(30).unwrap(), None);
        let (slack, second) = (600, 1);
        let due = |class, age_secs| rules.due(class, NOW - Duration::from_secs(age_secs), NOW);
        for (class, days) in [(RetentionClass::Default, 30), (RetentionClass::Ephemeral24h, 1)] {
            let retention = days * 86_400;
            assert_eq!(due(class, retention - slack - second), Due::Present);
            assert_eq!(due(class, retention - slack), Due::Either);
            assert_eq!(due(class, retention + slack), Due::Either);
            assert_eq!(due(class, retention + slack + second), Due::Absent);
        }
        assert_eq!(due(RetentionClass::ComplianceHold, 9999 * 86_400), Due::Present);
    }

    #[test]
    fn a_tenants_own_retention_is_unknown_until_it_is_given() {
        let due = |tenant| {
            Rules::new(RetentionDays::default(), tenant).due(
                RetentionClass::TenantCustom,
                NOW - 90 * DAY,
                NOW,
            )
        };
        assert_eq!(due(None), Due::Either);
        assert_eq!(due(Some("never".parse().unwrap())), Due::Present);
        assert_eq!(due(Some("60".parse().unwrap())), Due::Absent);
        assert_eq!(due(Some("365".parse().unwrap())), Due::Present);
        assert!("0".parse::<TenantRetention>().is_err());
    }
}
