//! The connections that read: a few, opened when they are first needed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, InterruptHandle};
use tokio::sync::Semaphore;
use tokio::task;
use tokio::time::{self, Instant as Deadline};

use super::database::Database;
use crate::archive::ArchiveError;

/// Reads at once. More would only wait for the same disk.
const READERS: usize = 4;

#[derive(Debug)]
pub(super) struct Readers {
    database: Arc<Database>,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database, permits: Arc::new(Semaphore::new(READERS)), idle: Arc::default() }
    }

    /// Runs `act` on a connection of its own. What is still running at the deadline is interrupted; until it ends it
    /// keeps its place, so that reads which hang do not pile up.
    pub(super) async fn read<T, F>(&self, deadline: Deadline, act: F) -> Result<T, ArchiveError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let late = || ArchiveError::Unavailable("reading from the archive took too long".to_owned());
        let permit = time::timeout_at(deadline, self.permits.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| late())?.expect("the semaphore is never closed");
        let interrupt = Arc::new(Mutex::new(None));
        let reading = Reading {
            database: self.database.clone(),
            idle: self.idle.clone(),
            interrupt: interrupt.clone(),
        };
        let task = task::spawn_blocking(move || {
            let _permit = permit;
            reading.run(act)
        });
        if let Ok(ended) = time::timeout_at(deadline, task).await {
            return ended.unwrap_or_else(|error| Err(ArchiveError::Unavailable(error.to_string())));
        }
        if let Some(handle) = &*lock(&interrupt) {
            handle.interrupt();
        }
        Err(late())
    }
}

struct Reading {
    database: Arc<Database>,
    idle: Arc<Mutex<Vec<Connection>>>,
    /// Stops the act; `None` while there is nothing to stop.
    interrupt: Arc<Mutex<Option<InterruptHandle>>>,
}

impl Reading {
    fn run<T>(self, act: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, ArchiveError> {
        self.database.check_file().inspect_err(|_| lock(&self.idle).clear())?;
        let idle = lock(&self.idle).pop();
        let connection = idle.map_or_else(|| self.database.open_reader(), Ok)?;
        *lock(&self.interrupt) = Some(connection.get_interrupt_handle());
        let outcome = act(&connection).map_err(|error| self.database.explain(&error));
        *lock(&self.interrupt) = None;
        // Only a connection that works is kept.
        if outcome.as_ref().err().is_none_or(ArchiveError::is_retryable) {
            lock(&self.idle).push(connection);
        }
        outcome
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
