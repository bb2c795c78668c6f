//! What was measured, as tables for people and as one JSON object for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// Values of the same thing, one for each run.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) runs: Vec<f64>,
}

impl Series {
    pub(crate) fn median(&self) -> f64 {
        median(&self.runs)
    }

    fn min(&self) -> f64 {
        self.runs.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn max(&self) -> f64 {
        self.runs.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Highest over lowest.
    fn spread(&self) -> f64 {
        self.max() / self.min()
    }
}

/// The middle value; the mean of both where there are two. NaN of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (len, middle) if len % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// Nothing: shown to compare.
    None,
}

impl Goal {
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(limit) => Some(value >= limit),
            Self::AtMost(limit) => Some(value <= limit),
            Self::None => None,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(limit) => format!("≥ {}", short(limit)),
            Self::AtMost(limit) => format!("≤ {}", short(limit)),
            Self::None => "–".to_owned(),
        }
    }
}

/// A value that has a goal: the ratio of a subject to its floor in each run, or a value that stands alone.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) name: String,
    /// One for each run.
    pub(crate) runs: Vec<f64>,
    pub(crate) goal: Goal,
    /// Highest over lowest value of the floor, where there is one.
    pub(crate) floor_spread: Option<f64>,
}

/// All of one phase.
#[derive(Debug, Default)]
pub(crate) struct Report {
    series: Vec<Series>,
    verdicts: Vec<Verdict>,
    /// Of a series and a process: CPU seconds per million messages, one for each run.
    cpu: BTreeMap<(String, &'static str), Vec<f64>>,
    /// Single figures with names that others rely on.
    summary: Map<String, Value>,
}

impl Report {
    /// Adds the value of one run.
    pub(crate) fn add(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        let name = name.into();
        match self.series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.runs.push(value),
            None => self.series.push(Series { name, unit, runs: vec![value] }),
        }
    }

    /// Adds what each process used in one run.
    pub(crate) fn add_cpu(&mut self, name: &str, used: &[(&'static str, f64)], messages: f64) {
        for (process, seconds) in used {
            let per_million = seconds * 1e6 / messages;
            self.cpu.entry((name.to_owned(), process)).or_default().push(per_million);
        }
    }

    pub(crate) fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    /// The median of a series, where it was measured.
    pub(crate) fn median_of(&self, name: &str) -> Option<f64> {
        self.series(name).map(Series::median)
    }

    /// Compares two series run by run. Nothing where one of them was not measured.
    pub(crate) fn ratio(&mut self, subject: &str, floor: &str, goal: Goal) {
        let (Some(a), Some(b)) = (self.series(subject), self.series(floor)) else { return };
        let verdict = Verdict {
            name: format!("{subject} / {floor}"),
            runs: a.runs.iter().zip(&b.runs).map(|(a, b)| a / b).collect(),
            goal,
            floor_spread: Some(b.spread()),
        };
        self.verdicts.push(verdict);
    }

    /// Sets a goal for a series by itself.
    pub(crate) fn absolute(&mut self, name: &str, goal: Goal) {
        if let Some(series) = self.series(name) {
            let verdict = Verdict {
                name: format!("{name}, {}", series.unit),
                runs: series.runs.clone(),
                goal,
                floor_spread: None,
            };
            self.verdicts.push(verdict);
        }
    }

    /// Adds a figure under a name that others rely on. NaN becomes null.
    pub(crate) fn summarise(&mut self, name: &str, value: Option<f64>) {
        self.summary.insert(name.to_owned(), value.filter(|value| value.is_finite()).into());
    }

    pub(crate) fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// Tables in Markdown.
    pub(crate) fn table(&self, phase: &str) -> String {
        let mut text =
            format!("\n## {phase}\n\n| measured | unit | median | min..max |\n|---|---|---:|---|\n");
        for series in &self.series {
            let (low, high) = (short(series.min()), short(series.max()));
            let median = short(series.median());
            writeln!(text, "| {} | {} | {median} | {low}..{high} |", series.name, series.unit).expect("text");
        }
        text += "\n| compared | median | min..max | goal | met | spread of the floor |\n|---|---:|---|---|---|---|\n";
        for verdict in &self.verdicts {
            text += &verdict.row();
        }
        if !self.cpu.is_empty() {
            text += "\n| CPU seconds per million messages | process | median |\n|---|---|---:|\n";
            for ((name, process), runs) in &self.cpu {
                writeln!(text, "| {name} | {process} | {} |", short(median(runs))).expect("text");
            }
        }
        text
    }

    /// The same as JSON: the summary, then all that it comes from.
    pub(crate) fn json(&self) -> Value {
        let mut object = self.summary.clone();
        let series = self.series.iter().map(|series| {
            json!({"name": series.name, "unit": series.unit, "median": finite(series.median()),
                "min": finite(series.min()), "max": finite(series.max()), "runs": series.runs})
        });
        object.insert("measured".to_owned(), series.collect());
        object.insert("compared".to_owned(), self.verdicts.iter().map(Verdict::json).collect());
        let cpu = self.cpu.iter().map(|((name, process), runs)| {
            json!({"name": name, "process": process, "cpu_seconds_per_million": finite(median(runs))})
        });
        object.insert("cpu".to_owned(), cpu.collect());
        Value::Object(object)
    }
}

impl Verdict {
    pub(crate) fn median(&self) -> f64 {
        median(&self.runs)
    }

    /// `None` where nothing is asked for.
    pub(crate) fn is_met(&self) -> Option<bool> {
        self.goal.is_met(self.median())
    }

    fn row(&self) -> String {
        let low = self.runs.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let met = self.is_met().map_or("–", |met| if met { "yes" } else { "no" });
        format!(
            "| {} | {} | {}..{} | {} | {met} | {} |\n",
            self.name,
            short(self.median()),
            short(low),
            short(high),
            self.goal.text(),
            self.floor_spread.map_or("–".to_owned(), |spread| format!("{} ×", short(spread))),
        )
    }

    fn json(&self) -> Value {
        let (kind, limit) = match self.goal {
            Goal::AtLeast(limit) => ("at_least", Some(limit)),
            Goal::AtMost(limit) => ("at_most", Some(limit)),
            Goal::None => ("none", None),
        };
        json!({"name": self.name, "median": finite(self.median()), "runs": self.runs, "goal": kind,
            "limit": limit, "met": self.is_met(), "floor_spread": self.floor_spread})
    }
}

/// JSON has no NaN and no infinity.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// Three digits that count, or whole numbers from 1000 on.
fn short(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => "–".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_compares_run_by_run() {
        let mut report = Report::default();
        for (subject, floor) in [(10.0, 10.0), (30.0, 20.0), (8.0, 2.0)] {
            report.add("a", "msg/s", subject);
            report.add("b", "msg/s", floor);
        }
        report.ratio("a", "b", Goal::AtLeast(1.5));
        report.ratio("a", "not measured", Goal::None);
        assert_eq!(report.verdicts().len(), 1);
        assert!((report.verdicts()[0].median() - 1.5).abs() < 1e-9);
        assert_eq!(report.verdicts()[0].is_met(), Some(true));
    }

    #[test]
    fn what_was_not_measured_is_null() {
        let mut report = Report::default();
        report.summarise("nothing", None);
        report.summarise("not a number", Some(f64::NAN));
        assert_eq!(report.json()["nothing"], Value::Null);
        assert_eq!(report.json()["not a number"], Value::Null);
    }
}
