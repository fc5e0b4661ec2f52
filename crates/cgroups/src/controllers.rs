//! The controllers of a cgroup, and the resources that each of them limits.

use std::fmt;

use serde_json::Value;

/// A controller that limits the resources of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    Cpu,
    Cpuset,
    Hugetlb,
    Memory,
    Pids,
}

impl Controller {
    pub const ALL: [Self; 5] = [Self::Cpu, Self::Cpuset, Self::Hugetlb, Self::Memory, Self::Pids];

    /// Returns the kernel's name on cgroup v1 and v2.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuset => "cpuset",
            Self::Hugetlb => "hugetlb",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }

    /// Returns the controller of a cgroup v2 file: `memory` for `memory.swap.max`. `None` for files of other
    /// controllers and of the core.
    pub fn of_file(name: &str) -> Option<Self> {
        let (controller, _) = name.split_once('.')?;
        Self::ALL.into_iter().find(|one| one.name() == controller)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of controllers. Displays as their names, separated by commas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Controllers(u8);

impl Controllers {
    /// Returns the controllers with these names; other names are ignored.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let find = |name| Controller::ALL.into_iter().find(|one| one.name() == name);
        names.into_iter().filter_map(find).collect()
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn contains(self, controller: Controller) -> bool {
        self.0 & controller.bit() != 0
    }

    /// Returns the controllers of this set that `others` lacks.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether the set contains the controller of a cgroup v2 file.
    pub fn affect_file(self, name: &str) -> bool {
        Controller::of_file(name).is_some_and(|controller| self.contains(controller))
    }

    /// Removes the limits of these controllers from OCI resources.
    pub fn remove_limits(self, resources: &mut Value) {
        let Some(resources) = resources.as_object_mut() else { return };
        if let Some(cpu) = resources.get_mut("cpu").and_then(Value::as_object_mut) {
            cpu.retain(|name, _| match name.as_str() {
                "cpus" | "mems" => !self.contains(Controller::Cpuset),
                _ => !self.contains(Controller::Cpu),
            });
        }
        if let Some(files) = resources.get_mut("unified").and_then(Value::as_object_mut) {
            files.retain(|name, _| !self.affect_file(name));
        }
        for (name, controller) in
            [("hugepageLimits", Controller::Hugetlb), ("memory", Controller::Memory), ("pids", Controller::Pids)]
        {
            if self.contains(controller) {
                resources.remove(name);
            }
        }
    }
}

impl FromIterator<Controller> for Controllers {
    fn from_iter<T: IntoIterator<Item = Controller>>(controllers: T) -> Self {
        Self(controllers.into_iter().fold(0, |bits, controller| bits | controller.bit()))
    }
}

impl fmt::Display for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            Controller::ALL.into_iter().filter(|one| self.contains(*one)).map(Controller::name).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn controllers_are_parsed_subtracted_and_displayed() {
        let all = Controllers::named("cpuset cpu io memory hugetlb pids rdma misc".split(' '));
        assert_eq!(all, Controller::ALL.into_iter().collect());
        assert_eq!(all.to_string(), "cpu, cpuset, hugetlb, memory, pids");
        let some = Controllers::named(["memory", "pids", "io"]);
        assert_eq!(all.without(some).to_string(), "cpu, cpuset, hugetlb");
        assert_eq!(some.without(all), Controllers::default());
        assert!(some.contains(Controller::Pids) && !some.contains(Controller::Cpu) && !some.is_empty());
    }

    #[test]
    fn only_limits_of_the_given_controllers_are_removed() {
        let full = || {
            json!({
                "cpu": {"shares": 2, "quota": 1000, "period": 100_000, "cpus": "0", "mems": "0"},
                "memory": {"limit": 1, "swap": 1},
                "pids": {"limit": 7},
                "hugepageLimits": [{"pageSize": "2MB", "limit": 0}],
                "unified": {"memory.oom.group": "1", "cpu.idle": "0", "cgroup.freeze": "0", "io.weight": "1"},
                "devices": [],
            })
        };
        let check = |names: &str, removed: &[&str]| {
            let mut expect = full();
            for path in removed {
                let (parent, name) = path.rsplit_once('/').unwrap();
                expect.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name).unwrap();
            }
            let mut left = full();
            Controllers::named(names.split(' ')).remove_limits(&mut left);
            assert_eq!(left, expect, "{names}");
        };
        check("", &[]);
        check("io", &[]);
        check("cpu", &["/cpu/shares", "/cpu/quota", "/cpu/period", "/unified/cpu.idle"]);
        check("cpuset", &["/cpu/cpus", "/cpu/mems"]);
        check("memory", &["/memory", "/unified/memory.oom.group"]);
        check("pids", &["/pids"]);
        check("hugetlb", &["/hugepageLimits"]);
        check("pids hugetlb", &["/pids", "/hugepageLimits"]);
        let mut none = Value::Null;
        Controllers::named(["cpu"]).remove_limits(&mut none);
        assert_eq!(none, Value::Null);
    }
}
