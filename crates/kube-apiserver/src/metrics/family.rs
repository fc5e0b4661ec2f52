//! Metric families: counters, gauges and histograms by labels, in the Prometheus text format.

use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use apimachinery::Str;

/// Maximum number of series per family, in case a label is unexpectedly unbounded.
const SERIES_MAX: usize = 10_000;

/// A metric type.
pub trait Measure: Send + Sync {
    /// `counter`, `gauge` or `histogram`.
    const KIND: &'static str;
    /// Appends the series in the text format.
    fn print(&self, name: &str, labels: &FormattedLabels, out: &mut String);
}

/// One series: its label values and its metric.
type Series<M> = (Box<[Str]>, Arc<M>);

/// All series of one metric name.
pub struct Family<M> {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    make: fn() -> M,
    /// Sorted by label values, so that the lookup on every request needs no allocation.
    series: RwLock<Vec<Series<M>>>,
}

/// A monotonic counter.
#[derive(Default)]
pub struct Counter(AtomicU64);

/// A value that can go up and down.
#[derive(Default)]
pub struct Gauge(AtomicI64);

/// A histogram with fixed bounds.
pub struct Histogram {
    bounds: &'static [f64],
    counts: Vec<AtomicU64>,
    count: AtomicU64,
    /// The sum as the bits of an `f64`.
    sum: AtomicU64,
}

/// Labels as text: `a="b",c="d"`.
pub struct FormattedLabels(String);

impl<M: Measure> Family<M> {
    /// Creates a family without series.
    pub const fn new(name: &'static str, help: &'static str, labels: &'static [&'static str], make: fn() -> M) -> Self {
        Self { name, help, labels, make, series: RwLock::new(Vec::new()) }
    }

    /// Returns the series with these label values. Beyond the maximum, the returned metric is not exported.
    pub fn with(&self, values: &[&str]) -> Arc<M> {
        debug_assert_eq!(values.len(), self.labels.len(), "{}", self.name);
        let order = |(have, _): &Series<M>| have.iter().map(Str::as_str).cmp(values.iter().copied());
        let series = self.series.read().expect("no holder panics");
        if let Ok(at) = series.binary_search_by(order) {
            return series[at].1.clone();
        }
        drop(series);
        let mut series = self.series.write().expect("no holder panics");
        match series.binary_search_by(order) {
            Ok(at) => series[at].1.clone(),
            Err(_) if series.len() >= SERIES_MAX => Arc::new((self.make)()),
            Err(at) => {
                let made = Arc::new((self.make)());
                series.insert(at, (values.iter().map(|value| Str::from(*value)).collect(), made.clone()));
                made
            }
        }
    }

    /// Appends all series in the text format.
    pub fn print(&self, out: &mut String) {
        let series = self.series.read().expect("no holder panics");
        if series.is_empty() {
            return;
        }
        head(self.name, self.help, M::KIND, out);
        for (values, measure) in series.iter() {
            let labels = FormattedLabels::of(self.labels.iter().copied().zip(values.iter().map(Str::as_str)));
            measure.print(self.name, &labels, out);
        }
    }
}

impl Counter {
    pub fn add(&self, times: u64) {
        self.0.fetch_add(times, Ordering::Relaxed);
    }
}

impl Gauge {
    pub fn add(&self, more: i64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = bounds.iter().map(|_| AtomicU64::default()).collect();
        Self { bounds, counts, count: AtomicU64::default(), sum: AtomicU64::default() }
    }

