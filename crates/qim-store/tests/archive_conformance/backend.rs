//! The archives that the cases run on.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use qim_core::{ArchiveUrl, Clock as _, ConversationKey, ScyllaUrl, SystemClock, TenantId, UnixMillis};
use qim_store::archive::{self, ArchiveOptions, ArchiveStore, SqliteArchive};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

/// Long enough for a loaded machine; nothing here waits for it but what shows that a call ends.
const OPTIONS: ArchiveOptions<'_> = ArchiveOptions { timeout: Duration::from_secs(30), tls: None };

/// An archive, and a conversation of the case's own.
pub(crate) struct Subject {
    pub(crate) store: Arc<dyn ArchiveStore>,
    /// The same data, as another program has it open.
    pub(crate) other: Arc<dyn ArchiveStore>,
    pub(crate) conversation: ConversationKey,
    pub(crate) damage: Arc<dyn Damage>,
    /// The real time when the case began, which is what a server goes by.
    pub(crate) now: UnixMillis,
}

/// Changes rows of expiring records behind the archive's back.
#[async_trait]
pub(crate) trait Damage: Send + Sync {
    async fn set_record(&self, conversation: &ConversationKey, seq: u64, record: &[u8]);
    async fn set_expires_at(&self, conversation: &ConversationKey, seq: u64, expires_at: i64);
}

