//! Markdown tables of results.

use std::fmt;

use crate::load::Measurement;

pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    pub fn new(what: &str, columns: &[&str]) -> Self {
        let header = std::iter::once(what).chain(columns.iter().copied()).map(str::to_owned).collect();
        Self { header, rows: Vec::new() }
    }

    /// Adds two values and their ratio.
    pub fn pair(&mut self, what: &str, ours: f64, theirs: f64) {
        self.push(vec![what.to_owned(), format!("{ours:.2}"), format!("{theirs:.2}"), ratio(ours, theirs)]);
    }

    /// Adds throughput and latency of both servers.
    pub fn row(&mut self, what: &str, clients: usize, ours: &Measurement, theirs: &Measurement) {
        self.push(vec![
            what.to_owned(),
            clients.to_string(),
            format!("{:.0}", ours.per_second),
            format!("{:.0}", theirs.per_second),
            ratio(ours.per_second, theirs.per_second),
            milliseconds(ours.p50),
            milliseconds(theirs.p50),
            milliseconds(ours.p99),
            milliseconds(theirs.p99),
            ratio(ours.p99.as_secs_f64(), theirs.p99.as_secs_f64()),
        ]);
    }

    fn push(&mut self, row: Vec<String>) {
        eprintln!("{}", row.join("  "));
        self.rows.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n| {} |\n|{}", self.header.join(" | "), "---|".repeat(self.header.len()))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "| {} |", row.join(" | ")))
    }
}

fn ratio(ours: f64, theirs: f64) -> String {
    format!("{:.2}", ours / theirs)
}

fn milliseconds(time: std::time::Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
