//! Impersonation modes and their authorization checks.

use std::collections::BTreeMap;

use apimachinery::{Path, Str, field, go, names};

use super::{CheckRule, ImpersonatedUser, Mode, Step};
use crate::attributes::{Attributes, OwnedAttributes, OwnedResource, OwnedTarget};
use crate::user::{ANONYMOUS, AUTHENTICATED, MASTERS, NODE_PREFIX, NODES, UNAUTHENTICATED};
use crate::{User, service_account};

/// The feature gate `ConstrainedImpersonation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// Constrained modes are tried before legacy impersonation.
    #[default]
    Constrained,
    /// Only legacy impersonation.
    Legacy,
}

/// Minimum number of groups or extras for which a wildcard check for all of them runs first.
const MANY: usize = 4;

/// The parameters of a mode.
#[derive(Clone, Copy)]
struct ModeParams {
    /// `impersonate:<name>`, or `impersonate` for legacy impersonation.
    verb: &'static str,
    /// Prefix of the verb in the check of the request itself; empty for no such check.
    on: &'static str,
    constraint: &'static str,
}

const ASSOCIATED_NODE: ModeParams = constrained("impersonate:associated-node", "impersonate-on:associated-node:");
const ARBITRARY_NODE: ModeParams = constrained("impersonate:arbitrary-node", "impersonate-on:arbitrary-node:");
const SERVICE_ACCOUNT: ModeParams = constrained("impersonate:serviceaccount", "impersonate-on:serviceaccount:");
const USER_INFO: ModeParams = constrained("impersonate:user-info", "impersonate-on:user-info:");
const LEGACY: ModeParams = ModeParams { verb: "impersonate", on: "", constraint: "" };

const fn constrained(verb: &'static str, on: &'static str) -> ModeParams {
    ModeParams { verb, on, constraint: verb }
}

/// Returns the modes for `target_user` in the order they are tried, the least powerful first.
pub(super) fn all(target_user: &User, attributes: &Attributes<'_>, gate: Gate) -> Vec<Mode> {
    let mut modes = Vec::new();
    if gate == Gate::Constrained {
        let only_name = target_user.uid.is_empty() && target_user.groups.is_empty() && target_user.extra.is_empty();
        let node = node_name(&target_user.name);
        let is_account = service_account::parse(&target_user.name).is_some();
        if let Some(node) = node.filter(|_| only_name) {
            if is_on_node(attributes.user, node) {
                modes.push(mode(ASSOCIATED_NODE, target_user, &without_extras(attributes)));
            }
            modes.push(mode(ARBITRARY_NODE, target_user, &OwnedAttributes::from(attributes)));
        }
        if is_account && only_name {
            modes.push(mode(SERVICE_ACCOUNT, target_user, &OwnedAttributes::from(attributes)));
        }
        if node.is_none() && !is_account {
            modes.push(mode(USER_INFO, target_user, &OwnedAttributes::from(attributes)));
        }
    }
    modes.push(mode(LEGACY, target_user, &OwnedAttributes::from(attributes)));
    modes
}

fn mode(way: ModeParams, target_user: &User, request: &OwnedAttributes) -> Mode {
    let mut steps = Vec::new();
    if !way.on.is_empty() {
        let verb = format!("{}{}", way.on, request.verb).into();
        steps.push(must(OwnedAttributes { verb, ..request.clone() }));
    }
    let checks = Checks { way, requester: &request.user };
    steps.push(checks.name(target_user));
    if !target_user.uid.is_empty() {
        steps.push(must(checks.question(AUTHENTICATION, "uids", "", &target_user.uid)));
    }
    checks.groups(target_user, &mut steps);
    checks.extras(target_user, &mut steps);
    Mode { steps, outcome: ImpersonatedUser { user: outcome(way, target_user), constraint: way.constraint } }
}

/// The group and version of most impersonated resources.
const AUTHENTICATION: (&str, &str) = ("authentication.k8s.io", "v1");

struct Checks<'a> {
    way: ModeParams,
    requester: &'a User,
}

