use apimachinery::patch::merge;
use controller::testing::{FakeCluster, check_properties};
use controller::{Answers, decide};

use super::*;

const NOW: Time = Time::from_unix(1_767_225_600, 0);

/// A Deployment whose pods request one CPU each, and an autoscaler with a target of 50 %.
struct Scene {
    cluster: FakeCluster,
    replicas: i64,
    /// CPU usage of each pod in millicores; `None` without a metrics API.
    used: Option<Vec<i64>>,
    memory: Option<Value>,
}

impl Scene {
    fn new(replicas: i64, used: Option<&[i64]>, spec: Value) -> Self {
        let mut cluster = FakeCluster::new(NOW);
        let metric = value!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
        let base = value!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1, "maxReplicas": 10, "metrics": [metric]});
        let hpa = value!({"metadata": {"namespace": "a", "name": "h"}, "spec": (merge::apply(base, spec))});
        cluster.add(&kinds::HORIZONTAL_POD_AUTOSCALERS, hpa);
        let long_ago = "2025-01-01T00:00:00Z";
        for at in 0..replicas {
            let container = value!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
            let ready = value!({"type": "Ready", "status": "True", "lastTransitionTime": long_ago});
            cluster.add(&kinds::PODS, value!({"metadata": {"namespace": "a", "name": (format!("p{at}")), "labels": {"app": "web"}},
                "spec": {"containers": [container]}, "status": {"phase": "Running", "startTime": long_ago, "conditions": [ready]}}));
        }
        Self { cluster, replicas, used: used.map(<[i64]>::to_vec), memory: None }
    }

    fn responses(&self) -> Answers {
        let hpa = self.hpa();
        let mut responses = Answers::default();
        let scale = value!({"metadata": {"resourceVersion": "7"}, "spec": {"replicas": (self.replicas)},
            "status": {"replicas": (self.replicas), "selector": "app=web"}});
        responses.insert(&scale_of(&self.cluster.cache::<HorizontalPodAutoscaler>(), &hpa), Ok(scale));
        let measured = match &self.used {
            None => Err("the server could not find the requested resource (get pods.metrics.k8s.io)".to_owned()),
            Some(used) => {
                let item = |(at, used): (usize, &i64)| {
                    value!({"metadata": {"name": (format!("p{at}"))}, "timestamp": (NOW.to_string()), "window": "30s",
                        "containers": [{"name": "c", "usage": {"cpu": (format!("{used}m"))}}]})
                };
                Ok(value!({"items": (used.iter().enumerate().map(item).collect::<Vec<_>>())}))
            }
        };
        responses.insert(&metrics::query(&specs(&hpa)[0], "a", "app=web").unwrap(), measured);
        responses
    }

    fn hpa(&self) -> Value {
        self.cluster.get(&kinds::HORIZONTAL_POD_AUTOSCALERS, &Key::new("a", "h")).unwrap().clone()
    }

    /// Executes one plan of the autoscaler and returns the new replicas.
    fn reconcile(&mut self) -> i64 {
        let key = Key::new("a", "h");
        let cache = self
            .cluster
            .cache::<HorizontalPodAutoscaler>()
            .with_responses(self.responses())
            .reminded(self.memory.clone());
        let plan = decide::<HorizontalPodAutoscaler>(&cache, &Config::default(), &key, self.cluster.now);
        drop(cache);
        for action in &plan.actions {
            match action {
                Action::UpdateSubresource { object, .. } => {
                    self.replicas = object["spec"]["replicas"].as_int().unwrap();
                }
                other => self.cluster.execute(other).unwrap(),
            }
        }
        self.memory = plan.remember;
        self.cluster.now = self.cluster.now.plus(Duration::from_seconds(15));
        self.replicas
    }

    fn conditions(&self) -> Vec<String> {
        let hpa = self.hpa();
        let conditions = hpa["status"]["conditions"].as_array().unwrap();
        let text = |have: &Value, field: &str| have.str_at(&[field]).unwrap().to_owned();
        conditions
            .iter()
            .map(|have| format!("{} {} {}", text(have, "type"), text(have, "status"), text(have, "reason")))
            .collect()
    }
}

#[test]
fn missing_metrics_api_is_reported_without_scaling() {
    let mut scene = Scene::new(3, None, value!({}));
    assert_eq!(scene.reconcile(), 3);
    assert_eq!(
        scene.conditions(),
        ["AbleToScale True SucceededGetScale", "ScalingActive False FailedGetResourceMetric"]
    );
    let message = "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for \
        resource cpu: unable to fetch metrics from resource metrics API: the server could not find the requested resource \
        (get pods.metrics.k8s.io)";
    assert_eq!(scene.hpa()["status"]["conditions"][1]["message"], message.into());
    assert_eq!(scene.hpa()["status"]["currentReplicas"], 3.into());
}

