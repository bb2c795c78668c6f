use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qim_core::{Clock, SharedClock, UnixMillis};

/// A clock that stands still until it is told otherwise. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct FakeClock(Arc<AtomicU64>);

impl FakeClock {
    /// Stands at this moment.
    pub fn at(now: UnixMillis) -> Self {
        Self(Arc::new(AtomicU64::new(now.get())))
    }

    /// Goes to this moment, which may be an earlier one.
    pub fn set(&self, now: UnixMillis) {
        self.0.store(now.get(), Ordering::SeqCst);
    }

    /// Goes forward by this much.
    pub fn advance(&self, duration: Duration) {
        self.set(self.now() + duration);
    }

    /// As the code under test takes it.
    pub fn shared(&self) -> SharedClock {
        Arc::new(self.clone())
    }
}

impl Clock for FakeClock {
    fn now(&self) -> UnixMillis {
        UnixMillis::new(self.0.load(Ordering::SeqCst))
    }
}
