//! What the gate says: findings with a place, the units it looked at, and why it could not look.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The two programs that must agree (SPEC A12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Daemon {
    /// `qim-writer`
    Writer,
    /// `qim-archiver`
    Archiver,
}

impl Daemon {
    pub(crate) const ALL: [Self; 2] = [Self::Writer, Self::Archiver];

    /// The name of the program, which is also what marks a container as this daemon.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Writer => "qim-writer",
            Self::Archiver => "qim-archiver",
        }
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Writer => Self::Archiver,
            Self::Archiver => Self::Writer,
        }
    }
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program())
    }
}

/// Something that keeps the gate shut. Shown as `path:line: message`; never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, as reached from the paths that were given.
    pub file: PathBuf,
    /// The line, from 1; 1 also where the finding is about the whole file.
    pub line: usize,
    /// One line: what is wrong, and for a mismatch where the other side stands.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.message)
    }
}

/// A service, container or env file that runs one of the daemons, and was compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// Where it is declared.
    pub file: PathBuf,
    /// The line of the declaration, from 1.
    pub line: usize,
    /// Which of the two it runs; a unit that runs both is listed twice.
    pub daemon: Daemon,
    /// Its name: the compose service, `Deployment/name/container`, or the env file.
    pub name: String,
    /// The compose project, Kubernetes namespace or directory within which it was compared.
    pub scope: String,
    /// Its `QIM_DEFAULT_HISTORY_RETENTION_DAYS`, as text to show: a value in quotes, an expression that could not be
    /// resolved, or `unset`.
    pub retention: String,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, daemon, name, scope, retention } = self;
        write!(f, "{}:{line}: {daemon} {name:?} in {scope}: retention {retention}", file.display())
    }
}

/// What the gate saw. It passes only where [`Report::passed`] says so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Every unit that was compared, in order of place.
    pub checked: Vec<Unit>,
    /// Everything that is wrong, in order of place, each once.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Nothing is wrong, and something was checked (SPEC A12).
    pub fn passed(&self) -> bool {
        self.findings.is_empty() && !self.checked.is_empty()
    }
}

/// Findings, one to a line; nothing where there are none.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.findings.iter().try_for_each(|finding| writeln!(f, "{finding}"))
    }
}

/// Why nothing was checked. What is wrong inside a file is a [`Finding`] instead.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The list of paths is empty.
    #[error("no files or directories to check were given")]
    NoPaths,
    /// A path that was given does not exist or cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The path, as given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is more below a directory than the gate is willing to read.
    #[error("{}: more than {max} {what}", path.display())]
    TooMuch {
        /// The directory where the limit was passed.
        path: PathBuf,
        /// The limit.
        max: usize,
        /// Of what.
        what: &'static str,
    },
    /// Nothing is wrong, but no file runs either daemon: a gate that checks nothing must not pass.
    #[error("no qim-writer and no qim-archiver found in {files} files: there is nothing to compare")]
    NoDaemons {
        /// How many files were read.
        files: usize,
    },
}

/// A file and a line in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) file: Rc<Path>,
    pub(crate) line: usize,
}

impl Location {
    pub(crate) fn new(file: &Rc<Path>, line: usize) -> Self {
        Self { file: Rc::clone(file), line }
    }

    pub(crate) fn finding(&self, message: impl Into<String>) -> Finding {
        Finding { file: self.file.to_path_buf(), line: self.line, message: message.into() }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// Something wrong with a text whose file the finder does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Problem {
    pub(crate) fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}
