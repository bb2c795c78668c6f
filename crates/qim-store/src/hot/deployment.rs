use super::durability::ServerFacts;
use super::keys::DEPLOYMENT;
use super::{HotError, RedisMessageStore};

/// The layout of keys and values that this program reads and writes.
const LAYOUT: u16 = 3;
/// The oldest Redis that has all that the scripts use.
const REDIS_MAJOR_MIN: u32 = 7;

/// Why this Redis cannot be worked with as it is. Starting again helps only after somebody acted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeploymentError {
    /// The data was laid out for another number of shards.
    #[error(
        "QIM_SHARDS: \"{configured}\" is not the number of shards that the data in Redis was made with, {stored}"
    )]
    Shards {
        /// What the daemon was given.
        configured: u16,
        /// What is stored.
        stored: u16,
    },
    /// The data was laid out by another qim.
    #[error("Redis holds data of layout {stored}; this qim knows {LAYOUT} only: use the one that wrote it")]
    Layout {
        /// What is stored.
        stored: u16,
    },
    /// The server is too old, or set up to lose data.
    #[error("{0}")]
    Unfit(String),
    /// The hot tier failed.
    #[error(transparent)]
    Hot(#[from] HotError),
}

impl RedisMessageStore {
    /// Checks that this Redis holds data of this deployment (or none yet), and that it neither evicts nor is too old.
    /// Answers what does not keep data as safe as it could, for a warning.
    pub async fn join_deployment(&self) -> Result<Vec<String>, DeploymentError> {
        let mut stored = redis::cmd("HMGET");
        stored.arg(DEPLOYMENT).arg("layout").arg("shards");
        let mut facts: (Option<u16>, Option<u16>) = self.connection.command(&stored).await?;
        if facts.0.is_none() || facts.1.is_none() {
            for (field, value) in [("layout", LAYOUT), ("shards", self.shards().get())] {
                let mut once = redis::cmd("HSETNX");
                self.connection.command::<()>(once.arg(DEPLOYMENT).arg(field).arg(value)).await?;
            }
            facts = self.connection.command(&stored).await?;
        }
        let (layout, shards) = (facts.0.unwrap_or(0), facts.1.unwrap_or(0));
        if layout != LAYOUT {
            return Err(DeploymentError::Layout { stored: layout });
        }
        if shards != self.shards().get() {
            return Err(DeploymentError::Shards { configured: self.shards().get(), stored: shards });
        }
        self.check_server().await
    }

    async fn check_server(&self) -> Result<Vec<String>, DeploymentError> {
        let info = self.connection.info("server").await?;
        let versions = info.lines().filter_map(|line| line.strip_prefix("redis_version:")).map(str::trim);
        let shown = versions.min_by_key(|version| parse_version(version)).unwrap_or("of an unknown version");
        let version = parse_version(shown);
        if version.0 < REDIS_MAJOR_MIN {
            return Err(DeploymentError::Unfit(format!("Redis {shown} is too old: use 7.0 or newer")));
        }
        let names = ["maxmemory-policy", "maxmemory", "appendonly", "appendfsync"];
        let mut warnings = Vec::new();
        let settings = match self.connection.settings(&names).await {
            Ok(settings) => Some(settings),
            // Managed servers hide CONFIG; that is no reason not to run, but somebody should know.
            Err(HotError::Refused(reason)) => {
                warnings.push(format!("Redis settings cannot be checked: {reason}"));
                None
            }
            Err(error) => return Err(error.into()),
        };
        // On a cluster, each node counts.
        let values = |name: &'static str| -> Option<Vec<String>> {
            let settings = settings.as_ref()?.iter();
            Some(settings.filter(|(set, _)| set == name).map(|(_, value)| value.clone()).collect())
        };
        check_settings(&values, &mut warnings)?;
        let replication = self.connection.info("replication").await?;
        let replicas = replication.lines().find_map(|line| line.strip_prefix("connected_slaves:"));
        let facts = ServerFacts {
            version,
            setting: &values,
            replicas: replicas.and_then(|count| count.trim().parse().ok()).unwrap_or(0),
            is_cluster: self.connection.is_cluster(),
        };
        warnings.extend(self.durability.check(&facts)?);
        self.lineages.set_on_disk(self.durability.is_on_disk(&facts));
        Ok(warnings)
    }
}

/// Major and minor; 0 where they cannot be read.
fn parse_version(version: &str) -> (u32, u32) {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether Redis keeps what it is given. Settings that are hidden are not asked for.
fn check_settings(
    values: &dyn Fn(&'static str) -> Option<Vec<String>>,
    warnings: &mut Vec<String>,
) -> Result<(), DeploymentError> {
    let values = |name: &'static str| values(name).unwrap_or_default();
    if let Some(policy) = values("maxmemory-policy").iter().find(|policy| *policy != "noeviction") {
        return Err(DeploymentError::Unfit(format!(
            "Redis evicts data when memory is short (maxmemory-policy {policy}): CONFIG SET maxmemory-policy noeviction"
        )));
    }
    if values("appendonly").iter().any(|value| value != "yes") {
        warnings
            .push("Redis keeps no append-only file: a restart loses the hot tier. Set appendonly yes".into());
    }
    if values("maxmemory").iter().any(|limit| limit == "0") {
        warnings.push(
            "Redis has no memory limit: set maxmemory, so that it refuses before the system kills it".into(),
        );
    }
    Ok(())
}
