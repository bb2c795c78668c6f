//! The goals as a picture: how far each figure is above or below what is asked for.

use std::fmt::Write as _;

use crate::report::{Goal, Verdict};

const ROW: usize = 22;
const LABELS: f64 = 520.0;
const WIDTH: f64 = 400.0;
/// Both ends of the scale, which is logarithmic: a tenth and ten times.
const DECADES: f64 = 1.0;

/// SVG with a bar for each goal; beyond the line in the middle it is met.
pub(crate) fn svg(verdicts: &[&Verdict]) -> String {
    let rows: Vec<_> = verdicts.iter().filter_map(|verdict| Some((verdict, margin(verdict)?))).collect();
    let height = ROW * (rows.len() + 2);
    let middle = LABELS + WIDTH / 2.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        LABELS + WIDTH + 20.0
    );
    let scale =
        [("10 × short of it", -1.0, "start"), ("the goal", 0.0, "middle"), ("10 × better", 1.0, "end")];
    for (text, at, anchor) in scale {
        let x = middle + at * WIDTH / 2.0;
        writeln!(svg, "<text x=\"{x}\" y=\"14\" text-anchor=\"{anchor}\" fill=\"#555\">{text}</text>")
            .expect("text");
    }
    for (index, (verdict, margin)) in rows.iter().enumerate() {
        let y = ROW * (index + 1);
        let length = margin.log10().clamp(-DECADES, DECADES) / DECADES * WIDTH / 2.0;
        let (x, color) = if length < 0.0 { (middle + length, "#c0392b") } else { (middle, "#2e8b57") };
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{x:.1}\" y=\"{}\" width=\"{:.1}\" height=\"14\" fill=\"{color}\"/>",
            LABELS - 8.0,
            y + 15,
            escape(&verdict.name),
            y + 4,
            length.abs().max(1.0),
        )
        .expect("text");
    }
    let bottom = height - ROW / 2;
    write!(
        svg,
        "<line x1=\"{middle}\" y1=\"20\" x2=\"{middle}\" y2=\"{bottom}\" stroke=\"#333\"/>\n</svg>\n"
    )
    .expect("text");
    svg
}

/// 1: just met, 2: twice as good. `None` where nothing is asked for, or was measured.
fn margin(verdict: &Verdict) -> Option<f64> {
    let margin = match verdict.goal {
        Goal::AtLeast(limit) => verdict.median() / limit,
        // Below zero is better than any goal.
        Goal::AtMost(limit) => limit / verdict.median().max(limit / 1e3),
        Goal::None => return None,
    };
    margin.is_finite().then_some(margin)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_for_each_goal() {
        let verdict = |goal| Verdict { name: "a < b".to_owned(), runs: vec![2.0], goal, floor_spread: None };
        let (met, missed, none) =
            (verdict(Goal::AtLeast(1.0)), verdict(Goal::AtMost(1.0)), verdict(Goal::None));
        let svg = svg(&[&met, &missed, &none]);
        assert_eq!(svg.matches("<rect").count(), 3, "the ground and two bars");
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
    }
}
