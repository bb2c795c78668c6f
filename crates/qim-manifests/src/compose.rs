//! Compose files: which of their services are daemons, and what environment those get.

mod project;
mod service;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::rc::Rc;

use crate::environment::DaemonUnit;
use crate::inputs::{Inputs, directory_of, identity};
use crate::report::Location;
use crate::stack::{Scope, Stack};
use crate::yaml::Node;

use project::Project;
use service::Service;

/// The names under which compose looks for a project's file, in its order.
const BASE_NAMES: [&str; 4] = ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"];

/// Whether a YAML document is a compose file: it has a mapping of services, and is no Kubernetes object.
pub(crate) fn is_compose(document: &Node) -> bool {
    document.get("apiVersion").is_none() && document.get("services").is_some_and(|node| node.is_mapping())
}

/// The daemons of a compose file.
///
/// A file with a service that cannot be started by itself (neither `image` nor `build`), or one called `*.override.*`,
/// is laid over the base file beside it, where there is one.
pub(crate) fn stack(file: &Rc<Path>, document: &Node, inputs: &Inputs) -> Stack {
    let directory = directory_of(file);
    let project = Project::of(directory, inputs);
    let mut services = service::services(file, document, inputs);
    let mut name = document.text_of("name").map(str::to_owned);
    let base = base_beside(file, inputs).filter(|_| is_override(file, &services));
    let is_variant = base.is_some();
    if let Some((base_file, base)) = base {
        services = overlaid(service::services(&base_file, &base, inputs), services);
        name = name.or_else(|| base.text_of("name").map(str::to_owned));
    }
    if let Some(include) = document.entry("include") {
        let message = "include is not followed: check what `docker compose config` prints instead";
        inputs.report(Location::new(file, include.line).finding(message));
    }
    let scope = match name.map(|name| project.resolved(&name).unwrap_or(name)) {
        Some(name) => Scope::Project(name),
        None => Scope::ProjectDirectory(directory.to_path_buf()),
    };
    let units = services.iter().flat_map(|(name, service)| units(name, service, &project, inputs));
    Stack { scope, is_variant, units: units.collect() }
}

fn units(name: &str, service: &Service, project: &Project<'_>, inputs: &Inputs) -> Vec<DaemonUnit> {
    let launch = service.launch(name);
    if launch.daemons().is_empty() {
        return Vec::new();
    }
    DaemonUnit::launched(&launch, name, &service.location, &project.environment(service), inputs)
}

fn is_override(file: &Path, services: &BTreeMap<String, Service>) -> bool {
    let stem = file.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    stem.ends_with(".override") || services.values().any(|service| !service.is_startable())
}

/// The project's own compose file in the same directory.
fn base_beside(file: &Path, inputs: &Inputs) -> Option<(Rc<Path>, Rc<Node>)> {
    let candidates = BASE_NAMES.iter().map(|name| directory_of(file).join(name));
    let base: Rc<Path> = candidates.into_iter().find(|path| path.is_file())?.into();
    if identity(&base) == identity(file) {
        return None;
    }
    let document = inputs.documents(&base).iter().find(|document| is_compose(document)).cloned()?;
    Some((base, document))
}

fn overlaid(
    mut base: BTreeMap<String, Service>,
    over: BTreeMap<String, Service>,
) -> BTreeMap<String, Service> {
    for (name, service) in over {
        let merged = match base.remove(&name) {
            Some(below) => below.overlaid(service),
            None => service,
        };
        base.insert(name, merged);
    }
    base
}
