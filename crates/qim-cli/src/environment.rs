use std::ffi::OsString;

/// What the environment says, read once. Values are checked where they are used, so that a command is not stopped by
/// a variable that it does not need.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `QIM_SERVER`: the writer's URL.
    pub server: Option<String>,
    /// `QIM_TOKEN_FILE`: the file with the token that says who this is.
    pub token_file: Option<String>,
    /// `QIM_TOKEN`: that token itself.
    pub token: Option<String>,
    /// `QIM_DEFAULT_HISTORY_RETENTION_DAYS`: what the daemons run with.
    pub retention_days: Option<String>,
    /// `QIM_ADMIN_ADDR`: where a daemon in this container answers about its health.
    pub admin_addr: Option<String>,
    /// All variables, for commands that are configured as the daemons are. They may hold secrets.
    pub variables: Vec<(OsString, OsString)>,
}

impl Environment {
    /// Reads the process's own. A value that is not UTF-8 counts with its bad bytes replaced, and is refused for it.
    pub fn from_process() -> Self {
        let lookup = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self { variables: std::env::vars_os().collect(), ..Self::from_lookup(lookup) }
    }

    /// Reads from any source of names and values.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            server: lookup("QIM_SERVER"),
            token_file: lookup("QIM_TOKEN_FILE"),
            token: lookup("QIM_TOKEN"),
            retention_days: lookup("QIM_DEFAULT_HISTORY_RETENTION_DAYS"),
            admin_addr: lookup("QIM_ADMIN_ADDR"),
            variables: Vec::new(),
        }
    }
}
