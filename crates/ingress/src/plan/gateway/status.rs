//! Statuses of GatewayClasses, Gateways and routes. A status is written only if it differs from the observed one.

use std::collections::BTreeMap;
use std::net::IpAddr;

use apimachinery::collection::Entry;
use apimachinery::time::Time;
use apimachinery::{Value, value};

use super::super::objects::list;
use super::super::{Plan, Settings, StatusWrite, Subject};
use super::attachment::Parent;
use super::conditions::{self, Condition};
use super::listeners::{GatewayState, ListenerState, Problem};
use super::objects::{GROUP, GatewayClass};
use super::routes::Route;
use super::{CONTROLLER, FEATURES, addresses};
use crate::kinds::Kind;
use crate::routing::ListenAddress;

/// Maximum entries of `status.parents`.
const PARENTS_MAX: usize = 32;

pub(super) fn report_class(entry: &Entry<GatewayClass>, version: Option<&str>, now: Time, plan: &mut Plan) {
    let class = &entry.value;
    let accepted = match class.has_parameters {
        true => Err(("InvalidParameters", "spec.parametersRef is not supported".to_owned())),
        false => Ok(()),
    };
    let mut desired = vec![Condition::from_result("Accepted", accepted)];
    desired.extend(version.map(supported_version));
    let observed = list(class.status.get("conditions"));
    let features = FEATURES.iter().map(|name| value!({"name": (*name)})).collect();
    let status = value!({
        "conditions": (conditions::render(observed, &desired, class.identity.generation, now)),
        "supportedFeatures": (Value::Array(features)),
    });
    write(Subject::new(Kind::GatewayClass, entry, &class.identity.uid), &class.status, status, plan);
}

/// Returns the condition for the release of the installed CRDs.
fn supported_version(version: &str) -> Condition {
    let supported = version.starts_with("v1.");
    Condition {
        name: "SupportedVersion",
        status: supported,
        reason: if supported { "SupportedVersion" } else { "UnsupportedVersion" },
        message: format!("the CRDs of the Gateway API have version {version}"),
    }
}

pub(super) fn report_gateway(
    settings: &Settings,
    state: &GatewayState<'_>,
    unavailable: &BTreeMap<ListenAddress, String>,
    now: Time,
    plan: &mut Plan,
) {
    let gateway = &state.entry.value;
    let reports: Vec<ListenerReport<'_, '_>> =
        state.listeners.iter().map(|listener| ListenerReport::new(state, listener, unavailable)).collect();
    let published = match state.rejection {
        Some(_) => Vec::new(),
        None => addresses::published(settings, state),
    };
    let desired = gateway_conditions(state, &reports, &published);
    let generation = gateway.identity.generation;
    let before = list(gateway.status.get("listeners"));
    let listeners = reports.iter().map(|report| report.render(before, generation, now)).collect();
    let address = |ip: &IpAddr| value!({"type": "IPAddress", "value": (ip.to_string())});
    let observed = list(gateway.status.get("conditions"));
    let status = value!({
        "addresses": (Value::Array(published.iter().map(address).collect())),
        "conditions": (conditions::render(observed, &desired, generation, now)),
        "listeners": (Value::Array(listeners)),
    });
    write(Subject::new(Kind::Gateway, state.entry, &gateway.identity.uid), &gateway.status, status, plan);
}

fn gateway_conditions(
    state: &GatewayState<'_>,
    reports: &[ListenerReport<'_, '_>],
    published: &[IpAddr],
) -> Vec<Condition> {
    let rejected: Vec<&str> = reports
        .iter()
        .filter(|report| report.rejection.is_some())
        .map(|report| report.listener.spec.name.as_str())
        .collect();
    let invalid = || format!("listeners that are not accepted: {}", rejected.join(", "));
    let accepted = match &state.rejection {
        Some((reason, message)) => Condition::fails("Accepted", reason, message.as_str()),
        None if rejected.is_empty() => Condition::holds("Accepted"),
        None => Condition {
            name: "Accepted",
            status: rejected.len() < reports.len(),
            reason: "ListenersNotValid",
            message: invalid(),
        },
    };
    let programmed = match &state.address_problem {
        _ if !accepted.status => Err(("Invalid", "the Gateway is not accepted".to_owned())),
        Some(problem) => Err(problem.clone()),
        None if published.is_empty() => {
            Err(("AddressNotAssigned", "the controller has no address: set --publish-address".to_owned()))
        }
        None if !reports.iter().any(|report| report.is_programmed) => {
            Err(("Invalid", "no listener can be served".to_owned()))
        }
        None => Ok(()),
    };
    vec![accepted, Condition::from_result("Programmed", programmed)]
}

/// A listener with its result.
struct ListenerReport<'a, 'b> {
    listener: &'b ListenerState<'a>,
    rejection: Option<Problem>,
    is_programmed: bool,
}

