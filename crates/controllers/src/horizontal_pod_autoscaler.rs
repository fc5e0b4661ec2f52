//! Horizontal pod autoscaler: scales a workload so that its metrics meet their targets.
//!
//! ```text
//!   scale of the target ─> proposal of each metric, the largest ─> stabilized ─> within rates and bounds ─> replicas
//! ```

mod limits;
mod metrics;
mod usage;

use std::convert::Infallible;

use api::resources::{
    CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, EVENTS, HORIZONTAL_POD_AUTOSCALERS, PODS, REPLICA_SETS,
    REPLICATION_CONTROLLERS, STATEFUL_SETS,
};
use apimachinery::labels::Selector;
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Object, Value, value};
use controller::{
    Action, Cache, Controller, EventType, Plan, Regarding, Rejection, ServerQuery, ServerResponse, Write, kinds,
};

use crate::{condition, scale_target};
use limits::Memory;
use metrics::Proposals;

/// The controller's flags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// `--horizontal-pod-autoscaler-sync-period`.
    pub sync: Duration,
    /// Default stabilization window for scaling down.
    pub downscale_stabilization: Duration,
    /// Default tolerance of the ratio of metric and target.
    pub tolerance: f64,
    /// Time after a pod's start during which its CPU samples may be ignored.
    pub cpu_initialization: Duration,
    /// Time after a pod's start during which an unready pod counts as not yet ready for the first time.
    pub initial_readiness: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sync: Duration::from_seconds(15),
            downscale_stabilization: Duration::from_seconds(300),
            tolerance: 0.1,
            cpu_initialization: Duration::from_seconds(300),
            initial_readiness: Duration::from_seconds(30),
        }
    }
}

pub struct HorizontalPodAutoscaler;

/// An autoscaler, its target, and the metrics.
#[derive(Debug)]
pub struct Observation<'a> {
    hpa: &'a Value,
    /// The request for the target's scale subresource.
    target: ServerQuery,
    scale: ServerResponse,
    pods: Vec<&'a Value>,
    /// The response for each metric.
    measured: Vec<Option<ServerResponse>>,
    config: Config,
    memory: Option<&'a Value>,
    rejection: Option<&'a Rejection>,
}

impl Controller for HorizontalPodAutoscaler {
    type Observed<'a> = Observation<'a>;
    type Config = Config;
    type Effect = Infallible;
    const NAME: &'static str = "horizontal-pod-autoscaler";
    const READS: &'static [GroupResource] = &[HORIZONTAL_POD_AUTOSCALERS, PODS, CUSTOM_RESOURCE_DEFINITIONS];
    const WRITES: &'static [Write] = &[
        (HORIZONTAL_POD_AUTOSCALERS, "status"),
        (DEPLOYMENTS, "scale"),
        (REPLICA_SETS, "scale"),
        (REPLICATION_CONTROLLERS, "scale"),
        (STATEFUL_SETS, "scale"),
        (EVENTS, ""),
    ];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        if kind == HORIZONTAL_POD_AUTOSCALERS {
            keys.push(Key::of(object));
        }
    }

    fn queries(cache: &Cache, key: &Key, _: Time) -> Vec<ServerQuery> {
        let Some(hpa) = cache.get(HORIZONTAL_POD_AUTOSCALERS, key) else { return Vec::new() };
        let query = scale_of(cache, hpa);
        let mut queries = vec![query.clone()];
        if let Some(Ok(scale)) = cache.response(&query) {
            let selector = scale.text_at(&["status", "selector"]);
            queries.extend(specs(hpa).iter().filter_map(|spec| metrics::query(spec, &key.namespace, selector)));
        }
        queries
    }

    fn observe<'a>(cache: &'a Cache, config: &'a Config, key: &Key) -> Option<Observation<'a>> {
        let hpa = cache.get(HORIZONTAL_POD_AUTOSCALERS, key)?;
        let target = scale_of(cache, hpa);
        let scale = cache.response(&target).cloned().unwrap_or_else(|| Err("it was not requested".to_owned()));
        let selector = scale.as_ref().ok().and_then(|scale| scale.str_at(&["status", "selector"])).unwrap_or_default();
        let selects = Selector::parse(selector).ok().filter(|selector| !selector.is_everything());
        let pods = cache.in_namespace(PODS, &key.namespace);
        let is_selected = |pod: &&Value| selects.as_ref().is_some_and(|selector| selector.matches_object(pod));
        let measured =
            specs(hpa).iter().map(|spec| cache.response(&metrics::query(spec, &key.namespace, selector)?).cloned());
        Some(Observation {
            hpa,
            pods: pods.filter(is_selected).collect(),
            measured: measured.collect(),
            target,
            scale,
            config: *config,
            memory: cache.memory(),
            rejection: cache.rejection(),
        })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        if Meta::of(observed.hpa).is_deleting() {
            return Plan::default();
        }
        let mut report = Report::of(observed.hpa, now);
        let mut memory = Memory::read(observed.memory);
        let mut plan = Plan::default();
        match &observed.scale {
            Err(cause) => {
                let message = format!("the HPA controller was unable to get the target's current scale: {cause}");
                report.set("AbleToScale", false, "FailedGetScale", &message);
                report.add_event(EventType::Warning, "FailedGetScale", cause.clone());
            }
            Ok(scale) => size(observed, scale, &mut report, &mut memory, &mut plan),
        }
        plan.actions.extend(report.into_actions());
        plan.remember = Some(memory.into_value());
        plan.wake(now.plus(observed.config.sync));
        plan
    }
}

