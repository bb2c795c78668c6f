//! What is deployed together, and therefore has to agree.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use crate::environment::DaemonUnit;
use crate::report::Daemon;

/// Where units can meet the same data.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// A compose project that says its name.
    Project(String),
    /// A compose project that has the name of its directory.
    ProjectDirectory(PathBuf),
    Namespace(String),
    /// Kubernetes objects without a namespace.
    NoNamespace,
    /// Env files that nothing refers to.
    EnvFiles(PathBuf),
}

impl Scope {
    /// A name is taken at its word: all that carry it are one deployment.
    const fn is_named(&self) -> bool {
        matches!(self, Self::Project(_) | Self::Namespace(_))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |path: &PathBuf| if path.as_os_str().is_empty() { ".".into() } else { path.clone() };
        match self {
            Self::Project(name) => write!(f, "compose project {name:?}"),
            Self::ProjectDirectory(path) => write!(f, "the compose project of {}", shown(path).display()),
            Self::Namespace(name) => write!(f, "namespace {name:?}"),
            Self::NoNamespace => f.write_str("the manifests without a namespace"),
            Self::EnvFiles(path) => write!(f, "the env files of {}", shown(path).display()),
        }
    }
}

/// The units of one source: a compose file, a kustomization, the plain manifests of a directory.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) scope: Scope,
    /// An override file laid over its base: the same project as the base, another state of it.
    pub(crate) is_variant: bool,
    pub(crate) units: Vec<DaemonUnit>,
}

impl Stack {
    fn is_complete(&self) -> bool {
        Daemon::ALL.into_iter().all(|daemon| self.units.iter().any(|unit| unit.daemon == daemon))
    }
}

/// Units that must agree with each other.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) scope: Scope,
    pub(crate) units: Vec<DaemonUnit>,
}

/// All stacks of a named scope are one group. Without a name (and for the variants of a compose file), a stack with
/// both daemons is a deployment of its own, since directories often hold several; stacks with only one of the two are
/// parts, and join each of those, or each other where there are none.
pub(crate) fn groups(stacks: Vec<Stack>) -> Vec<Group> {
    let mut scopes: BTreeMap<Scope, Vec<Stack>> = BTreeMap::new();
    for stack in stacks.into_iter().filter(|stack| !stack.units.is_empty()) {
        scopes.entry(stack.scope.clone()).or_default().push(stack);
    }
    scopes.into_iter().flat_map(|(scope, stacks)| groups_of(&scope, stacks)).collect()
}

fn groups_of(scope: &Scope, stacks: Vec<Stack>) -> Vec<Group> {
    let stands_alone = |stack: &Stack| stack.is_variant || !scope.is_named();
    let (whole, rest): (Vec<_>, Vec<_>) =
        stacks.into_iter().partition(|stack| stands_alone(stack) && stack.is_complete());
    let parts: Vec<DaemonUnit> = rest.into_iter().flat_map(|stack| stack.units).collect();
    let group = |units| Group { scope: scope.clone(), units };
    if whole.is_empty() || (scope.is_named() && !parts.is_empty()) {
        return whole.into_iter().map(|stack| group(stack.units)).chain([group(parts.clone())]).collect();
    }
    whole.into_iter().map(|stack| group([stack.units, parts.clone()].concat())).collect()
}
