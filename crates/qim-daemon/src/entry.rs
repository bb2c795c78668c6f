use std::panic;
use std::process::{self, ExitCode};
use std::sync::Arc;

use anyhow::Context as _;
use qim_core::{SharedClock, SystemClock};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{Level, error, info, warn};

use crate::admin::AdminServer;
use crate::command_line::{self, Command, VERSION};
use crate::config::{DaemonConfig, Environment};
use crate::driver::LoopDriver;
use crate::log;
use crate::metrics::Metrics;
use crate::readiness::{Condition, Readiness};
use crate::shutdown::{Cause, Phase, PhaseSpec, Shutdown, Summary};

const EX_FAILURE: u8 = 1;
const EX_USAGE: u8 = 2;
/// `EX_CONFIG` of sysexits(3).
const EX_CONFIG: u8 = 78;
/// What a Rust program that panics ends with.
const EX_PANIC: i32 = 101;
/// The condition of the daemon as a whole.
const CONDITION: &str = "daemon";
/// Threads for what blocks: reads of SQLite, of which few are under way at a time, names that are looked up, files that are
/// read again. Without a limit there are many more that wait for work, as each call that finds none waiting starts one.
const BLOCKING_THREADS_MAX: usize = 6;

/// What the wiring of a daemon gets of its process.
pub struct Daemon<C> {
    /// The validated configuration.
    pub config: C,
    /// Where parts register what they count.
    pub metrics: Metrics,
    /// Where parts say how they are.
    pub readiness: Readiness,
    /// The time of day.
    pub clock: SharedClock,
    /// Runs the loops.
    pub driver: LoopDriver,
}

/// The whole life of a daemon: arguments, configuration, telemetry, admin port, wiring, running, draining.
///
/// `wire` starts the parts, with tasks spawned in the phases, and returns; the daemon is ready from then on. It ends on
/// SIGTERM or SIGINT, or when a task fails: the phases end one after the other, in the order in which they are given,
/// within the grace time. A second signal ends it at once, and so does a panic anywhere.
///
/// Status: 0 asked to end, and drained; 1 could not start, failed, or did not drain in time; 2 bad argument; 78 bad
/// configuration; 101 panic; 128 + N second signal N.
pub fn run_daemon<C, W, const N: usize>(phases: [PhaseSpec; N], wire: W) -> ExitCode
where
    C: DaemonConfig,
    W: AsyncFnOnce(Daemon<C>, [Phase; N]) -> anyhow::Result<()>,
{
    match command_line::parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => print!("{}", command_line::help::<C>()),
        Ok(Command::Version) => println!("{} {VERSION}", C::PROGRAM),
        Ok(Command::CheckConfig) => return check_config::<C>(),
        Ok(Command::Run) => return configure_and_run(phases, wire),
        Err(message) => {
            eprintln!("{}: {message}", C::PROGRAM);
            return ExitCode::from(EX_USAGE);
        }
    }
    ExitCode::SUCCESS
}

fn check_config<C: DaemonConfig>() -> ExitCode {
    let environment = Environment::of_process();
    if !environment.unknown().is_empty() {
        eprintln!("{}: ignoring unknown variables: {}", C::PROGRAM, environment.unknown().join(", "));
    }
    match C::from_environment(&environment) {
        Ok(config) => {
            for (variable, value) in config.effective() {
                println!("{variable}={value}");
            }
            ExitCode::SUCCESS
        }
        Err(faults) => {
            eprintln!("{faults}");
            ExitCode::from(EX_CONFIG)
        }
    }
}

fn configure_and_run<C, W, const N: usize>(phases: [PhaseSpec; N], wire: W) -> ExitCode
where
    C: DaemonConfig,
    W: AsyncFnOnce(Daemon<C>, [Phase; N]) -> anyhow::Result<()>,
{
    let environment = Environment::of_process();
    let config = match C::from_environment(&environment) {
        Ok(config) => config,
        Err(faults) => {
            eprintln!("{faults}");
            return ExitCode::from(EX_CONFIG);
        }
    };
    let runtime = match log::start(config.shared()).and_then(|()| Ok(runtime()?)) {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{}: {error:#}", C::PROGRAM);
            return ExitCode::from(EX_FAILURE);
        }
    };
    end_process_on_panic();
    choose_tls_provider();
    log_start(&config, &environment);
    let ended = runtime.block_on(run(config, phases, wire));
    // Without waiting for what did not end in time.
    runtime.shutdown_background();
    match ended {
        Ok(summary) => exit_code(&summary),
        Err(error) => {
            tell_failure::<C>(&format!("{error:#}"));
            ExitCode::from(EX_FAILURE)
        }
    }
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).build()
}

