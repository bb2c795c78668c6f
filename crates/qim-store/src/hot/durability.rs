//! When a commit is acknowledged: once Redis has it, once it is on disk, or once replicas have it (`QIM_COMMIT_DURABILITY`).
//!
//! WAIT and WAITAOF hold up whatever comes behind them on their connection, and only know of writes that were made on it.
//! So they have a connection of their own, on which a small write goes ahead of each: whatever was committed before has a
//! lower offset. All commits that wait at the same time share one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qim_core::{ClientTls, CommitDurability, RedisUrl};
use redis::{Cmd, Value};
use tokio::sync::oneshot;

use super::commit::read;
use super::connection::Connection;
use super::deployment::DeploymentError;
use super::keys::{BARRIER, Lane};
use super::lineage::Lineage;
use super::{HotError, RedisMessageStore};

/// The first Redis with WAITAOF.
const WAITAOF_VERSION: (u32, u32) = (7, 2);

/// What has to be waited for after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Nothing,
    /// WAITAOF.
    Disk,
    /// WAIT.
    Replicas(u8),
}

/// Those who wait, by the lineage that they committed in.
type Waiting = HashMap<Arc<str>, Vec<oneshot::Sender<Result<(), HotError>>>>;

/// What this store promises.
pub(super) struct Durability {
    mode: CommitDurability,
    wait: Mutex<Wait>,
    connection: Connection,
    timeout: Duration,
    /// `Some` while somebody is at it.
    waiting: Mutex<Option<Waiting>>,
}

/// What a server says of itself, as far as it matters here.
pub(super) struct ServerFacts<'a> {
    /// Major and minor.
    pub(super) version: (u32, u32),
    /// A setting, of each node; `None` where settings are hidden.
    pub(super) setting: &'a dyn Fn(&'static str) -> Option<Vec<String>>,
    /// Replicas that are connected.
    pub(super) replicas: u64,
    pub(super) is_cluster: bool,
}

impl ServerFacts<'_> {
    fn all_are(&self, name: &'static str, wanted: &str) -> bool {
        (self.setting)(name).is_some_and(|values| values.iter().all(|value| value == wanted))
    }
}

impl Durability {
    /// Promises nothing beyond Redis' memory.
    pub(super) fn open(url: &RedisUrl, tls: &ClientTls, timeout: Duration) -> Result<Self, HotError> {
        Ok(Self::new(CommitDurability::Memory, Connection::open(url, tls, timeout)?, timeout))
    }

    pub(super) fn with_mode(&self, mode: CommitDurability) -> Self {
        Self::new(mode, self.connection.clone(), self.timeout)
    }

    fn new(mode: CommitDurability, connection: Connection, timeout: Duration) -> Self {
        let wait = match mode {
            CommitDurability::Memory => Wait::Nothing,
            CommitDurability::Fsync => Wait::Disk,
            CommitDurability::Replicated(replicas) => Wait::Replicas(replicas.get()),
        };
        Self { mode, wait: Mutex::new(wait), connection, timeout, waiting: Mutex::default() }
    }

    /// See [`Connection::renew_tls`].
    pub(super) async fn renew_tls(&self, tls: &ClientTls) -> Result<(), HotError> {
        match self.mode {
            // Nothing is ever asked.
            CommitDurability::Memory => Ok(()),
            CommitDurability::Fsync | CommitDurability::Replicated(_) => self.connection.renew_tls(tls).await,
        }
    }

    /// Whether this server can keep the promise; what does not keep data as safe as it could, for a warning.
    pub(super) fn check(&self, facts: &ServerFacts<'_>) -> Result<Option<String>, DeploymentError> {
        let unfit = |what: String| {
            Err(DeploymentError::Unfit(format!("QIM_COMMIT_DURABILITY: \"{}\" needs {what}", self.mode)))
        };
        let all_are = |name, wanted| facts.all_are(name, wanted);
        match self.mode {
            CommitDurability::Memory => {
                let never = (facts.setting)("appendfsync").is_some_and(|values| values.iter().any(|set| set == "no"));
                Ok(never.then(|| {
                    "Redis leaves it to the system when its append-only file is written: set appendfsync everysec".into()
                }))
            }
            CommitDurability::Fsync if !all_are("appendonly", "yes") => {
                unfit("a Redis that keeps an append-only file, and shows it: CONFIG SET appendonly yes".into())
            }
            CommitDurability::Fsync if all_are("appendfsync", "always") => {
                self.set_wait(Wait::Nothing);
                Ok(None)
            }
            CommitDurability::Fsync if facts.version < WAITAOF_VERSION || facts.is_cluster => unfit(
                "CONFIG SET appendfsync always on Redis below 7.2 and on a cluster; others can wait for their disk".into(),
            ),
            CommitDurability::Replicated(_) if facts.is_cluster => {
                unfit("one Redis with replicas, and not a cluster: use memory, or fsync with appendfsync always".into())
            }
            CommitDurability::Replicated(wanted) if facts.replicas < u64::from(wanted.get()) => Ok(Some(format!(
                "QIM_COMMIT_DURABILITY: \"{}\" acknowledges nothing yet, since {} replicas are connected",
                self.mode, facts.replicas
            ))),
            CommitDurability::Fsync | CommitDurability::Replicated(_) => Ok(None),
        }
    }

