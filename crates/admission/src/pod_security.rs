//! PodSecurity: enforces the Pod Security Standards level in the labels of a namespace.

mod checks;
mod level;

use std::collections::BTreeMap;

use api::resources::{NAMESPACES, PODS};
use api_registry::decode::kind_name;
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{Value, field};

use self::checks::Violation;
use self::level::{Level, LevelVersion, Policy};
use super::pods::{CONTAINER_LISTS, spec};
use super::{Attributes, Notes, Operation, Plugin, View};

/// Maximum number of pods that are checked when a namespace gets a stricter level.
const PODS_MAX: usize = 3000;

/// Subresources of a pod that do not affect its security.
const IGNORED_PARTS: [&str; 8] = ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

#[derive(Default)]
pub(crate) struct PodSecurity {
    /// The policy of namespaces without labels.
    defaults: Policy,
    exemptions: Exemptions,
}

#[derive(Clone, Debug, Default)]
struct Exemptions {
    usernames: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

impl PodSecurity {
    /// Parses a `PodSecurityConfiguration`.
    pub(crate) fn of(config: &Value) -> Self {
        let list = |field: &str| {
            let names = config["exemptions"].list_at(&[field]).iter().filter_map(Value::as_str);
            names.map(str::to_owned).collect()
        };
        let exemptions = Exemptions {
            usernames: list("usernames"),
            namespaces: list("namespaces"),
            runtime_classes: list("runtimeClasses"),
        };
        Self { defaults: Policy::of_config(&config["defaults"]), exemptions }
    }
}

impl Plugin for PodSecurity {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        view: &dyn View,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        if !matches!(attributes.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        let kind = attributes.kind;
        match (kind.group.as_str(), kind.plural.as_str(), attributes.subresource) {
            ("", "namespaces", "") => self.namespace(attributes, object, view, notes),
            ("", "pods", subresource) if IGNORED_PARTS.contains(&subresource) => Ok(()),
            ("", "pods", _) => {
                if attributes.old.is_some_and(|old| !is_significant(object, old)) {
                    return Ok(());
                }
                self.pod(attributes, object, object, view, notes)
            }
            (_, _, "") => match template(attributes, object) {
                Some(template) => self.pod(attributes, object, template, view, notes),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// Returns the pod template of a workload object.
fn template<'a>(attributes: &Attributes<'_>, object: &'a Value) -> Option<&'a Value> {
    let path: &[&str] = match (attributes.kind.group.as_str(), attributes.kind.plural.as_str()) {
        ("", "podtemplates") => &["template"],
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => &["spec", "template"],
        ("batch", "cronjobs") => &["spec", "jobTemplate", "spec", "template"],
        _ => return None,
    };
    object.at(path)
}

impl PodSecurity {
    fn pod(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        pod: &Value,
        view: &dyn View,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let exempt = |list: &[String], name: &str| list.iter().any(|have| have == name);
        if exempt(&self.exemptions.namespaces, attributes.namespace)
            || exempt(&self.exemptions.usernames, &attributes.user.name)
            || exempt(&self.exemptions.runtime_classes, spec(pod).text_at(&["runtimeClassName"]))
        {
            return Ok(());
        }
        let Some(namespace) = view.object(NAMESPACES, "", attributes.namespace) else {
            return Err(Status::internal_error(format!("failed to lookup namespace {}", attributes.namespace)));
        };
        let (policy, wrong) = Policy::of(&namespace, &self.defaults);
        if let Some(wrong) = field::aggregate(&wrong) {
            notes.audit.push((key("error"), format!("Failed to parse policy: {wrong}")));
        }
        let enforced = attributes.is(PODS);
        if enforced {
            notes.audit.push((key("enforce-policy"), policy.enforce.to_string()));
        }
        if enforced && let Some(violations) = find_violations(&policy.enforce, pod) {
            let message = format!("violates PodSecurity {:?}: {violations}", policy.enforce.to_string());
            return Err(attributes.forbidden(object, message));
        }
        if let Some(violations) = find_violations(&policy.audit, pod) {
            notes.audit.push((
                key("audit-violations"),
                format!("would violate PodSecurity {:?}: {violations}", policy.audit.to_string()),
            ));
        }
        if let Some(violations) = find_violations(&policy.warn, pod) {
            notes.warnings.push(format!("would violate PodSecurity {:?}: {violations}", policy.warn.to_string()));
        }
        Ok(())
    }

    fn namespace(
        &self,
        attributes: &Attributes<'_>,
        namespace: &Value,
        view: &dyn View,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let (policy, wrong) = Policy::of(namespace, &self.defaults);
        let before = attributes.old.map(|old| Policy::of(old, &self.defaults));
        let known = before.as_ref().map(|(_, wrong)| wrong.clone()).unwrap_or_default();
        if !wrong.is_empty() && wrong != known {
            return Err(Status::invalid(kind_name(attributes.kind), attributes.name, &wrong));
        }
        let Some((before, _)) = before else { return Ok(()) };
        let (new, old) = (policy.enforce, before.enforce);
        let relaxed = new.version == old.version && new.level <= old.level;
        let exempt = self.exemptions.namespaces.iter().any(|name| name == attributes.name);
        if new.level == Level::Privileged || relaxed || exempt {
            return Ok(());
        }
        self.warn_of_pods(attributes.name, &new, view, notes);
        Ok(())
    }

    /// Warns about existing pods that violate the new level.
    fn warn_of_pods(&self, namespace: &str, enforce: &LevelVersion, view: &dyn View, notes: &mut Notes) {
        let mut pods = view.objects(PODS, namespace);
        let total = pods.len();
        pods.truncate(PODS_MAX);
        let mut by_reason: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for pod in &pods {
            let class = spec(pod).text_at(&["runtimeClassName"]);
            if self.exemptions.runtime_classes.iter().any(|have| have == class) {
                continue;
            }
            let violations = checks::all(enforce, pod);
            if violations.is_empty() {
                continue;
            }
            let reasons: Vec<_> = violations.iter().map(|violation| violation.reason.as_str()).collect();
            let name = Meta::of(pod).name().to_owned();
            let entry = by_reason.entry(reasons.join(", ")).or_insert_with(|| (name.clone(), 0));
            entry.1 += 1;
            if name < entry.0 {
                entry.0 = name;
            }
        }
        if total > pods.len() {
            notes.warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {} of {total} existing pods",
                pods.len()
            ));
        }
        if !by_reason.is_empty() {
            notes.warnings.push(format!(
                "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level {:?}",
                enforce.to_string()
            ));
        }
        let mut lines: Vec<String> = by_reason
            .into_iter()
            .map(|(reason, (name, count))| match count {
                1 => format!("{name}: {reason}"),
                2 => format!("{name} (and 1 other pod): {reason}"),
                _ => format!("{name} (and {} other pods): {reason}", count - 1),
            })
            .collect();
        lines.sort();
        notes.warnings.extend(lines);
    }
}

fn key(name: &str) -> String {
    format!("pod-security.kubernetes.io/{name}")
}

/// Returns the violations of a pod in one line.
fn find_violations(level: &LevelVersion, pod: &Value) -> Option<String> {
    let violations = checks::all(level, pod);
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

/// Whether an update changes what the levels check: images, ephemeral containers or legacy seccomp annotations.
fn is_significant(pod: &Value, old: &Value) -> bool {
    let annotation = |of: &Value, key: &str| Meta::of(of).annotation(key).map(str::to_owned);
    let pod_key = "seccomp.security.alpha.kubernetes.io/pod";
    if annotation(pod, pod_key) != annotation(old, pod_key) {
        return true;
    }
    CONTAINER_LISTS.iter().any(|list| {
        let (new, had) = (spec(pod).list_at(&[list]), spec(old).list_at(&[list]));
        let differs = |(new, had): (&Value, &Value)| {
            let name = new.text_at(&["name"]);
            let key = format!("container.seccomp.security.alpha.kubernetes.io/{name}");
            new.text_at(&["image"]) != had.text_at(&["image"])
                || name != had.text_at(&["name"])
                || *list == "ephemeralContainers" && new != had
                || annotation(pod, &key) != annotation(old, &key)
        };
        new.len() != had.len() || new.iter().zip(had).any(differs)
    })
}

#[cfg(test)]
mod tests;
