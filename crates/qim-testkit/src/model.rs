use qim_core::{ConversationKey, Message, RetentionPolicy, UnixMillis};

/// What must be so of a conversation, whatever its tiers do: the list of what was acknowledged, in its order. The seq is
/// the place, from 1.
///
/// Clocks differ and may be put back, so it keeps the latest time that anybody had: what expired by that may be gone, and
/// what has not expired by the time of a read may be there.
#[derive(Debug, Clone)]
pub struct ConversationModel {
    conversation: ConversationKey,
    policy: RetentionPolicy,
    log: Vec<Message>,
}

/// What a commit has to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelCommit {
    /// For each message its seq, and whether it had been committed before.
    Taken(Vec<(u64, bool)>),
    /// The message at this place of the batch, from 0, has the id of another one. Nothing was committed.
    AlreadyExists(usize),
}

impl ConversationModel {
    /// An empty one.
    pub fn new(conversation: ConversationKey, policy: RetentionPolicy) -> Self {
        Self { conversation, policy, log: Vec::new() }
    }

    /// Whose it is.
    pub fn conversation(&self) -> &ConversationKey {
        &self.conversation
    }

    /// The highest seq; 0 when there is none.
    pub fn last(&self) -> u64 {
        self.log.len() as u64
    }

    /// All that was ever committed, with its seqs.
    pub fn all(&self) -> impl Iterator<Item = (u64, &Message)> {
        (1..=self.last()).zip(&self.log)
    }

    /// What stands under a seq.
    pub fn at(&self, seq: u64) -> &Message {
        &self.log[usize::try_from(seq - 1).expect("a place")]
    }

    /// Commits messages, all or none, in their order. Their expiry is not looked at: the policy decides it.
    pub fn commit(&mut self, batch: &[Message]) -> ModelCommit {
        let mut log = self.log.clone();
        let mut answers = Vec::new();
        for (index, message) in batch.iter().enumerate() {
            match (1..).zip(&log).find(|(_, known)| known.identity() == message.identity()) {
                Some((_, known)) if known.body() != message.body() => {
                    return ModelCommit::AlreadyExists(index);
                }
                Some((seq, _)) => answers.push((seq, true)),
                None => {
                    let before = log.last().map_or(UnixMillis::EPOCH, |last| last.created_at);
                    let created_at = message.created_at.max(before);
                    let expires_at =
                        self.policy.expires_at(message.class, self.conversation.tenant(), created_at);
                    log.push(Message { created_at, expires_at, ..message.clone() });
                    answers.push((log.len() as u64, false));
                }
            }
        }
        self.log = log;
        ModelCommit::Taken(answers)
    }

    /// A message was told to have been created then. Dates never go back, but where Redis was lost nobody may know any more
    /// how late one was that had expired by `now` and was never archived: then those behind it keep their own dates. It is
    /// not believed where that is before what is there still.
    pub fn believe(&mut self, seq: u64, created_at: UnixMillis, now: UnixMillis) {
        let place = usize::try_from(seq - 1).expect("a place");
        let before =
            self.log[..place].iter().filter(|known| !known.is_expired(now)).map(|known| known.created_at);
        let message = &self.log[place];
        if created_at < message.created_at && before.max().unwrap_or_default() <= created_at {
            let expires_at = self.policy.expires_at(message.class, self.conversation.tenant(), created_at);
            self.log[place] = Message { created_at, expires_at, ..message.clone() };
        }
    }

    /// The seqs that can be read at this time.
    pub fn alive(&self, now: UnixMillis) -> Vec<u64> {
        self.all().filter(|(_, message)| !message.is_expired(now)).map(|(seq, _)| seq).collect()
    }

    /// The lowest of them; last + 1 where there is none.
    pub fn earliest(&self, now: UnixMillis) -> u64 {
        self.alive(now).first().copied().unwrap_or(self.last() + 1)
    }

    /// Where reading from a time starts: the lowest seq of a message created at or after it; last + 1 where all are older.
    pub fn first_since(&self, time: UnixMillis) -> u64 {
        let found = self.all().find(|(_, message)| message.created_at >= time);
        found.map_or(self.last() + 1, |(seq, _)| seq)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use qim_core::{DEFAULT_CONTENT_TYPE, RetentionClass, RetentionDays, TenantId};

    use super::*;

    const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);

    fn model() -> ConversationModel {
        let conversation = ConversationKey::new(TenantId::default(), "c").unwrap();
        ConversationModel::new(conversation, RetentionPolicy::from_days(RetentionDays::new(30).unwrap()))
    }

    fn message(id: &str, class: RetentionClass, created_at: UnixMillis) -> Message {
        Message {
            sender: "alice".to_owned(),
            client_msg_id: id.to_owned(),
            class,
            created_at,
            expires_at: None,
            content_type: DEFAULT_CONTENT_TYPE.to_owned(),
            payload: id.to_owned().into(),
        }
    }

    #[test]
    fn a_message_has_one_place_and_a_date_no_earlier_than_the_one_before() {
        let (mut model, later) = (model(), NOW + Duration::from_secs(5));
        let (a, b) =
            (message("a", RetentionClass::Default, later), message("b", RetentionClass::Default, NOW));
        assert_eq!(
            model.commit(&[a.clone(), b, a.clone()]),
            ModelCommit::Taken(vec![(1, false), (2, false), (1, true)])
        );
        assert_eq!((model.last(), model.at(2).created_at), (2, later));
        assert_eq!((model.first_since(later), model.first_since(later + Duration::from_millis(1))), (1, 3));
        let other = Message { payload: "other".into(), ..a };
        let new = message("c", RetentionClass::Default, NOW);
        assert_eq!(model.commit(&[new, other]), ModelCommit::AlreadyExists(1));
        assert_eq!(model.last(), 2, "all or none");
    }

    #[test]
    fn messages_are_alive_until_the_date_of_their_class() {
        let mut model = model();
        let classes = [RetentionClass::Ephemeral24h, RetentionClass::Default, RetentionClass::ComplianceHold];
        for class in classes {
            model.commit(&[message(&class.to_string(), class, NOW)]);
        }
        let (day, ms) = (Duration::from_hours(24), Duration::from_millis(1));
        assert_eq!(model.alive(NOW + day - ms), [1, 2, 3]);
        assert_eq!((model.alive(NOW + day), model.earliest(NOW + day)), (vec![2, 3], 2));
        assert_eq!((model.alive(NOW + day * 30), model.earliest(NOW + day * 30)), (vec![3], 3));
    }
}
