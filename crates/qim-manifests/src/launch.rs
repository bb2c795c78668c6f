//! Which daemon a container runs, told from how it is launched.

use std::collections::BTreeSet;

use crate::report::Daemon;

/// What a manifest says about how a container starts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Launch {
    /// Replaces the image's entry point, where it is given.
    pub(crate) entrypoint: Vec<String>,
    /// Compose's `command`, Kubernetes' `args`.
    pub(crate) command: Vec<String>,
    pub(crate) image: Option<String>,
    /// The closest name first: a build target, the service or container, the only container's workload.
    pub(crate) names: Vec<String>,
}

impl Launch {
    /// The daemons that this starts; almost always none or one.
    ///
    /// The first of these that names a daemon decides:
    ///
    /// 1. The program: the first word of entry point and command. Where it is `qim` (the command for people), the
    ///    container is no daemon, whatever it is called.
    /// 2. Any other word of entry point and command, as in `sh -c "… exec qim-writer"` or `tini -- qim-writer`. A word
    ///    counts by its last path component; one with `=`, `:` or `@` in it, and the value of an option
    ///    (`--server qim-writer`), does not: those name the daemon as somebody to talk to. Two daemons in one script
    ///    are both started.
    /// 3. The image.
    /// 4. The stage of the Dockerfile that is built, then the names of the service or container.
    ///
    /// So a command wins over an image, and an image over a name. An image or name with both in it decides nothing.
    pub(crate) fn daemons(&self) -> BTreeSet<Daemon> {
        let words = self.words();
        if let Some(program) = words.first() {
            if last_component(program) == "qim" {
                return BTreeSet::new();
            }
            let named = mentioned(last_component(program));
            if !named.is_empty() {
                return named;
            }
        }
        let started: BTreeSet<Daemon> = words
            .windows(2)
            .filter(|pair| !takes_a_value(pair[0]) && !pair[1].contains(['=', ':', '@']))
            .flat_map(|pair| mentioned(last_component(pair[1])))
            .collect();
        if !started.is_empty() {
            return started;
        }
        let places = self.image.iter().chain(&self.names);
        places.map(|text| mentioned(text)).find(|named| named.len() == 1).unwrap_or_default()
    }

    /// Variables of `names` that the command sets itself, where no environment shows it.
    pub(crate) fn set_inside<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        let words = self.words();
        let sets = |name: &str| {
            words.iter().any(|word| word.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))
        };
        names.iter().copied().filter(|name| sets(name)).collect()
    }

    fn words(&self) -> Vec<&str> {
        let parts = self.entrypoint.iter().chain(&self.command);
        parts
            .flat_map(|part| part.split([' ', '\t', '\n', ';', '&', '|', '(', ')', '\'', '"', '`']))
            .filter(|word| !word.is_empty())
            .collect()
    }
}

fn mentioned(text: &str) -> BTreeSet<Daemon> {
    Daemon::ALL.into_iter().filter(|daemon| text.contains(daemon.program())).collect()
}

fn last_component(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Whether the next word belongs to this option. `--` ends the options; `-c`, `-ec` and the like take a script.
fn takes_a_value(word: &str) -> bool {
    word.starts_with('-') && word != "--" && (word.starts_with("--") || !word.ends_with('c'))
}

#[cfg(test)]
mod tests {
    use super::Launch;
    use crate::report::Daemon::{self, Archiver, Writer};

    fn daemons(entrypoint: &[&str], command: &[&str], image: &str, names: &[&str]) -> Vec<Daemon> {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let launch = Launch {
            entrypoint: owned(entrypoint),
            command: owned(command),
            image: Some(image.to_owned()),
            names: owned(names),
        };
        launch.daemons().into_iter().collect()
    }

    #[test]
    fn the_command_wins_over_the_image_and_the_image_over_the_name() {
        assert_eq!(daemons(&[], &["qim-archiver"], "qim-writer:1", &["qim-writer"]), [Archiver]);
        assert_eq!(daemons(&["/usr/bin/qim-writer"], &["--x"], "qim:1", &["a"]), [Writer]);
        assert_eq!(daemons(&[], &[], "example/qim-archiver:1", &["qim-writer"]), [Archiver]);
        assert_eq!(daemons(&[], &["--verbose"], "qim:1", &["qim-writer"]), [Writer]);
        assert_eq!(daemons(&[], &[], "qim:1", &["main", "qim-archiver"]), [Archiver]);
    }

    #[test]
    fn a_daemon_behind_a_wrapper_is_found() {
        assert_eq!(daemons(&["sh", "-ec"], &["ulimit -n 9; exec /bin/qim-writer"], "", &[]), [Writer]);
        assert_eq!(daemons(&["tini", "--", "qim-archiver"], &[], "", &[]), [Archiver]);
        assert_eq!(daemons(&[], &["sh -c 'qim-writer & exec qim-archiver'"], "", &[]), [Writer, Archiver]);
    }

    #[test]
    fn a_container_that_only_talks_to_a_daemon_is_none() {
        assert_eq!(
            daemons(&[], &["qim --server http://qim-writer:7400 import -"], "qim", &["qim-writer"]),
            []
        );
        assert_eq!(daemons(&[], &["redis-server", "--user", "qim-writer", "on"], "redis:7", &["redis"]), []);
        assert_eq!(daemons(&[], &["probe", "-addr=qim-writer:7400"], "probe", &["probe"]), []);
        assert_eq!(daemons(&[], &[], "redis:7", &["redis"]), []);
    }
}
