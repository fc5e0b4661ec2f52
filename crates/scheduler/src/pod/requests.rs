//! Resource requests of a pod in the units of the snapshot.

use api::amounts::Amounts;
use api::view::{self, AmountsFrom};
use apimachinery::quantity::{Format, Quantity};

use crate::resources::Resources;

/// CPU that scoring assumes for a container without a CPU request.
pub const MISSING_CPU_MILLI: i64 = 100;
/// Memory that scoring assumes for a container without a memory request: 200 MiB.
pub const MISSING_MEMORY: i64 = 200 * 1024 * 1024;

/// Sums of a pod's requests.
pub(super) struct Requests {
    /// Requests that the node must provide.
    pub requests: Resources,
    /// CPU and memory of the pod in a node's usage, for scoring.
    pub non_zero: [i64; 2],
    /// CPU and memory of the pod to schedule, for scoring.
    pub scored: [i64; 2],
}

/// Sums up the requests of a pod.
pub(super) fn requests(pod: view::Pod<'_>) -> Requests {
    let requests = pod.requests(AmountsFrom::Status);
    let mut missing = Amounts::from([
        ("cpu".into(), Quantity::milli(MISSING_CPU_MILLI, Format::DecimalSI)),
        ("memory".into(), Quantity::new(MISSING_MEMORY, Format::DecimalSI)),
    ]);
    let assuming = |missing: &Amounts| {
        let sums = Resources::from_list(&pod.requests_assuming(missing, AmountsFrom::Status));
        [sums.cpu_milli, sums.memory]
    };
    let scored = assuming(&missing);
    // With pod-level requests, the default values apply only to resources that no part of the pod requests.
    let non_zero = if pod.has_pod_level("requests") {
        missing.retain(|name, _| !requests.contains_key(name));
        assuming(&missing)
    } else {
        scored
    };
    Requests { requests: Resources::from_list(&requests), non_zero, scored }
}
