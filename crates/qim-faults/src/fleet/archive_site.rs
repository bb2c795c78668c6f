//! Where a run's archive is, and what can be done to it.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rusqlite::Connection;

/// Room for a run's archive several times over, and quick to fill.
const DISK_OPTIONS: &str = "size=16m";
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// The archive of a run.
pub(crate) enum ArchiveSite {
    /// A file of the run's own.
    Sqlite(SqliteSite),
    /// A keyspace on a server, `scylla://HOST:PORT/KEYSPACE`.
    Cql(CqlSite),
}

pub(crate) struct SqliteSite {
    dir: PathBuf,
    is_mounted: bool,
    lock: Mutex<Option<Connection>>,
}

pub(crate) struct CqlSite {
    server: SocketAddr,
    keyspace: String,
    /// `scripts/cassandra`, and the directory of the node that it started.
    node: Option<(PathBuf, PathBuf)>,
}

impl ArchiveSite {
    /// A file in this directory; on a small disk of its own, where that is to be filled.
    pub(crate) fn sqlite(dir: &Path, small_disk: bool) -> Result<Self> {
        let dir = dir.join("archive");
        fs::create_dir(&dir)?;
        if small_disk {
            mount_small_disk(&dir)?;
        }
        Ok(Self::Sqlite(SqliteSite { dir, is_mounted: small_disk, lock: Mutex::default() }))
    }

    /// On the server at `url`.
    pub(crate) fn cql(url: &str, node: Option<(PathBuf, PathBuf)>) -> Result<Self> {
        let (server, keyspace) = url
            .strip_prefix("scylla://")
            .and_then(|rest| rest.split_once('/'))
            .context("scylla://HOST:PORT/KEYSPACE")?;
        Ok(Self::Cql(CqlSite { server: server.parse()?, keyspace: keyspace.to_owned(), node }))
    }

    /// What a proxy has to stand before.
    pub(super) fn server(&self) -> Option<SocketAddr> {
        match self {
            Self::Sqlite(_) => None,
            Self::Cql(site) => Some(site.server),
        }
    }

    /// As a daemon behind this proxy takes it.
    pub(super) fn url(&self, proxy: Option<SocketAddr>) -> String {
        match self {
            Self::Sqlite(site) => format!("sqlite:{}", site.file().display()),
            Self::Cql(site) => format!("scylla://{}/{}", proxy.unwrap_or(site.server), site.keyspace),
        }
    }

    /// Somebody else writes to the file, for long.
    pub(super) fn lock(&self) -> Result<()> {
        let Self::Sqlite(site) = self else { return Ok(()) };
        let connection = Connection::open(site.file())?;
        connection.busy_timeout(LOCK_PATIENCE)?;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        *site.lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
        Ok(())
    }

    /// He is done.
    pub(super) fn unlock(&self) {
        if let Self::Sqlite(site) = self {
            site.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// Leaves no byte on the disk.
    pub(super) fn fill(&self) -> Result<()> {
        let Self::Sqlite(site) = self else { return Ok(()) };
        ensure!(site.is_mounted, "its disk is everybody's");
        let mut filler = File::create(site.filler())?;
        for block in [vec![0; 65_536], vec![0; 512]] {
            while filler.write_all(&block).is_ok() {}
        }
        Ok(())
    }

    /// Gives the room back.
    pub(super) fn make_room(&self) -> Result<()> {
        let Self::Sqlite(site) = self else { return Ok(()) };
        Ok(fs::remove_file(site.filler())?)
    }

    /// The CQL node, by this signal.
    pub(super) fn signal_node(&self, signal: &str) -> Result<()> {
        let Self::Cql(CqlSite { node: Some((_, dir)), .. }) = self else { return Ok(()) };
        let pid = fs::read_to_string(dir.join("pid"))?;
        let status = Command::new("kill").args(["-s", signal, pid.trim()]).status()?;
        ensure!(status.success(), "kill -s {signal} {pid}: {status}");
        Ok(())
    }

    /// Starts the CQL node again where it was.
    pub(super) fn start_node(&self) -> Result<()> {
        let Self::Cql(CqlSite { node: Some((script, dir)), server, .. }) = self else { return Ok(()) };
        let mut start = Command::new(script);
        start.args(["start", "--port", &server.port().to_string(), "--dir"]).arg(dir);
        let status = start.stdout(std::process::Stdio::null()).status()?;
        ensure!(status.success(), "{}: {status}", script.display());
        Ok(())
    }

    pub(super) fn close(&self) {
        self.unlock();
        if let Self::Sqlite(SqliteSite { dir, is_mounted: true, .. }) = self {
            // The files of a run that went wrong are wanted; a disk in memory goes with its mount.
            let kept = dir.with_extension("kept");
            let copied = Command::new("cp").arg("-r").arg(dir).arg(&kept).status();
            if !copied.is_ok_and(|status| status.success()) {
                eprintln!("faults: {} could not be copied", dir.display());
            }
            let _ = umount2(dir, MntFlags::MNT_DETACH);
        }
    }
}

impl SqliteSite {
    fn file(&self) -> PathBuf {
        self.dir.join("archive.db")
    }

    fn filler(&self) -> PathBuf {
        self.dir.join("filler")
    }
}

impl Drop for SqliteSite {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = umount2(&self.dir, MntFlags::MNT_DETACH);
        }
    }
}

fn mount_small_disk(dir: &Path) -> Result<()> {
    let (source, kind) = (Some("tmpfs"), Some("tmpfs"));
    mount(source, dir, kind, MsFlags::empty(), Some(DISK_OPTIONS)).context("mounting a small disk")
}

/// Whether this process may mount one.
pub(crate) fn can_mount(dir: &Path) -> bool {
    let done = mount_small_disk(dir);
    done.is_ok() && umount2(dir, MntFlags::empty()).is_ok()
}
