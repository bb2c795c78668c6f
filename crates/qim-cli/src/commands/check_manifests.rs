use qim_manifests::{CheckError, Finding, Report, Unit};
use serde::Serialize;

use crate::cli::CheckManifestsArgs;
use crate::failure::Failure;
use crate::output::Output;

#[derive(Serialize)]
struct JsonReport {
    checked: Vec<String>,
    findings: Vec<JsonFinding>,
}

#[derive(Serialize)]
struct JsonFinding {
    file: String,
    line: usize,
    message: String,
}

/// Prints what is wrong with the manifests (SPEC A12).
pub(crate) fn run(args: &CheckManifestsArgs, output: &mut Output) -> Result<(), Failure> {
    let report = qim_manifests::check(&args.paths).map_err(|error| {
        let reason = error.to_string();
        match error {
            CheckError::NoPaths | CheckError::Unreadable { .. } => Failure::Usage(reason),
            // Nothing was compared, so nothing may pass.
            CheckError::TooMuch { .. } | CheckError::NoDaemons { .. } => Failure::Configuration(reason),
        }
    })?;
    if output.is_json() {
        output.json(&JsonReport::from(&report))?;
    } else {
        report.findings.iter().try_for_each(|finding| output.line(finding))?;
    }
    let (findings, checked) = (report.findings.len(), report.checked.len());
    if !report.passed() {
        return Err(Failure::Found(format!("{findings} findings, {checked} daemons checked")));
    }
    if output.is_json() {
        Ok(())
    } else {
        output.line(format_args!("{checked} daemons checked, nothing found"))
    }
}

impl From<&Report> for JsonReport {
    fn from(report: &Report) -> Self {
        let finding = |Finding { file, line, message }: &Finding| JsonFinding {
            file: file.display().to_string(),
            line: *line,
            message: message.clone(),
        };
        Self {
            checked: report.checked.iter().map(Unit::to_string).collect(),
            findings: report.findings.iter().map(finding).collect(),
        }
    }
}
