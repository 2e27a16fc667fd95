//! Reads the Prometheus text of `/metrics`.

use std::collections::BTreeMap;

/// One scrape: series (name with labels) to value.
#[derive(Debug)]
pub(crate) struct Metrics {
    series: BTreeMap<String, f64>,
    text: String,
}

impl Metrics {
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let series = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse().ok()?))
        });
        Self { series: series.collect(), text: text.to_owned() }
    }

    /// Whether the metric is there, with or without a series.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.text.lines().any(|line| line.starts_with(&format!("# TYPE {name} ")))
    }

    /// The sum over all series of that name whose labels contain every given `key="value"`.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let matching = self.series.iter().filter(|(series, _)| {
            let (own_name, own_labels) = series.split_once('{').unwrap_or((series, ""));
            own_name == name && labels.iter().all(|label| own_labels.contains(label))
        });
        matching.map(|(_, value)| value).sum()
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}
