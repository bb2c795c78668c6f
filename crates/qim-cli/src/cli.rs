//! The command line. Its doc comments are the help texts, shown as they are written.
#![allow(clippy::doc_markdown, rustdoc::bare_urls)]

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand};
use qim_access::Right;
use qim_core::{RetentionClass, RetentionDays};

use crate::time_args::{When, parse_duration};
use crate::verify::TenantRetention;

/// Writes, reads, imports and verifies the message history of conversations.
///
/// Exit status: 0 good, 1 found wrong or refused, 2 usage, 69 server unavailable, 78 configuration.
#[derive(Debug, Parser)]
#[command(name = "qim", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GlobalArgs {
    /// The writer: http://HOST:PORT, or https:// for TLS [env: QIM_SERVER] [default: http://127.0.0.1:7400]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// PEM file with the only certificate authorities to trust for https:// [default: those of the system]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// PEM file with the certificate to show to a server that asks for one; together with --client-key-file
    #[arg(long, global = true, value_name = "FILE", requires = "client_key_file")]
    pub(crate) client_cert_file: Option<PathBuf>,
    /// PEM file with the private key of that certificate
    #[arg(long, global = true, value_name = "FILE", requires = "client_cert_file")]
    pub(crate) client_key_file: Option<PathBuf>,
    /// File with the token that says who this is [env: QIM_TOKEN_FILE, or the token itself in QIM_TOKEN]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The tenant whose conversations are meant; for files, where a line names none [default: default]
    #[arg(long, global = true, value_name = "T")]
    pub(crate) tenant: Option<String>,
    /// Prints JSON, one object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Commits one message
    Append(AppendArgs),
    /// Prints records, oldest first
    Pull(PullArgs),
    /// Prints the newest records, and then new ones as they come, until Ctrl-C
    Tail(TailArgs),
    /// Prints the marks, counts and tiers of a conversation
    Describe(DescribeArgs),
    /// Imports messages from NDJSON; can be repeated
    ///
    /// Fields of a line: tenant?, conversation, sender, client_msg_id, body or payload_base64, class?, content_type?,
    /// and created_at (RFC 3339 or epoch ms) or age_ms (before the start of this import). A line that cannot be
    /// imported is counted as failed and stops nothing else. A message whose answer was lost with the connection is
    /// sent again, and may then be counted as a duplicate.
    Import(ImportArgs),
    /// Compares every record of an NDJSON file with what the server has
    ///
    /// A record whose retention has passed must be gone; within ten minutes of its date it may be either.
    Verify(VerifyArgs),
    /// Checks that deployment manifests give both daemons the same retention
    CheckManifests(CheckManifestsArgs),
    /// Prints generated chat as NDJSON, for `qim import -`; the same for the same seed
    Demo(DemoArgs),
    /// Trains dictionaries, with which short messages take half the memory, and lists them
    ///
    /// Works on the tiers themselves and is configured as the daemons are: QIM_REDIS_URL, QIM_ARCHIVE_URL,
    /// QIM_SHARDS and so on.
    #[command(subcommand)]
    Dictionary(DictionaryCommand),
    /// Makes tokens, which say who may do what
    #[command(subcommand)]
    Token(TokenCommand),
    /// Asks a daemon's admin port whether it is ready; for container health checks
    Health(HealthArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AppendArgs {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub(crate) conversation: String,
    /// The message, or - for standard input, byte for byte
    #[arg(value_name = "BODY")]
    pub(crate) body: String,
    /// Who sends it
    #[arg(long, value_name = "S")]
    pub(crate) sender: String,
    /// ephemeral_24h, default, compliance_hold or tenant_custom
    #[arg(long, value_name = "C", default_value_t)]
    pub(crate) class: RetentionClass,
    /// Identifies the message when it is sent again [default: 16 random bytes]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// What the payload is [default: text/plain; charset=utf-8]
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// How long to try while the server is unavailable
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "10s")]
    pub(crate) give_up: Duration,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("position"))]
