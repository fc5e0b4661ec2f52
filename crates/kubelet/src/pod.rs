//! What a pod says, read from its tree: a view that never fails, since the API server has judged the tree before.

use machinery::meta::Meta;
use machinery::{Key, Value};

/// The annotation of pods that do not come from the API server.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// The annotation of the copies of such pods in the API server.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// The annotation that tells one version of such a pod from another.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";

/// The action of a rule by which all containers of a pod start again.
const RESTART_ALL: &str = "RestartAllContainers";

/// A pod.
#[derive(Clone, Copy, Debug)]
pub struct Pod<'a>(pub &'a Value);

/// One of a pod's containers, with the part it plays.
#[derive(Clone, Copy, Debug)]
pub struct Container<'a> {
    /// What the pod says of it.
    pub spec: &'a Value,
    /// Its part.
    pub role: Role,
}

/// The part a container plays in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// Starts among the init containers and runs until the others have ended.
    Sidecar,
    /// What the pod is for.
    App,
    /// Added to look into a running pod.
    Ephemeral,
}

/// When a container that ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// However it ended.
    Always,
    /// If it failed.
    OnFailure,
    /// Not at all.
    Never,
}

impl<'a> Pod<'a> {
    /// Its metadata.
    pub fn meta(self) -> Meta<'a> {
        Meta::of(self.0)
    }

    /// Its name.
    pub fn name(self) -> &'a str {
        self.meta().name()
    }

    /// Its namespace.
    pub fn namespace(self) -> &'a str {
        self.meta().namespace()
    }

    /// Its identifier.
    pub fn uid(self) -> &'a str {
        self.meta().uid()
    }

    /// Namespace and name.
    pub fn key(self) -> Key {
        Key::of(self.0)
    }

    /// What is wanted.
    pub fn spec(self) -> &'a Value {
        &self.0["spec"]
    }

    /// A flag of the specification, false if absent.
    pub fn flag(self, field: &str) -> bool {
        self.spec()[field].as_bool().unwrap_or(false)
    }

    /// The pod in messages: `name_namespace(uid)`.
    pub fn described(self) -> String {
        format!("{}_{}({})", self.name(), self.namespace(), self.uid())
    }

    /// Init containers and sidecars in their order.
    pub fn init_containers(self) -> impl DoubleEndedIterator<Item = Container<'a>> + ExactSizeIterator {
        self.list("initContainers").iter().map(|spec| {
            let sidecar = spec.str_at(&["restartPolicy"]) == Some("Always");
            Container { spec, role: if sidecar { Role::Sidecar } else { Role::Init } }
        })
    }

    /// The containers that the pod is for.
    pub fn app_containers(self) -> impl DoubleEndedIterator<Item = Container<'a>> + ExactSizeIterator {
        self.list("containers").iter().map(|spec| Container { spec, role: Role::App })
    }

    /// Those added later.
    pub fn ephemeral_containers(self) -> impl DoubleEndedIterator<Item = Container<'a>> + ExactSizeIterator {
        self.list("ephemeralContainers").iter().map(|spec| Container { spec, role: Role::Ephemeral })
    }

    /// All of them.
    pub fn containers(self) -> impl Iterator<Item = Container<'a>> {
        self.init_containers().chain(self.app_containers()).chain(self.ephemeral_containers())
    }

    /// The container of that name.
    pub fn container(self, name: &str) -> Option<Container<'a>> {
        self.containers().find(|container| container.name() == name)
    }

    /// What becomes of its containers when they end.
    pub fn restart_policy(self) -> RestartPolicy {
        RestartPolicy::read(self.spec()).unwrap_or(RestartPolicy::Always)
    }

    /// How long its containers may take to end.
    pub fn grace_seconds(self) -> i64 {
        self.spec()["terminationGracePeriodSeconds"].as_int().unwrap_or(30)
    }

    /// Whether it comes from a file or a URL rather than from the API server.
    pub fn is_static(self) -> bool {
        self.meta().annotation(CONFIG_SOURCE).is_some_and(|source| source != "api")
    }

    /// Whether it is the copy of such a pod.
    pub fn is_mirror(self) -> bool {
        self.meta().annotation(CONFIG_MIRROR).is_some()
    }

    /// The phase that the API server knows, empty if none.
    pub fn phase(self) -> &'a str {
        self.0.str_at(&["status", "phase"]).unwrap_or_default()
    }

    /// Whether it has ended for good as far as the API server knows.
    pub fn is_ended(self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// A list of the specification, empty if absent.
    pub fn list(self, field: &str) -> &'a [Value] {
        self.spec()[field].as_array().unwrap_or_default()
    }

    /// What the API server knows of a container.
    pub fn known_status(self, container: Container<'_>) -> &'a Value {
        let list = self.0["status"][container.role.status_field()].as_array().unwrap_or_default();
        let found = list.iter().find(|status| status.str_at(&["name"]) == Some(container.name()));
        found.unwrap_or(&Value::Null)
    }
}