async fn run<C, W, const N: usize>(config: C, phases: [PhaseSpec; N], wire: W) -> anyhow::Result<Summary>
where
    C: DaemonConfig,
    W: AsyncFnOnce(Daemon<C>, [Phase; N]) -> anyhow::Result<()>,
{
    let mut signals = Signals::install()?;
    let admin = AdminServer::bind(config.shared().admin_addr).await?;
    info!(addr = %admin.local_addr()?, "admin port");
    let (metrics, readiness) = (Metrics::new(), Readiness::default());
    readiness.replace(CONDITION, Condition::NotReady("starting".to_owned()));
    tokio::spawn(metrics.clone().upkeep());
    tokio::spawn(admin.serve(metrics.clone(), readiness.clone()));

    let (mut shutdown, phases) = Shutdown::new(config.shared().shutdown_grace, phases);
    let clock: SharedClock = Arc::new(SystemClock);
    let driver = LoopDriver::new(metrics.clone(), clock.clone());
    let daemon = Daemon { config, metrics, readiness: readiness.clone(), clock, driver };

    let running = async {
        if let Err(error) = wire(daemon, phases).await {
            return Cause::Failure(format!("{error:#}"));
        }
        readiness.set(CONDITION, Condition::Ready);
        Cause::Failure(shutdown.failure().await.to_string())
    };
    let cause = tokio::select! {
        name = signals.next() => Cause::Signal(name),
        cause = running => cause,
    };
    match &cause {
        Cause::Signal(name) => info!(signal = name, "draining"),
        Cause::Failure(reason) => tell_failure::<C>(reason),
    }
    readiness.replace(CONDITION, Condition::NotReady("draining".to_owned()));
    tokio::select! {
        summary = shutdown.drain(cause) => Ok(summary),
        name = signals.next() => {
            warn!(signal = name, "second signal: ending at once");
            process::exit(Signals::status(name))
        }
    }
}

fn log_start<C: DaemonConfig>(config: &C, environment: &Environment) {
    let effective: Vec<String> =
        config.effective().iter().map(|(variable, value)| format!("{variable}={value}")).collect();
    info!(program = C::PROGRAM, version = VERSION, config = effective.join(" "), "starting");
    if !environment.unknown().is_empty() {
        let variables = environment.unknown().join(", ");
        warn!(variables, "ignoring unknown variables: are they misspelt?");
    }
}

fn exit_code(summary: &Summary) -> ExitCode {
    let elapsed_ms = u64::try_from(summary.elapsed.as_millis()).unwrap_or(u64::MAX);
    info!(clean = summary.is_clean(), elapsed_ms, "ended");
    if summary.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(EX_FAILURE) }
}

/// The reason for a bad end is told even where logging is off.
fn tell_failure<C: DaemonConfig>(reason: &str) {
    if tracing::enabled!(Level::ERROR) {
        error!(reason, "failed");
    } else {
        eprintln!("{}: {reason}", C::PROGRAM);
    }
}

/// One TLS implementation for all connections, in and out.
fn choose_tls_provider() {
    // An error means that it was chosen before, which only a test does.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// A panic is a broken invariant: whatever goes on after it, goes on in an unknown state.
fn end_process_on_panic() {
    let print_as_usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if tracing::enabled!(Level::ERROR) {
            let location = info.location().map(ToString::to_string).unwrap_or_default();
            let message = info.payload_as_str().unwrap_or("no message");
            error!(location, message, "panic: ending the process");
        } else {
            print_as_usual(info);
        }
        process::exit(EX_PANIC)
    }));
}

/// The signals that ask for an end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn install() -> anyhow::Result<Self> {
        let install = |kind| signal(kind).context("cannot take signals");
        Ok(Self {
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// What a shell would say of a process that this signal ended.
    fn status(name: &str) -> i32 {
        let kind = if name == "SIGINT" { SignalKind::interrupt() } else { SignalKind::terminate() };
        128 + kind.as_raw_value()
    }
}
