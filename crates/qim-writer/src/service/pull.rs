use std::time::Instant;

use qim_core::{PayloadForm, UnixMillis};
use qim_proto::v1::pull_request::Position as RequestedPosition;
use qim_proto::{EncodedPullResponse, v1};
use qim_store::tiered::{Page, Position, PullRequest};
use tonic::{Code, Status};

use super::validate::Faults;
use super::{Caller, History, convert, page, status};

/// Records on a page where the request does not say.
const LIMIT_DEFAULT: usize = 50;
/// Most records on a page.
const LIMIT_MAX: usize = 500;

impl History {
    pub(super) async fn pull_page(
        &self,
        caller: &Caller,
        request: v1::PullRequest,
    ) -> Result<EncodedPullResponse, Status> {
        let started = Instant::now();
        let mut faults = Faults::default();
        let conversation = faults.conversation(&request.tenant, &request.conversation);
        let limit = match usize::try_from(request.limit) {
            Ok(0) => LIMIT_DEFAULT,
            Ok(limit) if limit <= LIMIT_MAX => limit,
            _ => {
                faults.add("limit", format!("{} is not a number from 0 to {LIMIT_MAX}", request.limit));
                LIMIT_DEFAULT
            }
        };
        let position = match request.position {
            None => Position::After(0),
            Some(RequestedPosition::AfterSeq(seq)) => Position::After(seq),
            Some(RequestedPosition::BeforeSeq(seq)) => Position::Before(seq),
            Some(RequestedPosition::FromTimeMs(millis)) => Position::FromTime(clamped(millis)),
        };
        faults.into_result()?;
        let conversation = self.as_seen_by(caller, conversation.expect("no fault was found"));
        let request = PullRequest {
            position,
            limit,
            fail_on_expired: request.fail_on_expired,
            form: if request.accept_zstd { PayloadForm::PlainOrZstd } else { PayloadForm::Plain },
        };
        let pulled = self.store.pull(&conversation, request, self.clock.now()).await;
        self.metrics.pull_seconds.record(started.elapsed().as_secs_f64());
        let page = pulled.map_err(status::pull).inspect_err(|status| {
            if matches!(status.code(), Code::DataLoss | Code::Internal) {
                tracing::error!(%conversation, reason = status.message(), "pull failed");
            }
        })?;
        self.count(&page);
        Ok(page::encode(&page))
    }

    fn count(&self, page: &Page) {
        let (all, archived) = (page.records.len() as u64, page.from_archive as u64);
        self.metrics.pulled_archive.increment(archived);
        self.metrics.pulled_hot.increment(all - archived);
    }

    pub(super) async fn describe_conversation(
        &self,
        caller: &Caller,
        request: v1::DescribeRequest,
    ) -> Result<v1::DescribeResponse, Status> {
        let conversation = Self::conversation(&request.tenant, &request.conversation)?;
        let conversation = self.as_seen_by(caller, conversation);
        let description =
            self.store.describe(&conversation, self.clock.now()).await.map_err(|e| status::tier(&e))?;
        let marks = description.marks;
        if marks.last == 0 {
            return Ok(v1::DescribeResponse::default());
        }
        Ok(v1::DescribeResponse {
            exists: true,
            last_conversation_seq: marks.last,
            earliest_available_conversation_seq: description.earliest_available,
            hot_floor_seq: marks.floor,
            archived_seq: marks.archived,
            hot_records: marks.hot_records(),
            hot_bytes: description.hot_bytes,
            archived_records: description.archived_records.unwrap_or(0),
            last_created_at_ms: marks.last_created_at.as_i64(),
            shard: u32::from(description.shard),
            set_aside: description.set_aside,
            archive_unavailable: description.archived_records.is_none(),
            gaps: description.gaps.unwrap_or_default().into_iter().map(convert::gap).collect(),
        })
    }
}

/// Any time is fine to read from: before 1970 is the earliest, beyond what can be stored the end.
fn clamped(millis: i64) -> UnixMillis {
    UnixMillis::new(u64::try_from(millis).unwrap_or(0))
}
