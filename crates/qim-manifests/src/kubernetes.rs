//! Kubernetes manifests: which containers are daemons, and what environment those get.

mod container;
mod kustomize;
mod objects;
mod patches;

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use crate::environment::DaemonUnit;
use crate::inputs::{Inputs, directory_of};
use crate::launch::Launch;
use crate::report::Location;
use crate::stack::{Scope, Stack};
use crate::yaml::Node;

use container::References;
use kustomize::{Kustomize, is_kustomization};
use objects::{Objects, Workload};

/// The daemons of all manifests: of each kustomization that no other one builds on, and of the plain manifests of
/// each directory, by namespace.
pub(crate) fn stacks(files: &[Rc<Path>], inputs: &Inputs) -> Vec<Stack> {
    let (kustomizations, plain): (Vec<_>, Vec<_>) =
        files.iter().cloned().partition(|file| is_kustomization(file));
    let kustomize = Kustomize::new(inputs);
    let mut all = kustomize.build_all(&kustomizations);
    let mut directories: BTreeMap<&Path, Objects> = BTreeMap::new();
    for file in plain.iter().filter(|file| !kustomize.has_taken(file)) {
        let objects = directories.entry(directory_of(file)).or_default();
        inputs.documents(file).iter().for_each(|document| objects.collect(file, document));
    }
    all.extend(directories.into_values());
    all.iter().flat_map(|own| stacks_of(own, &all, inputs)).collect()
}

fn stacks_of(own: &Objects, all: &[Objects], inputs: &Inputs) -> Vec<Stack> {
    let stack = |namespace: Option<String>| {
        let references = References { own, all, namespace: namespace.as_deref(), inputs };
        let workloads = own.workloads.iter().filter(|workload| workload.namespace == namespace);
        let units = workloads.flat_map(|workload| units(workload, &references)).collect();
        Stack { scope: namespace.map_or(Scope::NoNamespace, Scope::Namespace), is_variant: false, units }
    };
    own.namespaces().into_iter().map(stack).collect()
}

/// The daemons among the containers of a workload. Init containers count where they keep running (sidecars).
fn units(workload: &Workload, references: &References<'_>) -> Vec<DaemonUnit> {
    let items = |key| workload.pod.get(key).map_or(&[][..], |list| list.items());
    let sidecars = items("initContainers").iter().filter(|it| it.text_of("restartPolicy") == Some("Always"));
    let containers: Vec<&Rc<Node>> = items("containers").iter().chain(sidecars).collect();
    let mut units = Vec::new();
    for container in &containers {
        let name = container.text_of("name").unwrap_or_default();
        let mut names = vec![name.to_owned()];
        if containers.len() == 1 {
            names.push(workload.name.clone());
        }
        let words = |key| container.get(key).map_or(&[][..], |list| list.items()).iter();
        let words = |key| words(key).filter_map(|word| word.text()).map(str::to_owned).collect();
        let launch = Launch {
            entrypoint: words("command"),
            command: words("args"),
            image: container.text_of("image").map(str::to_owned),
            names,
        };
        if launch.daemons().is_empty() {
            continue;
        }
        let environment = container::environment(container, &workload.file, references);
        let name = format!("{}/{}/{name}", workload.kind, workload.name);
        let location = Location::new(&workload.file, container.line);
        units.extend(DaemonUnit::launched(&launch, &name, &location, &environment, references.inputs));
    }
    units
}
