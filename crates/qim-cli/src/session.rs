use std::sync::Arc;
use std::time::Duration;

use qim_core::{RetentionDays, SharedClock, SystemClock};

use crate::cli::GlobalArgs;
use crate::client::{self, ServerUrl};
use crate::credentials::Credentials;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::link::Link;

/// What all commands share: the options that stand before them, the environment, and the clock.
pub(crate) struct Session {
    pub(crate) global: GlobalArgs,
    pub(crate) environment: Environment,
    pub(crate) clock: SharedClock,
}

impl Session {
    /// With the clock of the operating system.
    pub(crate) fn new(global: GlobalArgs, environment: Environment) -> Self {
        Self { global, environment, clock: Arc::new(SystemClock) }
    }

    /// The tenant as requests name it: empty means the default one.
    pub(crate) fn tenant(&self) -> String {
        self.global.tenant.clone().unwrap_or_default()
    }

    /// A link to the server that tries for `give_up` without progress. Connects when it is first used.
    pub(crate) fn link(&self, give_up: Duration) -> Result<Link, Failure> {
        let server = self.server()?;
        let credentials = Credentials::new(&self.global, &self.environment)?;
        let client = client::connect(&server, &credentials)?;
        Ok(Link::new(client, server, give_up))
    }

    /// The command line's retention of class `default`, else the environment's, else 30 days.
    pub(crate) fn retention_days(&self, given: Option<RetentionDays>) -> Result<RetentionDays, Failure> {
        match (given, &self.environment.retention_days) {
            (Some(days), _) => Ok(days),
            (None, Some(text)) => text.parse().map_err(|error| {
                Failure::Configuration(format!("QIM_DEFAULT_HISTORY_RETENTION_DAYS: {error}"))
            }),
            (None, None) => Ok(RetentionDays::default()),
        }
    }

    fn server(&self) -> Result<ServerUrl, Failure> {
        match (&self.global.server, &self.environment.server) {
            (Some(url), _) => {
                ServerUrl::parse(url).map_err(|reason| Failure::Usage(format!("--server {url:?} {reason}")))
            }
            (None, Some(url)) => ServerUrl::parse(url)
                .map_err(|reason| Failure::Configuration(format!("QIM_SERVER: {url:?} {reason}"))),
            (None, None) => Ok(ServerUrl::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(server: Option<&str>, environment: &[(&str, &str)]) -> Session {
        let global = GlobalArgs { server: server.map(str::to_owned), ..GlobalArgs::default() };
        let lookup = |name: &str| {
            environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        Session::new(global, Environment::from_lookup(lookup))
    }

    #[test]
    fn the_command_line_goes_before_the_environment_and_that_before_the_default() {
        let environment = [("QIM_SERVER", "http://10.0.0.1:1"), ("QIM_DEFAULT_HISTORY_RETENTION_DAYS", "7")];
        assert_eq!(session(Some("http://h:2"), &environment).server().unwrap().as_str(), "http://h:2");
        assert_eq!(session(None, &environment).server().unwrap().as_str(), "http://10.0.0.1:1");
        assert_eq!(session(None, &[]).server().unwrap().as_str(), "http://127.0.0.1:7400");
        let days = RetentionDays::new(90);
        assert_eq!(session(None, &environment).retention_days(days).unwrap().get(), 90);
        assert_eq!(session(None, &environment).retention_days(None).unwrap().get(), 7);
        assert_eq!(session(None, &[]).retention_days(None).unwrap().get(), 30);
    }

    #[test]
    fn a_bad_value_is_a_usage_or_a_configuration_error_by_where_it_stands() {
        assert_eq!(session(Some("h:2"), &[]).server().unwrap_err().exit_status(), 2);
        assert_eq!(session(None, &[("QIM_SERVER", "")]).server().unwrap_err().exit_status(), 78);
        for bad in ["", "0", "3651", "30d", " 30"] {
            let failure = session(None, &[("QIM_DEFAULT_HISTORY_RETENTION_DAYS", bad)]).retention_days(None);
            assert_eq!(failure.unwrap_err().exit_status(), 78, "{bad:?}");
        }
    }
}
