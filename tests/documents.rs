//! The documents say what is so: each test that docs/requirements.md names exists, each variable is in the table of
//! docs/configuration.md, and the manifests give both daemons the same values (SPEC A12).

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_requirement_has_a_row_and_every_test_it_names_exists() {
    let document = read("docs/requirements.md");
    let rows: Vec<&str> = document.lines().filter(|line| line.starts_with("| ")).collect();
    let ids = (1..=21)
        .map(|n| format!("A{n}"))
        .chain((1..=17).map(|n| format!("B{n}")))
        .chain((1..=7).map(|n| format!("C{n}")));
    for id in ids {
        assert_eq!(rows.iter().filter(|row| row.starts_with(&format!("| {id} |"))).count(), 1, "row {id}");
    }
    let mut named = 0;
    for reference in document.split('`').filter(|text| text.contains(".rs::")) {
        let (path, test) = reference.split_once("::").expect("path::test");
        let test = test.rsplit("::").next().expect("a name");
        let source = read(path);
        let exists = source.contains(&format!("fn {test}("))
            || source.contains(&format!("{test},"))
            || source.contains(&format!("{test};"));
        assert!(exists, "{reference} does not exist");
        named += 1;
    }
    assert!(named > 30, "{named} tests are named");
}

#[test]
fn every_requirement_of_the_first_issue_is_shown_by_a_test() {
    let document = read("docs/requirements.md");
    for n in (1..=21).filter(|n| *n != 14) {
        let row = document.lines().find(|line| line.starts_with(&format!("| A{n} |"))).expect("a row");
        assert!(row.contains(".rs::"), "{row}");
    }
}

#[test]
fn every_report_of_others_and_every_overload_is_shown_by_a_test() {
    let document = read("docs/requirements.md");
    for (heading, rows_min) in [("## Reports of others", 25), ("## Overload and bad input", 7)] {
        let section = document.split(heading).nth(1).expect(heading);
        let section = section.split("\n## ").next().expect("a section");
        let rows: Vec<&str> =
            section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what |")).collect();
        assert!(rows.len() >= rows_min, "{heading}: {} rows", rows.len());
        for row in rows {
            assert!(row.contains(".rs::"), "{row}");
        }
    }
}

#[test]
fn every_variable_is_in_the_table_with_its_default() {
    let document = read("docs/configuration.md");
    for variable in qim_daemon::config::VARIABLES {
        assert!(
            document.contains(&format!("`{}`", variable.name)),
            "{} is not in docs/configuration.md",
            variable.name
        );
    }
}

#[test]
fn a12_the_manifests_give_both_daemons_the_same_values() {
    let report = qim_manifests::check(&[root().join("docker-compose.yml"), root().join("deploy")]).unwrap();
    assert!(report.passed(), "{report}");
    let daemons: Vec<String> = report.checked.iter().map(ToString::to_string).collect();
    assert!(daemons.len() >= 4, "both daemons in compose and in Kubernetes: {daemons:?}");
}

#[test]
fn every_alert_says_where_its_runbook_is_and_the_runbook_is_there() {
    let rules = read("deploy/prometheus/rules.yml");
    let operations = read("docs/operations.md").to_lowercase();
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 10);
    for alert in alerts {
        let anchor = alert.to_lowercase();
        assert!(rules.contains(&format!("docs/operations.md#{anchor}")), "{alert} has no runbook");
        assert!(
            operations
                .lines()
                .any(|line| line.starts_with('#') && line.trim_start_matches(['#', ' ']) == anchor),
            "no heading for {alert}"
        );
    }
}

#[test]
fn no_file_is_too_long_to_be_read_in_a_sitting() {
    let mut files = Vec::new();
    collect(&root().join("crates"), &mut files);
    assert!(files.len() > 50);
    for file in files {
        let path = file.strip_prefix(root()).unwrap_or(&file);
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        let is_test = path.components().any(|part| part.as_os_str() == "tests")
            || path.to_string_lossy().ends_with("tests.rs");
        assert!(is_test || lines <= 420, "{} has {lines} lines", path.display());
        for name in ["utils", "helpers", "common", "misc"] {
            assert_ne!(path.file_stem().unwrap(), name, "{} names nothing", path.display());
        }
    }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
