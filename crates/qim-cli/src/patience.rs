use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// The first wait; each next one is twice as long, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A server may ask for more than that, up to this.
const LONGEST_ASKED_WAIT: Duration = Duration::from_secs(60);

/// How long failing is borne: until nothing at all has succeeded for `give_up`.
#[derive(Debug)]
pub(crate) struct Patience {
    give_up: Duration,
    last_progress: Cell<Instant>,
}

impl Patience {
    /// Starts now.
    pub(crate) fn new(give_up: Duration) -> Self {
        Self { give_up, last_progress: Cell::new(Instant::now()) }
    }

    /// What `new` was given.
    pub(crate) fn give_up(&self) -> Duration {
        self.give_up
    }

    /// Something succeeded: everybody who waits has the whole time again.
    pub(crate) fn progress(&self) {
        self.last_progress.set(Instant::now());
    }

    /// The tries of one request. The time before it does not count: nothing was tried.
    pub(crate) fn attempts(&self) -> Attempts<'_> {
        Attempts { patience: self, began: Instant::now(), failed: 0 }
    }
}

/// One request's tries.
#[derive(Debug)]
pub(crate) struct Attempts<'a> {
    patience: &'a Patience,
    began: Instant,
    failed: u32,
}

impl Attempts<'_> {
    /// How many tries have failed.
    pub(crate) fn failed(&self) -> u32 {
        self.failed
    }

    /// After a failed try: how long to wait before the next, at least as long as the server asked. `None`: give up.
    pub(crate) fn next_wait(&mut self, asked: Option<Duration>) -> Option<Duration> {
        let waiting_since = self.began.max(self.patience.last_progress.get());
        let left =
            self.patience.give_up.checked_sub(waiting_since.elapsed()).filter(|left| !left.is_zero())?;
        let backed_off = FIRST_WAIT.saturating_mul(1 << self.failed.min(10)).min(LONGEST_WAIT);
        self.failed += 1;
        // Half of it is chance, so that those who failed together do not come back together.
        let wait = backed_off.mul_f64(rand::random_range(0.5..=1.0));
        Some(wait.max(asked.unwrap_or_default().min(LONGEST_ASKED_WAIT)).min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_grow_with_jitter_up_to_the_longest() {
        let patience = Patience::new(Duration::MAX);
        let mut attempts = patience.attempts();
        let waits: Vec<Duration> = (0..40).map(|_| attempts.next_wait(None).unwrap()).collect();
        assert!(waits[0] >= FIRST_WAIT / 2 && waits[0] <= FIRST_WAIT);
        assert!(waits[39] >= LONGEST_WAIT / 2 && waits.iter().all(|wait| *wait <= LONGEST_WAIT));
        assert_eq!(attempts.failed(), 40);
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_may_ask_for_a_longer_wait() {
        let patience = Patience::new(Duration::MAX);
        let asked = Some(Duration::from_secs(30));
        assert_eq!(patience.attempts().next_wait(asked), asked);
        assert_eq!(patience.attempts().next_wait(Some(Duration::from_secs(3600))), Some(LONGEST_ASKED_WAIT));
    }

    #[tokio::test(start_paused = true)]
    async fn giving_up_counts_from_the_last_progress_of_anybody() {
        let patience = Patience::new(Duration::from_secs(10));
        let mut attempts = patience.attempts();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(attempts.next_wait(None).unwrap() <= Duration::from_secs(1));
        patience.progress();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(attempts.next_wait(None).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(attempts.next_wait(None), None);
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_a_request_is_not_counted() {
        let patience = Patience::new(Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(patience.attempts().next_wait(None).is_some());
        assert_eq!(Patience::new(Duration::ZERO).attempts().next_wait(None), None);
    }
}
