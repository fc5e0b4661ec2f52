//! What patching a pod of 4 KiB costs.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use machinery::patch::strategic::{OnConflict, create_three_way};
use machinery::patch::{PatchType, apply_patch};
use machinery::{GroupVersionKind, Object, Schema, Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const STRATEGIC: &str = r#"{"metadata":{"labels":{"app":"other"}},"spec":{
    "$setElementOrder/containers":[{"name":"c1"},{"name":"c0"},{"name":"new"}],
    "containers":[{"name":"c0","image":"registry.example/app:2","env":[{"name":"E3","value":"changed"}]},{"name":"new"}]}}"#;
const MERGE: &str =
    r#"{"metadata":{"labels":{"app":"other","gone":null}},"spec":{"priority":3,"nodeSelector":{"a":"b"}}}"#;
const OPERATIONS: &str = r#"[{"op":"test","path":"/metadata/name","value":"pod"},
    {"op":"add","path":"/metadata/labels/two","value":"2"},
    {"op":"replace","path":"/spec/containers/0/image","value":"registry.example/app:2"},
    {"op":"remove","path":"/spec/containers/3/env/0"}]"#;

fn schema() -> Schema<'static> {
    let pod = GroupVersionKind { group: "".into(), version: "v1".into(), kind: "Pod".into() };
    api::catalogue::schema(&pod).expect("the catalogue has pods")
}

fn pod() -> Value {
    let container = |at: usize| {
        let env: Vec<_> = (0..8).map(|at| format!(r#"{{"name":"E{at}","value":"some value of it"}}"#)).collect();
        format!(
            r#"{{"name":"c{at}","image":"registry.example/app:1","imagePullPolicy":"IfNotPresent","env":[{}],
                "ports":[{{"containerPort":80{at},"protocol":"TCP"}}],"resources":{{"requests":{{"cpu":"100m","memory":"64Mi"}}}},
                "volumeMounts":[{{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","name":"token","readOnly":true}}],
                "terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}}"#,
            env.join(","),
        )
    };
    let containers: Vec<_> = (0..4).map(container).collect();
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"pod","labels":{{"app":"web","tier":"front"}}}},
            "spec":{{"containers":[{}],"dnsPolicy":"ClusterFirst","restartPolicy":"Always"}}}}"#,
        containers.join(","),
    );
    json::parse(text.as_bytes()).expect("the pod is JSON")
}

fn object(value: Value) -> Object {
    match value {
        Value::Object(object) => object,
        other => panic!("a pod is an object, not {other}"),
    }
}

fn patch(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("patch");
    let schema = schema();
    for (name, kind, body) in [
        ("json", PatchType::Json, OPERATIONS),
        ("merge", PatchType::Merge, MERGE),
        ("strategic", PatchType::Strategic, STRATEGIC),
    ] {
        apply_patch(kind, pod(), body.as_bytes(), Some(schema)).expect("the patch fits the pod");
        group.bench_function(name, |run| {
            run.iter_batched(
                pod,
                |pod| apply_patch(kind, pod, black_box(body.as_bytes()), Some(schema)),
                BatchSize::SmallInput,
            );
        });
    }
    let current = object(pod());
    let modified = apply_patch(PatchType::Strategic, pod(), STRATEGIC.as_bytes(), Some(schema)).map(object);
    let modified = modified.expect("the patch fits the pod");
    group.bench_function("three-way", |run| {
        run.iter(|| create_three_way(&current, black_box(&modified), &current, schema, OnConflict::Overwrite));
    });
}

criterion_group!(benches, patch);
criterion_main!(benches);
