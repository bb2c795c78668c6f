//! Parsers of single values. An error is the rest of a sentence that starts with the variable's name.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use qim_core::{CommitDurability, Compression, RetentionDays, validate_id};
use tracing_subscriber::EnvFilter;

use super::{LogFormat, format_duration};

pub(super) type Parsed<T> = Result<T, String>;

const MILLIS_PER_UNIT: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

pub(super) fn retention_days(text: &str) -> Parsed<RetentionDays> {
    text.parse::<RetentionDays>().map_err(|error| error.to_string())
}

/// A whole number and a unit, without anything around or between them.
pub(super) fn duration(text: &str, range: RangeInclusive<Duration>) -> Parsed<Duration> {
    parse_duration(text).filter(|duration| range.contains(duration)).ok_or_else(|| {
        let (min, max) = (format_duration(*range.start()), format_duration(*range.end()));
        format!("{text:?} is not a duration from {min} to {max}: a whole number and ms, s, m, h or d")
    })
}

fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, millis) = MILLIS_PER_UNIT.into_iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(millis).map(Duration::from_millis)
}

/// Digits only.
pub(super) fn whole_number(text: &str, range: RangeInclusive<u32>) -> Parsed<u32> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|number| digits && range.contains(number))
        .ok_or_else(|| format!("{text:?} is not a whole number from {} to {}", range.start(), range.end()))
}

pub(super) fn socket_addr(text: &str) -> Parsed<SocketAddr> {
    text.parse().map_err(|_| format!("{text:?} is not IP:PORT, such as 127.0.0.1:7400 or [::1]:7400"))
}

pub(super) fn boolean(text: &str) -> Parsed<bool> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

pub(super) fn compression(text: &str) -> Parsed<Compression> {
    match text {
        "off" => Ok(Compression::Off),
        "zstd" => Ok(Compression::Zstd),
        _ => Err(format!("{text:?} is neither zstd nor off")),
    }
}

pub(super) fn commit_durability(text: &str) -> Parsed<CommitDurability> {
    text.parse()
}

pub(super) fn log_format(text: &str) -> Parsed<LogFormat> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("{text:?} is neither text nor json")),
    }
}

/// Stricter than [`EnvFilter`], which reads a misspelt level as the name of a target and then logs nothing else.
pub(super) fn log_filter(text: &str) -> Parsed<String> {
    let is_level = |level: &str| LEVELS.contains(&level.to_ascii_lowercase().as_str());
    let directives_are_plain = text.split(',').all(|directive| match directive.rsplit_once('=') {
        Some((target, level)) => !target.trim().is_empty() && is_level(level),
        None => is_level(directive),
    });
    if directives_are_plain && EnvFilter::builder().parse(text).is_ok() {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is not a log filter: one of {}, or as in info,qim_store=debug", LEVELS.join(", ")))
}

pub(super) fn instance(text: &str) -> Parsed<String> {
    validate_id(text).map_err(|error| format!("{text:?} {error}"))?;
    Ok(text.to_owned())
}
