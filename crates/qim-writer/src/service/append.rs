use std::time::Instant;

use qim_proto::v1;
use qim_store::hot::Committed;
use tonic::{Code, Status};

use super::validate::{Batch, Kind, RawBatch};
use super::{Caller, History, Refusal, convert, status, validate};

impl History {
    pub(super) async fn append_messages(
        &self,
        caller: &Caller,
        request: v1::AppendRequest,
    ) -> Result<v1::AppendResponse, Status> {
        let v1::AppendRequest { tenant, conversation, messages } = request;
        let batch = self.checked(caller, RawBatch { tenant, conversation, messages }, Kind::Append)?;
        let committed = self.commit(&batch).await?;
        Ok(v1::AppendResponse { results: committed.iter().map(convert::committed).collect() })
    }

    pub(super) fn checked(&self, caller: &Caller, raw: RawBatch, kind: Kind) -> Result<Batch, Status> {
        caller.may_commit(&raw.tenant, &raw.messages)?;
        validate::batch(raw, kind, self.payload_bytes_max, self.clock.now())
            .inspect_err(|_| self.metrics.refused(Refusal::Invalid))
    }

    /// Commits a valid batch, and counts it.
    pub(super) async fn commit(&self, batch: &Batch) -> Result<Vec<Committed>, Status> {
        let started = Instant::now();
        let result = self.store.commit(&batch.conversation, &batch.drafts, self.clock.now()).await;
        self.metrics.commit_seconds.record(started.elapsed().as_secs_f64());
        let committed = result.map_err(|error| {
            let status = status::commit(error, &batch.positions);
            self.count_refusal(&status);
            status
        })?;
        for (committed, draft) in committed.iter().zip(&batch.drafts) {
            if committed.duplicate {
                self.metrics.duplicates.increment(1);
            } else {
                self.metrics.committed(draft.draft.class);
            }
        }
        Ok(committed)
    }

    fn count_refusal(&self, status: &Status) {
        let reason = match status.code() {
            Code::AlreadyExists => Refusal::AlreadyExists,
            Code::ResourceExhausted => Refusal::Memory,
            Code::DataLoss => Refusal::Corrupt,
            _ => Refusal::Unavailable,
        };
        self.metrics.refused(reason);
        if matches!(status.code(), Code::DataLoss | Code::Internal) {
            tracing::error!(code = ?status.code(), reason = status.message(), "commit refused");
        }
    }
}