/// Computes the desired replicas and scales the target.
fn size(observed: &Observation<'_>, scale: &Value, report: &mut Report<'_>, memory: &mut Memory, plan: &mut Plan) {
    let hpa = observed.hpa;
    let current = scale.int_at(&["spec", "replicas"]).unwrap_or(0);
    report.set(
        "AbleToScale",
        true,
        "SucceededGetScale",
        "the HPA controller was able to get the target's current scale",
    );
    report.current = current;
    if scale.text_at(&["status", "selector"]).is_empty() {
        let message = "the HPA target's scale is missing a selector";
        report.set("ScalingActive", false, "InvalidSelector", message);
        report.add_event(EventType::Warning, "SelectorRequired", "selector is required".to_owned());
        return;
    }
    let bounds = limits::Bounds::of(hpa);
    let (desired, reason) = if current == 0 && bounds.min != 0 {
        let message = "scaling is disabled since the replica count of the target is zero";
        report.set("ScalingActive", false, "ScalingDisabled", message);
        (0, String::new())
    } else if current > bounds.max {
        (bounds.max, "Current number of replicas above Spec.MaxReplicas".to_owned())
    } else if current < bounds.min {
        (bounds.min, "Current number of replicas below Spec.MinReplicas".to_owned())
    } else {
        let proposals = Proposals::of(hpa, &observed.measured, &observed.pods, scale, &observed.config, report.now);
        report.metrics = Some(proposals.current_metrics.clone());
        let proposed = match proposals.largest(current) {
            Ok(proposed) => proposed,
            Err((reason, cause)) => {
                let message = format!("the HPA was unable to compute the replica count: {cause}");
                report.set("ScalingActive", false, reason, &message);
                report.add_event(EventType::Warning, reason, cause);
                return;
            }
        };
        let found = format!("the HPA was able to successfully calculate a replica count from {}", proposed.metric);
        report.set("ScalingActive", true, "ValidMetricFound", &found);
        let desired = bounds.normalize(hpa, current, proposed.replicas, memory, &observed.config, report);
        let reason = if desired > current {
            format!("{} above target", proposed.metric)
        } else {
            "All metrics below target".to_owned()
        };
        (desired, reason)
    };
    report.desired = desired;
    if desired == current {
        return;
    }
    if let Some(rejection) = observed.rejection.filter(|rejection| rejection.subresource == "scale") {
        let message = format!("the HPA controller was unable to update the target scale: {}", rejection.message);
        report.set("AbleToScale", false, "FailedUpdateScale", &message);
    } else {
        let message = format!("the HPA controller was able to update the target scale to {desired}");
        report.set("AbleToScale", true, "SucceededRescale", &message);
        report.scaled = true;
    }
    memory.resized(report.now, desired - current);
    // The controller's role allows update of scales, not patch. The object carries the observed resourceVersion.
    let mut resized = scale.clone();
    if let Some(spec) =
        resized.as_object_mut().and_then(|scale| scale.get_or_insert_with("spec", Value::object).as_object_mut())
    {
        spec.insert("replicas", desired);
    }
    plan.push(Action::UpdateSubresource {
        resource: observed.target.resource.clone(),
        subresource: "scale",
        object: resized,
    });
    report.add_event(EventType::Normal, "SuccessfulRescale", format!("New size: {desired}; reason: {reason}"));
}

