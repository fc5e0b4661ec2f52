//! Autoscaler metrics: the replicas that each metric proposes, and the current metrics of the status.

use std::collections::BTreeMap;

use apimachinery::quantity::{Format, Quantity};
use apimachinery::time::{Duration, Time};
use apimachinery::{Key, Resource, Value, value};
use controller::{ServerQuery, ServerResponse};

use super::Config;
use super::usage::{self, Sample, Target, Tolerances};

static POD_METRICS: Resource = Resource::namespaced("metrics.k8s.io", "v1beta1", "pods", "PodMetrics");

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub replicas: i64,
    /// The metric's description in messages.
    pub metric: String,
}

pub(super) struct Proposals {
    all: Vec<Result<Proposal, (&'static str, String)>>,
    /// `status.currentMetrics`.
    pub current_metrics: Vec<Value>,
}

/// Returns the request that measures a metric.
pub(super) fn query(spec: &Value, namespace: &str, selector: &str) -> Option<ServerQuery> {
    let custom = |plural: &str| Resource {
        group: "custom.metrics.k8s.io".into(),
        version: "v1beta2".into(),
        plural: plural.into(),
        kind: "MetricValue".into(),
        scope: apimachinery::meta::Scope::Namespaced,
    };
    let labels = |kind: &str| {
        let of_metric = spec.at(&[kind, "metric", "selector"]).filter(|selector| !selector.is_null());
        of_metric.and_then(|selector| apimachinery::labels::from_object(Some(selector)).ok()).map(|it| it.to_string())
    };
    let metric = |kind: &str| spec.str_at(&[kind, "metric", "name"]).map(str::to_owned);
    Some(match spec.str_at(&["type"])? {
        "Resource" | "ContainerResource" => ServerQuery {
            resource: POD_METRICS.clone(),
            key: Key::new(namespace, ""),
            subresource: "".into(),
            labels: Some(selector.to_owned()),
            body: None,
            as_of: None,
        },
        "Pods" => ServerQuery {
            resource: custom("pods"),
            key: Key::new(namespace, "*"),
            subresource: metric("pods")?.into(),
            labels: Some(selector.to_owned()),
            body: None,
            as_of: None,
        },
        "Object" => {
            let object = |field| spec.str_at(&["object", "describedObject", field]);
            let plural = format!("{}s", object("kind")?.to_ascii_lowercase());
            let group = object("apiVersion").and_then(|version| version.split_once('/')).map(|(group, _)| group);
            let plural = group.map_or(plural.clone(), |group| format!("{plural}.{group}"));
            ServerQuery {
                resource: custom(&plural),
                key: Key::new(namespace, object("name")?),
                subresource: metric("object")?.into(),
                labels: Some(labels("object").unwrap_or_default()),
                body: None,
                as_of: None,
            }
        }
        "External" => ServerQuery {
            resource: Resource {
                group: "external.metrics.k8s.io".into(),
                version: "v1beta1".into(),
                plural: metric("external")?.into(),
                ..custom("")
            },
            key: Key::new(namespace, ""),
            subresource: "".into(),
            labels: Some(labels("external").unwrap_or_default()),
            body: None,
            as_of: None,
        },
        _ => return None,
    })
}

impl Proposals {
    pub(super) fn of(
        hpa: &Value,
        measured: &[Option<ServerResponse>],
        pods: &[&Value],
        scale: &Value,
        config: &Config,
        now: Time,
    ) -> Self {
        let mut proposals = Self { all: Vec::new(), current_metrics: Vec::new() };
        let tolerances = Tolerances::of(hpa, config.tolerance);
        for (spec, measured) in super::specs(hpa).iter().zip(measured) {
            let context = Context { spec, measured: measured.as_ref(), pods, scale, config, tolerances, now };
            match context.propose() {
                Ok((proposed, current_metric)) => {
                    proposals.all.push(Ok(proposed));
                    proposals.current_metrics.push(current_metric);
                }
                Err(failed) => proposals.all.push(Err(failed)),
            }
        }
        proposals
    }

    /// Returns the largest proposal. If a metric failed, a proposal to scale down is rejected with that error.
    pub(super) fn largest(&self, current: i64) -> Result<Proposal, (&'static str, String)> {
        let best = self.all.iter().flatten().max_by_key(|proposed| proposed.replicas);
        let failed = self.all.iter().find_map(|one| one.as_ref().err());
        match (best, failed) {
            (Some(best), None) => Ok(best.clone()),
            (Some(best), Some(_)) if best.replicas >= current => Ok(best.clone()),
            (_, Some(failed)) => Err(failed.clone()),
            (None, None) => Err(("InvalidMetricSourceType", "there are no metrics".to_owned())),
        }
    }
}

struct Context<'a> {
    spec: &'a Value,
    measured: Option<&'a ServerResponse>,
    pods: &'a [&'a Value],
    scale: &'a Value,
    config: &'a Config,
    tolerances: Tolerances,
    now: Time,
}

