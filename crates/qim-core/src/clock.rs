use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch, at most [`UnixMillis::MAX`] (48 bits: the year 10889), which is what a stored
/// record has room for. Arithmetic saturates at both ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct UnixMillis(u64);

impl UnixMillis {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// The last millisecond that can be stored.
    pub const MAX: Self = Self((1 << 48) - 1);

    /// Saturates at [`UnixMillis::MAX`].
    pub const fn new(millis: u64) -> Self {
        if millis > Self::MAX.0 { Self::MAX } else { Self(millis) }
    }

    /// `None` for a negative number or one beyond [`UnixMillis::MAX`].
    pub fn checked(millis: i64) -> Option<Self> {
        u64::try_from(millis).ok().filter(|millis| *millis <= Self::MAX.0).map(Self)
    }

    /// Milliseconds since the epoch.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Milliseconds since the epoch as the signed number that APIs and databases use; never negative.
    pub const fn as_i64(self) -> i64 {
        self.0.cast_signed()
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for UnixMillis {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self::new(self.0.saturating_add(millis))
    }
}

impl Sub<Duration> for UnixMillis {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(millis))
    }
}

impl fmt::Debug for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The only source of the time of day. Nothing below `main` reads the system clock but through it, so that tests can
/// stand anywhere in time.
pub trait Clock: Send + Sync + 'static {
    /// The time now. May step backwards, as system clocks do.
    fn now(&self) -> UnixMillis;
}

/// A clock that many tasks read.
pub type SharedClock = Arc<dyn Clock>;

/// The clock of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMillis {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis::EPOCH + since_epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(UnixMillis::MAX + Duration::from_millis(1), UnixMillis::MAX);
        assert_eq!(UnixMillis::EPOCH + Duration::MAX, UnixMillis::MAX);
        assert_eq!(UnixMillis::EPOCH - Duration::from_millis(1), UnixMillis::EPOCH);
        assert_eq!(UnixMillis::new(u64::MAX), UnixMillis::MAX);
        assert_eq!(UnixMillis::new(5).since(UnixMillis::new(9)), Duration::ZERO);
    }

    #[test]
    fn only_dates_that_can_be_stored_are_accepted() {
        assert_eq!(UnixMillis::checked(-1), None);
        assert_eq!(UnixMillis::checked(0), Some(UnixMillis::EPOCH));
        assert_eq!(UnixMillis::checked(UnixMillis::MAX.as_i64()), Some(UnixMillis::MAX));
        assert_eq!(UnixMillis::checked(UnixMillis::MAX.as_i64() + 1), None);
    }
}
