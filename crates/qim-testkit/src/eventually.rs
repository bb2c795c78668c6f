use std::thread;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Asks again and again until it is true; panics with `what` was waited for where it is not in time.
pub fn eventually(timeout: Duration, what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + timeout;
    while !is_true() {
        assert!(Instant::now() < deadline, "not within {timeout:?}: {what}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// The same without blocking the runtime.
pub async fn eventually_async(timeout: Duration, what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + timeout;
    while !is_true().await {
        assert!(Instant::now() < deadline, "not within {timeout:?}: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_as_soon_as_it_is_true() {
        let mut asked = 0;
        eventually(Duration::from_secs(10), "asked three times", || {
            asked += 1;
            asked == 3
        });
        assert_eq!(asked, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "not within 50ms: never")]
    async fn it_says_what_was_waited_for_in_vain() {
        eventually_async(Duration::from_millis(50), "never", async || false).await;
    }
}
