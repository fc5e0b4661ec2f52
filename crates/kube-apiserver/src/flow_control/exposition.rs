//! Metrics of priority and fairness in the Prometheus text format, with upstream's names.

use flowcontrol::metrics::Snapshot;

use crate::metrics::{FormattedLabels, buckets_of, head, sample};

/// Appends the metrics of priority and fairness in the Prometheus text format.
pub(super) fn print(snapshot: &Snapshot, out: &mut String) {
    let mut samples = snapshot.samples();
    samples.sort_by_key(|one| one.name);
    let mut name = "";
    for one in &samples {
        if one.name != name {
            name = one.name;
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            head(name, one.help(), kind, out);
        }
        sample(
            name,
            &FormattedLabels::of(one.labels.iter().map(|(label, value)| (*label, value.as_str()))),
            one.value,
            out,
        );
    }
    let name = "apiserver_flowcontrol_request_wait_duration_seconds";
    head(name, "Time that requests waited in their queue, in seconds.", "histogram", out);
    for series in &snapshot.series {
        for (execute, waited) in [("true", &series.wait_executed), ("false", &series.wait_rejected)] {
            let labels = [
                ("execute", execute),
                ("flow_schema", series.flow_schema.as_str()),
                ("priority_level", series.priority_level.as_str()),
            ];
            if waited.count > 0 {
                buckets_of(name, &FormattedLabels::of(labels), waited.buckets(), waited.sum, waited.count, out);
            }
        }
    }
    let name = "apiserver_flowcontrol_request_execution_seconds";
    head(name, "Execution time of requests, in seconds.", "histogram", out);
    for series in snapshot.series.iter().filter(|series| series.execution.count > 0) {
        let labels = [("flow_schema", series.flow_schema.as_str()), ("priority_level", series.priority_level.as_str())];
        let ran = &series.execution;
        buckets_of(name, &FormattedLabels::of(labels), ran.buckets(), ran.sum, ran.count, out);
    }
}
