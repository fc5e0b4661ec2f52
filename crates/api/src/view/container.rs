//! View of a container of a pod.

use apimachinery::Value;

use super::Pod;

/// Action of a `restartPolicyRules` entry that restarts all containers of the pod.
const RESTART_ALL: &str = "RestartAllContainers";

/// A container of a pod and its role.
#[derive(Clone, Copy, Debug)]
pub struct Container<'a> {
    pub spec: &'a Value,
    pub role: Role,
}

/// The role of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Runs to completion before the next container starts.
    Init,
    /// Starts among the init containers and runs until all app containers have exited.
    Sidecar,
    App,
    /// Added to a running pod for debugging.
    Ephemeral,
}

/// The restart policy of a pod or container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl<'a> Container<'a> {
    pub fn name(self) -> &'a str {
        self.spec.text_at(&["name"])
    }

    pub fn image(self) -> &'a str {
        self.spec.text_at(&["image"])
    }

    /// Returns the effective restart policy, without `restartPolicyRules`.
    pub fn restart_policy(self, pod: Pod<'_>) -> RestartPolicy {
        match self.role {
            Role::Sidecar => RestartPolicy::Always,
            Role::Ephemeral => RestartPolicy::Never,
            // A failed init container is retried unless the policy is Never.
            Role::Init => match RestartPolicy::read(self.spec).unwrap_or(pod.restart_policy()) {
                RestartPolicy::Never => RestartPolicy::Never,
                RestartPolicy::Always | RestartPolicy::OnFailure => RestartPolicy::OnFailure,
            },
            Role::App => RestartPolicy::read(self.spec).unwrap_or(pod.restart_policy()),
        }
    }

    /// Whether the container restarts after this exit code.
    pub fn restarts_after(self, pod: Pod<'_>, exit_code: i64) -> bool {
        if self.rule_after(exit_code).is_some() {
            return true;
        }
        match self.restart_policy(pod) {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => exit_code != 0,
            RestartPolicy::Never => false,
        }
    }

    /// Whether the API server's status validation allows the container to run after this exit code. It treats init
    /// containers like app containers.
    pub fn may_run_after(self, pod: Pod<'_>, exit_code: i64) -> bool {
        if self.role == Role::Ephemeral {
            return false;
        }
        let mut all = pod.init_containers().chain(pod.app_containers());
        all.any(Container::may_restart_all)
            || self.rule_after(exit_code).is_some()
            || match RestartPolicy::read(self.spec).unwrap_or(pod.restart_policy()) {
                RestartPolicy::Always => true,
                RestartPolicy::OnFailure => exit_code != 0,
                RestartPolicy::Never => false,
            }
    }

    /// Whether this exit code triggers RestartAllContainers.
    pub fn restarts_all_after(self, exit_code: i64) -> bool {
        let action = self.rule_after(exit_code).and_then(|rule| rule.str_at(&["action"]));
        self.role != Role::Ephemeral && action == Some(RESTART_ALL)
    }

    /// Whether any exit code triggers RestartAllContainers.
    pub fn may_restart_all(self) -> bool {
        let rules = self.spec["restartPolicyRules"].as_array().unwrap_or_default();
        rules.iter().any(|rule| rule.str_at(&["action"]) == Some(RESTART_ALL))
    }

    /// Returns the first restart rule that matches the exit code.
    fn rule_after(self, exit_code: i64) -> Option<&'a Value> {
        let rules = self.spec["restartPolicyRules"].as_array().unwrap_or_default();
        rules.iter().find(|rule| rule_holds(rule, exit_code))
    }

    /// Returns the field path for events, such as `spec.containers{web}`.
    pub fn field_path(self) -> String {
        format!("spec.{}{{{}}}", self.role.spec_field(), self.name())
    }
}

impl Role {
    /// Returns the field of the spec that lists containers of this role.
    pub const fn spec_field(self) -> &'static str {
        match self {
            Self::Init | Self::Sidecar => "initContainers",
            Self::App => "containers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }

    /// Returns the field of the status that lists containers of this role.
    pub const fn status_field(self) -> &'static str {
        match self {
            Self::Init | Self::Sidecar => "initContainerStatuses",
            Self::App => "containerStatuses",
            Self::Ephemeral => "ephemeralContainerStatuses",
        }
    }
}

impl RestartPolicy {
    pub(super) fn read(spec: &Value) -> Option<Self> {
        match spec.str_at(&["restartPolicy"])? {
            "Always" => Some(Self::Always),
            "OnFailure" => Some(Self::OnFailure),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }
}

fn rule_holds(rule: &Value, exit_code: i64) -> bool {
    let codes = &rule["exitCodes"];
    let listed = codes["values"].as_array().unwrap_or_default().iter().any(|code| code.as_int() == Some(exit_code));
    match codes.str_at(&["operator"]) {
        Some("In") => listed,
        Some("NotIn") => !listed,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::view::Pod;

    #[test]
    fn containers_restart_according_to_policy_and_rules() {
        let check = |policy: &str, container: Value, code: i64, expect: bool| {
            let pod = value!({"spec": {"restartPolicy": policy}});
            let container = Container { spec: &container, role: Role::App };
            assert_eq!(container.restarts_after(Pod(&pod), code), expect, "{policy} {container:?} {code}");
        };
        check("Always", value!({}), 0, true);
        check("OnFailure", value!({}), 0, false);
        check("OnFailure", value!({}), 1, true);
        check("Never", value!({}), 1, false);
        check("Never", value!({"restartPolicy": "OnFailure"}), 1, true);
        let rules = value!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
        check("Never", value!({"restartPolicy": "Never", "restartPolicyRules": (rules.clone())}), 42, true);
        check("Never", value!({"restartPolicy": "Never", "restartPolicyRules": rules}), 1, false);
    }

    #[test]
    fn first_matching_rule_decides_whether_all_containers_restart() {
        let check = |rules: Value, code: i64, expect: bool| {
            let spec = value!({"restartPolicy": "Never", "restartPolicyRules": (rules.clone())});
            let container = Container { spec: &spec, role: Role::App };
            assert_eq!(container.restarts_all_after(code), expect, "{rules:?} {code}");
        };
        let rule =
            |action: &str, code: i64| value!({"action": action, "exitCodes": {"operator": "In", "values": [code]}});
        check(value!([(rule("RestartAllContainers", 1))]), 1, true);
        check(value!([(rule("RestartAllContainers", 1))]), 2, false);
        check(value!([(rule("Restart", 1)), (rule("RestartAllContainers", 1))]), 1, false);
    }

    #[test]
    fn init_container_that_restarts_always_is_a_sidecar() {
        let pod = value!({"spec": {"restartPolicy": "Always", "initContainers": [
            {"name": "a"}, {"name": "b", "restartPolicy": "Always"}]}});
        let roles: Vec<Role> = Pod(&pod).init_containers().map(|container| container.role).collect();
        assert_eq!(roles, [Role::Init, Role::Sidecar]);
        let first = Pod(&pod).container("a").unwrap();
        assert!(!first.restarts_after(Pod(&pod), 0), "an init container that succeeded is done");
    }
}
