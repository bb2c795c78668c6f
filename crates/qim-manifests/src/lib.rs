//! The gate of SPEC A12: every deployment manifest gives qim-writer and qim-archiver the same retention.
//!
//! [`check`] reads compose files, Kubernetes manifests and env files, works out the environment that each daemon gets,
//! and reports where the two disagree, where only one is told, and where a value is one that the daemons refuse. It
//! reads files only: no network, no container engine, no cluster, and not the environment of whoever runs it.
//!
//! # What must agree
//!
//! Within a compose project or a Kubernetes namespace, for every writer and archiver:
//!
//! - `QIM_DEFAULT_HISTORY_RETENTION_DAYS` is set to the same legal value for all, or for none (then it is 30). Set on
//!   one side only it is a finding, also where it is 30: the next change would reach one of the two.
//! - `QIM_HOT_WINDOW`, `QIM_REDIS_URL`, `QIM_ARCHIVE_URL` (and their `_FILE` forms) and `QIM_SHARDS` are the same text
//!   for all, or set for none.
//! - A writer has an archiver beside it, and an archiver a writer.
//!
//! # Which containers count
//!
//! A service or container is a daemon where the first of these that names one says so: its program, the other words of
//! its entry point and command (behind a shell or an init, not as somebody to talk to), its image, its name. So a
//! command wins over a name, and one whose program is `qim` is no daemon. An env file that no manifest refers to counts
//! by its file name. A compose file that needs another one below it is laid over the base file in its directory.
//!
//! # What is followed
//!
//! Compose: `environment`, `env_file`, `.env` and interpolation, anchors and merge keys, `extends`, override files.
//! A variable that stays unresolved is equal only to the same expression. Two values that are equal only because of what
//! a variable happens to be, while the variable reaches one of the two, are reported.
//!
//! Kubernetes: `env`, `envFrom`, `ConfigMap`s; of kustomizations the resources, namespaces, generators and patches of
//! `ConfigMap`s. The values of Secrets are never read; a key of a Secret is equal to itself and to nothing else.
//!
//! What cannot be followed and could matter (other patches of an environment, a Secret whose keys are not to be seen, a
//! variable set inside a command) is a finding, never passed over.

mod bare_env;
mod compare;
mod compose;
mod discover;
mod env_file;
mod environment;
mod inputs;
mod kubernetes;
mod launch;
mod report;
mod stack;
mod template;
mod value;
mod yaml;

use std::collections::BTreeSet;
use std::path::PathBuf;

use inputs::Inputs;

pub use report::{CheckError, Daemon, Finding, Report, Unit};

/// Checks the manifests in the given files and directories (SPEC A12).
///
/// Directories are read to any depth: `*.yml`, `*.yaml`, `*.env`, `.env`, `Kustomization`. A file given by itself is read
/// whatever its name. What a manifest refers to (`env_file`, `.env`, a kustomization's base) is read wherever it lies.
///
/// What is wrong in a file, malformed YAML and duplicate keys included, is a [`Finding`]. An error means that nothing was
/// compared, or not everything; in particular it is one where all files are well and none runs either daemon.
pub fn check(paths: &[PathBuf]) -> Result<Report, CheckError> {
    let inputs = Inputs::default();
    let files = discover::discover(paths, &inputs)?;
    let mut stacks = Vec::new();
    for file in &files.yaml {
        let documents = inputs.documents(file);
        let compose = documents.iter().filter(|document| compose::is_compose(document));
        stacks.extend(compose.map(|document| compose::stack(file, document, &inputs)));
    }
    stacks.extend(kubernetes::stacks(&files.yaml, &inputs));
    stacks.extend(bare_env::stacks(&files.env, &inputs));

    let groups = stack::groups(stacks);
    for group in &groups {
        compare::compare(group, &inputs);
    }
    let checked: BTreeSet<Unit> = groups.iter().flat_map(compare::summaries).collect();
    let findings = inputs.into_findings();
    if checked.is_empty() && findings.is_empty() {
        return Err(CheckError::NoDaemons { files: files.yaml.len() + files.env.len() });
    }
    Ok(Report { checked: checked.into_iter().collect(), findings })
}
