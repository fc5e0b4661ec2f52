//! Text form of FlowSchemas and PriorityLevelConfigurations.

use std::fmt::Write as _;

use serde_json::Value;

use super::{join_list, string};

const HEADER: &str = "\
# The flow schemas and priority levels of a fresh cluster of Kubernetes 1.36.4. Written by `cargo xtask bootstrap`: do not edit.
#
# level NAME SHARES LENDABLE exempt|reject|queue [QUEUES HANDSIZE LENGTH]   a PriorityLevelConfiguration
# flow NAME PRECEDENCE LEVEL [DISTINGUISHER]                               a FlowSchema; its rules follow
# \\tfor SUBJECT …                                                          begins a rule; a subject is User=NAME, Group=NAME or ServiceAccount=NAMESPACE/NAME
# \\tVERBS GROUPS RESOURCES NAMESPACES                                      `-` for the core group, `/` for what has no namespace
# \\tVERBS PATHS
";

/// Returns the text of all levels and schemas.
pub(super) fn text(levels: &[Value], schemas: &[Value]) -> String {
    let mut text = HEADER.to_owned();
    levels.iter().for_each(|level| write_level(&mut text, level));
    schemas.iter().for_each(|schema| write_schema(&mut text, schema));
    text
}

fn write_level(text: &mut String, level: &Value) {
    let spec = &level["spec"];
    let part = if spec["exempt"].is_object() { &spec["exempt"] } else { &spec["limited"] };
    let (name, shares, lendable) =
        (&level["metadata"]["name"], &part["nominalConcurrencyShares"], &part["lendablePercent"]);
    write!(text, "level {} {shares} {lendable}", string(name)).expect("writing to a String cannot fail");
    let queuing = &part["limitResponse"]["queuing"];
    if spec["exempt"].is_object() {
        text.push_str(" exempt\n");
    } else if queuing.is_object() {
        let (queues, hand, length) = (&queuing["queues"], &queuing["handSize"], &queuing["queueLengthLimit"]);
        writeln!(text, " queue {queues} {hand} {length}").expect("writing to a String cannot fail");
    } else {
        text.push_str(" reject\n");
    }
}

fn write_schema(text: &mut String, schema: &Value) {
    let spec = &schema["spec"];
    let (name, level) = (string(&schema["metadata"]["name"]), string(&spec["priorityLevelConfiguration"]["name"]));
    write!(text, "flow {name} {} {level}", spec["matchingPrecedence"]).expect("writing to a String cannot fail");
    if let Some(distinguisher) = spec["distinguisherMethod"]["type"].as_str() {
        write!(text, " {distinguisher}").expect("writing to a String cannot fail");
    }
    text.push('\n');
    for rule in spec["rules"].as_array().into_iter().flatten() {
        let subjects: Vec<_> = rule["subjects"].as_array().into_iter().flatten().map(subject).collect();
        writeln!(text, "\tfor {}", subjects.join(" ")).expect("writing to a String cannot fail");
        for resource in rule["resourceRules"].as_array().into_iter().flatten() {
            write_resource_rule(text, resource);
        }
        for path in rule["nonResourceRules"].as_array().into_iter().flatten() {
            let (verbs, paths) = (join_list(&path["verbs"]), join_list(&path["nonResourceURLs"]));
            writeln!(text, "\t{verbs} {paths}").expect("writing to a String cannot fail");
        }
    }
}

fn write_resource_rule(text: &mut String, rule: &Value) {
    let mut places = Vec::new();
    if rule["clusterScope"] == Value::Bool(true) {
        places.push("/".to_owned());
    }
    if rule["namespaces"].is_array() {
        places.push(join_list(&rule["namespaces"]));
    }
    let columns = ["verbs", "apiGroups", "resources"].map(|column| join_list(&rule[column])).join(" ");
    writeln!(text, "\t{columns} {}", places.join(",")).expect("writing to a String cannot fail");
}

fn subject(subject: &Value) -> String {
    match string(&subject["kind"]) {
        "User" => format!("User={}", string(&subject["user"]["name"])),
        "Group" => format!("Group={}", string(&subject["group"]["name"])),
        kind => {
            let account = &subject["serviceAccount"];
            format!("{kind}={}/{}", string(&account["namespace"]), string(&account["name"]))
        }
    }
}
