//! Copying gives way while messages are committed: see docs/adr/0015-copying-yields.md.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The share of the time in which copying works while commits are at [`BUSY_PER_SECOND`] or above, and nothing waits long.
const DUTY_MIN: f64 = 0.02;
/// Records committed a second from which on copying gives way as far as it does; below, in proportion. About half of what
/// the one thread of Redis takes, whichever machine it is on.
const BUSY_PER_SECOND: f64 = 50_000.0;
/// Where the longest wait for a copy is above it, copying gives way less, down to not at all at [`LAG_MAX`].
const LAG_MIN: Duration = Duration::from_secs(20);
const LAG_MAX: Duration = Duration::from_secs(60);
/// Steps of a round where nothing gives way: as many as fill a transaction of SQLite. Else fewer, since a rest is as long as
/// [`REST_MAX`] lets it be.
const ROUND_STEPS: usize = 64;
/// However long a round took, the next one does not wait longer.
const REST_MAX: Duration = Duration::from_secs(1);
/// A pause between commits that is shorter than a few looks is none.
const RATE_KEPT_PER_LOOK: f64 = 0.7;

/// Lets steps begin in rounds, with rests between them.
#[derive(Debug)]
pub(crate) struct Pace {
    state: Mutex<State>,
    turned: Notify,
}

#[derive(Debug)]
struct State {
    /// Share of the time that work may take; 1 where nothing is held back.
    duty: f64,
    commits_per_second: f64,
    /// When so many records had been committed.
    seen: Option<(Instant, u64)>,
    /// Steps of this round that have begun, and those of all rounds that have not ended.
    begun: usize,
    running: usize,
    round_began: Instant,
    rests_until: Instant,
}

/// A step that may go on; ends when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Pace);

impl Default for Pace {
    fn default() -> Self {
        let now = Instant::now();
        let state = State {
            duty: 1.0,
            commits_per_second: 0.0,
            seen: None,
            begun: 0,
            running: 0,
            round_began: now,
            rests_until: now,
        };
        Self { state: Mutex::new(state), turned: Notify::new() }
    }
}

impl Pace {
    /// Told now and then how many records were ever committed, and how long the oldest waits for its copy.
    pub(crate) fn observe(&self, committed: u64, lag: Duration) {
        let now = Instant::now();
        let mut state = self.state();
        if let Some((at, before)) = state.seen {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52 between two looks")]
            let more = committed.saturating_sub(before) as f64;
            let rate = more / (now - at).as_secs_f64().max(1e-3);
            let rate = rate.max(state.commits_per_second * RATE_KEPT_PER_LOOK);
            state.commits_per_second = if rate < 1.0 { 0.0 } else { rate };
        }
        state.seen = Some((now, committed));
        state.duty = duty(state.commits_per_second, lag);
        drop(state);
        self.turned.notify_waiters();
    }

    /// Waits until the next step may begin.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        loop {
            let turned = self.turned.notified();
            let rests_until = {
                let mut state = self.state();
                let now = Instant::now();
                let is_free = state.duty >= 1.0;
                if is_free || (now >= state.rests_until && state.begun < round_steps(state.duty)) {
                    if state.running == 0 {
                        state.round_began = now;
                    }
                    state.begun += usize::from(!is_free);
                    state.running += 1;
                    return Turn(self);
                }
                state.rests_until
            };
            if rests_until > Instant::now() {
                tokio::select! {
                    () = turned => {}
                    () = sleep_until(rests_until) => {}
                }
            } else {
                // The round is full: its end is told.
                turned.await;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.running -= 1;
        if state.running == 0 {
            let now = Instant::now();
            let rest = (now - state.round_began).mul_f64(1.0 / state.duty - 1.0);
            state.rests_until = now + rest.min(REST_MAX);
            state.begun = 0;
            drop(state);
            self.0.turned.notify_waiters();
        }
    }
}

/// The share of the time that copying may take.
fn duty(commits_per_second: f64, lag: Duration) -> f64 {
    let busy = (commits_per_second / BUSY_PER_SECOND).min(1.0);
    let late = lag.saturating_sub(LAG_MIN).div_duration_f64(LAG_MAX.saturating_sub(LAG_MIN)).min(1.0);
    1.0 - (1.0 - DUTY_MIN) * busy * (1.0 - late)
}

/// How many steps make a round.
fn round_steps(duty: f64) -> usize {
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let steps = (ROUND_STEPS as f64 * duty).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 1 to ROUND_STEPS, since a duty is above 0 and at most 1"
    )]
    let steps = steps as usize;
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn is(duty: f64, expected: f64) -> bool {
        (duty - expected).abs() < 1e-9
    }

    #[test]
    fn copying_gives_way_to_commits_and_less_the_longer_something_waits() {
        assert!(is(duty(0.0, Duration::ZERO), 1.0));
        assert!(is(duty(25_000.0, Duration::ZERO), 0.51));
        assert!(is(duty(50_000.0, LAG_MIN), 0.02));
        assert!(is(duty(1e9, LAG_MIN), 0.02));
        assert!(is(duty(1e9, (LAG_MIN + LAG_MAX) / 2), 0.51));
        assert!(is(duty(1e9, LAG_MAX), 1.0));
        assert!(is(duty(1e9, LAG_MAX * 100), 1.0));
    }

    #[tokio::test(start_paused = true)]
    async fn without_commits_nothing_is_held_back() {
        let pace = Pace::default();
        pace.observe(1_000_000, Duration::ZERO);
        tokio::time::advance(SECOND).await;
        pace.observe(1_000_000, Duration::ZERO);
        let begun = Instant::now();
        let mut turns = Vec::new();
        for _ in 0..10 * ROUND_STEPS {
            turns.push(pace.turn().await);
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn beside_commits_a_small_round_is_followed_by_a_rest_49_times_as_long() {
        let pace = Pace::default();
        pace.observe(0, Duration::ZERO);
        tokio::time::advance(SECOND).await;
        pace.observe(100_000, Duration::ZERO);
        let begun = Instant::now();
        for round in 0..3 {
            let mut turns = Vec::new();
            for _ in 0..round_steps(DUTY_MIN) {
                turns.push(pace.turn().await);
            }
            assert_eq!(begun.elapsed().as_millis() / 10, round * 50);
            tokio::time::advance(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_commits_ends_the_rest_of_copying() {
        let pace = Pace::default();
        pace.observe(0, Duration::ZERO);
        tokio::time::advance(SECOND).await;
        pace.observe(100_000, Duration::ZERO);
        let first = pace.turn().await;
        tokio::time::advance(Duration::from_secs(50)).await;
        drop(first);
        let begun = Instant::now();
        let waiting = pace.turn();
        let looks = async {
            // As long as the rate of before counts for something.
            for _ in 0..100 {
                tokio::time::advance(Duration::from_millis(1)).await;
                pace.observe(100_000, Duration::ZERO);
            }
        };
        tokio::join!(waiting, looks);
        assert!(begun.elapsed() < REST_MAX);
    }
}
