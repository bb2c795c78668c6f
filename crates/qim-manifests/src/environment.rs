//! The environment of one daemon, and the variables of it that both daemons must share.

use std::collections::{BTreeMap, BTreeSet};

use crate::inputs::Inputs;
use crate::launch::Launch;
use crate::report::{Daemon, Location};
use crate::value::Value;

/// The variable that SPEC A1 and A12 are about.
pub(crate) const RETENTION: &str = "QIM_DEFAULT_HISTORY_RETENTION_DAYS";

/// What both daemons must be given alike: what "both" read in the table of variables, as far as a difference would
/// make them disagree about the data.
pub(crate) const SHARED: [&str; 7] = [
    RETENTION,
    "QIM_HOT_WINDOW",
    "QIM_REDIS_URL",
    "QIM_REDIS_URL_FILE",
    "QIM_ARCHIVE_URL",
    "QIM_ARCHIVE_URL_FILE",
    "QIM_SHARDS",
];

/// Whether both daemons accept `text` as a retention (SPEC A1).
pub(crate) fn is_legal_retention(text: &str) -> bool {
    text.parse::<qim_core::RetentionDays>().is_ok()
}

/// A variable's value and the place that gives it.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) value: Value,
    pub(crate) location: Location,
}

/// A source whose variables cannot be seen (`envFrom` of a Secret that is not among the manifests).
#[derive(Debug, Clone)]
pub(crate) struct Opaque {
    /// As shown, and compared: ``Secret `name` ``, with its prefix.
    pub(crate) name: String,
    pub(crate) location: Location,
    /// The shared variables that it may set, and nothing later sets for certain.
    pub(crate) may_set: BTreeSet<&'static str>,
}

/// Sources are applied in order; what is set later wins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    settings: BTreeMap<String, Setting>,
    opaque: Vec<Opaque>,
}

impl Environment {
    pub(crate) fn set(&mut self, name: &str, setting: Setting) {
        for opaque in &mut self.opaque {
            opaque.may_set.remove(name);
        }
        self.settings.insert(name.to_owned(), setting);
    }

    pub(crate) fn add_opaque(&mut self, name: String, location: Location, prefix: &str) {
        let may_set = SHARED.into_iter().filter(|shared| shared.starts_with(prefix)).collect();
        self.opaque.push(Opaque { name, location, may_set });
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Setting> {
        self.settings.get(name)
    }

    /// The opaque sources that may set `name`, first to last.
    pub(crate) fn may_set(&self, name: &str) -> Vec<&str> {
        let sources = self.opaque.iter().filter(|opaque| opaque.may_set.contains(name));
        sources.map(|opaque| opaque.name.as_str()).collect()
    }

    pub(crate) fn opaque(&self) -> &[Opaque] {
        &self.opaque
    }
}

/// One daemon with what it is given.
#[derive(Debug, Clone)]
pub(crate) struct DaemonUnit {
    pub(crate) daemon: Daemon,
    pub(crate) name: String,
    pub(crate) location: Location,
    pub(crate) environment: Environment,
}

impl DaemonUnit {
    /// One unit for each daemon that `launch` starts. A shared variable that the command sets by itself is reported,
    /// since no environment shows its value.
    pub(crate) fn launched(
        launch: &Launch,
        name: &str,
        location: &Location,
        environment: &Environment,
        inputs: &Inputs,
    ) -> Vec<Self> {
        let daemons = launch.daemons();
        if !daemons.is_empty() {
            for variable in launch.set_inside(&SHARED) {
                let message =
                    format!("{variable} is set inside the command of {name:?}: set it in its environment");
                inputs.report(location.finding(message));
            }
        }
        let unit = |daemon| Self {
            daemon,
            name: name.to_owned(),
            location: location.clone(),
            environment: environment.clone(),
        };
        daemons.into_iter().map(unit).collect()
    }

    /// `qim-writer "name"`, as messages call it.
    pub(crate) fn shown(&self) -> String {
        format!("{} {:?}", self.daemon, self.name)
    }
}
