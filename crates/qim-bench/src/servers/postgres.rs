//! A `PostgreSQL` of our own: never the one of the system.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use nix::unistd::{Uid, User};
use tempfile::TempDir;

use super::process::{Process, free_port};

/// Where Debian puts it.
const BIN: &str = "/usr/lib/postgresql/15/bin";
/// It refuses to run as root; this user comes with its package.
const USER: &str = "postgres";
/// What it logs then, in the locale `C`.
const READY: &str = "ready to accept connections";
/// What everybody sets first. `synchronous_commit` off is the goal's condition: a crash may lose what it acknowledged
/// in the last moments, as Redis with `appendfsync everysec` may.
const SETTINGS: [&str; 7] = [
    "synchronous_commit=off",
    "shared_buffers=512MB",
    "max_wal_size=4GB",
    "max_connections=40",
    "listen_addresses=127.0.0.1",
    "autovacuum=off",
    "logging_collector=off",
];

/// Started empty; gone when dropped.
#[derive(Debug)]
pub(crate) struct Postgres {
    process: Process,
    port: u16,
    _dir: TempDir,
}

impl Postgres {
    /// `None` where it is not installed.
    pub(crate) fn start() -> Result<Option<Self>> {
        let bin = PathBuf::from(BIN);
        if !bin.join("postgres").exists() {
            return Ok(None);
        }
        let dir = TempDir::with_prefix("qim-bench-postgres-")?;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
        let data = dir.path().join("data");
        std::fs::create_dir(&data)?;
        if Uid::effective().is_root() {
            let user = User::from_name(USER)?.context("no user postgres")?;
            chown(&data, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700))?;
        let made = command(&bin.join("initdb"), &data)?
            .args(["--username=bench", "--auth=trust", "--encoding=UTF8", "--locale=C", "--pgdata"])
            .arg(&data)
            .output()?;
        if !made.status.success() {
            bail!("initdb: {}", String::from_utf8_lossy(&made.stderr));
        }
        let port = free_port()?;
        let mut server = command(&bin.join("postgres"), &data)?;
        server.arg("-D").arg(&data).args(["-p", &port.to_string()]);
        server.arg("-k").arg(&data);
        for setting in SETTINGS {
            server.args(["-c", setting]);
        }
        // It takes SIGTERM for "when the last client has gone".
        let process = Process::start("postgres", dir.path(), &mut server)?;
        let mut process = process.stopped_by(Signal::SIGINT);
        // It listens before it takes anybody.
        let log = dir.path().join("postgres.log");
        let is_ready = || std::fs::read_to_string(&log).is_ok_and(|log| log.contains(READY));
        process.await_ready(is_ready)?;
        Ok(Some(Self { process, port, _dir: dir }))
    }

    /// As tokio-postgres reads it.
    pub(crate) fn config(&self) -> String {
        format!("host=127.0.0.1 port={} user=bench dbname=postgres", self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// A program of it, as its unprivileged user.
fn command(program: &Path, dir: &Path) -> Result<Command> {
    let mut command = Command::new(program);
    command.current_dir(dir);
    if Uid::effective().is_root() {
        let user = User::from_name(USER)?.context("no user postgres")?;
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    Ok(command)
}