    /// Whether nothing is acknowledged on this server before it is on its disk, and there is no other to take its place: one
    /// that did and was restarted since looks like this one.
    pub(super) fn is_on_disk(&self, facts: &ServerFacts<'_>) -> bool {
        let is_always = facts.all_are("appendonly", "yes") && facts.all_are("appendfsync", "always");
        facts.replicas == 0 && (is_always || self.mode == CommitDurability::Fsync)
    }

    fn set_wait(&self, wait: Wait) {
        *self.wait.lock().unwrap_or_else(PoisonError::into_inner) = wait;
    }

    fn wait(&self) -> Wait {
        *self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins those who wait. Answers whether nobody is at it, so that the caller has to be.
    fn join(&self, lineage: &Lineage, answer: oneshot::Sender<Result<(), HotError>>) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = waiting.is_none();
        waiting.get_or_insert_default().entry(lineage.text.clone()).or_default().push(answer);
        is_first
    }

    /// Those who wait now; where there are none, nobody is at it any more.
    fn take(&self) -> Option<Waiting> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = waiting.take().filter(|taken| !taken.is_empty())?;
        *waiting = Some(Waiting::new());
        Some(taken)
    }
}

impl RedisMessageStore {
    /// Whether a commit is acknowledged without waiting.
    pub(super) fn acknowledges_at_once(&self) -> bool {
        self.durability.wait() == Wait::Nothing
    }

    /// Returns once all that was committed in this lineage before the call is as durable as was promised.
    pub(super) async fn pass_barrier(&self, lineage: &Lineage) -> Result<(), HotError> {
        if self.acknowledges_at_once() {
            return Ok(());
        }
        let (answer, answered) = oneshot::channel();
        if self.durability.join(lineage, answer) {
            tokio::spawn(self.clone().work_at_barrier());
        }
        answered.await.unwrap_or_else(|_| Err(HotError::Unavailable("the commit was abandoned".into())))
    }

    async fn work_at_barrier(self) {
        while let Some(waiting) = self.durability.take() {
            for (lineage, waiting) in waiting {
                let passed = self.wait_at_barrier(&lineage).await;
                for answer in waiting {
                    // Nobody may wait any longer.
                    let _ = answer.send(passed.clone());
                }
            }
        }
    }

    async fn wait_at_barrier(&self, lineage: &str) -> Result<(), HotError> {
        let Durability { connection, timeout, .. } = &*self.durability;
        let script = &self.scripts.pass_barrier;
        let mut write = Cmd::new();
        write.arg("EVALSHA").arg(script.hash()).arg(2);
        write.arg(Lane::Server.lineage()).arg(BARRIER).arg(lineage);
        // Its answer comes before the connection gives up.
        let millis = u64::try_from(timeout.as_millis() * 3 / 4).unwrap_or(u64::MAX).max(1);
        let (wait, wanted) = match self.durability.wait() {
            Wait::Nothing => return Ok(()),
            Wait::Disk => (redis::cmd("WAITAOF").arg(1).arg(0).arg(millis).clone(), 1),
            Wait::Replicas(replicas) => {
                (redis::cmd("WAIT").arg(replicas).arg(millis).clone(), replicas.into())
            }
        };
        let reply: Value = connection.evalsha_and(script, &write, &wait).await?;
        let reached = match reply {
            Value::Array(counts) => counts.into_iter().next().map_or(Ok(0), read::<u64>)?,
            count => read(count)?,
        };
        if reached >= wanted {
            return Ok(());
        }
        let what = if self.durability.wait() == Wait::Disk { "disks" } else { "replicas" };
        Err(HotError::Unavailable(format!("the commit is on {reached} of {wanted} {what} so far")))
    }
}
