use std::error::Error;
use std::thread;
use std::time::Duration;

use qim_proto::v1;
use qim_proto::v1::history_client::HistoryClient;
use qim_testkit::{Daemon, Launch, RedisServer, eventually};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::{PATIENCE, waiting};

/// How long a client that is told to try again waits.
const RETRY: Duration = Duration::from_millis(50);

/// Several writers and archivers of one deployment. All of it ends with it.
pub struct Fleet {
    /// `qim-archiver`s; first, so that they end before what they work on.
    pub archivers: Vec<Daemon>,
    /// `qim-writer`s.
    pub writers: Vec<Daemon>,
}

/// A client that knows all writers, and asks the next one where one does not answer.
pub struct FleetClient {
    channels: Vec<HistoryClient<Channel>>,
    next: usize,
    /// How often it was told to try again.
    pub retries: u32,
}

impl Fleet {
    /// Starts so many of each on this hot tier and archive, with these variables for all of them.
    pub fn start(
        (writers, archivers): (usize, usize),
        redis_url: &str,
        archive_url: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let start = |launch: Launch| {
            let launch = launch.env("QIM_REDIS_URL", redis_url).env("QIM_ARCHIVE_URL", archive_url);
            environment.iter().fold(launch, |launch, (name, value)| launch.env(name, *value)).start()
        };
        let writers = (0..writers).map(|_| start(Launch::writer())).collect();
        let archiver = || Launch::archiver().env("QIM_COPY_DELAY", "0s");
        Self { archivers: (0..archivers).map(|_| start(archiver())).collect(), writers }
    }

    /// A client that asks writer `first` before the others.
    pub fn client(&self, first: usize) -> FleetClient {
        let channel = |writer: &Daemon| {
            let endpoint = Channel::from_shared(writer.grpc_url()).expect("an address");
            HistoryClient::new(endpoint.timeout(Duration::from_secs(10)).connect_lazy())
        };
        FleetClient { channels: self.writers.iter().map(channel).collect(), next: first, retries: 0 }
    }

    /// Shards that each archiver holds.
    pub fn leases(&self) -> Vec<f64> {
        let held = |archiver: &Daemon| archiver.metrics().get("qim_leases_held").unwrap_or(0.0);
        self.archivers.iter().map(held).collect()
    }

    /// Waits until all 256 shards are spread over the archivers, each of which has its share within 20 %.
    pub fn await_even_shares(&self) {
        let share = 256.0 / f64::from(u32::try_from(self.archivers.len()).expect("a few"));
        eventually(PATIENCE, "the shards are spread evenly", || {
            let held = self.leases();
            let is_fair = |held: &f64| (held - share).abs() <= 0.2 * share;
            (held.iter().sum::<f64>() - 256.0).abs() < 0.5 && held.iter().all(is_fair)
        });
    }

    /// Ends each daemon in its own orderly way and starts it again, one after the other.
    pub fn restart_one_by_one(&self) {
        for daemon in self.writers.iter().chain(&self.archivers) {
            let status = daemon.terminate();
            assert!(status.success(), "{status}\n{}", daemon.stderr());
            daemon.restart();
            daemon.await_ready(PATIENCE);
            // Those who ask it find it again.
            thread::sleep(RETRY);
        }
    }

    /// Waits until the archive has all that was committed.
    pub fn await_archived(redis: &RedisServer) {
        eventually(PATIENCE, "everything is copied", || waiting(redis).0 == 0);
    }
}

impl FleetClient {
    /// Appends one message, again until it is committed, and answers its seq. Nothing but "unavailable" may come in
    /// between.
    pub async fn append(&mut self, conversation: &str, message: v1::Message) -> v1::Committed {
        let request = v1::AppendRequest {
            conversation: conversation.into(),
            messages: vec![message],
            ..Default::default()
        };
        loop {
            let channel = self.next % self.channels.len();
            match self.channels[channel].append(request.clone()).await {
                Ok(answer) => return answer.into_inner().results.remove(0),
                Err(status) => self.try_again(&status).await,
            }
        }
    }

    async fn try_again(&mut self, status: &Status) {
        // Only what this side's transport says has a cause: its connection was closed.
        assert!(status.code() == Code::Unavailable || status.source().is_some(), "{status:?}");
        self.retries += 1;
        self.next += 1;
        assert!(self.retries < 10_000, "{status:?}");
        tokio::time::sleep(RETRY).await;
    }

    /// Imports messages, again until they are committed, as [`Self::append`] does.
    pub async fn import(&mut self, conversation: &str, messages: Vec<v1::Message>) {
        let request = v1::ImportRequest { conversation: conversation.into(), messages, ..Default::default() };
        loop {
            let channel = self.next % self.channels.len();
            match self.channels[channel].import(request.clone()).await {
                Ok(_) => return,
                Err(status) => self.try_again(&status).await,
            }
        }
    }

    /// All records of a conversation from the first on, page by page.
    pub async fn pull_all(&mut self, conversation: &str) -> Vec<v1::Record> {
        let mut records: Vec<v1::Record> = Vec::new();
        loop {
            let after = records.last().map_or(0, |record| record.seq);
            let position = Some(v1::pull_request::Position::AfterSeq(after));
            let request = v1::PullRequest { position, ..crate::pull_all(conversation) };
            let channel = self.next % self.channels.len();
            let page = self.channels[channel].pull(request).await.expect("the writer answers").into_inner();
            let last = page.last_conversation_seq;
            records.extend(page.records);
            if records.last().is_none_or(|record| record.seq >= last) {
                return records;
            }
        }
    }
}
