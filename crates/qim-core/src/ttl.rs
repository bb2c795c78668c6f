use std::time::Duration;

use crate::UnixMillis;

/// The longest TTL a CQL server takes: 20 years of 365 days, in seconds.
pub const MAX_TTL_SECS: i32 = 630_720_000;

/// The TTL of an archived row, computed for each attempt to write it (SPEC A10, A11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowTtl {
    /// What is bound to `USING TTL ?`; `None` for a record that never expires. Never 0, which would mean for ever.
    pub secs: Option<i32>,
    /// The store cannot keep the row as long as its record lives.
    pub clamped: bool,
}

impl RowTtl {
    /// The time that a record has left at `now`, in seconds, rounded up so that a row never goes before its record;
    /// 1 for one that has expired, so that it is never brought back to life. `latest` is the last date that the store
    /// can expire a row at, where it has one.
    pub fn time_left(expires_at: Option<UnixMillis>, now: UnixMillis, latest: Option<UnixMillis>) -> Self {
        let Some(expires_at) = expires_at else { return Self { secs: None, clamped: false } };
        let wanted = ceil_secs(expires_at.since(now)).max(1);
        let limit = latest.map_or(u64::MAX, |latest| latest.since(now).as_secs().max(1));
        let secs = wanted.min(limit).min(u64::from(MAX_TTL_SECS.unsigned_abs()));
        Self { secs: Some(i32::try_from(secs).expect("at most MAX_TTL_SECS")), clamped: secs < wanted }
    }
}

fn ceil_secs(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);

    fn secs_left(millis: u64) -> Option<i32> {
        RowTtl::time_left(Some(NOW + Duration::from_millis(millis)), NOW, None).secs
    }

    #[test]
    fn a10_the_ttl_is_the_time_left_rounded_up() {
        assert_eq!(secs_left(30 * 86_400_000), Some(2_592_000));
        assert_eq!(secs_left(5_000), Some(5));
        assert_eq!(secs_left(5_001), Some(6));
        assert_eq!(secs_left(4_999), Some(5));
        assert_eq!(secs_left(1), Some(1));
    }

    #[test]
    fn a10_an_expired_record_gets_one_second_and_never_zero() {
        assert_eq!(secs_left(0), Some(1));
        let long_ago = Some(NOW - Duration::from_hours(1));
        assert_eq!(RowTtl::time_left(long_ago, NOW, None), RowTtl { secs: Some(1), clamped: false });
        assert_eq!(RowTtl::time_left(Some(UnixMillis::EPOCH), NOW, Some(UnixMillis::EPOCH)).secs, Some(1));
    }

    #[test]
    fn a11_a_record_that_never_expires_has_no_ttl() {
        assert_eq!(RowTtl::time_left(None, NOW, None), RowTtl { secs: None, clamped: false });
    }

    #[test]
    fn a_ttl_beyond_the_store_is_clamped_and_says_so() {
        let at_limit = NOW + Duration::from_secs(630_720_000);
        assert_eq!(
            RowTtl::time_left(Some(at_limit), NOW, None),
            RowTtl { secs: Some(MAX_TTL_SECS), clamped: false }
        );
        let beyond = at_limit + Duration::from_millis(1);
        assert_eq!(
            RowTtl::time_left(Some(beyond), NOW, None),
            RowTtl { secs: Some(MAX_TTL_SECS), clamped: true }
        );
        assert_eq!(
            RowTtl::time_left(Some(UnixMillis::MAX), UnixMillis::EPOCH, None),
            RowTtl { secs: Some(MAX_TTL_SECS), clamped: true }
        );
        let latest = Some(NOW + Duration::from_secs(10));
        assert_eq!(RowTtl::time_left(Some(beyond), NOW, latest), RowTtl { secs: Some(10), clamped: true });
    }
}
