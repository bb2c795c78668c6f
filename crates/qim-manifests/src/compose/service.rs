//! A compose service: what it says of its start and its environment, with `extends` and override files laid over it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::env_file::{Syntax, is_name};
use crate::environment::SHARED;
use crate::inputs::{Inputs, directory_of, identity, tidy};
use crate::launch::Launch;
use crate::report::Location;
use crate::yaml::{Content, Node};

/// Longest chain of `extends`.
const EXTENDS_MAX: usize = 16;

/// `NAME: text` of `environment`, before interpolation; without text the caller's value is passed on.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    pub(crate) name: String,
    pub(crate) text: Option<String>,
    pub(crate) location: Location,
}

/// An entry of `env_file`. The path is not interpolated yet, and relative to the file that names it.
#[derive(Debug, Clone)]
pub(crate) struct EnvFileEntry {
    pub(crate) path: String,
    pub(crate) directory: PathBuf,
    pub(crate) required: bool,
    pub(crate) syntax: Syntax,
    pub(crate) location: Location,
}

#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) location: Location,
    pub(crate) env_files: Vec<EnvFileEntry>,
    pub(crate) environment: Vec<Binding>,
    image: Option<String>,
    is_built: bool,
    build_target: Option<String>,
    entrypoint: Option<Vec<String>>,
    command: Option<Vec<String>>,
}

impl Service {
    /// What a file says of the service, without what it extends.
    fn declared(node: &Node, location: Location, inputs: &Inputs) -> Self {
        Self {
            env_files: env_files(node, &location.file, inputs),
            environment: bindings(node, &location.file, inputs),
            image: node.text_of("image").map(str::to_owned),
            is_built: node.get("build").is_some(),
            build_target: node.at(&["build", "target"]).and_then(|target| target.text()).map(str::to_owned),
            entrypoint: node.get("entrypoint").map(|words| texts(words)),
            command: node.get("command").map(|words| texts(words)),
            location,
        }
    }

    /// `over` laid over this one, as compose does for `extends` and for override files: single values are replaced,
    /// lists and maps are extended. The place is that of `over`.
    pub(crate) fn overlaid(self, over: Self) -> Self {
        Self {
            location: over.location,
            env_files: [self.env_files, over.env_files].concat(),
            environment: [self.environment, over.environment].concat(),
            image: over.image.or(self.image),
            is_built: over.is_built || self.is_built,
            build_target: over.build_target.or(self.build_target),
            entrypoint: over.entrypoint.or(self.entrypoint),
            command: over.command.or(self.command),
        }
    }

    /// Whether it can be started as it stands; what cannot is meant to be laid over something.
    pub(crate) fn is_startable(&self) -> bool {
        self.image.is_some() || self.is_built
    }

    pub(crate) fn launch(&self, name: &str) -> Launch {
        Launch {
            entrypoint: self.entrypoint.clone().unwrap_or_default(),
            command: self.command.clone().unwrap_or_default(),
            image: self.image.clone(),
            names: self.build_target.iter().cloned().chain([name.to_owned()]).collect(),
        }
    }
}

/// All services of a compose document.
pub(crate) fn services(file: &Rc<Path>, root: &Node, inputs: &Inputs) -> BTreeMap<String, Service> {
    let Some(declared) = root.get("services") else { return BTreeMap::new() };
    let names = declared.entries().iter().map(|entry| entry.key.as_str());
    names
        .filter_map(|name| {
            Some((name.to_owned(), Extends { inputs, chain: Vec::new() }.resolve(file, root, name)?))
        })
        .collect()
}

/// Follows `extends` from one service to the next.
struct Extends<'a> {
    inputs: &'a Inputs,
    chain: Vec<(PathBuf, String)>,
}

