//! Markdown tables of results.

use std::fmt;

use crate::load::Measurement;

pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    pub(crate) fn new(what: &str, columns: &[&str]) -> Self {
        let header = std::iter::once(what).chain(columns.iter().copied()).map(str::to_owned).collect();
        Self { header, rows: Vec::new() }
    }

    /// Adds two values and their ratio.
    pub(crate) fn pair(&mut self, what: &str, knarr: f64, etcd: f64) {
        self.push(vec![what.to_owned(), format!("{knarr:.2}"), format!("{etcd:.2}"), ratio(knarr, etcd)]);
    }

    /// Adds throughput and latency of both servers.
    pub(crate) fn row(&mut self, what: &str, clients: usize, knarr: &Measurement, etcd: &Measurement) {
        self.push(vec![
            what.to_owned(),
            clients.to_string(),
            format!("{:.0}", knarr.per_second),
            format!("{:.0}", etcd.per_second),
            ratio(knarr.per_second, etcd.per_second),
            milliseconds(knarr.p50),
            milliseconds(etcd.p50),
            milliseconds(knarr.p99),
            milliseconds(etcd.p99),
            ratio(knarr.p99.as_secs_f64(), etcd.p99.as_secs_f64()),
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

fn ratio(knarr: f64, etcd: f64) -> String {
    format!("{:.2}", knarr / etcd)
}

fn milliseconds(time: std::time::Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