    pub fn observe(&self, value: f64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

impl Measure for Counter {
    const KIND: &'static str = "counter";

    fn print(&self, name: &str, labels: &FormattedLabels, out: &mut String) {
        sample(name, labels, self.0.load(Ordering::Relaxed), out);
    }
}

impl Measure for Gauge {
    const KIND: &'static str = "gauge";

    fn print(&self, name: &str, labels: &FormattedLabels, out: &mut String) {
        sample(name, labels, self.0.load(Ordering::Relaxed), out);
    }
}

impl Measure for Histogram {
    const KIND: &'static str = "histogram";

    fn print(&self, name: &str, labels: &FormattedLabels, out: &mut String) {
        let mut below = 0;
        let buckets = self.bounds.iter().zip(&self.counts).map(|(bound, count)| {
            below += count.load(Ordering::Relaxed);
            (*bound, below)
        });
        let sum = f64::from_bits(self.sum.load(Ordering::Relaxed));
        buckets_of(name, labels, buckets, sum, self.count.load(Ordering::Relaxed), out);
    }
}

impl FormattedLabels {
    /// Formats labels.
    pub fn of<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut text = String::new();
        for (at, (name, value)) in labels.into_iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(text, "{comma}{name}=\"{value}\"").expect("writing to memory cannot fail");
        }
        Self(text)
    }

    fn with(&self, name: &str, value: &str) -> Self {
        let comma = if self.0.is_empty() { "" } else { "," };
        Self(format!("{}{comma}{name}=\"{value}\"", self.0))
    }
}

/// Appends the HELP and TYPE lines of a metric.
pub(crate) fn head(name: &str, help: &str, kind: &str, out: &mut String) {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("writing to memory cannot fail");
}

/// Appends one sample line.
pub(crate) fn sample(name: &str, labels: &FormattedLabels, value: impl std::fmt::Display, out: &mut String) {
    let written = match labels.0.as_str() {
        "" => writeln!(out, "{name} {value}"),
        labels => writeln!(out, "{name}{{{labels}}} {value}"),
    };
    written.expect("writing to memory cannot fail");
}

/// Appends the lines of a histogram from cumulative bucket counts.
pub(crate) fn buckets_of(
    name: &str,
    labels: &FormattedLabels,
    buckets: impl IntoIterator<Item = (f64, u64)>,
    sum: f64,
    count: u64,
    out: &mut String,
) {
    let bucket = format!("{name}_bucket");
    for (bound, below) in buckets {
        sample(&bucket, &labels.with("le", &bound.to_string()), below, out);
    }
    sample(&bucket, &labels.with("le", "+Inf"), count, out);
    sample(&format!("{name}_sum"), labels, sum, out);
    sample(&format!("{name}_count"), labels, count, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_printed_in_the_prometheus_text_format() {
        let family = Family::new("requests_total", "How many.", &["verb", "path"], Counter::default);
        family.with(&["GET", "a\"b\\c\nd"]).add(2);
        family.with(&["GET", "a\"b\\c\nd"]).add(1);
        let mut out = String::new();
        family.print(&mut out);
        assert_eq!(
            out,
            "# HELP requests_total How many.\n# TYPE requests_total counter\nrequests_total{verb=\"GET\",path=\"a\\\"b\\\\c\\nd\"} 3\n"
        );
    }

    #[test]
    fn histogram_buckets_are_cumulative_with_inclusive_bounds() {
        let family = Family::new("t", "T.", &[], || Histogram::new(&[0.5, 1.0]));
        for value in [0.5, 0.75, 7.0] {
            family.with(&[]).observe(value);
        }
        let mut out = String::new();
        family.print(&mut out);
        let lines: Vec<&str> = out.lines().skip(2).collect();
        assert_eq!(
            lines,
            ["t_bucket{le=\"0.5\"} 1", "t_bucket{le=\"1\"} 2", "t_bucket{le=\"+Inf\"} 3", "t_sum 8.25", "t_count 3"]
        );
    }

    #[test]
    fn family_exports_at_most_the_maximum_number_of_series() {
        let family = Family::new("t", "T.", &["a"], Gauge::default);
        for value in 0..SERIES_MAX + 10 {
            family.with(&[&value.to_string()]).set(1);
        }
        let mut out = String::new();
        family.print(&mut out);
        assert_eq!(out.lines().count(), SERIES_MAX + 2);
    }
}
