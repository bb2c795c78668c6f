//! Clients that take too much, or nothing of what they asked for: what the writer has in memory is bounded, and others are
//! served as ever.

mod connections;
mod hostile;
mod requests;

use qim_proto::v1;
use qim_proto::v1::history_client::HistoryClient;
use qim_testkit::Daemon;
use qim_tests::{message, unique};
use tonic::transport::Channel;

/// An honest client with a conversation of its own, and how much it has sent to that.
struct Other {
    client: HistoryClient<Channel>,
    conversation: String,
    sent: u64,
}

impl Other {
    async fn connect(writer: &Daemon) -> Self {
        let client = HistoryClient::connect(writer.grpc_url()).await.expect("the writer listens");
        Self { client, conversation: format!("other-{}", unique()), sent: 0 }
    }

    /// Commits a message and reads it back.
    async fn is_served(&mut self) {
        self.sent += 1;
        let append = v1::AppendRequest {
            conversation: self.conversation.clone(),
            messages: vec![message(&self.sent.to_string())],
            ..Default::default()
        };
        assert_eq!(self.client.append(append).await.unwrap().into_inner().results[0].seq, self.sent);
        let position = Some(v1::pull_request::Position::AfterSeq(self.sent - 1));
        let pull =
            v1::PullRequest { conversation: self.conversation.clone(), position, ..Default::default() };
        assert_eq!(self.client.pull(pull).await.unwrap().into_inner().records.len(), 1);
    }
}

/// A gauge or counter of the writer.
fn metric(writer: &Daemon, name: &str) -> f64 {
    writer.metrics().get(name).unwrap_or_else(|| panic!("there is no {name}"))
}

/// One that is a whole number.
#[expect(clippy::cast_possible_truncation, reason = "they are small")]
fn count(writer: &Daemon, name: &str) -> i64 {
    metric(writer, name).round() as i64
}

/// Resident memory, in MiB.
fn resident(writer: &Daemon) -> f64 {
    metric(writer, "process_resident_memory_bytes") / 1024.0 / 1024.0
}
