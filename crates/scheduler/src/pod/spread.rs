//! Topology spread constraints of a pod.

use apimachinery::labels::{self, Operator, Requirement, Selector};
use apimachinery::{Path, Str, Value};

use super::{Error, clamp, label};

/// The `whenUnsatisfiable` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenUnsatisfiable {
    DoNotSchedule,
    /// Prefers nodes with the lowest skew.
    ScheduleAnyway,
}

/// Node inclusion policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Only nodes that match the pod's node affinity or tolerations count.
    Honor,
    /// All nodes count.
    Ignore,
}

/// A `TopologySpreadConstraint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Maximum difference of pod counts between domains.
    pub max_skew: i32,
    /// Node label whose values are the domains.
    pub topology_key: Str,
    pub when: WhenUnsatisfiable,
    /// Selects the pods that are counted.
    pub selector: Selector,
    /// With fewer domains than this, the minimum pod count is taken as 0.
    pub min_domains: i32,
    pub node_affinity: Policy,
    pub node_taints: Policy,
}

/// Parses the constraints of a pod spec.
pub(super) fn constraints(spec: &Value, pod_labels: &[(Str, Str)]) -> Result<Vec<Spread>, Error> {
    spec.list_at(&["topologySpreadConstraints"]).iter().map(|value| constraint(value, pod_labels)).collect()
}

fn constraint(value: &Value, pod_labels: &[(Str, Str)]) -> Result<Spread, Error> {
    const FIELD: &str = "labelSelector";
    let error = |reason| Error::Selector { field: FIELD, reason };
    let mut selector = labels::from_object(value.get(FIELD)).map_err(error)?;
    if let Selector::All(requirements) = &selector {
        let mut requirements = requirements.clone();
        for key in value.list_at(&["matchLabelKeys"]).iter().filter_map(Value::as_str) {
            let Some(own) = label(pod_labels, key) else { continue };
            let requirement = Requirement::new(key, Operator::In, vec![own.into()], &Path::ROOT);
            requirements.push(requirement.map_err(|wrong| error(labels::SelectorError::Invalid(wrong)))?);
        }
        selector = Selector::new(requirements);
    }
    let number = |field: &str, absent: i32| value.get(field).and_then(Value::as_int).map_or(absent, clamp);
    let policy = |field: &str, absent| match value.str_at(&[field]) {
        Some("Honor") => Policy::Honor,
        Some("Ignore") => Policy::Ignore,
        _ => absent,
    };
    Ok(Spread {
        max_skew: number("maxSkew", 1),
        topology_key: value.text_at(&["topologyKey"]).into(),
        when: match value.str_at(&["whenUnsatisfiable"]) {
            Some("ScheduleAnyway") => WhenUnsatisfiable::ScheduleAnyway,
            _ => WhenUnsatisfiable::DoNotSchedule,
        },
        selector,
        min_domains: number("minDomains", 1),
        node_affinity: policy("nodeAffinityPolicy", Policy::Honor),
        node_taints: policy("nodeTaintsPolicy", Policy::Ignore),
    })
}
