//! Random clusters, pods and PodDisruptionBudgets from a seed.

use apimachinery::{Value, value};
use scheduler::{Configuration, Profile};

use crate::reference::Strategy;

/// Random number generator with a seed.
pub(crate) struct TestRng(pub u64);

impl TestRng {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    pub(crate) fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[usize::try_from(self.roll(from.len() as u64)).unwrap()]
    }
}

pub(crate) fn namespaces() -> Vec<Value> {
    [("n1", "a"), ("n2", "b")].map(|(name, team)| value!({"metadata": {"name": name, "labels": {"team": team}}})).into()
}

pub(crate) fn node(rng: &mut TestRng, name: &str) -> Value {
    let cores = rng.pick(&["4", "8"]);
    let mut labels = value!({"kubernetes.io/hostname": name, "disk": (rng.pick(&["ssd", "hdd"])), "cores": cores});
    if !rng.one_in(6) {
        labels.as_object_mut().unwrap().insert("zone", rng.pick(&["a", "b", "c"]));
    }
    let mut taints = Vec::new();
    for _ in 0..rng.roll(7).saturating_sub(4) {
        let effect = rng.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule"]);
        let mut taint = value!({"key": (rng.pick(&["k1", "k2"])), "effect": effect});
        if rng.one_in(2) {
            taint.as_object_mut().unwrap().insert("value", rng.pick(&["v1", "v2"]));
        }
        taints.push(taint);
    }
    let image = value!({"names": (vec![Value::from(rng.pick(&["one:1", "two:1"]))]), "sizeBytes": 500_000_000});
    let (cpu, gpu) = (format!("{}", 2 + rng.roll(5)), format!("{}", rng.roll(3)));
    value!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": (rng.one_in(10))},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "6", "example.com/gpu": gpu},
            "images": [image]
        }
    })
}

/// Returns a random label selector, or none.
fn label_selector(rng: &mut TestRng) -> Option<Value> {
    let expression = |rng: &mut TestRng| match rng.roll(4) {
        0 => value!({"key": "app", "operator": "In", "values": ["x", (rng.pick(&["y", "z"]))]}),
        1 => value!({"key": "app", "operator": "NotIn", "values": [(rng.pick(&["x", "y"]))]}),
        2 => value!({"key": "debug", "operator": "Exists"}),
        _ => value!({"key": "debug", "operator": "DoesNotExist"}),
    };
    let labels = value!({"app": (rng.pick(&["x", "y"]))});
    Some(match rng.roll(12) {
        0 => return None,
        1 => value!({}),
        2 | 3 => value!({"matchExpressions": [(expression(rng))]}),
        4 => value!({"matchLabels": labels, "matchExpressions": [(expression(rng)), (expression(rng))]}),
        _ => value!({"matchLabels": labels}),
    })
}

fn set(object: &mut Value, field: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object.as_object_mut().unwrap().insert(field, value.into());
    }
}

fn term(rng: &mut TestRng) -> Value {
    let mut term = value!({"topologyKey": (rng.pick(&["zone", "kubernetes.io/hostname"]))});
    set(&mut term, "labelSelector", label_selector(rng));
    let (field, which) = match rng.roll(8) {
        0 => ("namespaces", value!(["n1", "n2"])),
        1 => ("namespaces", value!([(rng.pick(&["n1", "n2"]))])),
        2 => ("namespaceSelector", value!({})),
        3 => ("namespaceSelector", value!({"matchLabels": {"team": (rng.pick(&["a", "b"]))}})),
        _ => return term,
    };
    set(&mut term, field, Some(which));
    term
}

fn affinity(rng: &mut TestRng) -> Value {
    let mut affinity = Value::object();
    for (field, rarity) in [("podAffinity", 8), ("podAntiAffinity", 5)] {
        let mut rules = Value::object();
        if rng.one_in(rarity) {
            let terms = vec![term(rng)];
            rules.as_object_mut().unwrap().insert("requiredDuringSchedulingIgnoredDuringExecution", terms);
        }
        if rng.one_in(4) {
            let weighted =
                value!({"weight": (1 + i64::try_from(rng.roll(9)).unwrap()), "podAffinityTerm": (term(rng))});
            let terms = vec![weighted];
            rules.as_object_mut().unwrap().insert("preferredDuringSchedulingIgnoredDuringExecution", terms);
        }
        affinity.as_object_mut().unwrap().insert(field, rules);
    }
    affinity.as_object_mut().unwrap().insert("nodeAffinity", node_affinity(rng));
    affinity
}