impl<'a> Container<'a> {
    /// Its name.
    pub fn name(self) -> &'a str {
        self.spec.str_at(&["name"]).unwrap_or_default()
    }

    /// Its image as the pod names it.
    pub fn image(self) -> &'a str {
        self.spec.str_at(&["image"]).unwrap_or_default()
    }

    /// When it is started again, whatever its exit code says by rules of its own.
    pub fn restart_policy(self, pod: Pod<'_>) -> RestartPolicy {
        match self.role {
            Role::Sidecar => RestartPolicy::Always,
            Role::Ephemeral => RestartPolicy::Never,
            // A container that failed to initialize is tried again unless nothing ever is.
            Role::Init => match RestartPolicy::read(self.spec).unwrap_or(pod.restart_policy()) {
                RestartPolicy::Never => RestartPolicy::Never,
                RestartPolicy::Always | RestartPolicy::OnFailure => RestartPolicy::OnFailure,
            },
            Role::App => RestartPolicy::read(self.spec).unwrap_or(pod.restart_policy()),
        }
    }

    /// Whether it is started again after it ended like this.
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

    /// Whether the API server believes that it runs after it ended like this. To it an init container is like any other.
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

    /// Whether all containers of its pod are started again after it ended like this.
    pub fn restarts_all_after(self, exit_code: i64) -> bool {
        let action = self.rule_after(exit_code).and_then(|rule| rule.str_at(&["action"]));
        self.role != Role::Ephemeral && action == Some(RESTART_ALL)
    }

    /// Whether there is an end of it after which all start again.
    pub fn may_restart_all(self) -> bool {
        let rules = self.spec["restartPolicyRules"].as_array().unwrap_or_default();
        rules.iter().any(|rule| rule.str_at(&["action"]) == Some(RESTART_ALL))
    }

    /// The first of its rules that is about this end.
    fn rule_after(self, exit_code: i64) -> Option<&'a Value> {
        let rules = self.spec["restartPolicyRules"].as_array().unwrap_or_default();
        rules.iter().find(|rule| rule_holds(rule, exit_code))
    }

    /// Where events place it: `spec.containers{web}`.
    pub fn field_path(self) -> String {
        format!("spec.{}{{{}}}", self.role.spec_field(), self.name())
    }

    /// What a change of makes it another container. As upstream, only the image of a running one can change.
    pub fn hash(self) -> String {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in self.name().bytes().chain([0]).chain(self.image().bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        format!("{hash:x}")
    }
}

impl Role {
    /// The list of the specification that it stands in.
    pub const fn spec_field(self) -> &'static str {
        match self {
            Self::Init | Self::Sidecar => "initContainers",
            Self::App => "containers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }

    /// The list of the status that it is reported in.
    pub const fn status_field(self) -> &'static str {
        match self {
            Self::Init | Self::Sidecar => "initContainerStatuses",
            Self::App => "containerStatuses",
            Self::Ephemeral => "ephemeralContainerStatuses",
        }
    }
}

impl RestartPolicy {
    fn read(spec: &Value) -> Option<Self> {
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
    use machinery::value;

    use super::*;

    #[test]
    fn a_container_starts_again_as_its_pod_and_its_own_rules_say() {
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
    fn the_first_rule_that_is_about_an_end_says_whether_all_start_again() {
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
    fn an_init_container_that_restarts_always_is_a_sidecar() {
        let pod = value!({"spec": {"restartPolicy": "Always", "initContainers": [
            {"name": "a"}, {"name": "b", "restartPolicy": "Always"}]}});
        let roles: Vec<Role> = Pod(&pod).init_containers().map(|container| container.role).collect();
        assert_eq!(roles, [Role::Init, Role::Sidecar]);
        let first = Pod(&pod).container("a").unwrap();
        assert!(!first.restarts_after(Pod(&pod), 0), "an init container that succeeded is done");
    }
}
