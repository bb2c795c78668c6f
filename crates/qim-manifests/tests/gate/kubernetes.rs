//! Kubernetes manifests and kustomizations.

crate::fixtures! {
    passes {
        kubernetes_with_one_config_map: 2,
        kubernetes_with_secrets: 2,
        kubernetes_namespaces_that_differ: 4,
        kustomize_with_overlays: 4,
        kustomize_with_patches_of_a_config_map: 2,
    }
    finds {
        a_config_map_overridden_on_one_side: [
            r#"all.yaml:4: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "30" for qim-archiver "Pod/a/qim-archiver" but "31" for qim-writer "Pod/a/qim-writer" (all.yaml:16)"#,
        ],
        a_config_map_patched_for_one_side: [
            r#"kustomization.yaml:8: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "365" for qim-archiver "Pod/a/qim-archiver" but "30" for qim-writer "Pod/a/qim-writer" (base/kustomization.yaml:4)"#,
            r"kustomization.yaml:9: absent.yaml cannot be read: entity not found",
            r"kustomization.yaml:11: a patch of an environment: not followed, check what `kubectl kustomize` prints instead",
        ],
        a_field_of_the_pod: [
            r#"all.yaml:15: QIM_DEFAULT_HISTORY_RETENTION_DAYS is a field of the pod (all.yaml:15) for qim-archiver "Pod/a/qim-archiver" but a field of the pod (all.yaml:10) for qim-writer "Pod/a/qim-writer" (all.yaml:10); a field of the pod (all.yaml:15) cannot be known here, so the two may differ"#,
        ],
        a_generator_for_one_side: [
            r#"days.txt:1: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "30\n" for qim-archiver "Pod/a/qim-archiver" but "30" for qim-writer "Pod/a/qim-writer" (kustomization.yaml:6)"#,
            r#"days.txt:1: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "30\n", not a whole number of days from 1 to 3650"#,
            r"kustomization.yaml:2: resource missing.yaml is not there",
        ],
        a_generator_that_merges_an_illegal_value: [
            r#"overlay/kustomization.yaml:6: behavior merge, but there is no ConfigMap "absent" below"#,
            r"overlay/kustomization.yaml:8: literals: not a NAME=value entry",
            r#"overlay/long.env:1: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "\"365\"", not a whole number of days from 1 to 3650"#,
        ],
        a_helm_template: [
            r"deployment.yaml:4: malformed manifest: a key that is not plain text",
        ],
        a_key_that_is_not_in_the_config_map: [
            r#"all.yaml:17: QIM_DEFAULT_HISTORY_RETENTION_DAYS: ConfigMap "qim" (all.yaml:1) has no key "RETENTION_DAYS""#,
        ],
        a_prefix_that_hides_a_value: [
            r#"all.yaml:4: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "30" for qim-writer "Pod/a/qim-writer" but not set for qim-archiver "Pod/a/qim-archiver" (all.yaml:14): set it for both or for neither"#,
        ],
        a_variable_that_is_listed_twice: [
            r#"all.yaml:14: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "31" for qim-archiver "Pod/a/qim-archiver" but "30" for qim-writer "Pod/a/qim-writer" (all.yaml:9)"#,
            r"all.yaml:14: duplicate QIM_DEFAULT_HISTORY_RETENTION_DAYS",
        ],
        config_maps_that_cannot_be_found: [
            r#"all.yaml:23: ConfigMap "qim" is not declared in namespace "chat""#,
            r#"all.yaml:27: ConfigMap "twice" is declared more than once in namespace "chat" (all.yaml:6, all.yaml:10)"#,
        ],
        config_maps_that_differ: [
            r#"all.yaml:11: QIM_DEFAULT_HISTORY_RETENTION_DAYS is "60" for qim-archiver "Deployment/qim-archiver/main" but "30" for qim-writer "Deployment/qim-writer/main" (all.yaml:5)"#,
        ],
        daemons_in_different_namespaces: [
            r#"all.yaml:6: qim-writer "Pod/qim-writer/main" has no qim-archiver in namespace "chat": only one of the two gets its settings"#,
            r#"all.yaml:13: qim-archiver "Pod/qim-archiver/main" has no qim-writer in the manifests without a namespace: only one of the two gets its settings"#,
        ],
        kustomizations_in_a_circle: [
            r"a/kustomization.yaml:1: kustomizations build on each other in a circle, or too deep",
        ],
        numbers_without_quotes: [
            r"all.yaml:5: QIM_SHARDS is no string here, which Kubernetes refuses: put the value in quotes",
            r"all.yaml:18: QIM_DEFAULT_HISTORY_RETENTION_DAYS is no string here, which Kubernetes refuses: put the value in quotes",
        ],
        one_namespace_over_several_files: [
            r#"b/archiver.yaml:6: QIM_SHARDS is "128" for qim-archiver "Pod/qim-archiver-2/main" but "256" for qim-writer "Pod/qim-writer/main" (a/writer.yaml:6)"#,
        ],
        patches_of_an_environment: [
            r"kustomization.yaml:3: a patch of an environment: not followed, check what `kubectl kustomize` prints instead",
            r"kustomization.yaml:4: a patch of an environment: not followed, check what `kubectl kustomize` prints instead",
            r"kustomization.yaml:9: replacements: not followed, check what `kubectl kustomize` prints instead",
        ],
        secrets_that_differ: [
            r#"all.yaml:9: Secret "tokens" may set QIM_REDIS_URL_FILE, QIM_ARCHIVE_URL, QIM_ARCHIVE_URL_FILE for qim-writer "Pod/a/qim-writer" and not for qim-archiver "Pod/a/qim-archiver" (all.yaml:16): its keys are not among the manifests"#,
            r#"all.yaml:20: QIM_REDIS_URL is key "archiver-url" of Secret "redis" for qim-archiver "Pod/a/qim-archiver" but key "writer-url" of Secret "redis" for qim-writer "Pod/a/qim-writer" (all.yaml:12); key "archiver-url" of Secret "redis" cannot be read here, so the two may differ"#,
        ],
    }
}