impl Checks<'_> {
    fn name(&self, target_user: &User) -> Step {
        let group = self.name_group();
        let question = match (node_name(&target_user.name), service_account::parse(&target_user.name)) {
            (Some(node), _) if self.is_constrained() => {
                // The associated node is checked as `*`, so that decision and cache entry are the same for a daemon on
                // all nodes.
                let name = if self.way.verb == ASSOCIATED_NODE.verb { "*" } else { node };
                self.question(group, "nodes", "", name)
            }
            (_, Some((namespace, name))) => {
                let mut question = self.question(group, "serviceaccounts", "", name);
                if let OwnedTarget::Resource(resource) = &mut question.about {
                    resource.namespace = namespace.into();
                }
                question
            }
            _ => self.question(group, "users", "", &target_user.name),
        };
        must(question)
    }

    fn groups(&self, target_user: &User, steps: &mut Vec<Step>) {
        if target_user.groups.is_empty() {
            return;
        }
        let question = |name: &str| self.question(self.name_group(), "groups", "", name);
        let deny = |name: &str, reason: &str| Step {
            question: question(name),
            weight: CheckRule::AlwaysDenied(reason.to_owned()),
        };
        if self.is_constrained() && target_user.groups.iter().any(Str::is_empty) {
            return steps.push(deny("", "impersonating the empty string group is not allowed"));
        }
        if self.is_constrained() && target_user.is_in(MASTERS) {
            return steps.push(deny(MASTERS, "impersonating the system:masters group is not allowed"));
        }
        let each = target_user.groups.iter().map(|group| question(group));
        self.push(steps, target_user.groups.len() >= MANY, question("*"), each);
    }

    fn extras(&self, target_user: &User, steps: &mut Vec<Step>) {
        if target_user.extra.is_empty() {
            return;
        }
        let question = |key: &str, value: &str| self.question(AUTHENTICATION, "userextras", key, value);
        if let Some(reason) = self.is_constrained().then(|| wrong_extra(&target_user.extra)).flatten() {
            return steps.push(Step { question: question("", ""), weight: CheckRule::AlwaysDenied(reason) });
        }
        let count: usize = target_user.extra.values().map(Vec::len).sum();
        let each =
            target_user.extra.iter().flat_map(|(key, values)| values.iter().map(move |value| question(key, value)));
        self.push(steps, target_user.extra.len() >= MANY || count >= MANY, question("*", "*"), each);
    }

    fn push(
        &self,
        steps: &mut Vec<Step>,
        many: bool,
        all: OwnedAttributes,
        each: impl Iterator<Item = OwnedAttributes>,
    ) {
        let each: Vec<Step> = each.map(must).collect();
        if many && self.is_constrained() {
            steps.push(Step { question: all, weight: CheckRule::SkipsOnAllow(each.len()) });
        }
        steps.extend(each);
    }

    fn question(
        &self,
        (group, version): (&str, &str),
        resource: &str,
        subresource: &str,
        name: &str,
    ) -> OwnedAttributes {
        let about = OwnedTarget::Resource(OwnedResource {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            name: name.into(),
            ..OwnedResource::default()
        });
        OwnedAttributes { user: self.requester.clone(), verb: self.way.verb.into(), about }
    }

    /// Returns the API group of users and groups: legacy impersonation uses the core group.
    const fn name_group(&self) -> (&'static str, &'static str) {
        if self.is_constrained() { AUTHENTICATION } else { ("", "v1") }
    }

    const fn is_constrained(&self) -> bool {
        !self.way.constraint.is_empty()
    }
}

const fn must(question: OwnedAttributes) -> Step {
    Step { question, weight: CheckRule::Required }
}

/// Returns the impersonated user with the groups implied by the name.
fn outcome(way: ModeParams, target_user: &User) -> User {
    let mut user = target_user.clone();
    if !way.constraint.is_empty() && node_name(&target_user.name).is_some() {
        user.groups = vec![NODES.into()];
    }
    if let Some((namespace, _)) = service_account::parse(&target_user.name).filter(|_| target_user.groups.is_empty()) {
        user.groups = service_account::groups(namespace).into();
    }
    if user.name == ANONYMOUS {
        user.join(UNAUTHENTICATED);
    } else if !user.is_in(UNAUTHENTICATED) {
        user.join(AUTHENTICATED);
    }
    user
}

/// Returns the node name in a user name.
fn node_name(user_name: &str) -> Option<&str> {
    user_name.strip_prefix(NODE_PREFIX).filter(|name| names::dns1123_subdomain(name).is_empty())
}

/// Whether the requester is a service account whose token is bound to the node.
fn is_on_node(requester: &User, node: &str) -> bool {
    let node_names = requester.extra.get(service_account::NODE_NAME).map(Vec::as_slice);
    service_account::parse(&requester.name).is_some() && node_names.is_some_and(|node_names| node_names == [node])
}

/// Returns the request with the requester's extras reduced to their keys. The values differ between nodes, and the
/// check of a daemon must be the same on every node.
fn without_extras(attributes: &Attributes<'_>) -> OwnedAttributes {
    let mut question = OwnedAttributes::from(attributes);
    let keys: Vec<Str> = question.user.extra.keys().cloned().collect();
    question.user.extra = BTreeMap::from([("authentication.kubernetes.io/associated-node-keys".into(), keys)]);
    question
}

fn wrong_extra(extra: &BTreeMap<Str, Vec<Str>>) -> Option<String> {
    extra.iter().find_map(|(key, values)| {
        if key.is_empty() {
            return Some("impersonating the empty string key in extra is not allowed".to_owned());
        }
        if let Some(wrong) = field::aggregate(&domain_prefixed_path(key)) {
            return Some(format!("impersonating an invalid key in extra is not allowed: {wrong}"));
        }
        if key.chars().any(char::is_uppercase) {
            return Some(format!("impersonating a non-lowercase key in extra is not allowed: {}", go::quote(key)));
        }
        let empty = values.iter().any(Str::is_empty);
        empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
    })
}

fn domain_prefixed_path(key: &str) -> field::Errors {
    let extra = Path::of("extra");
    crate::extra_key::validate(key, &extra.field("key"))
}
