//! The one connection that writes, and its thread. Acts that are waiting go into one transaction, since syncing the
//! file is what a commit costs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, InterruptHandle, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, Instant as Deadline};

use super::database::Database;
use crate::archive::ArchiveError;

/// Orders that may wait; beyond, their callers do. More than callers ever have in flight.
const QUEUE_MAX: usize = 256;
/// Most acts in one transaction.
const GROUP_ACTS_MAX: usize = 64;
/// No further act joins a transaction that is this old, so that the first one is not kept waiting.
const GROUP_AGE_MAX: Duration = Duration::from_millis(50);

/// Why an act of its own was not done.
#[derive(Debug)]
pub(super) enum Fault {
    Sqlite(rusqlite::Error),
    Archive(ArchiveError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Gives orders to the writing thread, which ends when this is dropped.
pub(super) struct Writer {
    orders: mpsc::Sender<Order>,
    interrupt: Arc<Mutex<Option<InterruptHandle>>>,
}

enum Order {
    Open(oneshot::Sender<Result<(), ArchiveError>>),
    Write(Box<dyn Act>),
}

impl Writer {
    pub(super) fn start(database: Arc<Database>) -> Self {
        let (orders, queue) = mpsc::channel(QUEUE_MAX);
        let interrupt = Arc::new(Mutex::new(None));
        let thread = Thread { database, queue, interrupt: interrupt.clone(), connection: None };
        let started = thread::Builder::new().name("qim-archive".to_owned()).spawn(move || thread.run());
        started.expect("the system has room for one more thread");
        Self { orders, interrupt }
    }

    /// Opens the file, and makes it and its schema where there is none; waits for no lock where there is.
    pub(super) async fn open(&self, deadline: Deadline) -> Result<(), ArchiveError> {
        let (reply, answer) = oneshot::channel();
        let opened = self.order(deadline, Order::Open(reply), answer).await;
        opened
            .unwrap_or_else(|| Err(ArchiveError::Unavailable("opening the archive took too long".to_owned())))
    }

    /// Runs `act` in a transaction; what it did is durable when this returns `Ok`. Where it fails, what it did is
    /// undone.
    pub(super) async fn write<T, F>(&self, deadline: Deadline, act: F) -> Result<T, ArchiveError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let begun = Arc::new(AtomicBool::new(false));
        let (reply, answer) = oneshot::channel();
        let pending = Pending { act: Some(act), outcome: None, begun: begun.clone(), reply };
        if let Some(outcome) = self.order(deadline, Order::Write(Box::new(pending)), answer).await {
            return outcome;
        }
        // The others of its transaction fail, too: they have waited for as long.
        if begun.load(Ordering::Relaxed)
            && let Some(handle) = &*self.interrupt.lock().unwrap_or_else(PoisonError::into_inner)
        {
            handle.interrupt();
        }
        Err(ArchiveError::Unavailable("writing to the archive took too long".to_owned()))
    }

    /// What is answered to an order; `None` where nothing was by the deadline.
    async fn order<T>(
        &self,
        deadline: Deadline,
        order: Order,
        answer: oneshot::Receiver<Result<T, ArchiveError>>,
    ) -> Option<Result<T, ArchiveError>> {
        let gone = || Err(ArchiveError::Unavailable("the archive is being closed".to_owned()));
        match time::timeout_at(deadline, self.orders.send(order)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Some(gone()),
            Err(_) => return None,
        }
        let answer = time::timeout_at(deadline, answer).await.ok()?;
        Some(answer.unwrap_or_else(|_| gone()))
    }
}

/// An act whose result type the writing thread does not know.
trait Act: Send {
    /// Nobody waits for it any more.
    fn is_abandoned(&self) -> bool;
    /// Whether what it did is to stay.
    fn run(&mut self, connection: &Connection, database: &Database) -> Result<(), ArchiveError>;
    /// Tells the one who waits. `committed` is what became of the whole transaction.
    fn answer(self: Box<Self>, committed: Result<(), ArchiveError>);
}

struct Pending<T, F> {
    act: Option<F>,
    outcome: Option<Result<T, ArchiveError>>,
    begun: Arc<AtomicBool>,
    reply: oneshot::Sender<Result<T, ArchiveError>>,
}

impl<T, F> Act for Pending<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, Fault> + Send,
{
    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn run(&mut self, connection: &Connection, database: &Database) -> Result<(), ArchiveError> {
        self.begun.store(true, Ordering::Relaxed);
        let act = self.act.take().expect("an act runs once");
        let outcome = act(connection).map_err(|fault| match fault {
            Fault::Sqlite(error) => database.explain(&error),
            Fault::Archive(error) => error,
        });
        let kept = outcome.as_ref().map(|_| ()).map_err(Clone::clone);
        self.outcome = Some(outcome);
        kept
    }