type Outcome = Result<(Proposal, Value), (&'static str, String)>;

impl Context<'_> {
    fn propose(&self) -> Outcome {
        match self.spec.text_at(&["type"]) {
            "Resource" => self.resource("resource", "FailedGetResourceMetric"),
            "ContainerResource" => self.resource("containerResource", "FailedGetContainerResourceMetric"),
            "Pods" => self.of_pods().map_err(|message| ("FailedGetPodsMetric", message)),
            "Object" => self.of_object().map_err(|message| ("FailedGetObjectMetric", message)),
            "External" => self.external().map_err(|message| ("FailedGetExternalMetric", message)),
            other => Err(("InvalidMetricSourceType", format!("invalid metric source type {other:?}"))),
        }
    }

    fn resource(&self, field: &'static str, reason: &'static str) -> Outcome {
        let name = self.spec.text_at(&[field, "name"]);
        let container = self.spec.str_at(&[field, "container"]);
        let percent = self.spec.int_at(&[field, "target", "averageUtilization"]);
        let what = if percent.is_some() { "utilization" } else { "usage" };
        let failed = |cause: String| (reason, format!("failed to get {name} {what}: {cause}"));
        let groups = self.pod_usage(name, container).map_err(failed)?;
        let mean = mean(&groups.samples);
        let (replicas, used) = match percent {
            Some(percent) => {
                let requests = usage::requests(self.pods, name, container).map_err(failed)?;
                usage::replicas(
                    groups,
                    Target::Utilization { percent, requests: &requests },
                    self.current(),
                    self.tolerances,
                )
            }
            None => {
                let target = self.target(field, "averageValue").map_err(failed)?;
                usage::replicas(groups, Target::Average(target), self.current(), self.tolerances)
            }
        }
        .map_err(failed)?;
        let mut current = value!({"averageValue": (amount(mean, name))});
        if let (Some(_), Some(current)) = (percent, current.as_object_mut()) {
            current.insert("averageUtilization", used);
        }
        let mut current_metric = value!({"name": name, "current": current});
        let mut metric = format!("{name} resource");
        if let (Some(container), Some(current_metric)) = (container, current_metric.as_object_mut()) {
            current_metric.insert("container", container);
            metric = format!("{name} container resource");
        }
        let how = if percent.is_some() { "utilization (percentage of request)" } else { "" };
        let metric = format!("{metric} {how}").trim_end().to_owned();
        let kind = self.spec.text_at(&["type"]);
        let current_metric: Value =
            Value::Object([("type", Value::from(kind)), (field, current_metric)].into_iter().collect());
        Ok((Proposal { replicas, metric }, current_metric))
    }

    /// Returns the usage of the pods, grouped by the availability of their samples.
    fn pod_usage(&self, name: &str, container: Option<&str>) -> Result<usage::Groups, String> {
        let unable = |cause: &str| format!("unable to get metrics for resource {name}: {cause}");
        let items = self
            .items()
            .map_err(|cause| unable(&format!("unable to fetch metrics from resource metrics API: {cause}")))?;
        let mut samples = BTreeMap::new();
        for item in items {
            let containers = item.list_at(&["containers"]);
            let mine = containers.iter().filter(|one| container.is_none_or(|only| one.str_at(&["name"]) == Some(only)));
            let used: Option<i64> = mine.map(|one| one.at(&["usage", name]).and_then(usage::quantity)).sum();
            if let Some(value) = used.filter(|_| !containers.is_empty()) {
                samples.insert(item.text_at(&["metadata", "name"]).to_owned(), sample(item, value));
            }
        }
        if samples.is_empty() {
            return Err(unable("no metrics returned from resource metrics API"));
        }
        if self.pods.is_empty() {
            return Err("no pods returned by selector while calculating replica count".to_owned());
        }
        Ok(usage::group(self.pods, samples, name == "cpu", self.config, self.now))
    }

    fn of_pods(&self) -> Result<(Proposal, Value), String> {
        let name = self.spec.text_at(&["pods", "metric", "name"]);
        let unable = |cause: String| format!("failed to get pods metric value: unable to get metric {name}: {cause}");
        let items = self
            .items()
            .map_err(|cause| unable(format!("unable to fetch metrics from custom metrics API: {cause}")))?;
        let read = |item: &Value| {
            let pod = item.str_at(&["describedObject", "name"])?.to_owned();
            Some((pod, sample(item, usage::quantity(item.get("value")?)?)))
        };
        let groups = usage::group(self.pods, items.iter().filter_map(read).collect(), false, self.config, self.now);
        let target = self.target("pods", "averageValue")?;
        let (replicas, used) = usage::replicas(groups, Target::Average(target), self.current(), self.tolerances)?;
        let current_metric = value!({"type": "Pods", "pods": {"metric": (self.metric("pods")), "current": {"averageValue": (amount(used, name))}}});
        Ok((Proposal { replicas, metric: format!("pods metric {name}") }, current_metric))
    }

    fn of_object(&self) -> Result<(Proposal, Value), String> {
        let name = self.spec.text_at(&["object", "metric", "name"]);
        let error_message = |error_message: &str| {
            format!(
                "failed to get object metric value: unable to get metric {name}: unable to fetch metrics from custom metrics API: {error_message}"
            )
        };
        let items = self.items().map_err(|error| error_message(&error))?;
        let value = items
            .first()
            .and_then(|item| usage::quantity(item.get("value")?))
            .ok_or_else(|| error_message("no value"))?;
        let (replicas, current) = self.of_total("object", value)?;
        let object = self.spec.at(&["object", "describedObject"]).cloned().unwrap_or_default();
        let current_metric = value!({"type": "Object", "object": {"metric": (self.metric("object")), "describedObject": object, "current": current}});
        Ok((Proposal { replicas, metric: format!("Object metric {name}") }, current_metric))
    }

    fn external(&self) -> Result<(Proposal, Value), String> {
        let name = self.spec.text_at(&["external", "metric", "name"]);
        let error_message = |error_message: &str| {
            format!(
                "failed to get {name} external metric value: unable to get external metric {name}: unable to fetch metrics from external metrics API: {error_message}"
            )
        };
        let items = self.items().map_err(|error| error_message(&error))?;
        if items.is_empty() {
            return Err(error_message("no metrics returned from external metrics API"));
        }
        let value = items.iter().filter_map(|item| usage::quantity(item.get("value")?)).sum();
        let (replicas, current) = self.of_total("external", value)?;
        let current_metric =
            value!({"type": "External", "external": {"metric": (self.metric("external")), "current": current}});
        Ok((Proposal { replicas, metric: format!("external metric {name}") }, current_metric))
    }

    /// Returns the replicas for one total value. The target averageValue applies per pod, and the target value to the
    /// total.
    fn of_total(&self, field: &str, value: i64) -> Result<(i64, Value), String> {
        let status = self.scale.int_at(&["status", "replicas"]).unwrap_or(0);
        if self.spec.at(&[field, "target", "averageValue"]).is_some() {
            let target = self.target(field, "averageValue")?;
            let ratio = value as f64 / (target as f64 * status.max(1) as f64);
            let is_near = self.tolerances.is_near(ratio) && status > 0;
            let replicas = if is_near { status } else { (value as f64 / target as f64).ceil() as i64 };
            let each = value / status.max(1);
            return Ok((replicas, value!({"averageValue": (amount(each, ""))})));
        }
        let target = self.target(field, "value")?;
        let replicas = usage::by_ratio(value as f64 / target as f64, self.pods, self.current(), self.tolerances);
        Ok((replicas, value!({"value": (amount(value, ""))})))
    }

    fn current(&self) -> i64 {
        self.scale.int_at(&["spec", "replicas"]).unwrap_or(0)
    }

    fn items(&self) -> Result<&[Value], String> {
        match self.measured {
            None => Err("it was not requested".to_owned()),
            Some(Err(message)) => Err(message.clone()),
            Some(Ok(list)) => Ok(list.list_at(&["items"])),
        }
    }

    fn metric(&self, field: &str) -> Value {
        self.spec.at(&[field, "metric"]).cloned().unwrap_or_else(Value::object)
    }

    fn target(&self, field: &str, kind: &str) -> Result<i64, String> {
        let stated = self.spec.at(&[field, "target", kind]).and_then(usage::quantity).filter(|target| *target != 0);
        stated.ok_or_else(|| "neither a value target nor an average value target was set".to_owned())
    }
}

fn sample(item: &Value, value: i64) -> Sample {
    let window = item.str_at(&["window"]).and_then(|text| text.parse().ok()).unwrap_or(Duration::from_seconds(60));
    Sample { value, at: item.str_at(&["timestamp"]).and_then(|text| Time::parse(text).ok()), window }
}

fn mean(samples: &BTreeMap<String, Sample>) -> i64 {
    let count = i64::try_from(samples.len()).unwrap_or(i64::MAX).max(1);
    samples.values().map(|sample| sample.value).sum::<i64>() / count
}

/// Formats milli-units: memory in bytes, others in decimal.
fn amount(milli: i64, resource: &str) -> String {
    if resource == "memory" {
        (milli / 1000).to_string()
    } else {
        Quantity::milli(milli, Format::DecimalSI).to_string()
    }
}
