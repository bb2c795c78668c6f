//! Every SQL statement: one file each in `sql/`, with its contract in its head.

macro_rules! statements {
    ($($name:ident = $file:literal),+ $(,)?) => {
        $(pub(super) const $name: &str =
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $file));)+

        #[cfg(test)]
        const FILES: &[&str] = &[$($file),+];
    };
}

statements! {
    SETTINGS = "settings.sql",
    SCHEMA_1 = "schema_1.sql",
    SCHEMA_2 = "schema_2.sql",
    SCHEMA_3 = "schema_3.sql",
    SELECT_HEADER = "select_header.sql",
    SELECT_CONVERSATION = "select_conversation.sql",
    INSERT_CONVERSATION = "insert_conversation.sql",
    RAISE_HIGH_WATER = "raise_high_water.sql",
    SELECT_BATCH = "select_batch.sql",
    SELECT_ROWS = "select_rows.sql",
    SELECT_RECORDS_FORWARDS = "select_records_forwards.sql",
    SELECT_RECORDS_BACKWARDS = "select_records_backwards.sql",
    COUNT_RECORDS = "count_records.sql",
    INSERT_RECORD = "insert_record.sql",
    SELECT_CLIENT_IDS = "select_client_ids.sql",
    UPSERT_CLIENT_IDS = "upsert_client_ids.sql",
    DELETE_EXPIRED_RECORDS = "delete_expired_records.sql",
    SELECT_CLIENT_IDS_TO_SWEEP = "select_client_ids_to_sweep.sql",
    DELETE_CLIENT_IDS = "delete_client_ids.sql",
    SELECT_DICTIONARIES = "select_dictionaries.sql",
    SELECT_DICTIONARY = "select_dictionary.sql",
    INSERT_DICTIONARY = "insert_dictionary.sql",
    RAISE_DICTIONARY = "raise_dictionary.sql",
    DELETE_DICTIONARY = "delete_dictionary.sql",
    SELECT_ANY_CONVERSATION = "select_any_conversation.sql",
    INSERT_DEPLOYMENT = "insert_deployment.sql",
    INSERT_GAP = "insert_gap.sql",
    SELECT_GAPS = "select_gaps.sql",
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_sql_file_is_listed_and_has_a_head() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/sql");
        let mut found: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        for file in &found {
            let text = std::fs::read_to_string(format!("{directory}/{file}")).unwrap();
            assert!(text.starts_with("-- "), "{file} does not say what it is for");
        }
        let mut listed = super::FILES.to_vec();
        listed.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, listed);
    }
}
