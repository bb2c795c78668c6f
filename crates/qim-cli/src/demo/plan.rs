//! Which conversation speaks when.

use super::random::Random;

const MINUTE_MS: f64 = 60_000.0;
const DAY_MS: f64 = 24.0 * 60.0 * MINUTE_MS;
/// The oldest message is not older.
const DAYS: f64 = 40.0;
/// Weeks of which a conversation is active in some; the last one is not whole.
const WEEKS: u32 = 6;
/// The messages of an active week: median 4 and mean 9, as measured in real chat; sigma = sqrt(2 ln(9 / 4)).
const WEEK_MEDIAN: f64 = 4.0;
const WEEK_SIGMA: f64 = 1.27;
/// Between two messages of a week: mostly a minute or two, now and then a day.
const GAP_MEDIAN_MS: f64 = 1.5 * MINUTE_MS;
const GAP_SIGMA: f64 = 2.2;

/// A message to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) age_ms: u32,
    pub(crate) conversation: u32,
}

/// How much chat there is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) messages: u32,
    /// At least 1. Not all of them speak where there are few messages.
    pub(crate) conversations: u32,
}

impl Plan {
    /// Exactly `messages` slots, oldest first.
    pub(crate) fn slots(self, random: &mut Random) -> Vec<Slot> {
        let weeks = self.active_weeks(random);
        let counts = self.share_out(&weeks);
        let mut slots = Vec::with_capacity(self.messages as usize);
        for (week, count) in weeks.iter().zip(counts) {
            week.fill(count, random, &mut slots);
        }
        slots.sort_by_key(|slot| (std::cmp::Reverse(slot.age_ms), slot.conversation));
        slots
    }

    /// The first conversations are active in all weeks, the last ones in a single one; most are near the last.
    fn active_weeks(self, random: &mut Random) -> Vec<ActiveWeek> {
        let mut weeks = Vec::new();
        for conversation in 0..self.conversations {
            let rank = f64::from(conversation + 1) / f64::from(self.conversations);
            let chance = 0.15 + 0.85 * (1.0 - rank).powi(3);
            let always = random.below(u64::from(WEEKS));
            for week in 0..WEEKS {
                if u64::from(week) == always || random.fraction() < chance {
                    let weight = random.log_normal(WEEK_MEDIAN, WEEK_SIGMA);
                    weeks.push(ActiveWeek { conversation, week, weight });
                }
            }
        }
        weeks
    }

    /// Messages for each week by its weight. What is cut off by rounding goes to the next week.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the messages")]
    fn share_out(self, weeks: &[ActiveWeek]) -> Vec<u32> {
        let per_weight = f64::from(self.messages) / weeks.iter().map(|week| week.weight).sum::<f64>();
        let (mut due, mut given) = (0.0, 0);
        let mut counts: Vec<u32> = Vec::with_capacity(weeks.len());
        for week in weeks {
            due += week.weight * per_weight;
            let count = (due.round() as u32).clamp(given, self.messages) - given;
            counts.push(count);
            given += count;
        }
        if let Some(last) = counts.last_mut() {
            *last += self.messages - given;
        }
        counts
    }
}

/// A week in which a conversation speaks.
#[derive(Debug, Clone, Copy)]
struct ActiveWeek {
    conversation: u32,
    /// 0 is the one that ends now.
    week: u32,
    weight: f64,
}

impl ActiveWeek {
    /// Messages in bursts, one after another, all within the week.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 40 days")]
    fn fill(self, count: u32, random: &mut Random, slots: &mut Vec<Slot>) {
        let newest = f64::from(self.week) * 7.0 * DAY_MS;
        let oldest = (newest + 7.0 * DAY_MS).min(DAYS * DAY_MS) - 1.0;
        let mut age = newest + (oldest - newest) * random.fraction();
        for _ in 0..count {
            slots.push(Slot { age_ms: age as u32, conversation: self.conversation });
            age -= random.log_normal(GAP_MEDIAN_MS, GAP_SIGMA);
            if age < newest {
                // The week is over: the next burst starts anywhere in it.
                age = newest + (oldest - newest) * random.fraction();
            }
        }
    }
}
