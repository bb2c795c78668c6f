//! The comparison: within one group, every writer and archiver gets the same.

use qim_core::DEFAULT_HISTORY_RETENTION_DAYS_MAX;

use crate::environment::{DaemonUnit, Environment, RETENTION, SHARED, Setting, is_legal_retention};
use crate::inputs::Inputs;
use crate::report::{Daemon, Unit};
use crate::stack::Group;

/// Reports every disagreement inside the group.
pub(crate) fn compare(group: &Group, inputs: &Inputs) {
    let mut units: Vec<&DaemonUnit> = group.units.iter().collect();
    units.sort_by(|a, b| (a.daemon, &a.location, &a.name).cmp(&(b.daemon, &b.location, &b.name)));
    for unit in &units {
        report_illegal_retention(&unit.environment, inputs);
    }
    let Some((first, others)) = units.split_first() else { return };
    report_missing_daemon(group, &units, inputs);
    for other in others {
        for name in SHARED {
            compare_setting(name, first, other, inputs);
        }
        compare_opaque(first, other, inputs);
        compare_opaque(other, first, inputs);
    }
}

/// The units as the report lists them.
pub(crate) fn summaries(group: &Group) -> impl Iterator<Item = Unit> + '_ {
    group.units.iter().map(|unit| Unit {
        file: unit.location.file.to_path_buf(),
        line: unit.location.line,
        daemon: unit.daemon,
        name: unit.name.clone(),
        scope: group.scope.to_string(),
        retention: unit
            .environment
            .get(RETENTION)
            .map_or("unset".to_owned(), |setting| setting.value.shown()),
    })
}

/// Reports a value that either daemon would refuse at start; one that is not known is passed over. Names no unit, since a
/// value in a shared file is one mistake.
pub(crate) fn report_illegal_retention(environment: &Environment, inputs: &Inputs) {
    let Some(setting) = environment.get(RETENTION) else { return };
    let Some(text) = setting.value.known() else { return };
    if !is_legal_retention(&text) {
        let shown = setting.value.shown();
        let message = format!(
            "{RETENTION} is {shown}, not a whole number of days from 1 to {DEFAULT_HISTORY_RETENTION_DAYS_MAX}"
        );
        inputs.report(setting.location.finding(message));
    }
}

fn report_missing_daemon(group: &Group, units: &[&DaemonUnit], inputs: &Inputs) {
    for daemon in Daemon::ALL {
        if units.iter().all(|unit| unit.daemon != daemon) {
            let present = daemon.other();
            for unit in units.iter().filter(|unit| unit.daemon == present) {
                let message = format!(
                    "{} has no {daemon} in {}: only one of the two gets its settings",
                    unit.shown(),
                    group.scope
                );
                inputs.report(unit.location.finding(message));
            }
        }
    }
}

fn compare_setting(name: &str, first: &DaemonUnit, other: &DaemonUnit, inputs: &Inputs) {
    match (first.environment.get(name), other.environment.get(name)) {
        (None, None) => {}
        (Some(set), None) => report_one_sided(name, first, set, other, inputs),
        (None, Some(set)) => report_one_sided(name, other, set, first, inputs),
        (Some(a), Some(b)) if a.value.same_as(&b.value) => {
            report_different_inputs(name, (first, a), (other, b), inputs);
        }
        (Some(a), Some(b)) => report_difference(name, (first, a), (other, b), inputs),
    }
}

fn report_one_sided(name: &str, unit: &DaemonUnit, set: &Setting, without: &DaemonUnit, inputs: &Inputs) {
    let message = format!(
        "{name} is {} for {} but not set for {} ({}): set it for both or for neither",
        set.value.shown(),
        unit.shown(),
        without.shown(),
        without.location
    );
    inputs.report(set.location.finding(message));
}

type Side<'a> = (&'a DaemonUnit, &'a Setting);

fn report_difference(name: &str, (first, a): Side<'_>, (other, b): Side<'_>, inputs: &Inputs) {
    let (shown_a, shown_b) = (a.value.shown(), b.value.shown());
    let unknown = [b, a].iter().find_map(|setting| setting.value.first_unknown());
    let why = match unknown {
        Some(unknown) => {
            let identity = crate::value::redacted(&unknown.identity);
            format!("; {identity} {}, so the two may differ", unknown.why)
        }
        None if shown_a == shown_b => "; they differ in a part that is not shown".to_owned(),
        None => String::new(),
    };
    let message = format!(
        "{name} is {shown_b} for {} but {shown_a} for {} ({}){why}",
        other.shown(),
        first.shown(),
        a.location
    );
    inputs.report(b.location.finding(message));
}

/// Equal as things stand, but a variable reaches only one of the two: whoever sets it makes them differ.
fn report_different_inputs(name: &str, (first, a): Side<'_>, (other, b): Side<'_>, inputs: &Inputs) {
    let one_sided: Vec<String> = a
        .value
        .inputs
        .symmetric_difference(&b.value.inputs)
        .map(|variable| format!("${{{variable}}}"))
        .collect();
    if one_sided.is_empty() {
        return;
    }
    let message = format!(
        "{name} is {} for {} and for {} ({}) as things stand, but {} reaches only one of the two",
        b.value.shown(),
        other.shown(),
        first.shown(),
        a.location,
        one_sided.join(" and ")
    );
    inputs.report(b.location.finding(message));
}

/// What `unit` may get from a source that cannot be seen, and `other` does not get from the same, or in another order.
fn compare_opaque(unit: &DaemonUnit, other: &DaemonUnit, inputs: &Inputs) {
    for source in unit.environment.opaque() {
        let differs = |name: &str| {
            let (here, there) = (unit.environment.may_set(name), other.environment.may_set(name));
            here != there && (!there.contains(&source.name.as_str()) || here.len() == there.len())
        };
        let uncertain: Vec<&str> =
            SHARED.into_iter().filter(|name| source.may_set.contains(name) && differs(name)).collect();
        if !uncertain.is_empty() {
            let message = format!(
                "{} may set {} for {} and not for {} ({}): its keys are not among the manifests",
                source.name,
                uncertain.join(", "),
                unit.shown(),
                other.shown(),
                other.location
            );
            inputs.report(source.location.finding(message));
        }
    }
}
