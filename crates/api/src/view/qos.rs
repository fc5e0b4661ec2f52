//! QoS class of a pod.

use std::fmt;

use apimachinery::Value;
use apimachinery::quantity::Quantity;

use super::{Pod, PodSpec};
use crate::field_rules::quantity;

/// Resources that determine the class.
const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// The QoS class of a pod, in the order in which pods are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QosClass {
    BestEffort,
    Burstable,
    Guaranteed,
}

impl QosClass {
    /// Returns the name in `status.qosClass`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "BestEffort",
            Self::Burstable => "Burstable",
            Self::Guaranteed => "Guaranteed",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl Pod<'_> {
    /// Returns the class in the status, or computes it for a pod whose status has none. It never changes.
    pub fn qos_class(self) -> QosClass {
        match self.0.str_at(&["status", "qosClass"]) {
            Some("BestEffort") => QosClass::BestEffort,
            Some("Burstable") => QosClass::Burstable,
            Some("Guaranteed") => QosClass::Guaranteed,
            _ => self.pod_spec().qos_class(),
        }
    }
}

impl PodSpec<'_> {
    /// Computes the class from pod-level resources or, if there are none, from those of all containers.
    pub fn qos_class(self) -> QosClass {
        let pod_level = self.0.get("resources").filter(|resources| !resources.is_null());
        let containers = self.containers().map(|container| &container["resources"]);
        let mut sums = [[Quantity::ZERO; 2]; 2];
        let mut all_limited = true;
        let mut count = |resources: &Value| {
            for (index, name) in RESOURCES.iter().enumerate() {
                let amount = |of: &str| resources.at(&[of, name]).map_or(Quantity::ZERO, quantity).max(Quantity::ZERO);
                let [request, limit] = [amount("requests"), amount("limits")];
                sums[0][index] = sums[0][index].add(request);
                sums[1][index] = sums[1][index].add(limit);
                all_limited &= !limit.is_zero();
            }
        };
        match pod_level {
            Some(resources) => count(resources),
            None => containers.for_each(count),
        }
        let [requests, limits] = sums;
        if requests.iter().chain(&limits).all(|sum| sum.is_zero()) {
            QosClass::BestEffort
        } else if all_limited && requests == limits {
            QosClass::Guaranteed
        } else {
            QosClass::Burstable
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::QosClass::{BestEffort, Burstable, Guaranteed};
    use super::*;

    /// Parses `requests / limits`, each `cpu memory`, with `-` for an amount that is not set.
    fn resources(text: &str) -> Value {
        let list = |text: &str| {
            let amounts = RESOURCES.iter().zip(text.split_whitespace()).filter(|(_, amount)| *amount != "-");
            Value::Object(amounts.map(|(name, amount)| (*name, amount)).collect())
        };
        let (requests, limits) = text.split_once('/').unwrap();
        value!({"requests": (list(requests)), "limits": (list(limits))})
    }

    #[test]
    fn class_depends_on_requests_and_limits_of_all_containers() {
        let check = |containers: &[&str], expect: QosClass| {
            let list: Vec<Value> = containers.iter().map(|text| value!({"resources": (resources(text))})).collect();
            assert_eq!(PodSpec(&value!({"containers": (list.clone())})).qos_class(), expect, "{containers:?}");
            let (init, apps) = list.split_at(list.len().min(1));
            let spec = value!({"initContainers": (init.to_vec()), "containers": (apps.to_vec())});
            assert_eq!(PodSpec(&spec).qos_class(), expect, "init container {containers:?}");
        };
        let full = "100m 100Mi / 100m 100Mi";
        check(&[], BestEffort);
        check(&["- - / - -"], BestEffort);
        check(&["- - / - -", "- - / - -"], BestEffort);
        check(&["0 - / - -"], BestEffort);
        check(&["0m 0 / 0m 0Mi"], BestEffort);
        check(&[full], Guaranteed);
        check(&[full, full], Guaranteed);
        check(&["0.1 0.1Gi / 100m 102.4Mi"], Guaranteed);
        check(&["100m 100Mi / 100m 100Mi", "200m 200Mi / 200m 200Mi"], Guaranteed);
        check(&["- - / - -", "1m - / - -"], Burstable);
        check(&["- - / - -", full], Burstable);
        check(&["1m 1Mi / 2m 1Mi"], Burstable);
        check(&["100m 100Mi / - -"], Burstable);
        check(&["100m 100Mi / 100m -"], Burstable);
        check(&["- - / 100m 100Mi"], Burstable);
        check(&["1m 1Mi / 100m 100Mi", full], Burstable);
        check(&["100m 100Mi / 100m 100Mi", "0 0 / 0 0"], Burstable);
    }

    #[test]
    fn pod_level_resources_override_those_of_containers() {
        let check = |pod: &str, container: &str, expect: QosClass| {
            let spec = value!({"resources": (resources(pod)), "containers": [{"resources": (resources(container))}]});
            assert_eq!(PodSpec(&spec).qos_class(), expect, "{pod} {container}");
        };
        check("10m 10Mi / 10m 10Mi", "- - / - -", Guaranteed);
        check("10m 10Mi / 10m 10Mi", "1m 1Mi / 2m 2Mi", Guaranteed);
        check("10m 10Mi / 20m 10Mi", "1m 1Mi / 1m 1Mi", Burstable);
        check("10m - / 10m -", "1m 1Mi / 1m 1Mi", Burstable);
        check("10m 10Mi / - -", "1m 1Mi / 1m 1Mi", Burstable);
        check("- - / - -", "1m 1Mi / 1m 1Mi", BestEffort);
    }

    #[test]
    fn resources_other_than_cpu_and_memory_do_not_count() {
        let container =
            value!({"resources": {"requests": {"ephemeral-storage": "1"}, "limits": {"hugepages-2Mi": "2Mi"}}});
        assert_eq!(PodSpec(&value!({"containers": [container]})).qos_class(), BestEffort);
    }

    #[test]
    fn class_in_the_status_takes_precedence() {
        let check = |class: &str, expect: QosClass| {
            let pod = value!({"spec": {"containers": [{}]}, "status": {"qosClass": class}});
            assert_eq!(Pod(&pod).qos_class(), expect, "{class}");
        };
        check("Guaranteed", Guaranteed);
        check("Burstable", Burstable);
        check("", BestEffort);
    }
}
