use std::collections::BTreeMap;

/// What a process counted: the samples of one scrape of `/metrics`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples(BTreeMap<String, f64>);

impl Samples {
    /// From the Prometheus text format.
    pub fn parse(text: &str) -> Self {
        let samples =
            text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        let numbers = samples.filter_map(|(series, value)| Some((series.to_owned(), value.parse().ok()?)));
        Self(numbers.collect())
    }

    /// The value of one series, as it is written there: `name` or `name{label="value"}`.
    pub fn get(&self, series: &str) -> Option<f64> {
        self.0.get(series).copied()
    }

    /// The sum over all series of this name that have these labels, whatever others they have; 0 where there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |series: &str, (label, value): &(&str, &str)| {
            let pair = format!("{label}=\"{value}\"");
            series.contains(&format!("{{{pair}")) || series.contains(&format!(",{pair}"))
        };
        let matches = |series: &str| {
            series.split('{').next() == Some(name) && labels.iter().all(|label| has(series, label))
        };
        self.0.iter().filter(|(series, _)| matches(series)).map(|(_, value)| value).sum()
    }

    /// All of them, by series.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(series, value)| (series.as_str(), *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "small whole numbers")]
    fn series_are_read_one_by_one_and_summed_by_label() {
        let samples = Samples::parse(
            "# TYPE a_total counter\na_total{class=\"x\",why=\"1\"} 2\na_total{class=\"x y\",why=\"1\"} 3\n\nb 1.5\nc NaN\n",
        );
        assert_eq!(samples.get("b"), Some(1.5));
        assert_eq!(samples.get("a_total{class=\"x y\",why=\"1\"}"), Some(3.0));
        assert_eq!(samples.get("a_total"), None);
        assert_eq!(samples.sum("a_total", &[]), 5.0);
        assert_eq!(samples.sum("a_total", &[("why", "1"), ("class", "x")]), 2.0);
        assert_eq!(samples.sum("a", &[]), 0.0);
        assert_eq!(samples.iter().count(), 4);
    }
}
