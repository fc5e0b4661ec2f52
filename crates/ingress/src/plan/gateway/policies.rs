//! BackendTLSPolicies: the policy of each Service port, and their statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::collection::Entry;
use apimachinery::time::Time;
use apimachinery::{Key, Value, value};

use super::super::objects::list;
use super::super::{Objects, Plan, StatusWrite, Subject};
use super::conditions::{self, Condition};
use super::listeners::Problem;
use super::objects::{BackendTlsPolicy, CaBundle, GROUP};
use super::{CONTROLLER, by_age};
use crate::kinds::Kind;
use crate::routing::BackendTls;

/// Maximum entries of `status.ancestors`.
const ANCESTORS_MAX: usize = 16;

/// All policies.
pub(super) struct Policies<'a> {
    all: Vec<Policy<'a>>,
    /// The oldest policy by Service and name of the port; no name is for all ports.
    by_target: BTreeMap<(Key, Option<&'a str>), usize>,
}

struct Policy<'a> {
    entry: &'a Entry<BackendTlsPolicy>,
    /// The settings for connections, or the reason why they cannot be used.
    settings: Result<BackendTls, Problem>,
    /// Set if a CA of several cannot be used.
    unresolved: Option<Problem>,
    /// The older policy with the same target.
    conflict: Option<Key>,
}

impl<'a> Policies<'a> {
    pub(super) fn new(objects: &'a Objects, plan: &mut Plan) -> Self {
        let mut policies = Self { all: Vec::new(), by_target: BTreeMap::new() };
        for entry in by_age(&objects.gateway.policies, |policy| policy.identity.created) {
            let (settings, unresolved) = settings(entry, objects, plan);
            let index = policies.all.len();
            let mut conflict = None;
            for target in
                entry.value.targets.iter().filter(|target| target.group.is_empty() && target.kind == "Service")
            {
                let service = Key::new(entry.key.namespace.clone(), target.name.as_str());
                let winner = *policies.by_target.entry((service, target.section.as_deref())).or_insert(index);
                if winner != index {
                    conflict = Some(policies.all[winner].entry.key.clone());
                }
            }
            policies.all.push(Policy { entry, settings, unresolved, conflict });
        }
        policies
    }

    /// Returns the TLS settings for a port of a Service, or the reason why they cannot be used; `None` without a
    /// policy.
    pub(super) fn find(&self, service: &Key, port_name: &str) -> Option<Result<&BackendTls, Problem>> {
        let of_port = self.by_target.get(&(service.clone(), Some(port_name)));
        let index = of_port.or_else(|| self.by_target.get(&(service.clone(), None)))?;
        let policy = &self.all[*index];
        Some(
            policy.settings.as_ref().map_err(|(_, message)| {
                ("InvalidTLSPolicy", format!("BackendTLSPolicy {}: {message}", policy.entry.key))
            }),
        )
    }

    /// Adds the statuses that differ. `gateways` has the Gateways that forward to each Service.
    pub(super) fn report(&self, gateways: &BTreeMap<Key, BTreeSet<Key>>, now: Time, plan: &mut Plan) {
        for policy in &self.all {
            let services = policy.entry.value.targets.iter().map(|target| {
                let key = Key::new(policy.entry.key.namespace.clone(), target.name.as_str());
                gateways.get(&key)
            });
            let ancestors: BTreeSet<&Key> = services.flatten().flatten().collect();
            policy.report(&ancestors, now, plan);
        }
    }
}

impl Policy<'_> {
    fn report(&self, gateways: &BTreeSet<&Key>, now: Time, plan: &mut Plan) {
        let observed = &self.entry.value.ancestors;
        let is_own = |one: &&Value| one.str_at(&["controllerName"]) == Some(CONTROLLER);
        let others = observed.iter().filter(|one| !is_own(one)).cloned();
        let mut ancestors: Vec<Value> = others.take(ANCESTORS_MAX).collect();
        let free = ANCESTORS_MAX - ancestors.len();
        let desired = self.conditions();
        let identity = &self.entry.value.identity;
        for gateway in gateways.iter().take(free) {
            let reference = value!({
                "group": GROUP,
                "kind": "Gateway",
                "namespace": (gateway.namespace.to_string()),
                "name": (gateway.name.to_string()),
            });
            let mut own = observed.iter().filter(is_own);
            let before = own.find(|one| one.get("ancestorRef") == Some(&reference));
            let before = list(before.and_then(|one| one.get("conditions")));
            ancestors.push(value!({
                "ancestorRef": reference,
                "controllerName": CONTROLLER,
                "conditions": (conditions::render(before, &desired, identity.generation, now)),
            }));
        }
        if *observed != ancestors {
            let subject = Subject::new(Kind::BackendTlsPolicy, self.entry, &identity.uid);
            plan.statuses.push(StatusWrite { subject, status: value!({"ancestors": (Value::Array(ancestors))}) });
        }
    }

    fn conditions(&self) -> Vec<Condition> {
        let accepted = match (&self.conflict, &self.settings) {
            (Some(older), _) => Err(("Conflicted", format!("BackendTLSPolicy {older} has the same target"))),
            (None, Err(("Invalid", message))) => Err(("Invalid", message.clone())),
            (None, Err((_, message))) => Err(("NoValidCACertificate", message.clone())),
            (None, Ok(_)) => Ok(()),
        };
        let resolved = match (&self.settings, &self.unresolved) {
            (Err((reason, message)), _) if *reason != "Invalid" => Err((*reason, message.clone())),
            (_, Some(problem)) => Err(problem.clone()),
            _ => Ok(()),
        };
        vec![Condition::from_result("Accepted", accepted), Condition::from_result("ResolvedRefs", resolved)]
    }
}

/// Returns the settings of a policy, and the problem of a CA if others can be used.
fn settings(
    entry: &Entry<BackendTlsPolicy>,
    objects: &Objects,
    plan: &mut Plan,
) -> (Result<BackendTls, Problem>, Option<Problem>) {
    let policy = &entry.value;
    if let Some(name) = &policy.well_known {
        let message = format!("wellKnownCACertificates {name} is not supported: use caCertificateRefs");
        return (Err(("Invalid", message)), None);
    }
    let (mut pem, mut problem) = (Vec::new(), None);
    for reference in &policy.certificates {
        let key = reference.key(&entry.key.namespace);
        if !reference.is("", "ConfigMap") {
            let message = format!("{} {} is not a ConfigMap", reference.kind, reference.name);
            problem.get_or_insert(("InvalidKind", message));
            continue;
        }
        plan.config_maps.insert(key.clone());
        match objects.gateway.ca_bundles.get(&key) {
            Some(CaBundle(Ok(bundle))) => pem.extend_from_slice(bundle),
            Some(CaBundle(Err(error))) => {
                problem.get_or_insert(("InvalidCACertificateRef", format!("ConfigMap {key}: {error}")));
            }
            None => {
                problem.get_or_insert(("InvalidCACertificateRef", format!("ConfigMap {key} does not exist")));
            }
        }
    }
    if pem.is_empty() {
        let missing = ("InvalidCACertificateRef", "the policy has no CA certificates".to_owned());
        return (Err(problem.unwrap_or(missing)), None);
    }
    let settings = BackendTls {
        server_name: policy.hostname.clone(),
        ca_pem: Some(Arc::new(pem)),
        alternative_names: policy.alternative_names.clone(),
    };
    (Ok(settings), problem)
}