/// Another conversation, in the tenant and under a name that nobody else uses.
pub(crate) fn fresh_conversation() -> ConversationKey {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("conversation-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    ConversationKey::new(TenantId::new("acme").unwrap(), &name).unwrap()
}

pub(crate) fn now() -> UnixMillis {
    SystemClock.now()
}

/// The runtime of all cases: a session lives no longer than the runtime it was made on.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

pub(crate) fn on_sqlite<F: Future<Output = ()>>(case: impl FnOnce(Subject) -> F) {
    let directory = TempDir::new().unwrap();
    let file = SqliteFile(directory.path().join("archive.db"));
    runtime().block_on(case(Subject {
        store: file.open(),
        other: file.open(),
        conversation: fresh_conversation(),
        damage: Arc::new(file),
        now: now(),
    }));
}

pub(crate) fn on_cql<F: Future<Output = ()>>(case: impl FnOnce(Subject) -> F) {
    runtime().block_on(async {
        let cluster = Cluster::shared().await;
        case(Subject {
            store: cluster.store.clone(),
            other: cluster.other.clone(),
            conversation: fresh_conversation(),
            damage: cluster.clone(),
            now: now(),
        })
        .await;
    });
}

pub(crate) struct SqliteFile(pub(crate) PathBuf);

impl SqliteFile {
    pub(crate) fn open(&self) -> Arc<dyn ArchiveStore> {
        Arc::new(SqliteArchive::open(&self.0, OPTIONS))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

#[async_trait]
impl Damage for SqliteFile {
    async fn set_record(&self, conversation: &ConversationKey, seq: u64, record: &[u8]) {
        self.update("record", conversation, seq, record);
    }

    async fn set_expires_at(&self, conversation: &ConversationKey, seq: u64, expires_at: i64) {
        self.update("expires_at", conversation, seq, expires_at);
    }
}

impl SqliteFile {
    fn update(&self, column: &str, of: &ConversationKey, seq: u64, value: impl rusqlite::ToSql) {
        let connection = rusqlite::Connection::open(&self.0).unwrap();
        let sql = format!(
            "UPDATE records SET {column} = ?1 WHERE seq = ?2
             AND conv = (SELECT id FROM conversations WHERE tenant = ?3 AND conversation = ?4)"
        );
        let seq = i64::try_from(seq).unwrap();
        let changed =
            connection.execute(&sql, (value, seq, of.tenant().as_str(), of.conversation())).unwrap();
        assert_eq!(changed, 1, "there is a row to damage");
    }
}

/// The server at `QIM_TEST_CQL_URL`, and a keyspace for this run.
pub(crate) struct Cluster {
    pub(crate) url: ScyllaUrl,
    pub(crate) store: Arc<dyn ArchiveStore>,
    other: Arc<dyn ArchiveStore>,
    /// Past the archive.
    pub(crate) session: Session,
}

impl Cluster {
    pub(crate) async fn shared() -> Arc<Self> {
        static CLUSTER: OnceCell<Arc<Cluster>> = OnceCell::const_new();
        CLUSTER.get_or_init(Self::start).await.clone()
    }

    async fn start() -> Arc<Self> {
        let url = server_url(&keyspace_of_this_run());
        let session = SessionBuilder::new().known_nodes(&url.nodes).build().await.unwrap();
        let (store, other) = (open(&url), open(&url));
        // At once, as two daemons do: each finds no tables.
        let (prepared, also) = tokio::join!(store.prepare(), other.prepare());
        prepared.unwrap();
        also.unwrap();
        Arc::new(Self { url, store, other, session })
    }

    /// Runs a statement with the keyspace in the place of `KS`.
    pub(crate) async fn run(&self, cql: &str) {
        self.session.query_unpaged(cql.replace("KS.", &self.prefix()), ()).await.unwrap();
    }

    pub(crate) fn prefix(&self) -> String {
        format!("{}.", self.url.keyspace)
    }
}

#[async_trait]
impl Damage for Cluster {
    async fn set_record(&self, conversation: &ConversationKey, seq: u64, record: &[u8]) {
        let hex: String = record.iter().map(|byte| format!("{byte:02x}")).collect();
        self.update(conversation, seq, &format!("record = 0x{hex}")).await;
    }

    async fn set_expires_at(&self, conversation: &ConversationKey, seq: u64, expires_at: i64) {
        self.update(conversation, seq, &format!("expires_at = {expires_at}")).await;
    }
}

impl Cluster {
    pub(crate) async fn update(&self, conversation: &ConversationKey, seq: u64, what: &str) {
        let row = row_of(conversation, seq);
        self.run(&format!("UPDATE KS.records SET {what} WHERE {row}")).await;
    }
}

/// What names a row in `records` and `held_records`.
pub(crate) fn row_of(conversation: &ConversationKey, seq: u64) -> String {
    format!(
        "tenant = '{}' AND conversation = '{}' AND bucket = {} AND seq = {seq}",
        conversation.tenant().as_str(),
        conversation.conversation(),
        seq / 4096
    )
}

pub(crate) fn open(url: &ScyllaUrl) -> Arc<dyn ArchiveStore> {
    archive::open(&ArchiveUrl::Scylla(url.clone()), OPTIONS).unwrap()
}

/// The test server, with another keyspace. Fails where there is none: a suite that passes over what it was written
/// for says nothing.
pub(crate) fn server_url(keyspace: &str) -> ScyllaUrl {
    let url = std::env::var("QIM_TEST_CQL_URL").unwrap_or_else(|_| {
        panic!(
            "QIM_TEST_CQL_URL is not set. Run scripts/test, or start a server with scripts/cassandra start and set \
             it to the line that this prints"
        )
    });
    match format!("{}/{keyspace}", url.trim_end_matches('/')).parse() {
        Ok(ArchiveUrl::Scylla(url)) => url,
        other => panic!("QIM_TEST_CQL_URL is {url:?}, not scylla://127.0.0.1:PORT: {other:?}"),
    }
}

/// One for all processes of a run of nextest, else one for this process.
fn keyspace_of_this_run() -> String {
    match std::env::var("NEXTEST_RUN_ID") {
        Ok(run) => format!("qim_test_{}", run.replace('-', "")),
        Err(_) => unused_keyspace(),
    }
}

/// A keyspace that nobody uses.
pub(crate) fn unused_keyspace() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("qim_test_{}_{}_{number}", now(), std::process::id())
}
