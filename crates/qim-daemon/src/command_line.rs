//! The few arguments that a daemon takes; everything else is configured by the environment.

use std::ffi::OsString;
use std::fmt::Write as _;

use crate::config::{DaemonConfig, DefaultValue, VARIABLES};

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the process was started for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Run,
    CheckConfig,
    Help,
    Version,
}

/// From the arguments after the program's name; the error is for the person who gave them.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match arguments.as_slice() {
        [] => Ok(Command::Run),
        [only] => match only.to_str() {
            Some("--check-config") => Ok(Command::CheckConfig),
            Some("--help" | "-h") => Ok(Command::Help),
            Some("--version" | "-V") => Ok(Command::Version),
            _ => {
                let unknown = only.to_string_lossy();
                Err(format!("unknown argument {unknown:?}; it is configured by the environment, see --help"))
            }
        },
        _ => Err("takes at most one argument; it is configured by the environment, see --help".to_owned()),
    }
}

pub(crate) fn help<C: DaemonConfig>() -> String {
    let (program, about) = (C::PROGRAM, C::ABOUT);
    let mut text = format!(
        "{program} {VERSION}\n{about}\n\n\
         Usage: {program}                  runs until SIGTERM or SIGINT\n       \
         {program} --check-config   shows the configuration in effect; status 78 where it is bad\n       \
         {program} --help | --version\n\n\
         The environment configures it:\n"
    );
    for variable in VARIABLES.iter().filter(|variable| variable.used_by.includes(C::USED_BY)) {
        let default = match (variable.default, variable.default_in(C::USED_BY)) {
            (DefaultValue::Unset(instead), _) => format!("unset: {instead}"),
            (_, default) => format!("default {}", default.unwrap_or_default()),
        };
        let _ = writeln!(text, "\n  {} ({default})\n      {}", variable.name, variable.meaning);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ArchiverConfig, UsedBy, WriterConfig};

    fn parsed(arguments: &[&str]) -> Result<Command, String> {
        parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn no_other_arguments_are_taken() {
        assert_eq!(parsed(&[]), Ok(Command::Run));
        assert_eq!(parsed(&["--check-config"]), Ok(Command::CheckConfig));
        assert_eq!(parsed(&["--help"]), Ok(Command::Help));
        assert_eq!(parsed(&["--version"]), Ok(Command::Version));
        for bad in [&["--shards=3"][..], &["run"], &["--help", "--version"], &[""]] {
            assert!(parsed(bad).unwrap_err().contains("see --help"), "{bad:?}");
        }
    }

    #[test]
    fn the_help_names_every_variable_of_the_daemon_with_its_default() {
        for (text, used_by) in
            [(help::<WriterConfig>(), UsedBy::Writer), (help::<ArchiverConfig>(), UsedBy::Archiver)]
        {
            for variable in VARIABLES {
                assert_eq!(
                    text.contains(&format!("  {} (", variable.name)),
                    variable.used_by.includes(used_by)
                );
            }
        }
        assert!(help::<ArchiverConfig>().contains("QIM_ADMIN_ADDR (default 127.0.0.1:7402)"));
    }
}
