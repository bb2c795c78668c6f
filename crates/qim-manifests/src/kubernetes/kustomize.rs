//! Kustomizations, as far as they decide about environments: resources, namespace, generators, patches of `ConfigMap`s.
//!
//! Other patches and transformations of an environment are not followed. They are reported, since what they change
//! would go unchecked; what `kubectl kustomize` prints can be checked instead.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::objects::{ConfigMap, Datum, Objects, Secret};
use super::patches::Patch;
use crate::discover::KUSTOMIZATION_NAMES;
use crate::env_file::{Syntax, Text};
use crate::inputs::{self, Inputs, directory_of, identity, tidy};
use crate::report::Location;
use crate::yaml::Node;

/// Longest chain of kustomizations that build on each other.
const DEPTH_MAX: usize = 16;
/// Lists of other kustomizations and of manifests.
const RESOURCES: [&str; 3] = ["resources", "bases", "components"];
const PATCHES: [&str; 3] = ["patches", "patchesStrategicMerge", "patchesJson6902"];
/// What changes or adds objects in ways that are not followed.
const NOT_FOLLOWED: [&str; 5] = ["replacements", "transformers", "generators", "helmCharts", "vars"];

pub(crate) fn is_kustomization(file: &Path) -> bool {
    file.file_name().is_some_and(|name| KUSTOMIZATION_NAMES.iter().any(|known| name == *known))
}

/// Builds kustomizations, and remembers which files they took in.
pub(crate) struct Kustomize<'a> {
    inputs: &'a Inputs,
    taken: RefCell<BTreeSet<PathBuf>>,
}

impl<'a> Kustomize<'a> {
    pub(crate) fn new(inputs: &'a Inputs) -> Self {
        Self { inputs, taken: RefCell::default() }
    }

    /// The objects of each kustomization that no other one builds on.
    pub(crate) fn build_all(&self, files: &[Rc<Path>]) -> Vec<Objects> {
        let used: BTreeSet<PathBuf> = files.iter().flat_map(|file| self.built_on(file)).collect();
        let (inner, roots): (Vec<_>, Vec<_>) = files.iter().partition(|file| used.contains(&identity(file)));
        let mut built: Vec<Objects> = roots.into_iter().map(|file| self.build(file, 0)).collect();
        // Left over only where kustomizations build on each other in a circle, which building them reports.
        for file in inner {
            if !self.has_taken(file) {
                built.push(self.build(file, 0));
            }
        }
        built
    }

    /// Whether a kustomization took this file in, so that it does not count by itself.
    pub(crate) fn has_taken(&self, file: &Path) -> bool {
        self.taken.borrow().contains(&identity(file))
    }

    fn take(&self, file: &Path) {
        self.taken.borrow_mut().insert(identity(file));
    }

    fn built_on(&self, file: &Rc<Path>) -> Vec<PathBuf> {
        let Some(root) = self.inputs.documents(file).first().cloned() else { return Vec::new() };
        let entries = RESOURCES.iter().filter_map(|key| root.get(key)).flat_map(|list| list.items());
        let paths = entries.filter_map(|entry| Some(directory_of(file).join(entry.text()?)));
        paths.filter_map(|path| kustomization_in(&path)).map(|file| identity(&file)).collect()
    }

    fn build(&self, file: &Rc<Path>, depth: usize) -> Objects {
        self.take(file);
        let mut objects = Objects::default();
        let Some(root) = self.inputs.documents(file).first().cloned() else { return objects };
        let layer = Layer { kustomize: self, file, root: &root, depth };
        layer.add_resources(&mut objects);
        layer.add_generated(&mut objects);
        layer.apply_patches(&mut objects);
        layer.report_not_followed();
        if let Some(namespace) = root.text_of("namespace") {
            objects.move_to(namespace);
        }
        objects
    }
}

/// One kustomization file.
struct Layer<'a> {
    kustomize: &'a Kustomize<'a>,
    file: &'a Rc<Path>,
    root: &'a Node,
    depth: usize,
}

