//! Every CQL statement: one file each in `cql/`, with its contract in its head.

use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::statement::prepared::PreparedStatement;

use crate::archive::Direction;

macro_rules! statements {
    ($($name:ident = $file:literal),+ $(,)?) => {
        $(pub(super) const $name: Text =
            Text(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/cql/", $file)));)+

        #[cfg(test)]
        const FILES: &[&str] = &[$($file),+];
    };
}

statements! {
    CREATE_KEYSPACE = "create_keyspace.cql",
    CREATE_SCHEMA_VERSION = "create_schema_version.cql",
    CREATE_CONVERSATIONS = "create_conversations.cql",
    CREATE_RECORDS = "create_records.cql",
    CREATE_HELD_RECORDS = "create_held_records.cql",
    CREATE_CLIENT_IDS = "create_client_ids.cql",
    CREATE_DICTIONARIES = "create_dictionaries.cql",
    SELECT_KEYSPACES = "select_keyspaces.cql",
    SELECT_REPLICATION = "select_replication.cql",
    SELECT_TABLES = "select_tables.cql",
    SELECT_COMPATIBILITY_MODE = "select_compatibility_mode.cql",
    SELECT_SCHEMA_VERSION = "select_schema_version.cql",
    INSERT_SCHEMA_VERSION = "insert_schema_version.cql",
    SELECT_HIGH_WATER = "select_high_water.cql",
    RAISE_HIGH_WATER = "raise_high_water.cql",
    SELECT_BUCKETS_FORWARDS = "select_buckets_forwards.cql",
    SELECT_BUCKETS_BACKWARDS = "select_buckets_backwards.cql",
    INSERT_BUCKET = "insert_bucket.cql",
    INSERT_HELD_BUCKET = "insert_held_bucket.cql",
    SELECT_RECORDS_FORWARDS = "select_records_forwards.cql",
    SELECT_RECORDS_BACKWARDS = "select_records_backwards.cql",
    SELECT_ROWS = "select_rows.cql",
    COUNT_RECORDS = "count_records.cql",
    COUNT_HELD_RECORDS = "count_held_records.cql",
    INSERT_RECORD = "insert_record.cql",
    INSERT_HELD_RECORD = "insert_held_record.cql",
    INSERT_CLIENT_IDS = "insert_client_ids.cql",
    SELECT_CLIENT_IDS = "select_client_ids.cql",
    SELECT_DICTIONARIES = "select_dictionaries.cql",
    SELECT_DICTIONARY = "select_dictionary.cql",
    INSERT_DICTIONARY = "insert_dictionary.cql",
    RAISE_DICTIONARY = "raise_dictionary.cql",
    DELETE_DICTIONARY = "delete_dictionary.cql",
    CREATE_GAPS = "create_gaps.cql",
    SELECT_ANY_CONVERSATION = "select_any_conversation.cql",
    INSERT_GAP = "insert_gap.cql",
    SELECT_GAPS = "select_gaps.cql",
}

/// The text of a statement, with places for names.
#[derive(Clone, Copy)]
pub(super) struct Text(&'static str);

impl Text {
    /// Without the head, and with the keyspace in its places.
    pub(super) fn in_keyspace(self, keyspace: &str) -> String {
        let body: Vec<&str> = self.0.lines().filter(|line| !line.starts_with("--")).collect();
        body.join("\n").replace("{keyspace}", &format!("\"{keyspace}\""))
    }
}

/// What differs between the table of expiring records and that of held ones by its name only.
pub(super) struct TableStatements {
    pub(super) forwards: PreparedStatement,
    pub(super) backwards: PreparedStatement,
    pub(super) all: PreparedStatement,
    pub(super) count: PreparedStatement,
}

/// The statements that are used again and again, prepared.
pub(super) struct Statements {
    pub(super) schema_version: PreparedStatement,
    pub(super) high_water: PreparedStatement,
    pub(super) raise_high_water: PreparedStatement,
    buckets_forwards: PreparedStatement,
    buckets_backwards: PreparedStatement,
    pub(super) insert_bucket: PreparedStatement,
    pub(super) insert_held_bucket: PreparedStatement,
    records: TableStatements,
    held_records: TableStatements,
    pub(super) insert_record: PreparedStatement,
    pub(super) insert_held_record: PreparedStatement,
    pub(super) insert_client_ids: PreparedStatement,
    pub(super) client_ids: PreparedStatement,
    pub(super) dictionaries: PreparedStatement,
    pub(super) dictionary: PreparedStatement,
    pub(super) insert_dictionary: PreparedStatement,
    pub(super) raise_dictionary: PreparedStatement,
    pub(super) delete_dictionary: PreparedStatement,
    pub(super) any_conversation: PreparedStatement,
    pub(super) insert_gap: PreparedStatement,
    pub(super) gaps: PreparedStatement,
}

impl Statements {
    pub(super) async fn prepare(session: &Session, keyspace: &str) -> Result<Self, PrepareError> {
        let prepare = async |text: Text, table: &str| {
            let text = text.in_keyspace(keyspace).replace("{table}", table);
            let mut statement = session.prepare(text).await?;
            // Every write says its own timestamp: done twice, it is done once.
            statement.set_is_idempotent(true);
            Ok::<_, PrepareError>(statement)
        };
        let table = async |name: &str, count: Text| {
            Ok::<_, PrepareError>(TableStatements {
                forwards: prepare(SELECT_RECORDS_FORWARDS, name).await?,
                backwards: prepare(SELECT_RECORDS_BACKWARDS, name).await?,
                all: prepare(SELECT_ROWS, name).await?,
                count: prepare(count, name).await?,
            })
        };
        Ok(Self {
            schema_version: prepare(SELECT_SCHEMA_VERSION, "").await?,
            high_water: prepare(SELECT_HIGH_WATER, "").await?,
            raise_high_water: prepare(RAISE_HIGH_WATER, "").await?,
            buckets_forwards: prepare(SELECT_BUCKETS_FORWARDS, "").await?,
            buckets_backwards: prepare(SELECT_BUCKETS_BACKWARDS, "").await?,
            insert_bucket: prepare(INSERT_BUCKET, "").await?,
            insert_held_bucket: prepare(INSERT_HELD_BUCKET, "").await?,
            records: table("records", COUNT_RECORDS).await?,
            held_records: table("held_records", COUNT_HELD_RECORDS).await?,
            insert_record: prepare(INSERT_RECORD, "").await?,
            insert_held_record: prepare(INSERT_HELD_RECORD, "").await?,
            insert_client_ids: prepare(INSERT_CLIENT_IDS, "").await?,
            client_ids: prepare(SELECT_CLIENT_IDS, "").await?,
            dictionaries: prepare(SELECT_DICTIONARIES, "").await?,
            dictionary: prepare(SELECT_DICTIONARY, "").await?,
            insert_dictionary: prepare(INSERT_DICTIONARY, "").await?,
            raise_dictionary: prepare(RAISE_DICTIONARY, "").await?,
            delete_dictionary: prepare(DELETE_DICTIONARY, "").await?,
            any_conversation: prepare(SELECT_ANY_CONVERSATION, "").await?,
            insert_gap: prepare(INSERT_GAP, "").await?,
            gaps: prepare(SELECT_GAPS, "").await?,
        })
    }

    pub(super) fn table(&self, held: bool) -> &TableStatements {
        if held { &self.held_records } else { &self.records }
    }

    pub(super) fn buckets(&self, direction: Direction) -> &PreparedStatement {
        match direction {
            Direction::Forwards => &self.buckets_forwards,
            Direction::Backwards => &self.buckets_backwards,
        }
    }
}

impl TableStatements {
    pub(super) fn rows(&self, direction: Direction) -> &PreparedStatement {
        match direction {
            Direction::Forwards => &self.forwards,
            Direction::Backwards => &self.backwards,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cql_file_is_listed_and_has_a_head() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/cql");
        let mut found: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        for file in &found {
            let text = std::fs::read_to_string(format!("{directory}/{file}")).unwrap();
            assert!(text.starts_with("-- "), "{file} does not say what it is for");
        }
        let mut listed = FILES.to_vec();
        listed.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, listed);
    }

    #[test]
    fn a_keyspace_is_quoted_and_the_head_left_out() {
        let text = SELECT_SCHEMA_VERSION.in_keyspace("select");
        assert_eq!(text, "SELECT version FROM \"select\".schema_version WHERE id = 1");
    }
}