#[test]
fn tolerance_in_the_behavior_overrides_the_default() {
    let check = |used: &[i64], behavior: Value, expect: i64| {
        let count = i64::try_from(used.len()).unwrap();
        assert_eq!(
            Scene::new(count, Some(used), value!({"behavior": (behavior.clone())})).reconcile(),
            expect,
            "{used:?} {behavior}"
        );
    };
    check(&[540, 540], value!({"scaleUp": {"tolerance": "50m"}}), 3);
    check(&[700, 700], value!({"scaleUp": {"tolerance": "0.5"}}), 2);
    check(&[260, 260, 260], value!({"scaleDown": {"tolerance": "0.6"}}), 3);
}

#[test]
fn custom_target_uses_the_plural_name_of_its_crd() {
    let target = value!({"scaleTargetRef": {"apiVersion": "example.org/v1", "kind": "Octopus", "name": "web"}});
    let mut scene = Scene::new(2, Some(&[900, 900]), target);
    let names = value!({"kind": "Octopus", "plural": "octopodes"});
    scene.cluster.add(
        &kinds::CUSTOM_RESOURCE_DEFINITIONS,
        value!({"metadata": {"name": "octopodes.example.org"}, "spec": {"group": "example.org", "names": names, "scope": "Namespaced"}}),
    );
    let query = scale_of(&scene.cluster.cache::<HorizontalPodAutoscaler>(), &scene.hpa());
    assert_eq!(query.to_string(), "octopodes.example.org/v1/a/web/scale?-");
    assert_eq!(scene.reconcile(), 4);
}

#[test]
fn replicas_follow_the_load_within_bounds_and_rates() {
    let check = |used: &[i64], spec: Value, expect: i64, limited: &str| {
        let mut scene = Scene::new(i64::try_from(used.len()).unwrap(), Some(used), spec);
        assert_eq!(scene.reconcile(), expect, "{used:?} {:?}", scene.conditions());
        assert_eq!(scene.conditions()[2], format!("ScalingLimited {limited}"), "{used:?}");
    };
    check(&[500, 500], value!({}), 2, "False DesiredWithinRange");
    check(&[540, 540], value!({}), 2, "False DesiredWithinRange");
    check(&[900, 900], value!({}), 4, "False DesiredWithinRange");
    check(&[1000, 1000, 1000], value!({}), 6, "False DesiredWithinRange");
    check(&[5000], value!({"maxReplicas": 20}), 4, "True ScaleUpLimit");
    check(&[1000, 1000, 1000], value!({"maxReplicas": 5}), 5, "True TooManyReplicas");
}

#[test]
fn scaling_down_waits_for_the_stabilization_window() {
    let mut scene = Scene::new(4, Some(&[100, 100, 100, 100]), value!({}));
    assert_eq!(scene.reconcile(), 4);
    assert_eq!(scene.conditions()[0], "AbleToScale True ScaleDownStabilized");
    for _ in 0..19 {
        scene.reconcile();
    }
    assert_eq!(scene.reconcile(), 1, "after five minutes: {:?}", scene.conditions());
    assert_eq!(scene.hpa()["status"]["desiredReplicas"], 1.into());
}

#[test]
fn scaling_policies_limit_the_rate() {
    let policies =
        value!({"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]});
    let mut scene = Scene::new(4, Some(&[100, 100, 100, 100]), value!({"behavior": {"scaleDown": policies}}));
    assert_eq!(scene.reconcile(), 3);
    assert_eq!(scene.conditions()[2], "ScalingLimited True ScaleDownLimit");
    assert_eq!(scene.reconcile(), 3, "one run per minute");
    for _ in 0..3 {
        scene.reconcile();
    }
    assert_eq!(scene.replicas, 2);
    let off = value!({"scaleUp": {"selectPolicy": "Disabled"}});
    let mut scene = Scene::new(1, Some(&[5000]), value!({"behavior": off}));
    assert_eq!(scene.reconcile(), 1);
}

#[test]
fn pods_without_metrics_dampen_scaling() {
    let mut scene = Scene::new(4, Some(&[900, 900]), value!({"maxReplicas": 20}));
    assert_eq!(scene.reconcile(), 4, "pods without metrics count as using nothing");
    let mut none = Scene::new(0, Some(&[]), value!({}));
    assert_eq!(none.reconcile(), 0);
    assert_eq!(none.conditions()[1], "ScalingActive False ScalingDisabled");
    let mut many = Scene::new(12, Some(&[1]), value!({}));
    assert_eq!(many.reconcile(), 10, "above the largest size it shrinks whatever is measured");
}

#[test]
fn properties_hold() {
    check_properties::<HorizontalPodAutoscaler>(&Scene::new(2, None, value!({})).cluster, |_| false);
}
