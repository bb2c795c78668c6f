//! Patches of a kustomization. A merge patch of a `ConfigMap` is applied; what any other patch does to an environment is
//! not followed.

use std::path::Path;
use std::rc::Rc;

use super::objects::{ConfigMap, Objects, data};
use crate::environment::SHARED;
use crate::yaml::{self, Node};

/// The text of a patch, and where it stands.
pub(super) struct Patch<'a> {
    pub(super) text: String,
    pub(super) file: Rc<Path>,
    /// Lines of the file above the text.
    pub(super) lines_above: usize,
    pub(super) target: Option<&'a Node>,
}

impl Patch<'_> {
    /// Applies a patch that only merges keys into `ConfigMap`s of `objects`. `false`: it is another kind of patch, or one
    /// of its `ConfigMap`s is not there, and nothing was changed.
    pub(super) fn merge_into(&self, objects: &mut Objects) -> bool {
        let Some(documents) = self.config_maps() else { return false };
        let is_there = |(name, _): &(String, _)| objects.config_maps.iter().any(|below| below.name == *name);
        if !documents.iter().all(is_there) {
            return false;
        }
        for (name, document) in documents {
            for below in objects.config_maps.iter_mut().filter(|below| below.name == name) {
                self.merge(&document, below);
            }
        }
        true
    }

    /// A key that is null is removed, as in every merge patch.
    fn merge(&self, document: &Node, below: &mut ConfigMap) {
        for (key, datum) in data(document, &self.file, self.lines_above) {
            if document.at(&["data", &key]).is_some() {
                below.data.insert(key, datum);
            } else {
                below.data.remove(&key);
            }
        }
    }

    /// The documents with the names of the `ConfigMap`s that they patch, where they patch nothing else.
    fn config_maps(&self) -> Option<Vec<(String, Rc<Node>)>> {
        let stream = yaml::parse(&self.text);
        if stream.documents.is_empty() || !stream.problems.is_empty() || self.text.contains("$patch") {
            return None;
        }
        let named = |document: Rc<Node>| {
            let name = match self.target {
                Some(target) if target.text_of("kind") != Some("ConfigMap") => None,
                Some(target) => target.text_of("name"),
                None => document.at(&["metadata", "name"])?.text(),
            };
            let is_config_map = document.text_of("kind") == Some("ConfigMap");
            let name = name.filter(|_| is_config_map)?.to_owned();
            Some((name, document))
        };
        stream.documents.into_iter().map(named).collect()
    }

    /// Whether it says anything that an environment is made of.
    pub(super) fn touches_environment(&self) -> bool {
        let line_touches = |line: &str| {
            let line = line.trim().trim_start_matches("- ");
            line.starts_with("env:") || line.trim_end_matches(['"', '\'', ',', '}']).ends_with("/env")
        };
        SHARED.iter().any(|name| self.text.contains(name))
            || ["envFrom", "valueFrom", "/env/"].iter().any(|word| self.text.contains(word))
            || self.text.lines().any(line_touches)
    }
}
