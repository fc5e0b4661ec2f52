//! Total requests and limits of a pod.
//!
//! App containers and sidecars run at the same time, so their amounts add up. An init container runs alone with the
//! sidecars before it, so it counts only where that needs more. Pod-level resources replace the sum of the containers,
//! and the overhead is added at last.

use apimachinery::Value;
use apimachinery::quantity::Quantity;

use super::{Container, Pod, PodSpec, Role};
use crate::amounts::{self, Amounts, is_pod_level};

/// The fields that determine the amounts of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmountsFrom {
    /// The desired amounts.
    Spec,
    /// During an in-place resize of a container, the maximum of desired, actual and allocated amounts.
    ContainerStatuses,
    /// As `ContainerStatuses`, and the same for a resize of pod-level resources.
    Status,
}

#[derive(Clone, Copy)]
enum Field {
    Requests,
    Limits,
}

impl Field {
    const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

impl Pod<'_> {
    /// Returns the total requests with the overhead.
    pub fn requests(self, from: AmountsFrom) -> Amounts {
        self.requests_assuming(&Amounts::new(), from)
    }

    /// Returns the total requests with the overhead, with assumed amounts for each container that does not request the
    /// resource.
    pub fn requests_assuming(self, assumed: &Amounts, from: AmountsFrom) -> Amounts {
        let mut total = self.total(Field::Requests, assumed, from);
        amounts::add(&mut total, &self.overhead());
        total
    }

    /// Returns the total limits. Resources with a limit other than zero include the overhead.
    pub fn limits(self, from: AmountsFrom) -> Amounts {
        let mut total = self.total(Field::Limits, &Amounts::new(), from);
        for (name, overhead) in self.overhead() {
            if let Some(limit) = total.get_mut(&name).filter(|limit| !limit.is_zero()) {
                *limit = limit.add(overhead);
            }
        }
        total
    }

    /// Returns the desired total requests without the overhead.
    pub fn requests_without_overhead(self) -> Amounts {
        self.total(Field::Requests, &Amounts::new(), AmountsFrom::Spec)
    }

    /// Returns the desired total limits without the overhead.
    pub fn limits_without_overhead(self) -> Amounts {
        self.total(Field::Limits, &Amounts::new(), AmountsFrom::Spec)
    }

    /// Returns the amount by which the kubelet compares the usage of pods. If the pod has pod-level resources, requests
    /// of its containers do not count; the overhead counts only for a resource that is requested.
    pub fn request(self, name: &str) -> Quantity {
        let is_specified = self.has_pod_level("requests") || self.has_pod_level("limits");
        let mut requests = Amounts::new();
        if is_specified {
            self.apply_pod_level(&mut requests, Field::Requests, AmountsFrom::Spec);
        } else {
            requests = self.requests_without_overhead();
        }
        let request = requests.get(name).copied().unwrap_or_default();
        match self.overhead().get(name) {
            Some(overhead) if !request.is_zero() => request.add(*overhead),
            _ => request,
        }
    }

    pub fn overhead(self) -> Amounts {
        amounts::read(self.spec().get("overhead"))
    }

    /// Whether pod-level `requests` or `limits` are set for any resource.
    pub fn has_pod_level(self, field: &str) -> bool {
        let amounts = self.spec().at(&["resources", field]).and_then(Value::as_object);
        amounts.is_some_and(|amounts| amounts.keys().any(is_pod_level))
    }

    fn total(self, field: Field, assumed: &Amounts, from: AmountsFrom) -> Amounts {
        let mut total = self.pod_spec().sum(|container| {
            let mut amounts = self.container_amounts(container, field, from);
            for (name, amount) in assumed {
                amounts.entry(name.clone()).or_insert(*amount);
            }
            amounts
        });
        self.apply_pod_level(&mut total, field, from);
        total
    }

    /// Replaces amounts by those of the pod level.
    fn apply_pod_level(self, total: &mut Amounts, field: Field, from: AmountsFrom) {
        let desired = amounts::read(self.spec().at(&["resources", field.name()]));
        let effective = match self.0.at(&["status", "resources"]) {
            Some(Value::Object(_)) if from == AmountsFrom::Status => {
                Some(self.effective(&self.0["status"], desired.clone(), field))
            }
            _ => None,
        };
        for (name, amount) in desired.into_iter().filter(|(name, _)| is_pod_level(name)) {
            let amount = effective.as_ref().map_or(amount, |amounts| amounts.get(&name).copied().unwrap_or_default());
            total.insert(name, amount);
        }
    }

    fn container_amounts(self, container: Container<'_>, field: Field, from: AmountsFrom) -> Amounts {
        let desired = amounts::read(container.spec.at(&["resources", field.name()]));
        if from == AmountsFrom::Spec || container.role == Role::Init {
            return desired;
        }
        let status = self.known_status(container);
        match status.get("resources") {
            Some(Value::Object(_)) => self.effective(status, desired, field),
            _ => desired,
        }
    }

    /// Returns the maximum of desired, actual and, for requests, allocated amounts. Desired amounts of a resize that is
    /// infeasible do not count.
    fn effective(self, status: &Value, desired: Amounts, field: Field) -> Amounts {
        let mut effective = if self.resize_is_infeasible() { Amounts::new() } else { desired };
        amounts::raise(&mut effective, &amounts::read(status.at(&["resources", field.name()])));
        if matches!(field, Field::Requests) {
            amounts::raise(&mut effective, &amounts::read(status.get("allocatedResources")));
        }
        effective
    }

    fn resize_is_infeasible(self) -> bool {
        let conditions = self.0.list_at(&["status", "conditions"]);
        let pending = conditions.iter().find(|condition| condition.str_at(&["type"]) == Some("PodResizePending"));
        pending.is_some_and(|condition| condition.str_at(&["reason"]) == Some("Infeasible"))
    }
}

impl PodSpec<'_> {
    /// Returns the total requests of the containers, without pod-level resources and overhead.
    pub fn container_requests(self) -> Amounts {
        self.sum(|container| amounts::read(container.spec.at(&["resources", "requests"])))
    }

    /// Returns the total limits of the containers, without pod-level resources and overhead.
    pub fn container_limits(self) -> Amounts {
        self.sum(|container| amounts::read(container.spec.at(&["resources", "limits"])))
    }

    fn sum(self, amounts_of: impl Fn(Container<'_>) -> Amounts) -> Amounts {
        let mut sum = Amounts::new();
        for container in self.app_containers() {
            amounts::add(&mut sum, &amounts_of(container));
        }
        let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
        for container in self.init_containers() {
            let mut needed = amounts_of(container);
            if container.role == Role::Sidecar {
                amounts::add(&mut sum, &needed);
                amounts::add(&mut sidecars, &needed);
                amounts::raise(&mut peak, &sidecars);
            } else {
                amounts::add(&mut needed, &sidecars);
                amounts::raise(&mut peak, &needed);
            }
        }
        amounts::raise(&mut sum, &peak);
        sum
    }
}

#[cfg(test)]
mod tests;
