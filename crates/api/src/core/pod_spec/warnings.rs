//! Warnings about pods and pod templates.

mod overlaps;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use apimachinery::{At, Path, go, names};

use super::annotations::{APP_ARMOR, SECCOMP_CONTAINER, SECCOMP_POD};
use super::{Owner, visit};
use crate::field_rules::quantity;

/// Annotations without effect, with their replacements.
const DEAD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    ("security.alpha.kubernetes.io/sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
    ("security.alpha.kubernetes.io/unsafe-sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
];

/// Deprecated and removed volume sources; upstream spells one differently.
const DEAD_VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Maximum number of warnings; upstream truncates warnings at 4 KiB in total.
const WARNINGS_MAX: usize = 256;
/// Maximum number of ports with the same number and protocol that are compared.
const PORTS_COMPARED: usize = 1000;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Returns the warnings about a pod or template; `holder` has `metadata` and `spec`.
pub(crate) fn warnings(holder: &At<'_>, owner: Owner<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let spec = holder.get("spec");
    let metadata = holder.get("metadata");
    node_labels(&spec, &mut out);
    for (key, message) in DEAD_ANNOTATIONS {
        let annotation = metadata.get("annotations");
        if annotation.entry(key).is_present() {
            out.push(format!("{}: {message}", annotation.entry(key).path()));
        }
    }
    volumes(&spec.get("volumes"), &mut out);
    overlaps::warnings(spec.value(), WARNINGS_MAX, &mut out);
    lists(&spec, &mut out);
    amounts(&spec.get("overhead"), &mut out);
    containers(&spec, &metadata, owner, &mut out);
    ports(&spec, &mut out);
    let grace = spec.get("terminationGracePeriodSeconds");
    if grace.int() < 0 {
        out.push(format!("{}: must be >= 0; negative values are invalid and will be treated as 1", grace.path()));
    }
    affinity_selectors(&spec, &mut out);
    out
}

/// Returns the warning about an IP address in non-canonical form.
pub(crate) fn address(text: &str, path: &Path<'_>) -> Option<String> {
    let ip = names::parse_ip(text)?;
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_none() => {
            let right = v6.to_string();
            (right != text).then(|| {
                let (text, right) = (go::quote(text), go::quote(&right));
                format!("{path}: IPv6 address {text} should be in RFC 5952 canonical format ({right})")
            })
        }
        Ok(IpAddr::V4(_)) => None,
        _ => {
            let (text, right) = (go::quote(text), go::quote(&ip.to_string()));
            Some(format!(
                "{path}: non-standard IP address {text} will be considered invalid in a future Kubernetes release: use {right}"
            ))
        }
    }
}

/// Warns about deprecated node labels and selectors that match nothing.
fn node_labels(spec: &At<'_>, out: &mut Vec<String>) {
    for (key, entry) in spec.get("nodeSelector").entries() {
        if let Some(message) = deprecated_label(key) {
            out.push(format!("{}: {message}", entry.path()));
        }
    }
    let affinity = spec.get("affinity");
    let nodes = affinity.get("nodeAffinity");
    let needed = nodes.get(REQUIRED);
    for term in needed.get("nodeSelectorTerms").items() {
        node_term(&term, out);
    }
    for weighted in nodes.get(PREFERRED).items() {
        let term = weighted.get("preference");
        node_term(&term, out);
        for expression in term.get("matchExpressions").items() {
            for value in expression.get("values").items() {
                let wrong = names::label_value(value.str()).into_iter();
                out.extend(wrong.map(|message| format!("{}: {} is invalid, {message}", value.path(), value.str())));
            }
        }
    }
    for constraint in spec.get("topologySpreadConstraints").items() {
        let (key, selector) = (constraint.get("topologyKey"), constraint.get("labelSelector"));
        if let Some(message) = deprecated_label(key.str()) {
            out.push(format!("{}: {} is {message}", key.path(), key.str()));
        }
        if selector.is_absent() {
            out.push(format!("{}: a null labelSelector results in matching no pod", selector.path()));
        }
    }
}

fn node_term(term: &At<'_>, out: &mut Vec<String>) {
    for expression in term.get("matchExpressions").items() {
        let key = expression.get("key");
        if let Some(message) = deprecated_label(key.str()) {
            out.push(format!("{}: {} is {message}", key.path(), key.str()));
        }
    }
}

fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#,
        "beta.kubernetes.io/os" => r#"deprecated since v1.14; use "kubernetes.io/os" instead"#,
        "failure-domain.beta.kubernetes.io/region" => {
            r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#
        }
        "beta.kubernetes.io/instance-type" => {
            r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#
        }
        _ => return None,
    })
}

fn volumes(volumes: &At<'_>, out: &mut Vec<String>) {
    for volume in volumes.items() {
        for (field, blamed, message) in DEAD_VOLUMES {
            if volume.get(field).is_present() {
                out.push(format!("{}: {message}", volume.path().field(blamed)));
            }
            if field == "glusterfs" {
                let ephemeral = volume.get("ephemeral");
                let template = ephemeral.get("volumeClaimTemplate");
                let claim = template.get("spec");
                let resources = claim.get("resources");
                for of in ["requests", "limits"] {
                    fractional(&resources.get(of).entry("storage"), out);
                }
            }
        }
    }
}