impl<'a, 'b> ListenerReport<'a, 'b> {
    fn new(
        state: &GatewayState<'_>,
        listener: &'b ListenerState<'a>,
        unavailable: &BTreeMap<ListenAddress, String>,
    ) -> Self {
        let port = listener.spec.port;
        let error = state.addresses.iter().find_map(|ip| unavailable.get(&ListenAddress { port, ip: *ip }));
        let error = error.map(|error| ("PortUnavailable", format!("failed to listen on port {port}: {error}")));
        let rejection = listener.rejection.clone().or(error.filter(|_| listener.is_served()));
        let is_programmed = rejection.is_none() && state.rejection.is_none() && listener.is_served();
        Self { listener, rejection, is_programmed }
    }

    fn render(&self, before: &[Value], generation: i64, now: Time) -> Value {
        let (listener, name) = (self.listener, self.listener.spec.name.as_str());
        let accepted = self.rejection.clone().map_or(Ok(()), Err);
        let conflicted = match &listener.rejection {
            Some((reason, message)) if listener.conflicted => {
                Condition { name: "Conflicted", status: true, reason, message: message.clone() }
            }
            _ => Condition::fails("Conflicted", "NoConflicts", ""),
        };
        let resolved = listener.unresolved.clone().map_or(Ok(()), Err);
        let programmed = match self.is_programmed {
            true => Ok(()),
            false => Err(("Invalid", "the listener is not accepted, or a reference cannot be resolved".to_owned())),
        };
        let mut desired = vec![
            Condition::from_result("Accepted", accepted),
            conflicted,
            Condition::from_result("ResolvedRefs", resolved),
            Condition::from_result("Programmed", programmed),
        ];
        if !listener.overlapping.is_empty() {
            desired.push(Condition {
                name: "OverlappingTLSConfig",
                status: true,
                reason: "OverlappingHostnames",
                message: format!("the host names overlap with listeners {}", listener.overlapping.join(", ")),
            });
        }
        let observed = before.iter().find(|one| one.str_at(&["name"]) == Some(name));
        let observed = list(observed.and_then(|one| one.get("conditions")));
        let kind = |kind: &Kind| value!({"group": GROUP, "kind": (kind.resource().kind.to_string())});
        value!({
            "name": name,
            "supportedKinds": (Value::Array(listener.kinds.iter().map(kind).collect())),
            "attachedRoutes": (i64::try_from(listener.routes.len()).unwrap_or(i64::MAX)),
            "conditions": (conditions::render(observed, &desired, generation, now)),
        })
    }
}

/// Reports a route for the parents of this controller.
pub(super) fn report_route(
    entry: &Entry<Route>,
    parents: &[Parent<'_>],
    unresolved: Option<&Problem>,
    now: Time,
    plan: &mut Plan,
) {
    let route = &entry.value;
    let is_own = |one: &&Value| one.str_at(&["controllerName"]) == Some(CONTROLLER);
    let mut reported: Vec<Value> = route.observed.iter().filter(|one| !is_own(one)).cloned().collect();
    for parent in parents.iter().take(PARENTS_MAX.saturating_sub(reported.len())) {
        let reference = &parent.reference.value;
        let before = route.observed.iter().filter(is_own).find(|one| one.get("parentRef") == Some(reference));
        let before = list(before.and_then(|one| one.get("conditions")));
        let desired = route_conditions(route, parent, unresolved);
        reported.push(value!({
            "parentRef": (reference.clone()),
            "controllerName": CONTROLLER,
            "conditions": (conditions::render(before, &desired, route.identity.generation, now)),
        }));
    }
    if reported != route.observed {
        let subject = Subject::new(route.kind, entry, &route.identity.uid);
        plan.statuses.push(StatusWrite { subject, status: value!({"parents": (Value::Array(reported))}) });
    }
}

fn route_conditions(route: &Route, parent: &Parent<'_>, unresolved: Option<&Problem>) -> Vec<Condition> {
    let accepted = parent.rejection.clone().map_or(Ok(()), Err);
    let resolved = unresolved.cloned().map_or(Ok(()), Err);
    let is_accepted = accepted.is_ok();
    let mut conditions =
        vec![Condition::from_result("Accepted", accepted), Condition::from_result("ResolvedRefs", resolved)];
    let dropped = route.rules.iter().enumerate().find_map(|(index, rule)| Some((index, rule.as_ref().err()?)));
    if let Some((index, problem)) = dropped.filter(|_| is_accepted) {
        conditions.push(Condition {
            name: "PartiallyInvalid",
            status: true,
            reason: "UnsupportedValue",
            message: format!("Dropped Rule {index}: not supported: {problem}"),
        });
    }
    conditions
}

/// Adds a status if one of its fields differs.
fn write(subject: Subject, observed: &Value, desired: Value, plan: &mut Plan) {
    let empty = |value: &Value| value.as_array().is_some_and(<[Value]>::is_empty);
    let is_same = |(name, value): (&str, &Value)| {
        let before = observed.get(name);
        before == Some(value) || before.is_none() && empty(value)
    };
    if !desired.as_object().is_none_or(|desired| desired.iter().all(is_same)) {
        plan.statuses.push(StatusWrite { subject, status: desired });
    }
}
