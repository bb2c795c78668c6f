//! Log lines: to stderr, so that stdout stays free for what a command answers.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogFormat, SharedConfig};

/// Logs from here on as configured. Once in a process.
pub(crate) fn start(config: &SharedConfig) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().parse(&config.log_filter)?;
    let lines = match config.log_format {
        LogFormat::Text => {
            let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            fmt::layer().with_writer(io::stderr).with_ansi(colours).boxed()
        }
        LogFormat::Json => fmt::layer().json().flatten_event(true).with_writer(io::stderr).boxed(),
    };
    registry().with(lines).with(filter).try_init()?;
    Ok(())
}