    fn answer(self: Box<Self>, committed: Result<(), ArchiveError>) {
        let Self { outcome, reply, .. } = *self;
        // One that was abandoned has not run, and has nobody to tell.
        if let Some(outcome) = committed.map_or_else(|error| Some(Err(error)), |()| outcome) {
            let _ = reply.send(outcome);
        }
    }
}

struct Thread {
    database: Arc<Database>,
    queue: mpsc::Receiver<Order>,
    interrupt: Arc<Mutex<Option<InterruptHandle>>>,
    connection: Option<Connection>,
}

impl Thread {
    fn run(mut self) {
        while let Some(order) = self.queue.blocking_recv() {
            let mut group = Vec::new();
            let outcome = match order {
                Order::Open(reply) => {
                    let opened = self.connect();
                    let _ = reply.send(opened.clone()); // an error means that nobody waits any more
                    opened
                }
                Order::Write(first) => {
                    group.push(first);
                    self.transact(&mut group)
                }
            };
            // Only a connection that works is kept; the next order opens another.
            if outcome.as_ref().is_err_and(|error| !error.is_retryable()) {
                self.connection = None;
            }
            for act in group {
                act.answer(outcome.clone());
            }
        }
    }

    fn connect(&mut self) -> Result<(), ArchiveError> {
        self.database.check_file()?;
        if self.connection.is_none() {
            let connection = self.database.open_writer()?;
            let handle = connection.get_interrupt_handle();
            *self.interrupt.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
            self.connection = Some(connection);
        }
        Ok(())
    }

    /// Runs the one act of the group, and what waits behind it, in one transaction. The group gets them all.
    fn transact(&mut self, group: &mut Vec<Box<dyn Act>>) -> Result<(), ArchiveError> {
        self.connect()?;
        let begun = Instant::now();
        let explain = |error| self.database.explain(&error);
        let connection = self.connection.as_mut().expect("it is connected");
        let mut transaction =
            Transaction::new(connection, TransactionBehavior::Immediate).map_err(explain)?;
        loop {
            let act = group.last_mut().expect("there is one to begin with");
            run_act(&mut transaction, act.as_mut(), &self.database)?;
            if group.len() == GROUP_ACTS_MAX || begun.elapsed() > GROUP_AGE_MAX {
                break;
            }
            match self.queue.try_recv() {
                Ok(Order::Write(act)) => group.push(act),
                Ok(Order::Open(reply)) => {
                    let _ = reply.send(Ok(()));
                    break;
                }
                Err(_) => break,
            }
        }
        transaction.commit().map_err(explain)
    }
}

/// Runs an act inside a savepoint, so that one that fails does not take the others with it. Fails when the whole
/// transaction is lost.
fn run_act(
    transaction: &mut Transaction<'_>,
    act: &mut dyn Act,
    database: &Database,
) -> Result<(), ArchiveError> {
    if act.is_abandoned() {
        return Ok(());
    }
    let savepoint = transaction.savepoint().map_err(|error| database.explain(&error))?;
    let error = match act.run(&savepoint, database) {
        Ok(()) => return savepoint.commit().map_err(|error| database.explain(&error)),
        Err(error) => error,
    };
    drop(savepoint); // rolls back
    // A full disk, and some other errors, end the transaction by themselves.
    if transaction.is_autocommit() { Err(error) } else { Ok(()) }
}
