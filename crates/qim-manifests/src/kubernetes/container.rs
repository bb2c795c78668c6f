//! The environment of one container: `envFrom`, and `env` over it.

use std::path::Path;
use std::rc::Rc;

use super::objects::{ConfigMap, Datum, Objects, Secret};
use crate::environment::{Environment, SHARED, Setting};
use crate::inputs::Inputs;
use crate::report::Location;
use crate::value::Value;
use crate::yaml::Node;

/// Where a container's references lead: to the objects that are applied with it, and after those to all others.
pub(crate) struct References<'a> {
    pub(crate) own: &'a Objects,
    pub(crate) all: &'a [Objects],
    pub(crate) namespace: Option<&'a str>,
    pub(crate) inputs: &'a Inputs,
}

/// Why a reference leads nowhere.
struct NotFound {
    /// Declared nowhere, which `optional: true` forgives; otherwise declared twice.
    is_absent: bool,
    message: String,
}

impl NotFound {
    fn is_forgiven_by(&self, reference: &Node) -> bool {
        self.is_absent && reference.is_true("optional")
    }
}

impl References<'_> {
    /// The one `ConfigMap` of this name in the namespace.
    fn config_map(&self, name: &str) -> Result<&ConfigMap, NotFound> {
        let fits = |object: &&ConfigMap| object.name == name && object.namespace.as_deref() == self.namespace;
        let mut found: Vec<&ConfigMap> = self.own.config_maps.iter().filter(fits).collect();
        if found.is_empty() {
            found = self.all.iter().flat_map(|objects| &objects.config_maps).filter(fits).collect();
        }
        let place = match self.namespace {
            Some(namespace) => format!("namespace {namespace:?}"),
            None => "the manifests without a namespace".to_owned(),
        };
        let (is_absent, message) = match found.as_slice() {
            [one] => return Ok(one),
            [] => (true, format!("ConfigMap {name:?} is not declared in {place}")),
            [first, second, ..] => {
                let places = format!("{}, {}", first.location, second.location);
                (false, format!("ConfigMap {name:?} is declared more than once in {place} ({places})"))
            }
        };
        Err(NotFound { is_absent, message })
    }

    fn secret(&self, name: &str) -> Option<&Secret> {
        let fits = |object: &&Secret| object.name == name && object.namespace.as_deref() == self.namespace;
        let own = self.own.secrets.iter().find(fits);
        own.or_else(|| self.all.iter().flat_map(|objects| &objects.secrets).find(fits))
    }
}

/// Builds the environment of a container declared in `file`.
pub(crate) fn environment(container: &Node, file: &Rc<Path>, references: &References<'_>) -> Environment {
    let mut reader = Reader { file, references, environment: Environment::default() };
    let items = |key| container.get(key).map_or(&[][..], |list| list.items());
    for source in items("envFrom") {
        reader.add_source(source);
    }
    let mut names: Vec<&str> = Vec::new();
    for item in items("env") {
        let Some(name) = item.text_of("name") else { continue };
        if SHARED.contains(&name) && names.contains(&name) {
            reader.report(item.line, format!("duplicate {name}"));
        }
        names.push(name);
        reader.add_variable(name, item);
    }
    reader.environment
}

struct Reader<'a> {
    file: &'a Rc<Path>,
    references: &'a References<'a>,
    environment: Environment,
}

