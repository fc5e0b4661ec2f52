//! The text of `knarr status`.

use std::fmt::Write;

use apimachinery::{Object, Value};

/// Returns the lines of a report.
pub(super) fn of(report: &Value) -> String {
    let mut out = String::new();
    let mut field = |name: &str, text: &str| {
        let _ = writeln!(out, "{name:<16} {text}");
    };
    let text = |value: &Value, key: &str| value.str_at(&[key]).unwrap_or_default().to_owned();
    let mib = |value: &Value, key: &str| value.get(key).and_then(Value::as_int).unwrap_or_default() >> 20;
    let cluster = &report["cluster"];
    let process = cluster["process"].as_int().unwrap_or_default();
    field("cluster", &format!("process {process}, {}", text(cluster, "state")));
    let memory = &report["memory"];
    if memory.is_null() {
        field("memory", "unknown");
    } else {
        let [all, own, most] = ["residentBytes", "privateBytes", "peakBytes"].map(|key| mib(memory, key));
        field("memory", &format!("{all} MiB resident, {own} MiB of it private, {most} MiB peak"));
    }
    let disk = &report["disk"];
    if !disk.is_null() {
        let parts = ["free", "warning"].map(|key| text(disk, key));
        field("disk", &parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; "));
    }
    // Most certificates were issued on the same day, so those with the same expiry are printed in one line.
    let days = |item: &Value| item["daysLeft"].as_int().unwrap_or_default();
    for group in items(report, "certificates").chunk_by(|one, other| days(one) == days(other)) {
        let names: Vec<String> = group.iter().map(|item| text(item, "name")).collect();
        field("certificates", &format!("{} days left: {}", days(&group[0]), names.join(", ")));
    }
    let version = &report["version"];
    if !version.is_null() {
        let [own, kubernetes, server] = ["knarr", "kubernetes", "server"].map(|key| text(version, key));
        field("version", &format!("knarr {own}, Kubernetes {kubernetes} at {server}"));
    }
    for component in items(report, "components") {
        field("component", &format!("{} {}", text(component, "name"), text(component, "state")));
    }
    if let Some(store) = report["store"].as_object() {
        for line in store_lines(store) {
            field("store", &line);
        }
    }
    for node in items(report, "nodes") {
        let [name, state, version, runtime] = ["name", "state", "version", "runtime"].map(|key| text(node, key));
        field("node", &format!("{name} is {state}, {version}, {runtime}"));
    }
    for leader in items(report, "leaders") {
        let [lease, holder, renewed] = ["lease", "holder", "renewed"].map(|key| text(leader, key));
        let renewed = if renewed.is_empty() { renewed } else { format!(", renewed at {renewed}") };
        field("leader", &format!("{lease} is {holder}{renewed}"));
    }
    for manifests in items(report, "manifests") {
        for line in manifests_lines(manifests) {
            field("manifests", &line);
        }
    }
    let servers: Vec<&str> = items(report, "servers").iter().filter_map(Value::as_str).collect();
    if report.get("servers").is_some() {
        let advice = "run `knarr status` on one of them for the state of the cluster";
        field("servers", &format!("{}; {advice}", servers.join(", ")));
    }
    out
}

fn store_lines(store: &Object) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(dir) = store.get("dir").and_then(Value::as_str) {
        let bytes = store.get("bytes").and_then(Value::as_int).unwrap_or_default();
        lines.push(format!("embedded, {} MiB in {dir}", bytes >> 20));
    }
    for member in store.get("members").and_then(Value::as_array).unwrap_or_default() {
        let [name, role, alarm, reach] =
            ["name", "role", "alarm", "reach"].map(|key| member.str_at(&[key]).unwrap_or_default());
        let peers: Vec<&str> = items(member, "peerURLs").iter().filter_map(Value::as_str).collect();
        lines.push(format!("member {name} is {role}, {reach}, alarm: {alarm}, at {}", peers.join(",")));
    }
    lines
}

/// Returns the state of a manifests directory, and each of its problems.
fn manifests_lines(manifests: &Value) -> Vec<String> {
    let count = |key: &str| manifests.int_at(&[key]).unwrap_or_default();
    let plural = |count: i64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (directory, set) = (manifests.text_at(&["directory"]), manifests.text_at(&["applySet"]));
    let mut summary =
        format!("{directory}: {}, {}", plural(count("files"), "file"), plural(count("objects"), "object"));
    let claims = items(manifests, "claims").len();
    if claims > 0 {
        summary += &format!(", {claims} applied by another server");
    }
    let problems = count("problemCount");
    if problems > 0 {
        summary += &format!(", {}", plural(problems, "problem"));
    }
    let mut lines = vec![format!("{summary} ({set})")];
    for problem in items(manifests, "problems") {
        let [file, object, message] = ["file", "object", "message"].map(|key| problem.text_at(&[key]));
        let line = problem.int_at(&["line"]).filter(|line| *line > 0).map(|line| format!(":{line}"));
        let place = format!("{file}{}", line.unwrap_or_default());
        let parts = [place.as_str(), object, message].into_iter().filter(|part| !part.is_empty());
        lines.push(parts.collect::<Vec<_>>().join(": "));
    }
    lines
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn report_is_printed_in_lines() {
        let report = value!({
            "cluster": {"process": 7, "state": "ready"},
            "memory": {"residentBytes": (71_i64 << 20), "privateBytes": (50_i64 << 20), "peakBytes": (90_i64 << 20)},
            "disk": {"free": "14 GiB free, 14 % of the disk"},
            "certificates": [{"name": "a", "daysLeft": 3}, {"name": "b", "daysLeft": 3}, {"name": "ca", "daysLeft": 9}],
            "version": {"knarr": "0.1.0", "kubernetes": "v1.36.4", "server": "https://127.0.0.1:6443/"},
            "components": [{"name": "dns", "state": "running"}],
            "store": {"members": [{"name": "n", "role": "leader", "alarm": "none", "reach": "reachable", "peerURLs": ["https://a:2380"]}]},
            "nodes": [{"name": "n", "state": "ready", "version": "v1", "runtime": "knarr://1"}],
            "leaders": [{"lease": "kube-scheduler", "holder": "h"}, {"lease": "l", "holder": "h", "renewed": "2026-01-01T00:00:00Z"}],
            "manifests": [{"applySet": "knarr-manifests-n", "directory": "/d", "files": 1, "objects": 2, "problemCount": 2,
                "claims": ["ConfigMap default/a"], "problems": [
                    {"file": "a.yaml", "line": 3, "object": "", "message": "broken"},
                    {"file": "a.yaml", "line": 0, "object": "Pod default/a", "message": "invalid"},
                ]}],
        });
        let expect = "\
cluster          process 7, ready
memory           71 MiB resident, 50 MiB of it private, 90 MiB peak
disk             14 GiB free, 14 % of the disk
certificates     3 days left: a, b
certificates     9 days left: ca
version          knarr 0.1.0, Kubernetes v1.36.4 at https://127.0.0.1:6443/
component        dns running
store            member n is leader, reachable, alarm: none, at https://a:2380
node             n is ready, v1, knarr://1
leader           kube-scheduler is h
leader           l is h, renewed at 2026-01-01T00:00:00Z
manifests        /d: 1 file, 2 objects, 1 applied by another server, 2 problems (knarr-manifests-n)
manifests        a.yaml:3: broken
manifests        a.yaml: Pod default/a: invalid
";
        assert_eq!(of(&report), expect);
    }
}