fn node_affinity(rng: &mut TestRng) -> Value {
    let expression = |rng: &mut TestRng| match rng.roll(6) {
        0 => value!({"key": "zone", "operator": "In", "values": ["a", (rng.pick(&["b", "c"]))]}),
        1 => value!({"key": "zone", "operator": "NotIn", "values": [(rng.pick(&["a", "b", "c"]))]}),
        2 => value!({"key": "zone", "operator": (rng.pick(&["Exists", "DoesNotExist"]))}),
        3 => value!({"key": "cores", "operator": "Gt", "values": [(rng.pick(&["3", "4"]))]}),
        4 => value!({"key": (rng.pick(&["cores", "disk"])), "operator": "Lt", "values": ["8"]}),
        _ => value!({"key": "disk", "operator": "In", "values": [(rng.pick(&["ssd", "hdd"]))]}),
    };
    let term = |rng: &mut TestRng| match rng.roll(10) {
        0 => value!({}),
        1 => value!({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node1"]}]}),
        2 => value!({"matchExpressions": [(expression(rng)), (expression(rng))]}),
        _ => value!({"matchExpressions": [(expression(rng))]}),
    };
    let mut rules = Value::object();
    let fields = rules.as_object_mut().unwrap();
    if rng.one_in(6) {
        let terms: Vec<_> = (0..=rng.roll(2)).map(|_| term(rng)).collect();
        fields.insert("requiredDuringSchedulingIgnoredDuringExecution", value!({"nodeSelectorTerms": terms}));
    }
    if rng.one_in(3) {
        let weighted = |rng: &mut TestRng| value!({"weight": (1 + i64::try_from(rng.roll(20)).unwrap()), "preference": (term(rng))});
        let terms: Vec<_> = (0..=rng.roll(2)).map(|_| weighted(rng)).collect();
        fields.insert("preferredDuringSchedulingIgnoredDuringExecution", terms);
    }
    rules
}

fn spread(rng: &mut TestRng) -> Value {
    let mut rule = value!({
        "maxSkew": (1 + i64::try_from(rng.roll(2)).unwrap()),
        "minDomains": (1 + i64::try_from(rng.roll(4)).unwrap()),
        "topologyKey": (rng.pick(&["zone", "kubernetes.io/hostname"])),
        "whenUnsatisfiable": (rng.pick(&["DoNotSchedule", "ScheduleAnyway"])),
        "nodeTaintsPolicy": (rng.pick(&["Honor", "Ignore"])),
        "nodeAffinityPolicy": (rng.pick(&["Honor", "Ignore"])),
        "matchLabelKeys": (if rng.one_in(3) { vec![Value::from(rng.pick(&["version", "debug"]))] } else { Vec::new() })
    });
    set(&mut rule, "labelSelector", label_selector(rng));
    rule
}

fn requests(rng: &mut TestRng) -> Value {
    let mut requests = Value::object();
    // Probability in quarters, and amounts.
    for (resource, times, amounts) in [
        ("cpu", 3, ["500m", "1", "2"]),
        ("memory", 2, ["256Mi", "1Gi", "3Gi"]),
        ("example.com/gpu", 1, ["0", "1", "1"]),
    ] {
        if rng.roll(4) < times {
            requests.as_object_mut().unwrap().insert(resource, rng.pick(&amounts));
        }
    }
    requests
}

/// Returns random init containers and sidecars.
fn init_containers(rng: &mut TestRng) -> Vec<Value> {
    let one = |rng: &mut TestRng, number: u64| {
        let mut container =
            value!({"name": (format!("i{number}")), "image": "other", "resources": {"requests": (requests(rng))}});
        if rng.one_in(2) {
            container.as_object_mut().unwrap().insert("restartPolicy", "Always");
        }
        container
    };
    (0..rng.roll(8).saturating_sub(5)).map(|number| one(rng, number)).collect()
}

/// Adds pod-level requests and overhead.
fn add_amounts(rng: &mut TestRng, spec: &mut Value) {
    let fields = spec.as_object_mut().unwrap();
    if rng.one_in(6) {
        let mut whole = value!({"cpu": (rng.pick(&["1", "3"]))});
        if rng.one_in(2) {
            whole.as_object_mut().unwrap().insert("memory", rng.pick(&["1Gi", "3Gi"]));
        }
        fields.insert("resources", value!({"requests": whole}));
    }
    if rng.one_in(6) {
        fields.insert("overhead", value!({"cpu": "250m", "memory": "64Mi"}));
    }
}

fn toleration(rng: &mut TestRng) -> Value {
    let mut toleration = match rng.roll(4) {
        0 => value!({"operator": "Exists"}),
        1 => value!({"key": (rng.pick(&["k1", "k2"])), "operator": "Exists"}),
        2 => value!({"key": (rng.pick(&["k1", "k2"])), "operator": "Equal", "value": (rng.pick(&["v1", "v2"]))}),
        _ => value!({"key": (rng.pick(&["k1", "k2"]))}),
    };
    let effect = rng.pick(&["", "", "NoSchedule", "NoExecute", "PreferNoSchedule"]);
    set(&mut toleration, "effect", Some(effect).filter(|effect| !effect.is_empty()));
    toleration
}

pub(crate) fn pod(rng: &mut TestRng, name: &str, started_seconds: u64) -> Value {
    let mut container = value!({"name": "c", "image": (rng.pick(&["one:1", "two:1", "other"]))});
    let requested = requests(rng);
    container.as_object_mut().unwrap().insert("resources", value!({"requests": requested}));
    if rng.one_in(6) {
        let mut port = value!({"hostPort": 80, "protocol": (rng.pick(&["TCP", "UDP"]))});
        set(&mut port, "hostIP", rng.one_in(2).then(|| rng.pick(&["10.0.0.1", "10.0.0.2"])));
        container.as_object_mut().unwrap().insert("ports", value!([port]));
    }
    let spreads: Vec<_> = (0..rng.roll(8).saturating_sub(5)).map(|_| spread(rng)).collect();
    let tolerations: Vec<_> = (0..rng.roll(6).saturating_sub(3)).map(|_| toleration(rng)).collect();
    let selector = if rng.one_in(5) { value!({"disk": "ssd"}) } else { value!({}) };
    let mut spec = value!({
        "containers": [container], "priority": (i64::try_from(rng.roll(4)).unwrap()),
        "initContainers": (init_containers(rng)),
        "affinity": (affinity(rng)), "topologySpreadConstraints": spreads,
        "tolerations": tolerations, "nodeSelector": selector
    });
    add_amounts(rng, &mut spec);
    let mut labels = value!({"app": (rng.pick(&["x", "y"])), "version": (rng.pick(&["1", "2"]))});
    set(&mut labels, "debug", rng.one_in(4).then_some("yes"));
    let started = format!("2026-01-01T00:{:02}:{:02}Z", started_seconds / 60, started_seconds % 60);
    value!({
        "metadata": {"name": name, "namespace": (rng.pick(&["n1", "n2"])), "labels": labels},
        "spec": spec, "status": {"startTime": started}
    })
}

/// Returns a random scoring strategy as profile and for the reference.
pub(crate) fn strategy(rng: &mut TestRng) -> (Profile, Strategy) {
    let line = match rng.roll(2) {
        0 => vec![(0, 0), (100, 10)],
        _ => vec![(0, 10), (50, 4), (90, 0)],
    };
    let points: Vec<_> = line.iter().map(|(load, score)| value!({"utilization": (*load), "score": (*score)})).collect();
    let (name, ratio, strategy) = match rng.roll(4) {
        0 => ("MostAllocated", None, Strategy::Most),
        1 => ("RequestedToCapacityRatio", Some(value!({"shape": points})), Strategy::Ratio(line)),
        _ => ("LeastAllocated", None, Strategy::Least),
    };
    let mut scoring =
        value!({"type": name, "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]});
    if let Some(ratio) = ratio {
        scoring.as_object_mut().unwrap().insert("requestedToCapacityRatio", ratio);
    }
    let arguments = value!([{"name": "NodeResourcesFit", "args": {"scoringStrategy": scoring}}]);
    let configuration = value!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100, "profiles": [{"pluginConfig": arguments}]});
    (Configuration::read(&configuration.to_string()).unwrap().profiles.remove(0), strategy)
}

pub(crate) fn budgets(rng: &mut TestRng) -> Vec<Value> {
    let one = |rng: &mut TestRng, number: u64| {
        let mut spec = Value::object();
        set(&mut spec, "selector", label_selector(rng));
        value!({
            "metadata": {"namespace": (rng.pick(&["n1", "n2"])), "name": (format!("b{number}"))},
            "spec": spec, "status": {"disruptionsAllowed": (i64::try_from(rng.roll(3)).unwrap())}
        })
    };
    (0..rng.roll(4)).map(|number| one(rng, number)).collect()
}
