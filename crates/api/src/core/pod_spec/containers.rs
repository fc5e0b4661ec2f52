//! Containers, init containers (including sidecars) and ephemeral containers.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, names};

use super::report::{int, invalid_text, required, required_one_of, text};
use super::resources::{self, ResourceLevel};
use super::{env, handlers, mounts, security};
use crate::field_rules::{looks, one_of};

/// Properties of the pod that container validation depends on.
pub(crate) struct Pod<'a> {
    pub(crate) volumes: BTreeMap<&'a str, &'a Value>,
    pub(crate) claims: BTreeSet<&'a str>,
    /// The pod's `terminationGracePeriodSeconds`.
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) restart_policy: &'a str,
    /// Whether the pod uses the host's user namespace.
    pub(crate) host_users: bool,
}

/// Maximum number of restart rules per container.
const RESTART_RULES_MAX: usize = 20;
/// Maximum number of exit codes per restart rule.
const EXIT_CODES_MAX: usize = 255;

/// Validates `containers`.
pub(crate) fn regular(containers: &At<'_>, pod: &Pod<'_>, errors: &mut Errors) {
    if containers.is_empty() {
        errors.push(containers.required(""));
        return;
    }
    let mut seen = BTreeSet::new();
    for container in containers.items() {
        common(&container, pod, errors);
        let name = container.get("name");
        if !seen.insert(name.str().to_owned()) {
            errors.push(Error::duplicate(name.path(), name.str()));
        }
        let lifecycle = container.get("lifecycle");
        if lifecycle.is_present() {
            handlers::lifecycle(&lifecycle, pod.grace_seconds, errors);
        }
        handlers::probes(&container, pod.grace_seconds, errors);
        restart_policy(&container, errors);
    }
    let mut taken = BTreeSet::new();
    for container in containers.items() {
        host_ports(&container, &mut taken, errors);
    }
}

/// Validates the init containers of `spec`, including sidecars (restartPolicy Always).
pub(crate) fn init(spec: &At<'_>, pod: &Pod<'_>, errors: &mut Errors) {
    const DETAIL: &str = "may not be set for init containers without restartPolicy=Always";
    let mut seen: BTreeSet<String> = names_of(spec.value(), "containers").map(str::to_owned).collect();
    let containers = spec.get("initContainers");
    for container in containers.items() {
        common(&container, pod, errors);
        restart_policy(&container, errors);
        let stays = container.get("restartPolicy").str() == "Always";
        let name = container.get("name");
        if seen.contains(name.str()) {
            errors.push(Error::duplicate(name.path(), name.str()));
        } else if !name.is_empty() {
            seen.insert(name.str().to_owned());
        }
        // Upstream reports these ports as if the container had index 0.
        let alone = At::new(container.value(), containers.path().index(0));
        host_ports(&alone, &mut BTreeSet::new(), errors);
        if stays {
            let lifecycle = container.get("lifecycle");
            if lifecycle.is_present() {
                handlers::lifecycle(&lifecycle, pod.grace_seconds, errors);
            }
            handlers::probes(&container, pod.grace_seconds, errors);
        } else {
            let fields = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
            let set = fields.into_iter().filter(|field| container.get(field).is_present());
            errors.extend(set.map(|field| container.get(field).forbidden(DETAIL)));
            for policy in container.get("resizePolicy").items() {
                let restart = policy.get("restartPolicy");
                if restart.str() == "RestartContainer" {
                    let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    errors.push(restart.invalid(detail));
                }
            }
        }
    }
}

/// Validates the ephemeral containers of `spec`.
pub(crate) fn ephemeral(spec: &At<'_>, pod: &Pod<'_>, errors: &mut Errors) {
    const WHY: &str = "cannot be set for an Ephemeral Container";
    const FORBIDDEN: [&str; 8] = [
        "ports",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    let others: BTreeSet<_> =
        names_of(spec.value(), "containers").chain(names_of(spec.value(), "initContainers")).collect();
    let mut seen: BTreeSet<String> = others.iter().map(|name| (*name).to_owned()).collect();
    for container in spec.get("ephemeralContainers").items() {
        common(&container, pod, errors);
        only_for_pod(&container, errors);
        let (name, target) = (container.get("name"), container.get("targetContainerName"));
        if !seen.insert(name.str().to_owned()) {
            errors.push(Error::duplicate(name.path(), name.str()));
        }
        if !target.is_empty() && !others.contains(target.str()) {
            errors.push(target.not_found());
        }
        for field in FORBIDDEN {
            if container.get(field).is_present() {
                errors.push(container.get(field).forbidden(WHY));
            }
            if field == "ports" && !container.get("resources").is_empty() {
                errors.push(container.get("resources").forbidden(WHY));
            }
        }
        for mount in container.get("volumeMounts").items() {
            let paths = ["subPath", "subPathExpr"].into_iter().filter(|field| !mount.get(field).is_empty());
            errors.extend(paths.map(|field| mount.get(field).forbidden(WHY)));
        }
    }
}

/// Validates container rules that apply to pods but not to templates.
pub(crate) fn only_for_pod(container: &At<'_>, errors: &mut Errors) {
    let image = container.get("image");
    if image.str().trim() != image.str() {
        errors.push(image.invalid("must not have leading or trailing whitespace"));
    }
}

fn names_of<'a>(spec: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    let containers = spec.get(field).and_then(Value::as_array).unwrap_or_default();
    containers.iter().map(|container| container.text_at(&["name"]))
}

