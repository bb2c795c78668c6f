//! Which files below the given paths are read.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::inputs::{Inputs, identity, tidy};
use crate::report::{CheckError, Location};

/// Files that are read: a large monorepo's manifests, and an end.
const FILES_MAX: usize = 10_000;
/// Directory entries that are looked at.
const ENTRIES_MAX: usize = 500_000;
/// Nesting of directories.
const DEPTH_MAX: usize = 40;

/// The names kustomize looks for in a directory, in its order.
pub(crate) const KUSTOMIZATION_NAMES: [&str; 3] =
    ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// The files to read, in order of path, each once.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) yaml: Vec<Rc<Path>>,
    pub(crate) env: Vec<Rc<Path>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Yaml,
    Env,
}

/// A directory gives its `*.yml`, `*.yaml`, `*.env`, `.env` and `Kustomization` files at any depth, without `.git` and
/// without following links to directories. A file that is given by itself is read whatever its name.
pub(crate) fn discover(paths: &[PathBuf], inputs: &Inputs) -> Result<Files, CheckError> {
    if paths.is_empty() {
        return Err(CheckError::NoPaths);
    }
    let mut walk = Walk { inputs, seen: BTreeSet::new(), entries: 0, found: BTreeSet::new() };
    for path in paths {
        let metadata =
            fs::metadata(path).map_err(|source| CheckError::Unreadable { path: path.clone(), source })?;
        let path = tidy(path);
        if metadata.is_dir() {
            walk.directory(&path, 0)?;
        } else {
            walk.file(path.clone(), kind_of(&path).unwrap_or(Kind::Yaml))?;
        }
    }
    let mut files = Files::default();
    for (path, is_env) in walk.found {
        if is_env { &mut files.env } else { &mut files.yaml }.push(path.into());
    }
    Ok(files)
}

fn kind_of(path: &Path) -> Option<Kind> {
    let name = path.file_name()?;
    if name == ".env" || name == KUSTOMIZATION_NAMES[2] {
        return Some(if name == ".env" { Kind::Env } else { Kind::Yaml });
    }
    match path.extension().and_then(OsStr::to_str)? {
        "yml" | "yaml" => Some(Kind::Yaml),
        "env" => Some(Kind::Env),
        _ => None,
    }
}

struct Walk<'a> {
    inputs: &'a Inputs,
    seen: BTreeSet<PathBuf>,
    entries: usize,
    found: BTreeSet<(PathBuf, bool)>,
}

impl Walk<'_> {
    fn directory(&mut self, directory: &Path, depth: usize) -> Result<(), CheckError> {
        let shown = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        if depth > DEPTH_MAX {
            return Err(too_much(shown, DEPTH_MAX, "nested directories"));
        }
        let entries = match fs::read_dir(shown).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Ok(entries) => entries,
            Err(error) => {
                let place = Location { file: shown.into(), line: 1 };
                self.inputs.report(place.finding(format!("cannot be read: {}", error.kind())));
                return Ok(());
            }
        };
        self.entries += entries.len();
        if self.entries > ENTRIES_MAX {
            return Err(too_much(shown, ENTRIES_MAX, "directory entries"));
        }
        for entry in entries {
            let path = directory.join(entry.file_name());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name() != ".git" {
                    self.directory(&path, depth + 1)?;
                }
            } else if let Some(kind) = kind_of(&path).filter(|_| !path.is_dir()) {
                self.file(path, kind)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: PathBuf, kind: Kind) -> Result<(), CheckError> {
        if self.seen.insert(identity(&path)) {
            if self.found.len() >= FILES_MAX {
                return Err(too_much(&path, FILES_MAX, "files to read"));
            }
            self.found.insert((path, kind == Kind::Env));
        }
        Ok(())
    }
}

fn too_much(path: &Path, max: usize, what: &'static str) -> CheckError {
    CheckError::TooMuch { path: path.to_path_buf(), max, what }
}
