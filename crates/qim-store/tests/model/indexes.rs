//! What Redis has to hold after every step: each index has an entry for what belongs into it, and for nothing else.

use std::collections::BTreeMap;

use qim_core::{Message, stub};
use redis::AsyncTypedCommands as _;
use redis::aio::MultiplexedConnection;

use crate::support::*;
use crate::world::World;

/// The places of a conversation, without its header.
type Places = Vec<Vec<u8>>;

impl World {
    pub(crate) async fn check_indexes(&self) {
        let mut raw = raw(&self.redis).await;
        let mut expiries = BTreeMap::new();
        let (mut unarchived, mut trim) = (Vec::new(), Vec::new());
        let (mut records, mut stubs) = (0, 0);
        for (model, marks) in self.models.iter().zip(&self.marks) {
            let id = model.conversation().conversation();
            let places = self.places(&mut raw, id).await;
            assert_eq!(places.len() as u64, marks.last + 1 - marks.floor, "places of {id}");
            for (seq, value) in (marks.floor..).zip(&places) {
                let known = model.at(seq);
                if is_tombstone(value) {
                    assert!(known.is_expired(self.latest), "seq {seq} of {id} was collected alive");
                    continue;
                }
                records += 1;
                stubs += usize::from(stub::is_stub(value));
                if let Some(date) = registered_for(known) {
                    expiries.insert(format!("{id}\0{seq}"), date);
                }
            }
            if marks.archived < marks.last {
                unarchived.push(id.to_owned());
            }
            if !places.is_empty() {
                trim.push(id.to_owned());
            }
        }
        assert_eq!(registered(&self.redis).await.into_iter().collect::<BTreeMap<_, _>>(), expiries);
        assert_eq!(self.members("unarchived").await, unarchived);
        assert_eq!(self.members("trim").await, trim);
        let pieces: Vec<String> = raw.keys("qim:*:l:*").await.unwrap();
        assert_eq!(pieces.len(), stubs, "pieces for each stub and for nothing else");
        let stats = self.writer().hot().stats(self.now).await.unwrap();
        let waiting: u64 = self.marks.iter().map(|marks| marks.last - marks.archived).sum();
        assert_eq!((stats.records, stats.unarchived, stats.set_aside), (records, waiting, 0));
    }

    async fn places(&self, raw: &mut MultiplexedConnection, id: &str) -> Places {
        let shard = self.writer().hot().shards().shard_of(&conversation(id));
        let range = redis::cmd("LRANGE").arg(format!("qim:{{{shard}}}:c:{id}")).arg(0).arg(-2).clone();
        range.query_async(raw).await.unwrap()
    }

    async fn members(&self, name: &str) -> Vec<String> {
        let mut members: Vec<String> =
            index(&self.redis, name).await.into_iter().map(|(member, _)| member).collect();
        members.sort();
        members
    }
}

fn is_tombstone(value: &[u8]) -> bool {
    value.len() == 15 && value[0] == 0
}

/// When GC has to collect it: only what expires before trimming gets to it (SPEC A18).
fn registered_for(message: &Message) -> Option<u64> {
    let expires_at = message.expires_at?;
    (expires_at.since(message.created_at) < WINDOW + DAY).then(|| expires_at.get())
}
