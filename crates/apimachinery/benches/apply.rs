//! Benchmarks of server-side apply and update on a Deployment with a hundred fields.

#[path = "../tests/apply/notation.rs"]
mod notation;

use std::hint::black_box;

use apimachinery::apply::{FieldSet, OneVersion, Write};
use apimachinery::time::Time;
use apimachinery::{Value, value};
use criterion::{Criterion, criterion_group, criterion_main};
use notation::Notation;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Returns a type like that of Deployments, including fields that the object does not set, as real types have.
fn deployment_type() -> Notation {
    let unused = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), value!("string"))).collect::<Vec<_>>();
    let with = |fields: Value, names: &[&str]| {
        let mut fields = fields;
        let object = fields.as_object_mut().expect("an object");
        for (name, ty) in unused(names) {
            object.insert(name, ty);
        }
        fields
    };
    let probe = value!({"httpGet": {"path": "string", "port": "int-or-string", "scheme": "string"}, "periodSeconds": "int", "timeoutSeconds": "int"});
    let container = with(
        value!({
            "name": "string", "image": "string", "imagePullPolicy": "string",
            "args": {"$items": "string"}, "command": {"$items": "string"},
            "env": {"$keys": ["name"], "$items": {"name": "string", "value": "string"}},
            "ports": {"$keys": ["containerPort", "protocol"], "$items": {
                "containerPort": "int", "name": "string", "protocol": {"$of": "string", "$default": "TCP"}
            }},
            "resources": {"limits": {"$values": "quantity"}, "requests": {"$values": "quantity"}},
            "livenessProbe": (probe.clone()), "readinessProbe": probe,
            "volumeMounts": {"$keys": ["mountPath"], "$items": {"mountPath": "string", "name": "string", "readOnly": "bool"}}
        }),
        &[
            "lifecycle",
            "stdin",
            "tty",
            "workingDir",
            "terminationMessagePath",
            "terminationMessagePolicy",
            "restartPolicy",
        ],
    );
    let pod = with(
        value!({
            "containers": {"$keys": ["name"], "$items": container},
            "volumes": {"$keys": ["name"], "$items": {"name": "string", "configMap": {"name": "string"}, "emptyDir": {"medium": "string"}}},
            "nodeSelector": {"$values": "string", "$atomic": true},
            "securityContext": {"runAsUser": "int", "runAsNonRoot": "bool", "fsGroup": "int"},
            "terminationGracePeriodSeconds": "int"
        }),
        &[
            "affinity",
            "dnsPolicy",
            "hostNetwork",
            "hostPID",
            "hostname",
            "nodeName",
            "overhead",
            "priority",
            "restartPolicy",
            "schedulerName",
            "serviceAccountName",
            "subdomain",
            "tolerations",
            "topologySpreadConstraints",
        ],
    );
    Notation::kind(&value!({
        "spec": {
            "replicas": "int", "paused": "bool", "minReadySeconds": "int", "revisionHistoryLimit": "int",
            "selector": {"$of": {"matchLabels": {"$values": "string"}}, "$atomic": true},
            "strategy": {"type": "string", "rollingUpdate": {"maxSurge": "int-or-string", "maxUnavailable": "int-or-string"}},
            "template": {"metadata": {"labels": {"$values": "string"}, "annotations": {"$values": "string"}}, "spec": pod}
        },
        "status": {"replicas": "int", "observedGeneration": "int"}
    }))
}

/// Returns a Deployment with a hundred leaf fields.
fn deployment() -> Value {
    let container = |name: &str| {
        let env: Vec<Value> =
            (0..8).map(|at| value!({"name": (format!("VARIABLE_{at}")), "value": (format!("value {at}"))})).collect();
        value!({
            "name": name, "image": "registry.example.com/team/application:1.2.3", "imagePullPolicy": "IfNotPresent",
            "args": ["--port=8080", "--verbose"], "env": env,
            "ports": [{"containerPort": 8080, "name": "http"}, {"containerPort": 9090, "name": "metrics", "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
            "volumeMounts": [{"mountPath": "/etc/config", "name": "config"}, {"mountPath": "/tmp", "name": "tmp"}]
        })
    };
    value!({
        "apiVersion": "v1", "kind": "Thing",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web", "tier": "front"}, "annotations": {"note": "a"}},
        "spec": {
            "replicas": 3, "revisionHistoryLimit": 5,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": "web", "tier": "front"}},
                "spec": {
                    "containers": [(container("main")), (container("sidecar"))],
                    "volumes": [{"name": "config", "configMap": {"name": "settings"}}, {"name": "tmp", "emptyDir": {}}],
                    "securityContext": {"runAsUser": 1000, "runAsNonRoot": true},
                    "terminationGracePeriodSeconds": 30
                }
            }
        }
    })
}

fn apply(bench: &mut Criterion) {
    let types = deployment_type();
    let versions = OneVersion {
        api_version: "v1",
        schema: types.schema(),
        reset_fields: FieldSet::of_fields(&["status"]),
        empty: value!({"apiVersion": "v1", "kind": "Thing", "metadata": {}, "spec": {}, "status": {}}),
    };
    let write = Write {
        versions: &versions,
        api_version: "v1",
        kind: "Thing",
        subresource: "",
        manager: "kubectl",
        now: Time::from_unix(1_700_000_000, 0),
    };
    let config = deployment();
    println!("{} leaves", apimachinery::apply::field_set(types.schema(), &config).leaves().len());
    let live = write.apply(None, &config, false).expect("it can be applied").object;
    let mut changed = config.clone();
    let spec = changed.get_mut("spec").and_then(Value::as_object_mut).expect("it has a spec");
    spec.insert("replicas", 4);
    spec.remove("revisionHistoryLimit");
    let mut updated = live.clone();
    updated.get_mut("spec").and_then(Value::as_object_mut).expect("it has a spec").insert("replicas", 5);

    bench.bench_function("apply/create", |run| run.iter(|| black_box(write.apply(None, &config, false))));
    bench.bench_function("apply/again", |run| run.iter(|| black_box(write.apply(Some(&live), &config, false))));
    bench.bench_function("apply/change", |run| run.iter(|| black_box(write.apply(Some(&live), &changed, false))));
    let updater = Write { manager: "controller", ..write };
    bench.bench_function("update/create", |run| run.iter(|| black_box(updater.update(None, config.clone()))));
    bench.bench_function("update/change", |run| run.iter(|| black_box(updater.update(Some(&live), updated.clone()))));
}

criterion_group!(benches, apply);
criterion_main!(benches);