impl Reader<'_> {
    fn report(&self, line: usize, message: impl Into<String>) {
        self.references.inputs.report(Location::new(self.file, line).finding(message));
    }

    fn add_source(&mut self, source: &Node) {
        let prefix = source.text_of("prefix").unwrap_or_default();
        if let Some(reference) = source.get("configMapRef") {
            self.add_config_map(prefix, reference);
        }
        if let Some(reference) = source.get("secretRef") {
            self.add_secret(prefix, reference);
        }
    }

    fn add_config_map(&mut self, prefix: &str, reference: &Node) {
        let references = self.references;
        match references.config_map(reference.text_of("name").unwrap_or_default()) {
            Ok(config_map) => {
                for (key, datum) in &config_map.data {
                    self.set_datum(&format!("{prefix}{key}"), datum);
                }
            }
            Err(absence) if absence.is_forgiven_by(reference) => {}
            Err(absence) => self.report(reference.line, absence.message),
        }
    }

    fn add_secret(&mut self, prefix: &str, reference: &Node) {
        let name = reference.text_of("name").unwrap_or_default();
        if let Some(secret) = self.references.secret(name) {
            for (key, location) in &secret.keys {
                let setting = Setting { value: secret_value(name, key), location: location.clone() };
                self.environment.set(&format!("{prefix}{key}"), setting);
            }
            return;
        }
        let with = if prefix.is_empty() { String::new() } else { format!(" with prefix {prefix:?}") };
        let location = Location::new(self.file, reference.line);
        self.environment.add_opaque(format!("Secret {name:?}{with}"), location, prefix);
    }

    fn set_datum(&mut self, name: &str, datum: &Datum) {
        if SHARED.contains(&name) && datum.is_mistyped {
            self.references.inputs.report(datum.location.finding(mistyped(name)));
        }
        let setting = Setting { value: Value::of(&datum.text), location: datum.location.clone() };
        self.environment.set(name, setting);
    }

    fn add_variable(&mut self, name: &str, item: &Node) {
        let Some(source) = item.get("valueFrom") else {
            let entry = item.entry("value");
            let line = entry.map_or(item.line, |entry| entry.line);
            if SHARED.contains(&name) && entry.is_some_and(|entry| entry.value.is_number_or_bool()) {
                self.report(line, mistyped(name));
            }
            let text = item.text_of("value").unwrap_or_default();
            let setting = Setting { value: self.expanded(text), location: Location::new(self.file, line) };
            return self.environment.set(name, setting);
        };
        if let Some(reference) = source.get("configMapKeyRef") {
            return self.add_config_map_key(name, reference);
        }
        let location = Location::new(self.file, source.line);
        let value = match source.get("secretKeyRef") {
            Some(reference) => {
                let part = |key| reference.text_of(key).unwrap_or_default();
                secret_value(part("name"), part("key"))
            }
            // A field of the pod: another value in every pod, so never the same as any other.
            None => Value::unknown(format!("a field of the pod ({location})"), "cannot be known here"),
        };
        self.environment.set(name, Setting { value, location });
    }

    /// What is missing is reported for shared variables only: what else a container wants is not this gate's business.
    fn add_config_map_key(&mut self, name: &str, reference: &Node) {
        let references = self.references;
        let part = |key| reference.text_of(key).unwrap_or_default();
        let (map, key) = (part("name"), part("key"));
        let problem = match references.config_map(map) {
            Ok(config_map) => match config_map.data.get(key) {
                Some(datum) => return self.set_datum(name, datum),
                None if reference.is_true("optional") => return,
                None => format!("ConfigMap {map:?} ({}) has no key {key:?}", config_map.location),
            },
            Err(absence) if absence.is_forgiven_by(reference) => return,
            Err(absence) => absence.message,
        };
        if SHARED.contains(&name) {
            self.report(reference.line, format!("{name}: {problem}"));
        }
        let value = Value::unknown(format!("key {key:?} of ConfigMap {map:?}"), "cannot be read here");
        self.environment.set(name, Setting { value, location: Location::new(self.file, reference.line) });
    }

    /// `$(NAME)` of a variable set before; `$$` is `$`; a name that is not set stays as it is written.
    fn expanded(&self, text: &str) -> Value {
        let mut value = Value::default();
        let mut rest = text;
        while let Some(start) = rest.find('$') {
            value.push_text(&rest[..start]);
            let after = &rest[start + 1..];
            let reference = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
            let setting = reference.and_then(|(name, _)| self.environment.get(name));
            if let (Some((_, tail)), Some(setting)) = (reference, setting) {
                value.push(setting.value.clone());
                rest = tail;
            } else {
                value.push_text("$");
                rest = after.strip_prefix('$').unwrap_or(after);
            }
        }
        value.push_text(rest);
        value
    }
}

fn secret_value(name: &str, key: &str) -> Value {
    Value::unknown(format!("key {key:?} of Secret {name:?}"), "cannot be read here")
}

fn mistyped(name: &str) -> String {
    format!("{name} is no string here, which Kubernetes refuses: put the value in quotes")
}
