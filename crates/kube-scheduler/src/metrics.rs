//! Scheduler metrics, with upstream's names.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use scheduler::queue::Lengths;

/// Counters of scheduling attempts and pending pods.
#[derive(Debug, Default)]
pub struct Metrics {
    scheduled: AtomicU64,
    unschedulable: AtomicU64,
    errors: AtomicU64,
    preemption_attempts: AtomicU64,
    preemption_victims: AtomicU64,
    /// Active, backing off, unschedulable, gated.
    pending: [AtomicU64; 4],
}

/// Result of a scheduling attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    Scheduled,
    Unschedulable,
    Error,
}

const QUEUES: [&str; 4] = ["active", "backoff", "unschedulable", "gated"];

impl Metrics {
    /// Counts a scheduling attempt.
    pub fn attempted(&self, attempt: Attempt) {
        let counter = match attempt {
            Attempt::Scheduled => &self.scheduled,
            Attempt::Unschedulable => &self.unschedulable,
            Attempt::Error => &self.errors,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a preemption with its victims.
    pub fn preempted(&self, victims: usize) {
        self.preemption_attempts.fetch_add(1, Ordering::Relaxed);
        self.preemption_victims.fetch_add(victims as u64, Ordering::Relaxed);
    }

    /// Sets the number of pending pods per queue.
    pub fn pending(&self, lengths: Lengths) {
        let numbers = [lengths.active, lengths.backoff, lengths.unschedulable, lengths.gated];
        for (gauge, number) in self.pending.iter().zip(numbers) {
            gauge.store(number as u64, Ordering::Relaxed);
        }
    }

    /// Formats all metrics in the Prometheus text format.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, &AtomicU64)]| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in samples {
                let _ = writeln!(out, "{name}{labels} {}", value.load(Ordering::Relaxed));
            }
        };
        let results = [("scheduled", &self.scheduled), ("unschedulable", &self.unschedulable), ("error", &self.errors)];
        let attempts = results.map(|(result, value)| (format!("{{result=\"{result}\"}}"), value));
        family(
            "scheduler_schedule_attempts_total",
            "counter",
            "Number of attempts to schedule pods, by result.",
            &attempts,
        );
        let pending: Vec<_> =
            QUEUES.iter().zip(&self.pending).map(|(queue, value)| (format!("{{queue=\"{queue}\"}}"), value)).collect();
        family("scheduler_pending_pods", "gauge", "Number of pending pods, by queue.", &pending);
        let attempts = [(String::new(), &self.preemption_attempts)];
        family("scheduler_preemption_attempts_total", "counter", "Number of preemption attempts.", &attempts);
        let victims = [(String::new(), &self.preemption_victims)];
        family("scheduler_preemption_victims_total", "counter", "Number of preemption victims.", &victims);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_in_prometheus_format() {
        let metrics = Metrics::default();
        metrics.attempted(Attempt::Scheduled);
        metrics.preempted(3);
        metrics.pending(Lengths { unschedulable: 2, ..Lengths::default() });
        let text = metrics.text();
        for line in [
            "# TYPE scheduler_schedule_attempts_total counter",
            "scheduler_schedule_attempts_total{result=\"scheduled\"} 1",
            "scheduler_pending_pods{queue=\"unschedulable\"} 2",
            "scheduler_preemption_victims_total 3",
        ] {
            assert!(text.lines().any(|have| have == line), "{line}\n{text}");
        }
    }
}
