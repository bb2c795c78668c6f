//! A daemon's clock, by libfaketime: it reads how wrong it is from a file at each call. Timers stay true.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// How far a clock is moved.
pub(crate) const STEP_MS: i64 = 3_600_000;
const LIBRARY: &str = "libfaketimeMT.so.1";

/// A clock of one daemon's own.
pub(super) struct DaemonClock {
    file: PathBuf,
    library: PathBuf,
}

impl DaemonClock {
    /// It is right for now.
    pub(super) fn new(file: &Path) -> Result<Self> {
        let library = faketime_library().context("libfaketime is not installed")?;
        let clock = Self { file: file.to_owned(), library };
        clock.set_ms(0)?;
        Ok(clock)
    }

    /// It is so much ahead from now on.
    pub(super) fn set_ms(&self, ahead: i64) -> Result<()> {
        // In one act: the daemon may be reading it.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{:+}\n", ahead / 1_000))?;
        Ok(fs::rename(&new, &self.file)?)
    }

    /// For the daemon that is to have it.
    pub(super) fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }
}

/// Where it is, if it is.
pub(crate) fn faketime_library() -> Option<PathBuf> {
    let in_dir = |dir: PathBuf| Some(dir.join("faketime").join(LIBRARY)).filter(|path| path.is_file());
    let triplets =
        fs::read_dir("/usr/lib").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    std::iter::once(PathBuf::from("/usr/lib")).chain(triplets).find_map(in_dir)
}
