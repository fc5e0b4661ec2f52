//! Pods and pod templates.

use api::view::Pod;
use apimachinery::Value;

use super::common;
use super::containers;
use super::read::Read;
use super::volumes;
use super::writer::{Writer, line};
use super::{RelatedObjects, WriteResult};

pub(super) fn pod(w: &mut Writer<'_>, pod: &Value, _: &RelatedObjects) -> WriteResult {
    let spec = pod.sub("spec");
    common::identity(w, pod);
    write_placement(w, pod);
    common::metadata(w, pod);
    write_status(w, pod);
    if spec.has("resources") {
        line!(w, 0, "Resources:");
        containers::write_resources(w, 1, spec.sub("resources"));
    }
    let status = pod.sub("status");
    if !spec.list("initContainers").is_empty() {
        containers::write(
            w,
            "Init Containers",
            spec.list("initContainers"),
            status.list("initContainerStatuses"),
            Some(pod),
        );
    }
    containers::write(w, "Containers", spec.list("containers"), status.list("containerStatuses"), Some(pod));
    if !spec.list("ephemeralContainers").is_empty() {
        let statuses = status.list("ephemeralContainerStatuses");
        containers::write(w, "Ephemeral Containers", spec.list("ephemeralContainers"), statuses, Some(pod));
    }
    write_conditions(w, pod);
    volumes::write(w, spec.list("volumes"), "");
    line!(w, 0, "QoS Class:\t{}", Pod(pod).qos_class());
    common::labels(w, "Node-Selectors", spec.map("nodeSelector"));
    common::tolerations(w, "Tolerations", spec.list("tolerations"));
    write_spread(w, spec, "");
    write_scheduling_group(w, spec, "");
    Ok(())
}

fn write_placement(w: &mut Writer<'_>, pod: &Value) {
    let spec = pod.sub("spec");
    if spec.has("priority") {
        line!(w, 0, "Priority:\t{}", spec.int("priority"));
    }
    let fields = [
        ("Priority Class Name", "priorityClassName"),
        ("Runtime Class Name", "runtimeClassName"),
        ("Service Account", "serviceAccountName"),
    ];
    for (title, field) in fields {
        if !spec.text(field).is_empty() {
            line!(w, 0, "{title}:\t{}", spec.text(field));
        }
    }
    match spec.text("nodeName") {
        "" => line!(w, 0, "Node:\t<none>"),
        node => line!(w, 0, "Node:\t{node}/{}", pod.text("status.hostIP")),
    }
    if pod.has("status.startTime") {
        common::time(w, "Start Time", pod.text("status.startTime"));
    }
}

fn write_status(w: &mut Writer<'_>, pod: &Value) {
    let (spec, status) = (pod.sub("spec"), pod.sub("status"));
    let phase = status.text("phase");
    if pod.has("metadata.deletionTimestamp") && phase != "Failed" && phase != "Succeeded" {
        common::phase(w, pod);
        line!(w, 0, "Termination Grace Period:\t{}s", pod.int("metadata.deletionGracePeriodSeconds"));
    } else {
        line!(w, 0, "Status:\t{phase}");
    }
    for (title, field) in [("Reason", "reason"), ("Message", "message")] {
        if !status.text(field).is_empty() {
            line!(w, 0, "{title}:\t{}", status.text(field));
        }
    }
    containers::write_seccomp(w, 0, 0, spec.sub("securityContext.seccompProfile"));
    line!(w, 0, "IP:\t{}", status.text("podIP"));
    let addresses = status.list("podIPs");
    line!(w, 0, "IPs:{}", if addresses.is_empty() { "\t<none>" } else { "" });
    for address in addresses {
        line!(w, 1, "IP:\t{}", address.text("ip"));
    }
    common::controlled_by(w, pod);
    if !status.text("nominatedNodeName").is_empty() {
        line!(w, 0, "NominatedNodeName:\t{}", status.text("nominatedNodeName"));
    }
}

fn write_conditions(w: &mut Writer<'_>, pod: &Value) {
    let conditions = pod.list("status.conditions");
    let gates = pod.list("spec.readinessGates");
    if !gates.is_empty() {
        line!(w, 0, "Readiness Gates:\n  Type\tStatus");
        for gate in gates {
            let gate = gate.text("conditionType");
            let condition = conditions.iter().find(|condition| condition.text("type") == gate);
            line!(w, 1, "{gate} \t{} ", condition.map_or("<none>", |condition| condition.text("status")));
        }
    }
    if !conditions.is_empty() {
        line!(w, 0, "Conditions:\n  Type\tStatus");
        for condition in conditions {
            line!(w, 1, "{} \t{} ", condition.text("type"), condition.text("status"));
        }
    }
}

/// Writes a pod template of a workload.
pub(super) fn write_template(w: &mut Writer<'_>, template: &Value) {
    line!(w, 0, "Pod Template:");
    if template.is_null() {
        w.write(1, "<unset>");
        return;
    }
    let spec = template.sub("spec");
    common::labels(w, "  Labels", template.map("metadata.labels"));
    let annotations = template.map("metadata.annotations");
    if !annotations.is_empty() {
        common::annotations(w, "  Annotations", annotations);
    }
    if !spec.text("serviceAccountName").is_empty() {
        line!(w, 1, "Service Account:\t{}", spec.text("serviceAccountName"));
    }
    if !spec.list("initContainers").is_empty() {
        containers::write(w, "  Init Containers", spec.list("initContainers"), &[], None);
    }
    containers::write(w, "  Containers", spec.list("containers"), &[], None);
    volumes::write(w, spec.list("volumes"), "  ");
    write_spread(w, spec, "  ");
    if !spec.text("priorityClassName").is_empty() {
        line!(w, 1, "Priority Class Name:\t{}", spec.text("priorityClassName"));
    }
    common::labels(w, "  Node-Selectors", spec.map("nodeSelector"));
    common::tolerations(w, "  Tolerations", spec.list("tolerations"));
    write_scheduling_group(w, spec, "  ");
}

fn write_spread(w: &mut Writer<'_>, spec: &Value, indent: &str) {
    let mut constraints: Vec<&Value> = spec.list("topologySpreadConstraints").iter().collect();
    if constraints.is_empty() {
        return;
    }
    constraints.sort_by_key(|constraint| constraint.text("topologyKey"));
    w.write(0, format_args!("{indent}Topology Spread Constraints:\t"));
    let lines: Vec<_> = constraints.into_iter().map(spread).collect();
    common::multiline(w, indent, &lines);
}

fn spread(constraint: &Value) -> String {
    let (key, action) = (constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"));
    let selector = match constraint.has("labelSelector") {
        true => format!(" for selector {}", common::describe_selector(constraint.sub("labelSelector"))),
        false => String::new(),
    };
    format!("{key}:{action} when max skew {} is exceeded{selector}", constraint.int("maxSkew"))
}

fn write_scheduling_group(w: &mut Writer<'_>, spec: &Value, indent: &str) {
    if spec.has("schedulingGroup") {
        line!(w, 0, "{indent}SchedulingGroup:");
        line!(w, 1, "PodGroupName:\t{}", spec.text("schedulingGroup.podGroupName"));
    }
}
