//! CRI resources as OCI resources.

use cgroups::Cgroup;
use node_api::cri::v1;
use serde_json::{Value, json};

/// Converts limits and shares; zero in CRI means unset.
pub(crate) fn resources(given: &v1::LinuxContainerResources) -> Value {
    let mut cpu = json!({});
    for (name, value) in [("period", given.cpu_period), ("quota", given.cpu_quota), ("shares", given.cpu_shares)] {
        if value != 0 {
            cpu[name] = json!(value);
        }
    }
    for (name, value) in [("cpus", &given.cpuset_cpus), ("mems", &given.cpuset_mems)] {
        if !value.is_empty() {
            cpu[name] = json!(value);
        }
    }
    let mut all = json!({ "cpu": cpu });
    if given.memory_limit_in_bytes != 0 {
        let mut memory = json!({"limit": given.memory_limit_in_bytes});
        // cgroup v1 rejects a limit with swap if the kernel does not account swap.
        if given.memory_swap_limit_in_bytes != 0 && swap_is_accounted() {
            memory["swap"] = json!(given.memory_swap_limit_in_bytes);
        }
        all["memory"] = memory;
    }
    if !given.hugepage_limits.is_empty() {
        if Cgroup::has_controller("hugetlb") {
            let limit = |limit: &v1::HugepageLimit| json!({"pageSize": limit.page_size, "limit": limit.limit});
            all["hugepageLimits"] = given.hugepage_limits.iter().map(limit).collect();
        } else if given.hugepage_limits.iter().any(|limit| limit.limit > 0) {
            tracing::warn!("ignoring huge page limits: the hugetlb controller is not available");
        }
    }
    if !given.unified.is_empty() && Cgroup::is_unified() {
        all["unified"] = json!(given.unified);
    }
    all
}

fn swap_is_accounted() -> bool {
    Cgroup::is_unified() || std::path::Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_resources_are_omitted() {
        assert_eq!(resources(&v1::LinuxContainerResources::default()), json!({"cpu": {}}));
        let given = v1::LinuxContainerResources {
            cpu_shares: 102,
            cpu_quota: 10_000,
            cpu_period: 100_000,
            memory_limit_in_bytes: 1 << 20,
            cpuset_cpus: "0-1".into(),
            ..Default::default()
        };
        let expect = json!({
            "cpu": {"shares": 102, "quota": 10_000, "period": 100_000, "cpus": "0-1"},
            "memory": {"limit": 1 << 20},
        });
        assert_eq!(resources(&given), expect);
    }
}
