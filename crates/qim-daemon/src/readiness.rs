use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::{info, warn};

/// How one part of the daemon is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// As it should be.
    Ready,
    /// Somebody should look, but requests are answered.
    Degraded(String),
    /// Requests should go to another process.
    NotReady(String),
}

/// What `/readyz` answers from: named conditions, each set by the part that knows. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, Condition>>>);

/// All conditions taken together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadinessReport {
    /// No condition is [`Condition::NotReady`].
    pub ready: bool,
    /// `name: reason` of the conditions that matter most: those not ready, else those degraded.
    pub reasons: Vec<String>,
}

impl Readiness {
    /// Sets the condition of this name. Logs a change between good, degraded and not ready, but no new reason for the
    /// same, so that it may be called as often as one likes.
    pub fn set(&self, name: &'static str, condition: Condition) {
        let before = self.replace(name, condition.clone());
        if before.is_some_and(|before| before.severity() == condition.severity()) {
            return;
        }
        match condition {
            Condition::Ready => info!(condition = name, "ready"),
            Condition::Degraded(reason) => warn!(condition = name, reason, "degraded"),
            Condition::NotReady(reason) => warn!(condition = name, reason, "not ready"),
        }
    }

    /// Sets a condition that is no news.
    pub(crate) fn replace(&self, name: &'static str, condition: Condition) -> Option<Condition> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, condition)
    }

    /// Sets the condition of this name by how an attempt went: [`Condition::Ready`], or `worse` with the error.
    pub fn observe<T, E: fmt::Display>(
        &self,
        name: &'static str,
        attempt: &Result<T, E>,
        worse: fn(String) -> Condition,
    ) {
        self.set(name, attempt.as_ref().map_or_else(|error| worse(error.to_string()), |_| Condition::Ready));
    }

    /// All conditions taken together.
    pub fn report(&self) -> ReadinessReport {
        let conditions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let worst = conditions.values().map(Condition::severity).max().unwrap_or(0);
        let reasons = conditions.iter().filter(|(_, condition)| condition.severity() == worst);
        let reasons =
            reasons.filter_map(|(name, condition)| Some(format!("{name}: {}", condition.reason()?)));
        ReadinessReport { ready: worst < 2, reasons: reasons.collect() }
    }
}

impl Condition {
    const fn severity(&self) -> u8 {
        match self {
            Self::Ready => 0,
            Self::Degraded(_) => 1,
            Self::NotReady(_) => 2,
        }
    }

    fn reason(&self) -> Option<String> {
        match self {
            Self::Ready => None,
            Self::Degraded(reason) | Self::NotReady(reason) => Some(reason.replace(['\n', '\r'], " ")),
        }
    }
}

impl fmt::Display for ReadinessReport {
    /// One line: `ready`, `degraded: redis: …; archive: …` or `not ready: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = self.reasons.join("; ");
        match (self.ready, self.reasons.is_empty()) {
            (true, true) => f.write_str("ready"),
            (true, false) => write!(f, "degraded: {reasons}"),
            (false, _) => write!(f, "not ready: {reasons}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(conditions: &[(&'static str, Condition)]) -> (bool, String) {
        let readiness = Readiness::default();
        for (name, condition) in conditions {
            readiness.set(name, condition.clone());
        }
        (readiness.report().ready, readiness.report().to_string())
    }

    #[test]
    fn the_worst_condition_decides_and_is_explained() {
        let degraded = |name, reason: &str| (name, Condition::Degraded(reason.to_owned()));
        let not_ready = |name, reason: &str| (name, Condition::NotReady(reason.to_owned()));
        assert_eq!(report(&[]), (true, "ready".to_owned()));
        assert_eq!(report(&[("redis", Condition::Ready)]), (true, "ready".to_owned()));
        assert_eq!(
            report(&[
                degraded("retention", "differs"),
                degraded("archive", "no\nanswer"),
                ("redis", Condition::Ready)
            ]),
            (true, "degraded: archive: no answer; retention: differs".to_owned())
        );
        assert_eq!(
            report(&[degraded("retention", "differs"), not_ready("redis", "refused")]),
            (false, "not ready: redis: refused".to_owned())
        );
    }

    #[test]
    fn a_condition_that_is_good_again_is_forgotten() {
        let bad = ("redis", Condition::NotReady("refused".to_owned()));
        assert_eq!(report(&[bad, ("redis", Condition::Ready)]), (true, "ready".to_owned()));
    }
}