fn lists(spec: &At<'_>, out: &mut Vec<String>) {
    let repeated = |list: &At<'_>, field: &str, out: &mut Vec<String>| {
        let mut seen = BTreeSet::new();
        for item in list.items() {
            let at = item.get(field);
            if !seen.insert(at.str().to_owned()) {
                out.push(format!("{}: duplicate {field} {}", at.path(), go::quote(at.str())));
            }
        }
    };
    let (aliases, secrets) = (spec.get("hostAliases"), spec.get("imagePullSecrets"));
    repeated(&aliases, "ip", out);
    repeated(&secrets, "name", out);
    for secret in secrets.items() {
        let name = secret.get("name");
        if name.is_empty() {
            out.push(format!("{}: invalid empty name \"\"", name.path()));
        }
    }
    for alias in aliases.items() {
        let ip = alias.get("ip");
        out.extend(address(ip.str(), ip.path()));
    }
    let dns = spec.get("dnsConfig");
    for server in dns.get("nameservers").items() {
        out.extend(address(server.str(), server.path()));
    }
}

/// Warns about fractional byte values.
fn amounts(amounts: &At<'_>, out: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        fractional(&amounts.entry(name), out);
    }
}

fn fractional(amount: &At<'_>, out: &mut Vec<String>) {
    if quantity(amount.value()).milli_value() % 1000 != 0 {
        let quoted = go::quote(amount.str());
        out.push(format!("{}: fractional byte value {quoted} is invalid, must be an integer", amount.path()));
    }
}

fn containers(spec: &At<'_>, metadata: &At<'_>, owner: Owner<'_>, out: &mut Vec<String>) {
    let annotations = metadata.get("annotations");
    let context = spec.get("securityContext");
    let dead = r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;
    let old = r#"deprecated since v1.30; use the "appArmorProfile" field instead"#;
    if context.get("seccompProfile").is_absent() && annotations.entry(SECCOMP_POD).is_present() {
        out.push(format!("{}: {dead}", annotations.entry(SECCOMP_POD).path()));
    }
    visit(spec, |container| {
        let (own, name) = (container.get("securityContext"), container.get("name").str().to_owned());
        let seccomp = format!("{SECCOMP_CONTAINER}{name}");
        if own.get("seccompProfile").is_absent() && annotations.entry(&seccomp).is_present() {
            out.push(format!("{}: {dead}", annotations.entry(&seccomp).path()));
        }
        let armor = format!("{APP_ARMOR}{name}");
        let annotation = annotations.entry(&armor);
        let of_pod = context.get("appArmorProfile").is_present();
        let warns = match owner {
            Owner::Template => !of_pod && own.get("appArmorProfile").is_absent(),
            // Defaulting has already copied a pod's annotation to the field.
            Owner::Pod(_) => {
                let field = super::annotations::app_armor_field(annotation.str());
                field.as_ref().is_none_or(|field| field == own.get("appArmorProfile").value())
            }
        };
        if annotation.is_present() && warns {
            out.push(format!("{}: {old}", annotation.path()));
        }
        let resources = container.get("resources");
        for name in ["memory", "ephemeral-storage"] {
            for of in ["limits", "requests"] {
                fractional(&resources.get(of).entry(name), out);
            }
        }
        hidden_variables(&container.get("env"), out);
    });
}

/// Warns about environment variables that are redefined and do not refer to the earlier value.
fn hidden_variables(variables: &At<'_>, out: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for variable in variables.items() {
        let (name, value) = (variable.get("name").str().to_owned(), variable.get("value"));
        if !seen.insert(name.clone()) {
            let reference = format!("$({name})");
            let replaces = variable.get("valueFrom").is_present() || value.str() == reference;
            if replaces || !value.str().contains(&reference) {
                out.push(format!(
                    "{}: hides previous definition of {}, which may be dropped when using apply",
                    variable.path(),
                    go::quote(&name)
                ));
            }
        }
    }
}

struct Port {
    path: String,
    host_ip: String,
    host_port: i64,
}

/// Warns about duplicate ports in one or several containers.
fn ports(spec: &At<'_>, out: &mut Vec<String>) {
    let mut all: BTreeMap<(i64, String), Vec<Port>> = BTreeMap::new();
    visit(spec, |container| {
        for port in container.get("ports").items() {
            let (number, protocol) = (port.get("containerPort").int(), port.get("protocol").str());
            let (host_ip, host_port) = (port.get("hostIP").str(), port.get("hostPort").int());
            let path = port.path().to_string();
            if !host_ip.is_empty() && host_port == 0 {
                let name = port.get("name");
                out.push(format!(
                    "{path}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{host_ip}}}",
                    name.str()
                ));
            }
            let others = all.entry((number, protocol.to_owned())).or_default();
            for other in others.iter().take(PORTS_COMPARED) {
                if out.len() >= WARNINGS_MAX {
                    return;
                }
                let how = if host_ip == other.host_ip && host_port == other.host_port {
                    "duplicate"
                } else if host_port == 0 || other.host_port == 0 {
                    "overlapping"
                } else if host_port == other.host_port && host_ip.is_empty() != other.host_ip.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                out.push(format!("{path}: {how} port definition with {}", other.path));
            }
            others.push(Port { path, host_ip: host_ip.to_owned(), host_port });
        }
    });
}

fn affinity_selectors(spec: &At<'_>, out: &mut Vec<String>) {
    let affinity = spec.get("affinity");
    let mut check = |term: &At<'_>| {
        let selector = term.get("labelSelector");
        if selector.is_absent() {
            out.push(format!("{}: a null labelSelector results in matching no pod", selector.path()));
        }
    };
    for pods in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.get(pods);
        for term in pods.get(REQUIRED).items() {
            check(&term);
        }
        for weighted in pods.get(PREFERRED).items() {
            check(&weighted.get("podAffinityTerm"));
        }
    }
}
