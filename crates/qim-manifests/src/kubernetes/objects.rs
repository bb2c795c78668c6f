//! The Kubernetes objects that say what a container's environment is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use crate::report::Location;
use crate::yaml::Node;

/// Anything with a pod template, or a pod.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    /// The spec of its pods.
    pub(crate) pod: Rc<Node>,
    pub(crate) file: Rc<Path>,
}

/// The value of a key in a `ConfigMap`.
#[derive(Debug, Clone)]
pub(crate) struct Datum {
    pub(crate) text: String,
    /// Whether it stands as a number or truth value, which Kubernetes refuses.
    pub(crate) is_mistyped: bool,
    pub(crate) location: Location,
}

#[derive(Debug, Clone)]
pub(crate) struct ConfigMap {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) data: BTreeMap<String, Datum>,
    pub(crate) location: Location,
}

/// The keys of a Secret. Its values are never looked at.
#[derive(Debug, Clone)]
pub(crate) struct Secret {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) keys: BTreeMap<String, Location>,
}

/// Objects that are applied together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objects {
    pub(crate) workloads: Vec<Workload>,
    pub(crate) config_maps: Vec<ConfigMap>,
    pub(crate) secrets: Vec<Secret>,
}

impl Objects {
    /// Adds what a document declares; other kinds, and what is no Kubernetes object, are passed over.
    pub(crate) fn collect(&mut self, file: &Rc<Path>, document: &Node) {
        let (Some(_), Some(kind)) = (document.get("apiVersion"), document.text_of("kind")) else { return };
        if kind.ends_with("List") {
            let items = document.get("items").map_or(&[][..], |items| items.items());
            for item in items {
                self.collect(file, item);
            }
            return;
        }
        let metadata = |key| document.at(&["metadata", key]).and_then(|node| node.text()).map(str::to_owned);
        let (name, namespace) = (metadata("name").unwrap_or_default(), metadata("namespace"));
        match kind {
            "ConfigMap" => self.config_maps.push(ConfigMap {
                name,
                namespace,
                data: data(document, file, 0),
                location: Location::new(file, document.line),
            }),
            "Secret" => {
                let keys = ["data", "stringData"].into_iter().filter_map(|key| document.get(key));
                let keys = keys.flat_map(|node| node.entries());
                let keys = keys.map(|entry| (entry.key.clone(), Location::new(file, entry.line))).collect();
                self.secrets.push(Secret { name, namespace, keys });
            }
            _ => {
                if let Some(pod) = pod_spec(kind, document) {
                    let file = Rc::clone(file);
                    self.workloads.push(Workload { kind: kind.to_owned(), name, namespace, pod, file });
                }
            }
        }
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.workloads.append(&mut other.workloads);
        self.config_maps.append(&mut other.config_maps);
        self.secrets.append(&mut other.secrets);
    }

    /// Moves everything into one namespace, as `namespace` in a kustomization does.
    pub(crate) fn move_to(&mut self, namespace: &str) {
        let workloads = self.workloads.iter_mut().map(|object| &mut object.namespace);
        let config_maps = self.config_maps.iter_mut().map(|object| &mut object.namespace);
        let secrets = self.secrets.iter_mut().map(|object| &mut object.namespace);
        workloads.chain(config_maps).chain(secrets).for_each(|place| *place = Some(namespace.to_owned()));
    }

    pub(crate) fn namespaces(&self) -> BTreeSet<Option<String>> {
        self.workloads.iter().map(|workload| workload.namespace.clone()).collect()
    }
}

/// The data of a document that begins below `lines_above` lines of `file`.
pub(super) fn data(config_map: &Node, file: &Rc<Path>, lines_above: usize) -> BTreeMap<String, Datum> {
    let entries = config_map.get("data").map_or(&[][..], |data| data.entries());
    let datum = |entry: &crate::yaml::Entry| Datum {
        text: entry.value.text().filter(|_| !entry.value.is_null()).unwrap_or_default().to_owned(),
        is_mistyped: entry.value.is_number_or_bool(),
        location: Location::new(file, lines_above + entry.line),
    };
    entries.iter().map(|entry| (entry.key.clone(), datum(entry))).collect()
}

/// Where the pod stands in a pod itself, in a `CronJob`, and in every kind with a pod template in the usual place.
fn pod_spec(kind: &str, document: &Node) -> Option<Rc<Node>> {
    let pod = match kind {
        "Pod" => document.get("spec"),
        _ => document
            .at(&["spec", "jobTemplate", "spec", "template", "spec"])
            .or_else(|| document.at(&["spec", "template", "spec"])),
    };
    pod.filter(|pod| pod.get("containers").is_some()).cloned()
}
