//! PodTolerationRestriction: default tolerations and the toleration whitelist of a namespace.

use api::resources::{NAMESPACES, PODS};
use api::view::{Pod, QosClass};
use apimachinery::meta::Meta;
use apimachinery::status::{Reason, Status};
use apimachinery::{Value, json, value};

use super::pods::{list_mut, spec, spec_mut};
use super::runtime_class::covers;
use super::{Attributes, Notes, Operation, Plugin, View};

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const WHITELIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

pub(crate) struct PodTolerationRestriction {
    /// Tolerations of pods in namespaces without the defaults annotation.
    defaults: Vec<Value>,
    /// Whitelist of namespaces without the whitelist annotation.
    whitelist: Vec<Value>,
}

impl PodTolerationRestriction {
    /// Parses the plugin's `Configuration`.
    pub(crate) fn of(config: &Value) -> Self {
        let list = |field: &str| config.list_at(&[field]).to_vec();
        Self { defaults: list("default"), whitelist: list("whitelist") }
    }
}

impl Plugin for PodTolerationRestriction {
    fn admit(
        &self,
        attributes: &Attributes<'_>,
        pod: &mut Value,
        view: &dyn View,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        if !attributes.writes(PODS) {
            return Ok(());
        }
        let mut extra = match attributes.operation {
            Operation::Create => annotated(attributes, view, DEFAULTS)?.unwrap_or_else(|| self.defaults.clone()),
            _ => Vec::new(),
        };
        if Pod(pod).qos_class() != QosClass::BestEffort {
            extra.push(value!({
                "key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"
            }));
        }
        if let (false, Some(fields)) = (extra.is_empty(), spec_mut(pod)) {
            let list = list_mut(fields, "tolerations");
            for toleration in extra {
                if !list.iter().any(|have| covers(have, &toleration)) {
                    list.push(toleration);
                }
            }
        }
        self.validate(attributes, pod, view, notes)
    }

    fn validate(&self, attributes: &Attributes<'_>, pod: &Value, view: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !attributes.writes(PODS) {
            return Ok(());
        }
        let allowed = annotated(attributes, view, WHITELIST)?.unwrap_or_else(|| self.whitelist.clone());
        let mut tolerations = spec(pod).list_at(&["tolerations"]).iter();
        if allowed.is_empty() || tolerations.all(|one| allowed.iter().any(|wide| covers(wide, one))) {
            return Ok(());
        }
        let message = "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace \
                   whitelist";
        Err(Status::failure(Reason::Unknown, message))
    }
}

/// Returns the tolerations in a namespace annotation; `None` if the annotation is absent.
fn annotated(attributes: &Attributes<'_>, view: &dyn View, key: &str) -> Result<Option<Vec<Value>>, Status> {
    let namespace = view.object(NAMESPACES, "", attributes.namespace);
    let text = namespace.as_deref().and_then(|namespace| Meta::of(namespace).annotation(key));
    let Some(text) = text else { return Ok(None) };
    if text.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let parsed = json::parse(text.as_bytes()).map_err(Status::internal_error)?;
    Ok(Some(parsed.as_array().unwrap_or_default().to_vec()))
}

#[cfg(test)]
mod tests {
    use api::core::pod;

    use super::*;
    use crate::testing::{Cluster, attributes};

    #[test]
    fn pods_better_than_best_effort_tolerate_memory_pressure() {
        let plugin = PodTolerationRestriction { defaults: Vec::new(), whitelist: Vec::new() };
        let (kind, user, cluster) = (pod::kind(), auth::User::default(), Cluster::default());
        let check = |cpu: &str, expect: usize| {
            let mut pod = value!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]}});
            let attributes = attributes(&kind, &user, Operation::Create);
            plugin.admit(&attributes, &mut pod, &cluster, &mut Notes::default()).unwrap();
            assert_eq!(spec(&pod).list_at(&["tolerations"]).len(), expect, "{cpu}");
        };
        check("1m", 1);
        check("0m", 0);
    }
}