fn specs(hpa: &Value) -> &[Value] {
    hpa.list_at(&["spec", "metrics"])
}

/// Returns the request for the target's scale subresource.
fn scale_of(cache: &Cache, hpa: &Value) -> ServerQuery {
    let target = |field| hpa.text_at(&["spec", "scaleTargetRef", field]);
    ServerQuery {
        resource: scale_target::resource(cache, target("apiVersion"), target("kind")),
        key: Key::new(Meta::of(hpa).namespace(), target("name")),
        subresource: "scale".into(),
        labels: None,
        body: None,
        as_of: None,
    }
}

/// The status to be written.
struct Report<'a> {
    hpa: &'a Value,
    now: Time,
    current: i64,
    desired: i64,
    /// The current metrics; the stored ones if `None`.
    metrics: Option<Vec<Value>>,
    scaled: bool,
    conditions: Vec<Value>,
    events: Vec<Action>,
}

impl<'a> Report<'a> {
    fn of(hpa: &'a Value, now: Time) -> Self {
        let status_field = |field| hpa.at(&["status", field]);
        let number = |field| status_field(field).and_then(Value::as_int).unwrap_or(0);
        Self {
            hpa,
            now,
            current: number("currentReplicas"),
            desired: number("desiredReplicas"),
            metrics: None,
            scaled: false,
            conditions: status_field("conditions").and_then(Value::as_array).unwrap_or_default().to_vec(),
            events: Vec::new(),
        }
    }

    /// Sets a condition and keeps its position in the list.
    fn set(&mut self, kind: &str, holds: bool, reason: &str, message: &str) {
        let status = if holds { "True" } else { "False" };
        let old = condition::in_list(&self.conditions, kind).cloned();
        let since = old.as_ref().filter(|old| old.str_at(&["status"]) == Some(status));
        let since = since.and_then(|old| old.str_at(&["lastTransitionTime"]).map(str::to_owned));
        let new = value!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": (since.unwrap_or_else(|| self.now.to_string()))});
        match self.conditions.iter_mut().find(|have| have.str_at(&["type"]) == Some(kind)) {
            Some(have) => *have = new,
            None => self.conditions.push(new),
        }
    }

    /// Adds an event, which is emitted only if the status changes.
    fn add_event(&mut self, kind: EventType, reason: &'static str, message: String) {
        self.events.push(Action::Event { regarding: Regarding::object(self.hpa), kind, reason, message });
    }

    fn into_actions(self) -> Vec<Action> {
        let mut status = Object::new();
        status.insert("currentReplicas", self.current);
        status.insert("desiredReplicas", self.desired);
        if let Some(metrics) = self.metrics.filter(|metrics| !metrics.is_empty()) {
            status.insert("currentMetrics", metrics);
        }
        let last = self.hpa.at(&["status", "lastScaleTime"]).cloned();
        if let Some(last) = if self.scaled { Some(self.now.to_string().into()) } else { last } {
            status.insert("lastScaleTime", last);
        }
        status.insert("conditions", self.conditions);
        let status = Value::Object(status);
        // Go serializes missing metrics as null, which is equivalent to absent.
        let mut old_status = self.hpa.get("status").cloned().unwrap_or_default();
        if let Some(old_status) = old_status.as_object_mut() {
            old_status.retain(|_, value| !value.is_null());
        }
        if old_status == status {
            return Vec::new();
        }
        let mut object = self.hpa.clone();
        object.as_object_mut().expect("cached objects are JSON objects").insert("status", status);
        let mut actions = self.events;
        actions.push(Action::UpdateStatus { resource: kinds::HORIZONTAL_POD_AUTOSCALERS.clone(), object });
        actions
    }
}

#[cfg(test)]
mod tests;
