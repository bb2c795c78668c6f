use qim_proto::v1;
use qim_proto::v1::imported::Outcome;
use tonic::Status;

use super::validate::{Batch, Kind, RawBatch};
use super::{Caller, History};

impl History {
    /// Commits messages with the dates they came with. Those that have expired already are refused one by one.
    pub(super) async fn import_messages(
        &self,
        caller: &Caller,
        request: v1::ImportRequest,
    ) -> Result<v1::ImportResponse, Status> {
        let v1::ImportRequest { tenant, conversation, messages } = request;
        let Batch { conversation, drafts, positions } =
            self.checked(caller, RawBatch { tenant, conversation, messages }, Kind::Import)?;
        let now = self.clock.now();
        let policy = self.store.hot().retention();
        let has_expired: Vec<bool> = drafts
            .iter()
            .map(|draft| policy.expires_at(draft.draft.class, conversation.tenant(), draft.draft.created_at))
            .map(|expires_at| expires_at.is_some_and(|expires_at| now >= expires_at))
            .collect();
        let living = drafts.into_iter().zip(positions).zip(&has_expired).filter(|(_, expired)| !**expired);
        let (drafts, positions) = living.map(|(draft, _)| draft).unzip();
        let batch = Batch { conversation, drafts, positions };
        let committed = if batch.drafts.is_empty() { Vec::new() } else { self.commit(&batch).await? };
        let mut committed = committed.into_iter();
        let results = has_expired.into_iter().map(|expired| {
            if expired {
                self.metrics.imports_expired.increment(1);
                return v1::Imported { outcome: Outcome::Expired.into(), seq: 0 };
            }
            let committed = committed.next().expect("every living message is answered");
            let outcome = if committed.duplicate { Outcome::Duplicate } else { Outcome::Committed };
            v1::Imported { outcome: outcome.into(), seq: committed.seq }
        });
        Ok(v1::ImportResponse { results: results.collect() })
    }
}
