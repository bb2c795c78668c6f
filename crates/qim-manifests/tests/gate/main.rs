//! The gate over fixtures: each passes, or gives exactly the findings that its test lists (SPEC A12).

mod compose;
mod files;
mod kubernetes;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use qim_manifests::{CheckError, Report, check};

/// Every fixture of `good/` and `broken/` that a test uses.
const TESTED: [&[&str]; 2] = [compose::FIXTURES, kubernetes::FIXTURES];

/// One test for each fixture, with the fixture's name: `passes` for a good one, with the number of units in it, and
/// `finds` for a broken one, with everything that is found.
macro_rules! fixtures {
    (passes { $($good:ident: $units:literal,)* } finds { $($broken:ident: [$($finding:literal,)+],)* }) => {
        pub(crate) const FIXTURES: &[&str] = &[$(stringify!($good),)* $(stringify!($broken),)*];
        mod passes {
            $(#[test] fn $good() { crate::passes(stringify!($good), $units); })*
        }
        mod finds {
            $(#[test] fn $broken() { crate::finds(stringify!($broken), &[$($finding),+]); })*
        }
    };
}
pub(crate) use fixtures;

fn fixture(kind: &str, name: &str) -> PathBuf {
    Path::new("tests/fixtures").join(kind).join(name)
}

fn passes(name: &str, units: usize) {
    let report = check(&[fixture("good", name)]).unwrap();
    assert_eq!(report.findings, [], "{report}");
    assert!(report.passed());
    assert_eq!(report.checked.len(), units, "{:#?}", report.checked);
}

fn finds(name: &str, expected: &[&str]) {
    let directory = fixture("broken", name);
    let report = check(std::slice::from_ref(&directory)).unwrap();
    assert_eq!(findings(&report, &directory), expected, "{report}");
    assert!(!report.passed());
}

/// The findings as shown, with places relative to `directory`.
fn findings(report: &Report, directory: &Path) -> Vec<String> {
    let name = directory.display().to_string();
    let relative = |shown: String| shown.replace(&format!("{name}/"), "").replace(&name, ".");
    report.findings.iter().map(|finding| relative(finding.to_string())).collect()
}

#[test]
fn every_fixture_has_a_test() {
    let tested: BTreeSet<String> = TESTED.concat().into_iter().map(str::to_owned).collect();
    let listed: BTreeSet<String> = ["good", "broken"]
        .iter()
        .flat_map(|kind| fs::read_dir(fixture(kind, "")).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(tested, listed);
}

#[test]
fn a_gate_that_checks_nothing_does_not_pass() {
    let error = check(&[fixture("empty", "no_daemons")]).unwrap_err();
    assert!(matches!(error, CheckError::NoDaemons { files: 2 }));
    let message = "no qim-writer and no qim-archiver found in 2 files: there is nothing to compare";
    assert_eq!(error.to_string(), message);
    assert!(!Report::default().passed());
}
