use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metrics::Counter;
use tonic::{Code, Extensions, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// What one connection may have of all there is, as a divisor: one that takes its share leaves enough for others.
const SHARE: usize = 4;
/// Requests that are done give their memory back within moments.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How much requests may take: what was received and is not answered, and answers that their clients have not read.
///
/// Invariant: what is used is never above the limit, and is 0 when no request is under way.
pub(crate) struct RequestMemory {
    bytes_max: usize,
    used: AtomicUsize,
    refused: Counter,
}

/// The part of one connection.
pub(crate) struct Account {
    memory: Arc<RequestMemory>,
    used: AtomicUsize,
}

/// Bytes that are accounted for, until it is dropped.
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl RequestMemory {
    /// `refused` counts what there was no room for.
    pub(crate) fn new(bytes_max: usize, refused: Counter) -> Self {
        Self { bytes_max, used: AtomicUsize::new(0), refused }
    }

    /// In use now, over all connections, in bytes.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// For a new connection.
    pub(crate) fn account(self: &Arc<Self>) -> Arc<Account> {
        Arc::new(Account { memory: self.clone(), used: AtomicUsize::new(0) })
    }
}

impl Account {
    /// Takes so many bytes; the error is the answer to the client: nothing was done, and it may try again.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Result<Charge, Status> {
        let mut charge = Charge { account: self.clone(), bytes: 0 };
        charge.set(bytes)?;
        Ok(charge)
    }

    /// As [`Self::charge`], for one that can wait: `None` is not a refusal.
    pub(crate) fn try_charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.take(bytes).ok().map(|()| Charge { account: self.clone(), bytes })
    }

    /// The error says who has too much.
    fn take(&self, bytes: usize) -> Result<(), &'static str> {
        let memory = &self.memory;
        if !take(&self.used, bytes, memory.bytes_max / SHARE) {
            return Err("too much is under way on this connection");
        }
        if !take(&memory.used, bytes, memory.bytes_max) {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err("too much is under way in this writer");
        }
        Ok(())
    }

    fn refused(&self, told: &str) -> Status {
        self.memory.refused.increment(1);
        let told = format!("{told} (QIM_REQUEST_MEMORY_MAX); nothing was done");
        let details = ErrorDetails::with_retry_info(Some(RETRY_AFTER));
        Status::with_error_details(Code::ResourceExhausted, told, details)
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.memory.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Charge {
    /// More or less than before. Where there is no room for more, it stays as it was.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), Status> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.account.take(more).map_err(|told| self.account.refused(told))?,
            None => self.account.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

/// The account of the connection that a request came on.
pub(crate) fn account_of(extensions: &Extensions) -> &Arc<Account> {
    extensions.get().expect("`Metered` gives one to every request")
}

fn take(used: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= max);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_connection_has_more_than_its_share_and_all_together_no_more_than_there_is() {
        let memory = Arc::new(RequestMemory::new(400, Counter::noop()));
        let accounts: Vec<_> = (0..5).map(|_| memory.account()).collect();
        let mut charges = Vec::new();
        for account in &accounts[..4] {
            assert!(account.charge(101).is_err());
            charges.push(account.charge(60).unwrap());
            assert!(account.charge(41).is_err(), "its share is used up");
            charges.push(account.charge(40).unwrap());
        }
        assert_eq!(memory.used(), 400);
        let refused = accounts[4].charge(1).err().expect("all is used up");
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.get_error_details().retry_info().is_some());
        charges.truncate(7);
        let mut last = accounts[4].charge(30).unwrap();
        assert!(last.set(41).is_err(), "it stays as it was");
        assert!(last.set(5).is_ok() && last.set(40).is_ok());
        assert_eq!(memory.used(), 400);
        drop((charges, last));
        assert_eq!(memory.used(), 0);
        assert!(accounts.iter().all(|account| account.used.load(Ordering::Relaxed) == 0));
    }
}
