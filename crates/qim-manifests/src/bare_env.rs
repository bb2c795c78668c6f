//! Env files that no manifest refers to, as a service manager or `docker run --env-file` would take them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::compare::report_illegal_retention;
use crate::env_file::{self, Syntax};
use crate::environment::{DaemonUnit, Environment, Setting};
use crate::inputs::{Inputs, directory_of};
use crate::report::{Daemon, Location};
use crate::stack::{Scope, Stack};

/// One whose own name says a daemon (`qim-writer.env`) is that daemon's environment, and is compared with the others
/// of its directory. In all others only the retention's value is looked at.
pub(crate) fn stacks(files: &[Rc<Path>], inputs: &Inputs) -> Vec<Stack> {
    let bare: Vec<&Rc<Path>> = files.iter().filter(|file| !inputs.has_read_env_file(file)).collect();
    let mut directories: BTreeMap<PathBuf, Vec<DaemonUnit>> = BTreeMap::new();
    for file in bare {
        let environment = environment(file, inputs);
        report_illegal_retention(&environment, inputs);
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let units = Daemon::ALL.into_iter().filter(|daemon| name.contains(daemon.program())).map(|daemon| {
            DaemonUnit {
                daemon,
                name: name.to_owned(),
                location: Location::new(file, 1),
                environment: environment.clone(),
            }
        });
        directories.entry(directory_of(file).to_path_buf()).or_default().extend(units);
    }
    let stack = |(directory, units)| Stack { scope: Scope::EnvFiles(directory), is_variant: false, units };
    directories.into_iter().map(stack).collect()
}

fn environment(file: &Rc<Path>, inputs: &Inputs) -> Environment {
    let mut environment = Environment::default();
    match inputs.env_file(file, Syntax::Compose) {
        Ok(parsed) => {
            let (values, problems) = env_file::evaluate(&parsed, &|_| None);
            inputs.report_all(file, problems);
            for (name, (value, line)) in values {
                environment.set(&name, Setting { value, location: Location::new(file, line) });
            }
        }
        Err(message) => inputs.report(Location::new(file, 1).finding(message)),
    }
    environment
}