/// Validates the fields that all kinds of containers have.
fn common(container: &At<'_>, pod: &Pod<'_>, errors: &mut Errors) {
    let name = container.get("name");
    if required(&name, errors) {
        looks(&name, names::dns1123_label, errors);
    }
    required(&container.get("image"), errors);
    let policy = container.get("terminationMessagePolicy");
    required_one_of(&policy, &["File", "FallbackToLogsOnError"], errors);
    ports(&container.get("ports"), errors);
    env::variables(&container.get("env"), errors);
    env::sources(&container.get("envFrom"), errors);
    mounts::mounts(container, &pod.volumes, errors);
    mounts::devices(container, &pod.volumes, errors);
    required_one_of(&container.get("imagePullPolicy"), &["Always", "IfNotPresent", "Never"], errors);
    resources::validate(&container.get("resources"), ResourceLevel::Container, &pod.claims, errors);
    resize_policy(&container.get("resizePolicy"), pod.restart_policy, errors);
    security::container(&container.get("securityContext"), pod.host_users, errors);
}

fn ports(ports: &At<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let (name, number, host) = (port.get("name"), port.get("containerPort"), port.get("hostPort"));
        if !name.is_empty() {
            let wrong = names::port_name(name.str());
            if !wrong.is_empty() {
                text(&name, wrong, errors);
            } else if !seen.insert(name.str().to_owned()) {
                errors.push(name.duplicate());
            }
        }
        if number.int() == 0 {
            errors.push(number.required(""));
        } else {
            int(&number, names::port_number(number.int()), errors);
        }
        if host.int() != 0 {
            int(&host, names::port_number(host.int()), errors);
        }
        required_one_of(&port.get("protocol"), &["SCTP", "TCP", "UDP"], errors);
    }
}

/// Rejects a host port that is used twice.
fn host_ports(container: &At<'_>, taken: &mut BTreeSet<String>, errors: &mut Errors) {
    for port in container.get("ports").items() {
        let host = port.get("hostPort");
        if host.int() == 0 {
            continue;
        }
        let key = format!("{}/{}/{}", port.get("protocol").str(), port.get("hostIP").str(), host.int());
        if taken.contains(&key) {
            errors.push(Error::duplicate(host.path(), key));
        } else {
            taken.insert(key);
        }
    }
}

/// Validates resize policies. Upstream reports errors of an item at the list.
fn resize_policy(policies: &At<'_>, pod_restart_policy: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for policy in policies.items() {
        let (name, restart) = (policy.get("resourceName"), policy.get("restartPolicy"));
        if !seen.insert(name.str().to_owned()) {
            errors.push(Error::duplicate(policy.path(), name.str()));
        }
        let at = |value: &At<'_>, supported: &[&str], errors: &mut Errors| match value.str() {
            "" => errors.push(policies.required("")),
            text if supported.contains(&text) => {}
            text => errors.push(Error::not_supported(policies.path(), text, supported)),
        };
        at(&name, &["cpu", "memory"], errors);
        at(&restart, &["NotRequired", "RestartContainer"], errors);
        if pod_restart_policy == "Never" && restart.str() != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(Error::invalid(policies.path(), restart.str(), detail));
        }
    }
}

/// Validates the container-level restart policy and rules.
fn restart_policy(container: &At<'_>, errors: &mut Errors) {
    let (policy, rules) = (container.get("restartPolicy"), container.get("restartPolicyRules"));
    if policy.is_present() {
        one_of(&policy, &["Always", "Never", "OnFailure"], errors);
    } else if rules.is_empty() {
        return;
    } else {
        errors.push(policy.required("must specify restartPolicy when restart rules are used"));
    }
    if rules.len() > RESTART_RULES_MAX {
        errors.push(Error::too_many(rules.path(), rules.len(), RESTART_RULES_MAX));
    }
    for rule in rules.items() {
        one_of(&rule.get("action"), &["Restart", "RestartAllContainers"], errors);
        let codes = rule.get("exitCodes");
        if codes.is_absent() {
            errors.push(codes.required("must be specified"));
            continue;
        }
        one_of(&codes.get("operator"), &["In", "NotIn"], errors);
        let values = codes.get("values");
        if values.len() > EXIT_CODES_MAX {
            errors.push(Error::too_many(values.path(), values.len(), EXIT_CODES_MAX));
        }
    }
}

/// Requires that volumes read by `fileKeyRef` are emptyDir volumes.
pub(crate) fn file_key_volumes(spec: &At<'_>, errors: &mut Errors) {
    let volumes = spec.get("volumes");
    let sources: BTreeMap<_, _> = volumes.list().iter().map(|volume| (volume.str_at(&["name"]), volume)).collect();
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.get(field).items() {
            for variable in container.get("env").items() {
                let from = variable.get("valueFrom");
                let reference = from.get("fileKeyRef");
                let name = reference.get("volumeName");
                if reference.is_absent() {
                    continue;
                }
                match sources.get(&Some(name.str())) {
                    None => errors.push(Error::not_found(name.path(), name.str())),
                    Some(volume) if volume.get("emptyDir").is_none_or(Value::is_null) => {
                        errors.push(invalid_text(&name, "referenced volume must be of type emptyDir"));
                    }
                    Some(_) => {}
                }
            }
        }
    }
}
