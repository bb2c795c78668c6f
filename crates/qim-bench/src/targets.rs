//! What commits are measured on, each with its servers.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::bench::Bench;
use crate::floors::postgres::PostgresTable;
use crate::floors::redis::{AdrLayout, RawRedis};
use crate::load::{CommitWork, Commits, Load, Outcome, run};
use crate::report::Report;
use crate::servers::daemon::Daemon;
use crate::servers::postgres::Postgres;
use crate::servers::process::{CpuMeter, Process, answers, free_port};
use crate::servers::redis::Redis;
use crate::subject::{AppendStream, Unary};

/// The subject in two ways, the same with payloads stored in another way, and its floors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    QimUnary,
    QimUnaryUncompressed,
    QimStream,
    QimStreamUncompressed,
    QimStreamDictionary,
    ThinUnary,
    ThinStream,
    RawRedis,
    Adr,
    Postgres,
}

impl Kind {
    /// In the order in which they take turns: each beside what it is compared with.
    pub(crate) const ALL: [Self; 10] = [
        Self::QimUnary,
        Self::ThinUnary,
        Self::QimUnaryUncompressed,
        Self::QimStream,
        Self::ThinStream,
        Self::QimStreamUncompressed,
        Self::QimStreamDictionary,
        Self::RawRedis,
        Self::Adr,
        Self::Postgres,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::QimUnary => "qim unary",
            Self::QimUnaryUncompressed => "qim unary uncompressed",
            Self::QimStream => "qim stream",
            Self::QimStreamUncompressed => "qim stream uncompressed",
            Self::QimStreamDictionary => "qim stream with a dictionary",
            Self::ThinUnary => "thin server unary",
            Self::ThinStream => "thin server stream",
            Self::RawRedis => "raw Redis",
            Self::Adr => "ADR layout",
            Self::Postgres => "PostgreSQL",
        }
    }

    /// Whether payloads are stored in another way than by default, which is looked at where requests have many messages.
    pub(crate) fn is_variant(self) -> bool {
        matches!(self, Self::QimUnaryUncompressed | Self::QimStreamUncompressed | Self::QimStreamDictionary)
    }

    /// Settings of the writer that are not the default.
    fn variables(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::QimUnaryUncompressed | Self::QimStreamUncompressed => &[("QIM_COMPRESSION", "off")],
            _ => &[],
        }
    }
}

/// Started empty. Fields end in this order: the clients before the servers.
pub(crate) struct Target {
    store: Arc<dyn Commits>,
    processes: Vec<(&'static str, u32)>,
    _writer: Option<Daemon>,
    _thin: Option<Process>,
    _redis: Option<Redis>,
}

impl Target {
    /// `None`: `PostgreSQL`, where there is none.
    pub(crate) async fn start(
        bench: &Bench,
        kind: Kind,
        postgres: Option<&Postgres>,
    ) -> Result<Option<Self>> {
        if kind == Kind::Postgres {
            let Some(server) = postgres else { return Ok(None) };
            let store = Arc::new(PostgresTable::create(server).await?);
            let processes = vec![("postgres", server.pid())];
            return Ok(Some(Self { store, processes, _writer: None, _thin: None, _redis: None }));
        }
        let redis = bench.redis()?;
        let mut processes = vec![("redis", redis.pid())];
        let (mut writer, mut thin) = (None, None);
        let store: Arc<dyn Commits> = match kind {
            Kind::RawRedis => Arc::new(RawRedis::new(redis.connect().await?)),
            Kind::Adr => Arc::new(AdrLayout::new(redis.connect().await?)),
            Kind::QimUnary
            | Kind::QimUnaryUncompressed
            | Kind::QimStream
            | Kind::QimStreamUncompressed
            | Kind::QimStreamDictionary => {
                let archive = bench.sqlite_url();
                if kind == Kind::QimStreamDictionary {
                    // The writer that starts then uses it from the first message on.
                    bench.train(&redis, &archive)?;
                }
                let daemon = writer.insert(bench.writer(&redis, &archive, kind.variables())?);
                processes.push(("writer", daemon.pid()));
                client(kind, &daemon.url()).await?
            }
            Kind::ThinUnary | Kind::ThinStream | Kind::Postgres => {
                let (process, url) = start_thin_server(&redis, &bench.new_path("thin"))?;
                processes.push(("thin server", process.pid()));
                thin = Some(process);
                client(kind, &url).await?
            }
        };
        Ok(Some(Self { store, processes, _writer: writer, _thin: thin, _redis: Some(redis) }))
    }

    /// Puts commits on it.
    pub(crate) async fn load(&self, bench: &Bench, messages: usize, load: Load) -> Result<Outcome> {
        let corpus = bench.corpus.clone();
        run(Arc::new(CommitWork { store: self.store.clone(), corpus, messages }), load).await
    }

    /// The same, and adds what it gave and took to the report.
    pub(crate) async fn measure(
        &self,
        bench: &Bench,
        (messages, load): (usize, Load),
        (report, name): (&mut Report, &str),
    ) -> Result<()> {
        let meter = CpuMeter::start(&self.processes);
        let outcome = self.load(bench, messages, load).await?;
        report.add_cpu(name, &meter.used(), crate::load::as_f64(outcome.total));
        report.add(name, "msg/s", outcome.per_second());
        Ok(())
    }
}

async fn client(kind: Kind, url: &str) -> Result<Arc<dyn Commits>> {
    let unary = Unary::connect(url).await?;
    Ok(match kind {
        Kind::QimStream | Kind::QimStreamUncompressed | Kind::QimStreamDictionary | Kind::ThinStream => {
            Arc::new(AppendStream::open(unary).await?)
        }
        _ => Arc::new(unary),
    })
}

/// This program once more.
fn start_thin_server(redis: &Redis, dir: &Path) -> Result<(Process, String)> {
    std::fs::create_dir(dir)?;
    let port = free_port()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["thin-server", "--redis", &redis.url(), "--listen", &format!("127.0.0.1:{port}")]);
    let mut process = Process::start("thin-server", dir, &mut command).context("the thin server")?;
    process.await_ready(|| answers(port))?;
    Ok((process, format!("http://127.0.0.1:{port}")))
}
