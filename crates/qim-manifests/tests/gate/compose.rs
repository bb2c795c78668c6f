//! Compose files.

crate::fixtures! {
    passes {
        compose_with_the_same_values: 2,
        compose_without_any_value: 2,
        compose_with_env_files: 2,
        compose_with_interpolation: 2,
        compose_with_merge_keys: 2,
        compose_with_extends: 2,
        compose_with_an_override_file: 5,
        compose_files_that_are_alternatives: 4,
        compose_project_in_two_files: 2,
        compose_with_a_build_target_or_two_daemons: 4,
        env_files_of_a_service_manager: 2,
    }
    finds {
        a_merged_value_overridden_on_one_side: [
            r#"docker-compose.yml:12: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "3" for qim-archiver "archiver" but "30" for qim-writer "writer" (docker-compose.yml:2)"#,
        ],
        a_second_archiver_with_another_value: [
            r#"docker-compose.yml:16: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "3" for qim-archiver "archiver-2" but "30" for qim-writer "writer" (docker-compose.yml:6)"#,
        ],
        a_value_only_on_the_archiver: [
            r#"docker-compose.yml:7: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "30" for qim-archiver "archiver" but not set for qim-writer "writer" (docker-compose.yml:2): set it for both or for neither"#,
        ],
        a_value_only_on_the_writer: [
            r#"docker-compose.yml:5: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "30" for qim-writer "writer" but not set for qim-archiver "archiver" (docker-compose.yml:6): set it for both or for neither"#,
        ],
        a_value_set_inside_a_command: [
            r#"docker-compose.yml:2: QIM_DEFAULT_HISTORY_RETENTION_DAYS is set inside the command of "writer": set it in its environment"#,
        ],
        a_variable_that_is_not_resolved: [
            r#"docker-compose.yml:9: QIM_DEFAULT_HISTORY_RETENTION_DAYS is ${RETENTION} for qim-archiver "archiver" but "30" for qim-writer "writer" (docker-compose.yml:5); ${RETENTION} has no default and is not in the .env file beside the compose file, so the two may differ"#,
        ],
        a_variable_that_reaches_one_side: [
            r#"docker-compose.yml:9: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "30" for qim-archiver "archiver" and for qim-writer "writer" (docker-compose.yml:5) as things stand, but ${RETENTION} reaches only one of the two"#,
        ],
        a_writer_without_an_archiver: [
            r#"docker-compose.yml:2: qim-writer "writer" has no qim-archiver in the compose project of .: only one of the two gets its settings"#,
        ],
        an_env_file_overridden_on_one_side: [
            r#"archiver.env:3: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "60" for qim-archiver "archiver" but "30" for qim-writer "writer" (shared.env:1)"#,
        ],
        an_env_file_that_is_missing: [
            r"docker-compose.yml:5: env_file missing.env cannot be read: entity not found",
        ],
        an_environment_over_an_env_file: [
            r#"shared.env:1: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "30" for qim-archiver "archiver" but "7" for qim-writer "writer" (docker-compose.yml:6)"#,
        ],
        an_expression_that_is_malformed: [
            r"docker-compose.yml:5: QIM_DEFAULT_HISTORY_RETENTION_DAYS: ${ without its }",
        ],
        an_include: [
            r"compose.yml:1: include is not followed: check what `docker compose config` prints instead",
        ],
        an_interpolated_default_that_differs: [
            r#"docker-compose.yml:9: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "31" for qim-archiver "archiver" but "30" for qim-writer "writer" (docker-compose.yml:5)"#,
        ],
        an_override_file_for_one_side: [
            r#"docker-compose.long.yml:3: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "365" for qim-writer "writer" but not set for qim-archiver "archiver" (docker-compose.yml:3): set it for both or for neither"#,
        ],
        compose_with_different_values: [
            r#"docker-compose.yml:9: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "31" for qim-archiver "archiver" but "30" for qim-writer "writer" (docker-compose.yml:5)"#,
        ],
        duplicate_keys: [
            r#"docker-compose.yml:6: duplicate key "QIM_DEFAULT_HISTORY_RETENTION_DAYS""#,
            r"docker-compose.yml:11: duplicate QIM_DEFAULT_HISTORY_RETENTION_DAYS",
        ],
        env_files_of_a_service_manager_that_differ: [
            r#"qim-archiver.env:2: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "31" for qim-archiver "qim-archiver.env" but "30" for qim-writer "qim-writer.env" (qim-writer.env:1)"#,
        ],
        extends_that_lead_nowhere: [
            r#"docker-compose.yml:3: extends: "loop" leads back to itself or too far"#,
            r#"docker-compose.yml:6: extends: "writer" leads back to itself or too far"#,
            r#"docker-compose.yml:9: extends: no service "gone" in docker-compose.yml"#,
        ],
        malformed_env_files: [
            r"both.env:2: not a NAME=value line",
            r"both.env:3: a quote without its end",
        ],
        malformed_yaml: [
            r"docker-compose.yml:5: malformed YAML: invalid indentation",
        ],
        other_shared_variables_that_differ: [
            r#"docker-compose.yml:7: QIM_ARCHIVE_URL is "scylla://scylla-1,scylla-2/qim" for qim-writer "writer" but not set for qim-archiver "archiver" (docker-compose.yml:9): set it for both or for neither"#,
            r#"docker-compose.yml:12: QIM_HOT_WINDOW is "8d" for qim-archiver "archiver" but "7d" for qim-writer "writer" (docker-compose.yml:5)"#,
            r#"docker-compose.yml:13: QIM_REDIS_URL is "redis://***@redis:6379" for qim-archiver "archiver" but "redis://***@redis:6379" for qim-writer "writer" (docker-compose.yml:6); they differ in a part that is not shown"#,
            r#"docker-compose.yml:14: QIM_ARCHIVE_URL_FILE is "/run/secrets/archive_url" for qim-archiver "archiver" but not set for qim-writer "writer" (docker-compose.yml:2): set it for both or for neither"#,
            r#"docker-compose.yml:15: QIM_SHARDS is "128" for qim-archiver "archiver" but "256" for qim-writer "writer" (docker-compose.yml:8)"#,
        ],
        tags_that_change_the_merge: [
            r"docker-compose.override.yml:3: the tag !reset is not followed: check what `docker compose config` prints instead",
        ],
        values_that_are_not_legal: [
            r#"docker-compose.yml:6: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "0", not a whole number of days from 1 to 3650"#,
            r#"empty.yml:4: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "", not a whole number of days from 1 to 3650"#,
            r#"ignored.env:1: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "3651", not a whole number of days from 1 to 3650"#,
            r#"quotes.yml:5: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "\"30\"", not a whole number of days from 1 to 3650"#,
            r#"space.yml:5: QIM_DEFAULT_HISTORY_RETENTION_DAYS is " 30", not a whole number of days from 1 to 3650"#,
        ],
    }
}
