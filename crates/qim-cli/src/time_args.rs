//! Dates and durations as people write them.

use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use qim_core::UnixMillis;

/// A date: absolute, or as an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// A millisecond.
    At(UnixMillis),
    /// This long before now.
    Ago(Duration),
}

impl When {
    /// The date meant, at `now`.
    pub(crate) fn resolve(self, now: UnixMillis) -> UnixMillis {
        match self {
            Self::At(at) => at,
            Self::Ago(age) => now - age,
        }
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match parse_duration(text) {
            Ok(age) => Ok(Self::Ago(age)),
            Err(_) => parse_date(text).map(Self::At).map_err(|_| {
                format!("{text:?} is not a date: write RFC 3339, epoch milliseconds, or an age such as 2d")
            }),
        }
    }
}

/// RFC 3339, or milliseconds since the epoch.
pub(crate) fn parse_date(text: &str) -> Result<UnixMillis, String> {
    let invalid = || format!("{text:?} is neither RFC 3339 nor epoch milliseconds");
    let millis = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse::<i64>().map_err(|_| invalid())?
    } else {
        let timestamp = text.parse::<Timestamp>().map_err(|_| invalid())?;
        // Rounded down: jiff cuts towards the epoch, and a date before it is refused anyway.
        timestamp.as_millisecond()
    };
    UnixMillis::checked(millis).ok_or_else(|| format!("{text:?} lies outside the dates that can be stored"))
}

/// A whole number and a unit: `250ms`, `90s`, `5m`, `12h`, `2d`, `1w`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is not a duration: write a whole number and ms, s, m, h, d or w");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 604_800_000,
        _ => return Err(invalid()),
    };
    let number: u64 = number.parse().map_err(|_| invalid())?;
    number.checked_mul(unit_millis).map(Duration::from_millis).ok_or_else(invalid)
}

/// The date in RFC 3339, UTC, to the millisecond.
pub(crate) fn show_date(millis: i64) -> String {
    // Stored dates reach beyond the year 9999, where RFC 3339 ends.
    Timestamp::from_millisecond(millis).map_or_else(|_| format!("{millis} ms"), |at| format!("{at:.3}"))
}

/// The duration for people: `5m`, `1m 30s`.
pub(crate) fn show_duration(duration: Duration) -> String {
    SignedDuration::try_from(duration).map_or_else(|_| "ever".to_owned(), |duration| format!("{duration:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_rfc_3339_or_epoch_milliseconds() {
        let noon = UnixMillis::new(1_800_000_000_000);
        for good in [
            "1800000000000",
            "2027-01-15T08:00:00Z",
            "2027-01-15T08:00:00.000Z",
            "2027-01-15T10:30:00+02:30",
            "2027-01-15t08:00:00z",
            "2027-01-15T08:00:00.000999Z",
        ] {
            assert_eq!(parse_date(good), Ok(noon), "{good}");
        }
        for bad in [
            "",
            "2027-01-15",
            "2027-01-15T08:00:00",
            "2027-13-15T08:00:00Z",
            "yesterday",
            "-1",
            "1.8e12",
            "1969-12-31T23:59:59Z",
            "99999999999999999999",
            "9999999999999999",
        ] {
            assert!(parse_date(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_duration_is_a_whole_number_with_a_unit() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_duration("2d"), Ok(Duration::from_secs(172_800)));
        for bad in ["", "5", "m", "1.5h", "-1s", "5 m", "5min", "99999999999999999999s", "99999999999999999w"]
        {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_time_on_the_command_line_may_be_an_age() {
        let now = UnixMillis::new(1_800_000_000_000);
        assert_eq!("2d".parse::<When>().unwrap().resolve(now), UnixMillis::new(1_799_827_200_000));
        assert_eq!("5000".parse::<When>().unwrap().resolve(now), UnixMillis::new(5000));
        assert!("soon".parse::<When>().is_err());
    }

    #[test]
    fn dates_and_durations_are_shown_as_people_write_them() {
        assert_eq!(show_date(1_800_000_000_123), "2027-01-15T08:00:00.123Z");
        assert_eq!(show_date(UnixMillis::MAX.as_i64()), "281474976710655 ms");
        assert_eq!(show_duration(Duration::from_secs(300)), "5m");
        assert_eq!(show_duration(Duration::MAX), "ever");
    }
}
