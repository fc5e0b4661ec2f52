//! CRI resources as OCI resources.

use std::path::Path;

use cgroups::{Cgroup, Controller};
use node_api::cri::v1;
use serde_json::{Value, json};

/// Resources that some hosts cannot limit.
#[derive(Clone, Copy)]
struct Host {
    unified: bool,
    accounts_swap: bool,
    limits_huge_pages: bool,
}

impl Host {
    fn observe() -> Self {
        let unified = Cgroup::is_unified();
        Self {
            unified,
            accounts_swap: unified || Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists(),
            limits_huge_pages: Cgroup::at("/").controllers().contains(Controller::Hugetlb),
        }
    }
}

/// Converts limits and shares; zero in CRI means unset. The container does not start if the host lacks the controller
/// of a limit.
pub(crate) fn resources(given: &v1::LinuxContainerResources) -> Value {
    of_host(given, Host::observe())
}

fn of_host(given: &v1::LinuxContainerResources, host: Host) -> Value {
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
        if given.memory_swap_limit_in_bytes != 0 && host.accounts_swap {
            memory["swap"] = json!(given.memory_swap_limit_in_bytes);
        }
        all["memory"] = memory;
    }
    // Kubelets set a limit of zero for each page size that a container does not use.
    let huge_pages = given.hugepage_limits.iter().filter(|limit| host.limits_huge_pages || limit.limit > 0);
    let huge_pages: Vec<Value> =
        huge_pages.map(|limit| json!({"pageSize": limit.page_size, "limit": limit.limit})).collect();
    if !huge_pages.is_empty() {
        all["hugepageLimits"] = huge_pages.into();
    }
    if !given.unified.is_empty() && host.unified {
        all["unified"] = json!(given.unified);
    }
    all
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
    #[test]
    fn huge_page_limits_without_a_controller_are_kept_unless_they_are_zero() {
        let given = v1::LinuxContainerResources {
            memory_limit_in_bytes: 1 << 20,
            memory_swap_limit_in_bytes: 1 << 20,
            hugepage_limits: [("2MB", 0), ("1GB", 1 << 30)]
                .map(|(size, limit)| v1::HugepageLimit { page_size: size.into(), limit })
                .into(),
            unified: [("memory.oom.group".to_owned(), "1".to_owned())].into(),
            ..Default::default()
        };
        let check = |unified, accounts_swap, limits_huge_pages, expect: Value| {
            assert_eq!(of_host(&given, Host { unified, accounts_swap, limits_huge_pages }), expect);
        };
        let (with_swap, without_swap) = (json!({"limit": 1 << 20, "swap": 1 << 20}), json!({"limit": 1 << 20}));
        let (none, some) = (json!({"pageSize": "2MB", "limit": 0}), json!({"pageSize": "1GB", "limit": 1 << 30}));
        let unified = json!({"memory.oom.group": "1"});
        let all = json!({"cpu": {}, "memory": with_swap, "hugepageLimits": [none, some], "unified": unified});
        check(true, true, true, all);
        check(false, true, true, json!({"cpu": {}, "memory": with_swap, "hugepageLimits": [none, some]}));
        check(false, false, true, json!({"cpu": {}, "memory": without_swap, "hugepageLimits": [none, some]}));
        // Without the controller, a real limit stays, so that the container fails to start.
        check(false, false, false, json!({"cpu": {}, "memory": without_swap, "hugepageLimits": [some]}));
    }
}
