//! The files the gate reads, each once, within bounds; and the findings that reading them gives.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use crate::env_file::{self, EnvFile, Syntax};
use crate::report::{Finding, Location, Problem};
use crate::yaml::{self, Node};

/// The largest file: a manifest is some KB, and a `ConfigMap` cannot be larger than this.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads files and gathers findings. Interior mutability, so that what it read can be borrowed while it reads more.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    documents: RefCell<BTreeMap<PathBuf, Rc<[Rc<Node>]>>>,
    env_files: RefCell<BTreeMap<(PathBuf, Syntax), Rc<EnvFile>>>,
    findings: RefCell<BTreeSet<Finding>>,
}

impl Inputs {
    pub(crate) fn report(&self, finding: Finding) {
        self.findings.borrow_mut().insert(finding);
    }

    /// In order of place, each once.
    pub(crate) fn into_findings(self) -> Vec<Finding> {
        self.findings.into_inner().into_iter().collect()
    }

    /// The documents of a YAML file. What is wrong with it is reported, once; nothing is left of a malformed one.
    pub(crate) fn documents(&self, file: &Rc<Path>) -> Rc<[Rc<Node>]> {
        let key = identity(file);
        if let Some(documents) = self.documents.borrow().get(&key) {
            return Rc::clone(documents);
        }
        let stream = match read(file) {
            Ok(text) => yaml::parse(&text),
            Err(message) => yaml::Stream { problems: vec![Problem::new(1, message)], ..Default::default() },
        };
        self.report_all(file, stream.problems);
        let documents: Rc<[Rc<Node>]> = stream.documents.into();
        self.documents.borrow_mut().insert(key, Rc::clone(&documents));
        documents
    }

    /// An env file that something names; `Err` says why it cannot be read, for the place that names it.
    pub(crate) fn env_file(&self, file: &Rc<Path>, syntax: Syntax) -> Result<Rc<EnvFile>, String> {
        let key = (identity(file), syntax);
        if let Some(known) = self.env_files.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let parsed = env_file::parse(&read(file)?, syntax);
        self.report_all(file, parsed.problems.clone());
        let parsed = Rc::new(parsed);
        self.env_files.borrow_mut().insert(key, Rc::clone(&parsed));
        Ok(parsed)
    }

    /// Whether an env file was read because something names it.
    pub(crate) fn has_read_env_file(&self, file: &Path) -> bool {
        let key = identity(file);
        self.env_files.borrow().keys().any(|(known, _)| *known == key)
    }

    pub(crate) fn report_all(&self, file: &Rc<Path>, problems: Vec<Problem>) {
        for Problem { line, message } in problems {
            self.report(Location::new(file, line).finding(message));
        }
    }
}

/// The text of a file; the error is a message without the path.
pub(crate) fn read(file: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {}", error.kind());
    let metadata = fs::metadata(file).map_err(failed)?;
    if !metadata.is_file() {
        return Err("cannot be read: not a file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(file).map_err(failed)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("cannot be read: larger than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "cannot be read: not UTF-8".to_owned())
}

/// The same for every path that leads to the same file.
pub(crate) fn identity(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| tidy(path))
}

/// The path without `.` and, where what stands before is a plain name, without `..`.
pub(crate) fn tidy(path: &Path) -> PathBuf {
    let mut tidied = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(tidied.components().next_back(), Some(Component::Normal(_))) => {
                tidied.pop();
            }
            other => tidied.push(other),
        }
    }
    tidied
}

/// The directory a file lies in; empty for a bare file name.
pub(crate) fn directory_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}