impl Layer<'_> {
    fn report(&self, line: usize, message: impl Into<String>) {
        self.kustomize.inputs.report(Location::new(self.file, line).finding(message));
    }

    fn path(&self, relative: &str) -> Rc<Path> {
        tidy(&directory_of(self.file).join(relative)).into()
    }

    fn items(&self, key: &str) -> &[Rc<Node>] {
        self.root.get(key).map_or(&[], |list| list.items())
    }

    fn add_resources(&self, objects: &mut Objects) {
        for entry in RESOURCES.iter().flat_map(|key| self.items(key)) {
            let Some(text) = entry.text().filter(|text| !is_remote(text)) else { continue };
            let path = self.path(text);
            if !path.is_dir() {
                if path.exists() {
                    self.kustomize.take(&path);
                    let documents = self.kustomize.inputs.documents(&path);
                    documents.iter().for_each(|document| objects.collect(&path, document));
                } else {
                    self.report(entry.line, format!("resource {} is not there", path.display()));
                }
                continue;
            }
            match kustomization_in(&path) {
                Some(_) if self.depth >= DEPTH_MAX => {
                    self.report(entry.line, "kustomizations build on each other in a circle, or too deep");
                }
                Some(inner) => objects.append(self.kustomize.build(&inner, self.depth + 1)),
                None => self.report(entry.line, format!("no kustomization in {}", path.display())),
            }
        }
    }

    fn add_generated(&self, objects: &mut Objects) {
        for item in self.items("configMapGenerator") {
            self.add_config_map(item, objects);
        }
        for item in self.items("secretGenerator") {
            let keys = self.generated(item).into_iter().map(|(key, datum)| (key, datum.location)).collect();
            let (name, namespace) = names(item);
            match objects.secrets.iter_mut().find(|secret| secret.name == name) {
                Some(below) if item.text_of("behavior") == Some("merge") => below.keys.extend(keys),
                Some(below) => below.keys = keys,
                None => objects.secrets.push(Secret { name, namespace, keys }),
            }
        }
    }

    fn add_config_map(&self, item: &Node, objects: &mut Objects) {
        let data = self.generated(item);
        let (name, namespace) = names(item);
        let behavior = item.text_of("behavior").unwrap_or("create");
        let fits = |below: &&mut ConfigMap| {
            below.name == name && (namespace.is_none() || below.namespace == namespace)
        };
        match (behavior, objects.config_maps.iter_mut().find(fits)) {
            ("merge", Some(below)) => below.data.extend(data),
            ("replace", Some(below)) => below.data = data,
            ("merge" | "replace", None) => {
                let message = format!("behavior {behavior}, but there is no ConfigMap {name:?} below");
                self.report(item.line, message);
            }
            _ => {
                let location = Location::new(self.file, item.line);
                objects.config_maps.push(ConfigMap { name, namespace, data, location });
            }
        }
    }

    /// What a generator takes from its env files, literals and files.
    fn generated(&self, item: &Node) -> BTreeMap<String, Datum> {
        let list = |key| item.get(key).map_or(&[][..], |list| list.items());
        let mut data = BTreeMap::new();
        for entry in list("envs").iter().chain(item.get("env")) {
            if let Some(path) = entry.text() {
                self.add_env_file(&self.path(path), entry.line, &mut data);
            }
        }
        for entry in list("literals") {
            match entry.text().and_then(|text| text.split_once('=')) {
                Some((key, text)) => {
                    let location = Location::new(self.file, entry.line);
                    let text = without_quotes(text).to_owned();
                    data.insert(key.to_owned(), Datum { text, is_mistyped: false, location });
                }
                None => self.report(entry.line, "literals: not a NAME=value entry"),
            }
        }
        for entry in list("files") {
            if let Some(text) = entry.text() {
                self.add_file(text, entry.line, &mut data);
            }
        }
        data
    }

    fn add_env_file(&self, file: &Rc<Path>, line: usize, data: &mut BTreeMap<String, Datum>) {
        match self.kustomize.inputs.env_file(file, Syntax::Raw) {
            Ok(parsed) => {
                for assignment in &parsed.assignments {
                    let text = match &assignment.text {
                        Text::Verbatim(text) | Text::Template(text) => text.clone(),
                        Text::Inherited => String::new(),
                    };
                    let location = Location::new(file, assignment.line);
                    data.insert(assignment.name.clone(), Datum { text, is_mistyped: false, location });
                }
            }
            Err(message) => self.report(line, format!("{} {message}", file.display())),
        }
    }

    /// `path` or `key=path`: the whole text of the file becomes the value.
    fn add_file(&self, text: &str, line: usize, data: &mut BTreeMap<String, Datum>) {
        let (key, path) = match text.split_once('=') {
            Some((key, path)) => (key, path),
            None => (text.rsplit('/').next().unwrap_or(text), text),
        };
        let file = self.path(path);
        match inputs::read(&file) {
            Ok(text) => {
                let location = Location::new(&file, 1);
                data.insert(key.to_owned(), Datum { text, is_mistyped: false, location });
            }
            // Whatever else a file may be, a certificate or an archive, it is no variable.
            Err(_) if file.exists() => {}
            Err(message) => self.report(line, format!("{} {message}", file.display())),
        }
    }

    fn apply_patches(&self, objects: &mut Objects) {
        for item in PATCHES.iter().flat_map(|key| self.items(key)) {
            let Some(patch) = self.patch(item) else { continue };
            if !patch.merge_into(objects) && patch.touches_environment() {
                self.report(item.line, not_followed("a patch of an environment"));
            }
        }
    }

    /// An entry of `patches` and its older forms: inline, or in a file of its own.
    fn patch<'b>(&self, item: &'b Node) -> Option<Patch<'b>> {
        let target = item.get("target").map(|target| &**target);
        let is_inline = |node: &&Node| node.text().is_some_and(|text| text.contains('\n'));
        let inline = item.get("patch").map(|patch| &**patch).or(Some(item).filter(is_inline));
        if let Some((node, text)) = inline.and_then(|node| Some((node, node.text()?))) {
            let file = Rc::clone(self.file);
            return Some(Patch { text: text.to_owned(), file, lines_above: node.line - 1, target });
        }
        let file = self.path(item.text_of("path").or_else(|| item.text())?);
        self.kustomize.take(&file);
        match inputs::read(&file) {
            Ok(text) => Some(Patch { text, file, lines_above: 0, target }),
            Err(message) => {
                self.report(item.line, format!("{} {message}", file.display()));
                None
            }
        }
    }

    fn report_not_followed(&self) {
        for key in NOT_FOLLOWED {
            if let Some(entry) = self.root.entry(key).filter(|entry| !entry.value.items().is_empty()) {
                self.report(entry.line, not_followed(key));
            }
        }
    }
}

fn not_followed(what: &str) -> String {
    format!("{what}: not followed, check what `kubectl kustomize` prints instead")
}

fn names(item: &Node) -> (String, Option<String>) {
    (item.text_of("name").unwrap_or_default().to_owned(), item.text_of("namespace").map(str::to_owned))
}

fn kustomization_in(directory: &Path) -> Option<Rc<Path>> {
    let candidates = KUSTOMIZATION_NAMES.iter().map(|name| tidy(&directory.join(name)));
    candidates.into_iter().find(|path| path.is_file()).map(Into::into)
}

/// Somewhere else than on this disk.
fn is_remote(resource: &str) -> bool {
    resource.contains("://") || resource.contains("?ref=") || resource.starts_with("git@")
}

/// As kustomize reads a literal: one pair of quotes around the whole is taken off.
fn without_quotes(text: &str) -> &str {
    let inner = |quote| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}
