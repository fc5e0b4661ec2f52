//! Metrics of kube-proxy, with upstream's names.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::config::Mode;

/// Number of histogram buckets: from 1 ms, doubling, as upstream.
const BOUNDS: usize = 15;

/// Counters and latencies of the sync loop.
#[derive(Debug)]
pub struct Metrics {
    mode: Mode,
    syncs: Histogram,
    full: Histogram,
    partial: Histogram,
    failures: AtomicU64,
    service_changes: AtomicU64,
    slice_changes: AtomicU64,
    /// Milliseconds since 1970.
    last_sync: AtomicU64,
    last_queued: AtomicU64,
    frontends: AtomicU64,
}

#[derive(Debug, Default)]
struct Histogram {
    counts: [AtomicU64; BOUNDS + 1],
    sum_micros: AtomicU64,
}

/// Extent of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Full,
    Partial,
}

impl Metrics {
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            syncs: Histogram::default(),
            full: Histogram::default(),
            partial: Histogram::default(),
            failures: AtomicU64::new(0),
            service_changes: AtomicU64::new(0),
            slice_changes: AtomicU64::new(0),
            last_sync: AtomicU64::new(0),
            last_queued: AtomicU64::new(0),
            frontends: AtomicU64::new(0),
        }
    }

    /// Returns the mode by upstream's name.
    pub const fn mode(&self) -> &'static str {
        match self.mode {
            Mode::Nftables => "nftables",
            Mode::Iptables => "iptables",
            Mode::Userspace => "userspace",
        }
    }

    pub fn services_changed(&self, count: usize) {
        self.service_changes.fetch_add(count as u64, Ordering::Relaxed);
        self.last_queued.store(now_ms(), Ordering::Relaxed);
    }

    pub fn slices_changed(&self, count: usize) {
        self.slice_changes.fetch_add(count as u64, Ordering::Relaxed);
        self.last_queued.store(now_ms(), Ordering::Relaxed);
    }

    /// Records a successful sync.
    pub fn synced(&self, extent: Extent, took: Duration, frontends: usize) {
        self.syncs.observe(took);
        match extent {
            Extent::Full => self.full.observe(took),
            Extent::Partial => self.partial.observe(took),
        }
        self.frontends.store(frontends as u64, Ordering::Relaxed);
        self.last_sync.store(now_ms(), Ordering::Relaxed);
    }

    /// Records a failed sync.
    pub fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Formats all metrics in the Prometheus text format.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let histograms = [
            ("kubeproxy_sync_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds", &self.syncs),
            ("kubeproxy_sync_full_proxy_rules_duration_seconds", "SyncProxyRules latency for full resyncs", &self.full),
            (
                "kubeproxy_sync_partial_proxy_rules_duration_seconds",
                "SyncProxyRules latency for partial resyncs",
                &self.partial,
            ),
        ];
        for (name, help, histogram) in histograms {
            histogram.print(name, help, &mut out);
        }
        let failures = match self.mode {
            Mode::Iptables => "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
            Mode::Nftables | Mode::Userspace => "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
        };
        let counters = [
            (failures, "Cumulative proxy sync failures", &self.failures),
            (
                "kubeproxy_sync_proxy_rules_service_changes_total",
                "Cumulative proxy rules Service changes",
                &self.service_changes,
            ),
            (
                "kubeproxy_sync_proxy_rules_endpoint_changes_total",
                "Cumulative proxy rules Endpoint changes",
                &self.slice_changes,
            ),
        ];
        for (name, help, value) in counters {
            head(&mut out, name, help, "counter");
            let _ = writeln!(out, "{name} {}", value.load(Ordering::Relaxed));
        }
        let times = [
            (
                "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
                "The last time proxy rules were successfully synced",
                &self.last_sync,
            ),
            (
                "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
                "The last time a sync of proxy rules was queued",
                &self.last_queued,
            ),
        ];
        for (name, help, value) in times {
            head(&mut out, name, help, "gauge");
            let _ = writeln!(out, "{name} {}", value.load(Ordering::Relaxed) as f64 / 1e3);
        }
        head(&mut out, "kubeproxy_frontends", "Number of address and port pairs with rules for a Service", "gauge");
        let _ = writeln!(out, "kubeproxy_frontends {}", self.frontends.load(Ordering::Relaxed));
        out
    }
}

impl Histogram {
    fn observe(&self, took: Duration) {
        let at = (0..BOUNDS).find(|at| took <= Duration::from_millis(1 << at)).unwrap_or(BOUNDS);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn print(&self, name: &str, help: &str, out: &mut String) {
        head(out, name, help, "histogram");
        let mut total = 0;
        for (at, count) in self.counts.iter().enumerate() {
            total += count.load(Ordering::Relaxed);
            let bound = if at == BOUNDS { "+Inf".to_owned() } else { format!("{}", f64::from(1 << at) / 1e3) };
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {total}");
        }
        let _ = writeln!(out, "{name}_sum {}", self.sum_micros.load(Ordering::Relaxed) as f64 / 1e6);
        let _ = writeln!(out, "{name}_count {total}");
    }
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_upstream_names() {
        let metrics = Metrics::new(Mode::Iptables);
        metrics.synced(Extent::Full, Duration::from_millis(3), 7);
        metrics.synced(Extent::Partial, Duration::from_secs(60), 8);
        metrics.failed();
        metrics.services_changed(2);
        let text = metrics.text();
        for expect in [
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"0.002\"} 0\n",
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"0.004\"} 1\n",
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"+Inf\"} 2\n",
            "kubeproxy_sync_proxy_rules_duration_seconds_sum 60.003\n",
            "kubeproxy_sync_partial_proxy_rules_duration_seconds_count 1\n",
            "kubeproxy_sync_proxy_rules_iptables_restore_failures_total 1\n",
            "kubeproxy_sync_proxy_rules_service_changes_total 2\n",
            "kubeproxy_frontends 8\n",
        ] {
            assert!(text.contains(expect), "{expect} is not in\n{text}");
        }
    }
}
