//! Rules of a pod about how evenly it and its like are spread over topology domains.

use machinery::labels::{self, Operator, Requirement, Selector};
use machinery::{Path, Str, Value};

use super::{Error, clamp, items, label};

/// What becomes of a pod that would break a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenUnsatisfiable {
    /// It waits.
    DoNotSchedule,
    /// It goes where it breaks the rule the least.
    ScheduleAnyway,
}

/// Whether a property of nodes decides which of them count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Nodes that the pod could not go to do not count.
    Honor,
    /// All nodes count.
    Ignore,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// By how many pods domains may differ.
    pub max_skew: i32,
    /// The label of nodes whose values are the domains.
    pub topology_key: Str,
    /// What becomes of a pod that would break it.
    pub when: WhenUnsatisfiable,
    /// The pods that are counted.
    pub selector: Selector,
    /// With fewer domains than this, the emptiest counts as empty.
    pub min_domains: i32,
    /// Whether the pod's affinity to nodes decides which count.
    pub node_affinity: Policy,
    /// Whether the taints of nodes decide which count.
    pub node_taints: Policy,
}

/// The rules of a pod's specification.
pub fn constraints(spec: &Value, pod_labels: &[(Str, Str)]) -> Result<Vec<Spread>, Error> {
    items(spec, "topologySpreadConstraints").iter().map(|value| constraint(value, pod_labels)).collect()
}

fn constraint(value: &Value, pod_labels: &[(Str, Str)]) -> Result<Spread, Error> {
    const FIELD: &str = "labelSelector";
    let error = |reason| Error::Selector { field: FIELD, reason };
    let mut selector = labels::from_object(value.get(FIELD)).map_err(error)?;
    if let Selector::All(requirements) = &selector {
        let mut requirements = requirements.clone();
        for key in items(value, "matchLabelKeys").iter().filter_map(Value::as_str) {
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
        topology_key: value.str_at(&["topologyKey"]).unwrap_or_default().into(),
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
