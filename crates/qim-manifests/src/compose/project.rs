//! The variables of a compose project, and the environment they give a service.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::service::{Binding, EnvFileEntry, Service};
use crate::env_file::{self, Syntax};
use crate::environment::{Environment, Setting};
use crate::inputs::{Inputs, tidy};
use crate::report::Location;
use crate::template;
use crate::value::Value;

/// The `.env` file beside a compose file. The environment of whoever runs the gate is left out on purpose: it is not
/// the one in which the project will be started.
pub(crate) struct Project<'a> {
    variables: BTreeMap<String, Value>,
    inputs: &'a Inputs,
}

impl<'a> Project<'a> {
    pub(crate) fn of(directory: &Path, inputs: &'a Inputs) -> Self {
        let file: Rc<Path> = directory.join(".env").into();
        let mut variables = BTreeMap::new();
        if file.exists() {
            match inputs.env_file(&file, Syntax::Compose) {
                Ok(parsed) => {
                    let (values, problems) = env_file::evaluate(&parsed, &|_| None);
                    inputs.report_all(&file, problems);
                    variables = values.into_iter().map(|(name, (value, _))| (name, value)).collect();
                }
                Err(message) => inputs.report(Location::new(&file, 1).finding(message)),
            }
        }
        Self { variables, inputs }
    }

    /// The text with its variables replaced, where all of them are known.
    pub(crate) fn resolved(&self, template: &str) -> Option<String> {
        template::interpolate(template, &|name| self.lookup(name)).ok()?.known()
    }

    /// `env_file` in order, later ones over earlier ones, and `environment` over all of them.
    pub(crate) fn environment(&self, service: &Service) -> Environment {
        let mut environment = Environment::default();
        for entry in &service.env_files {
            self.add_env_file(entry, &mut environment);
        }
        for binding in &service.environment {
            let setting = Setting { value: self.value_of(binding), location: binding.location.clone() };
            environment.set(&binding.name, setting);
        }
        environment
    }

    fn lookup(&self, name: &str) -> Option<Value> {
        self.variables.get(name).cloned()
    }

    fn value_of(&self, Binding { name, text, location }: &Binding) -> Value {
        let Some(template) = text else {
            let mut value = self.lookup(name).unwrap_or_else(|| Value::passed_through(name));
            value.inputs.insert(name.clone());
            return value;
        };
        template::interpolate(template, &|name| self.lookup(name)).unwrap_or_else(|message| {
            self.inputs.report(location.finding(format!("{name}: {message}")));
            Value::unknown(format!("{name} at {location}"), "is not a valid expression")
        })
    }

    fn add_env_file(&self, entry: &EnvFileEntry, environment: &mut Environment) {
        let Some(path) = self.resolved(&entry.path) else {
            self.inputs.report(entry.location.finding("env_file: the path cannot be resolved"));
            return;
        };
        let file: Rc<Path> = tidy(&PathBuf::from(&entry.directory).join(path)).into();
        if !entry.required && !file.exists() {
            return;
        }
        match self.inputs.env_file(&file, entry.syntax) {
            Ok(parsed) => {
                let (values, problems) = env_file::evaluate(&parsed, &|name| self.lookup(name));
                self.inputs.report_all(&file, problems);
                for (name, (value, line)) in values {
                    environment.set(&name, Setting { value, location: Location::new(&file, line) });
                }
            }
            Err(message) => {
                let message = format!("env_file {} {message}", file.display());
                self.inputs.report(entry.location.finding(message));
            }
        }
    }
}