impl Extends<'_> {
    /// `None` where the document has no such service.
    fn resolve(&mut self, file: &Rc<Path>, root: &Node, name: &str) -> Option<Service> {
        let entry = root.get("services")?.entry(name)?;
        let service = Service::declared(&entry.value, Location::new(file, entry.line), self.inputs);
        let Some(extends) = entry.value.get("extends") else { return Some(service) };
        let place = Location::new(file, extends.line);
        self.chain.push((identity(file), name.to_owned()));
        match self.base(&place, root, extends) {
            Ok(base) => Some(base.overlaid(service)),
            Err(message) => {
                self.inputs.report(place.finding(message));
                Some(service)
            }
        }
    }

    fn base(&mut self, place: &Location, root: &Node, extends: &Node) -> Result<Service, String> {
        let name = extends.text().or_else(|| extends.text_of("service"));
        let name = name.ok_or("extends names no service")?;
        let (file, other) = match extends.text_of("file") {
            None => (Rc::clone(&place.file), None),
            Some(path) => {
                let file: Rc<Path> = tidy(&directory_of(&place.file).join(path)).into();
                let documents = self.inputs.documents(&file);
                let found = documents.iter().find(|document| super::is_compose(document));
                let found = found.ok_or_else(|| format!("extends: no compose file {}", file.display()))?;
                (file, Some(Rc::clone(found)))
            }
        };
        let link = (identity(&file), name.to_owned());
        if self.chain.contains(&link) || self.chain.len() >= EXTENDS_MAX {
            return Err(format!("extends: {name:?} leads back to itself or too far"));
        }
        self.resolve(&file, other.as_deref().unwrap_or(root), name)
            .ok_or_else(|| format!("extends: no service {name:?} in {}", file.display()))
    }
}

/// `environment` as a mapping or as a list.
fn bindings(service: &Node, file: &Rc<Path>, inputs: &Inputs) -> Vec<Binding> {
    let Some(environment) = service.get("environment") else { return Vec::new() };
    let place = |line| Location::new(file, line);
    match &environment.content {
        Content::Mapping(entries) => entries
            .iter()
            .map(|entry| Binding {
                name: entry.key.clone(),
                text: entry.value.text().filter(|_| !entry.value.is_null()).map(str::to_owned),
                location: place(entry.line),
            })
            .collect(),
        Content::Sequence(items) => {
            let mut bindings: Vec<Binding> = Vec::new();
            for item in items {
                let (name, text) = match item.text().map(|text| text.split_once('=').ok_or(text)) {
                    Some(Ok((name, text))) => (name, Some(text.to_owned())),
                    Some(Err(name)) => (name, None),
                    None => ("", None),
                };
                if !is_name(name) {
                    inputs.report(place(item.line).finding("environment: not a NAME=value entry"));
                    continue;
                }
                if SHARED.contains(&name) && bindings.iter().any(|binding| binding.name == name) {
                    inputs.report(place(item.line).finding(format!("duplicate {name}")));
                }
                bindings.push(Binding { name: name.to_owned(), text, location: place(item.line) });
            }
            bindings
        }
        Content::Scalar { .. } => {
            inputs.report(place(environment.line).finding("environment is neither a mapping nor a list"));
            Vec::new()
        }
    }
}

/// `env_file` as a path, or as a list of paths and of `{path, required, format}`.
fn env_files(service: &Node, file: &Rc<Path>, inputs: &Inputs) -> Vec<EnvFileEntry> {
    let Some(node) = service.get("env_file") else { return Vec::new() };
    let entries = if node.items().is_empty() { std::slice::from_ref(node) } else { node.items() };
    let mut env_files = Vec::new();
    for entry in entries {
        let location = Location::new(file, entry.line);
        let Some(path) = entry.text().or_else(|| entry.text_of("path")) else {
            inputs.report(location.finding("env_file: an entry without a path"));
            continue;
        };
        let raw = entry.text_of("format") == Some("raw");
        env_files.push(EnvFileEntry {
            path: path.to_owned(),
            directory: directory_of(file).to_path_buf(),
            required: entry.text_of("required") != Some("false"),
            syntax: if raw { Syntax::Raw } else { Syntax::Compose },
            location,
        });
    }
    env_files
}

/// A command as one string or as a list of words.
fn texts(node: &Node) -> Vec<String> {
    let items = if let Some(text) = node.text() {
        vec![text]
    } else {
        node.items().iter().filter_map(|item| item.text()).collect()
    };
    items.into_iter().map(str::to_owned).collect()
}