pub(crate) struct PullArgs {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub(crate) conversation: String,
    /// From the first record above this seq [default: 0]
    #[arg(long, value_name = "N", group = "position")]
    pub(crate) after: Option<u64>,
    /// The records just below this seq
    #[arg(long, value_name = "N", group = "position")]
    pub(crate) before: Option<u64>,
    /// From the first record created at or after this time: RFC 3339, epoch ms, or an age such as 2d
    #[arg(long, value_name = "TIME", group = "position")]
    pub(crate) from: Option<When>,
    /// How many records at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub(crate) conversation: String,
    /// How many records to start with
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub(crate) conversation: String,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file, or - for standard input
    pub(crate) file: PathBuf,
    /// How many requests, each for another conversation, are under way at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) concurrency: u16,
    /// How long to try without any progress
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "5m")]
    pub(crate) give_up: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The file, or - for standard input
    pub(crate) file: PathBuf,
    /// Retention of class default, in days [env: QIM_DEFAULT_HISTORY_RETENTION_DAYS] [default: 30]
    #[arg(long, value_name = "DAYS")]
    pub(crate) retention_days: Option<RetentionDays>,
    /// Retention of class tenant_custom: days, or never. Where it is not given, such a record may be absent
    #[arg(long, value_name = "DAYS|never")]
    pub(crate) tenant_retention: Option<TenantRetention>,
    /// When the file was imported, which is where its ages count from [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) imported_at: Option<When>,
    /// How many conversations are read at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) concurrency: u16,
    /// How long to try without any progress
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "5m")]
    pub(crate) give_up: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct CheckManifestsArgs {
    /// Compose files, Kubernetes manifests, env files, or directories of them
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How many messages
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) messages: u32,
    /// In how many conversations [default: one for each 20 messages]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) conversations: Option<u32>,
    /// Another seed, another chat
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DictionaryCommand {
    /// Makes a dictionary of phrases seen in at least 50 conversations and by at least 10 senders, and of no other text
    ///
    /// It is stored in both tiers and is the current one from then on: writers use it from their next refresh on. Older
    /// ones stay until no record needs them. Messages that never expire are not learnt from.
    Train(TrainArgs),
    /// Prints the dictionaries that are kept
    List,
}

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// What to learn from: NDJSON as for import, - for standard input, or live for messages that Redis has now
    #[arg(long, value_name = "FILE|live")]
    pub(crate) from: PathBuf,
    /// Tells what it would give, and stores nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Prints a new token, once, and the line for the file that QIM_TOKENS_FILE names
    ///
    /// Nothing is stored, and no server is asked: the token is valid once the line is in the file.
    Create(CreateTokenArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CreateTokenArgs {
    /// A tenant that it is for, or * for all; may be repeated
    #[arg(long = "tenant", id = "tenant", value_name = "T", required = true)]
    pub(crate) tenants: Vec<String>,
    /// append, pull, import, compliance, or admin for all of these; may be repeated
    #[arg(long = "right", value_name = "RIGHT", required = true)]
    pub(crate) rights: Vec<Right>,
    /// Its public name, in logs and metrics [default: 12 digits of its digest]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// The admin port [env: QIM_ADMIN_ADDR] [default: http://127.0.0.1:7401]
    #[arg(long, value_name = "URL")]
    pub(crate) admin: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for line in [["qim", "--json", "describe", "c"], ["qim", "describe", "c", "--json"]] {
            assert!(Cli::try_parse_from(line).unwrap().global.json);
        }
    }

    #[test]
    fn a_token_is_for_several_tenants_and_has_several_rights() {
        let line = "qim token create --tenant a --tenant b --right pull --right append --json";
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let Command::Token(TokenCommand::Create(args)) = cli.command else { panic!() };
        assert_eq!(args.tenants, ["a", "b"]);
        assert_eq!(args.rights, [Right::Pull, Right::Append]);
        assert!(cli.global.json);
        for bad in [
            "qim token create --tenant a",
            "qim token create --right pull",
            "qim token create --tenant a --right x",
        ] {
            assert_eq!(Cli::try_parse_from(bad.split(' ')).unwrap_err().exit_code(), 2, "{bad}");
        }
    }

    #[test]
    fn a_page_has_one_position_and_a_bounded_limit() {
        for bad in [
            vec!["qim", "pull", "c", "--after", "1", "--before", "2"],
            vec!["qim", "pull", "c", "--after", "1", "--from", "2d"],
            vec!["qim", "pull", "c", "--limit", "0"],
            vec!["qim", "pull", "c", "--limit", "10001"],
            vec!["qim", "pull", "c", "--after", "-1"],
            vec!["qim", "append", "c", "body"],
            vec!["qim", "append", "c", "body", "--sender", "s", "--class", "forever"],
            vec!["qim", "verify", "f", "--retention-days", "0"],
        ] {
            assert_eq!(Cli::try_parse_from(&bad).unwrap_err().exit_code(), 2, "{bad:?}");
        }
    }
}
