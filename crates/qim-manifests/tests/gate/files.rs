//! Files and directories as such: what is read, and within which bounds.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use qim_manifests::{CheckError, Report, check};
use tempfile::TempDir;

use crate::{findings, fixture};

const BOTH: &str = "services: {w: {image: qim-writer}, a: {image: qim-archiver}}\n";

fn directory_with(files: &[(&str, &[u8])]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(directory.path().join(name), content).unwrap();
    }
    directory
}

fn findings_in(files: &[(&str, &[u8])]) -> Vec<String> {
    let directory = directory_with(files);
    findings(&checked(directory.path()), directory.path())
}

fn checked(path: &Path) -> Report {
    check(&[path.to_path_buf()]).unwrap()
}

#[test]
fn no_path_and_a_path_that_is_not_there_are_errors() {
    assert!(matches!(check(&[]), Err(CheckError::NoPaths)));
    let error = check(&[PathBuf::from("tests/not-there")]).unwrap_err();
    assert!(matches!(&error, CheckError::Unreadable { .. }));
    assert!(error.to_string().starts_with("tests/not-there: "), "{error}");
}

#[test]
fn a_file_given_twice_is_checked_once() {
    let directory = fixture("good", "compose_without_any_value");
    let report = check(&[directory.clone(), directory.join("./compose.yaml"), directory]).unwrap();
    assert_eq!(report.checked.len(), 2);
}

#[test]
fn a_file_given_by_itself_is_read_whatever_its_name() {
    let directory = directory_with(&[("manifest.txt", BOTH.as_bytes())]);
    assert!(matches!(check(&[directory.path().to_path_buf()]), Err(CheckError::NoDaemons { files: 0 })));
    assert!(checked(&directory.path().join("manifest.txt")).passed());
}

#[test]
fn all_paths_are_compared_together() {
    let parts = fixture("good", "compose_project_in_two_files");
    let writer = parts.join("writer");
    assert!(!checked(&writer).passed());
    assert!(check(&[writer, parts.join("archiver/compose.yml")]).unwrap().passed());
}

#[test]
fn files_that_cannot_be_read_are_found() {
    let large = vec![b'#'; (1 << 20) + 1];
    let found = findings_in(&[
        ("compose.yml", BOTH.as_bytes()),
        ("a.yml", b"\xff\xfe"),
        ("b.env", b"\xff"),
        ("c.yaml", &large),
    ]);
    let expected = [
        "a.yml:1: cannot be read: not UTF-8",
        "b.env:1: cannot be read: not UTF-8",
        "c.yaml:1: cannot be read: larger than 1048576 bytes",
    ];
    assert_eq!(found, expected);
}

#[test]
fn yaml_that_grows_without_end_is_refused() {
    let mut bomb = String::from("a0: &a0 {k0: 1}\n");
    for level in 1..60 {
        let merged = format!("a{level}: &a{level} {{<<: *a{}, k{level}: 1}}\n", level - 1);
        bomb.push_str(&merged);
    }
    let many = "{<<: *a59}, ".repeat(20_000);
    let deep = "[".repeat(100);
    let found = findings_in(&[
        ("compose.yml", BOTH.as_bytes()),
        ("bomb.yml", format!("{bomb}list: [{many}]\n").as_bytes()),
        ("deep.yml", deep.as_bytes()),
    ]);
    assert_eq!(found, ["bomb.yml:61: more than 200000 values", "deep.yml:1: nested more than 64 deep"]);
}

#[test]
fn links_to_directories_are_not_followed() {
    let directory = directory_with(&[("compose.yml", BOTH.as_bytes())]);
    std::os::unix::fs::symlink(directory.path(), directory.path().join("again")).unwrap();
    assert_eq!(checked(directory.path()).checked.len(), 2);
}

#[test]
fn passwords_are_not_shown() {
    for name in ["other_shared_variables_that_differ", "malformed_env_files"] {
        let report = checked(&fixture("broken", name));
        let shown = format!("{report}{report:?}");
        assert!(!report.passed());
        assert!(!shown.contains("secret@") && !shown.contains("hidden"), "{shown}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn no_text_makes_it_panic(
        compose in "(services|env_file|environment|QIM_SHARDS|qim-writer|[a-z&*<>|:#'\"$\\{\\}\\[\\],! \n-]){0,60}",
        env in "(QIM_SHARDS|=|[A-Z'\"$\\{\\}:+?\\\\ \n#-]){0,40}",
        value in "[a-zA-Z$\\{\\}:?+-]{0,20}é?[$\\{\\}]{0,4}",
    ) {
        let services = format!(
            "services: {{w: {{image: qim-writer, env_file: c.env, environment: {{QIM_SHARDS: {value:?}}}}}, a: {{image: qim-archiver}}}}"
        );
        let directory = directory_with(&[
            ("a.yml", compose.as_bytes()),
            ("b.yml", services.as_bytes()),
            ("c.env", env.as_bytes()),
        ]);
        let report = checked(directory.path());
        prop_assert!(report.findings.iter().all(|finding| finding.line > 0));
    }
}
