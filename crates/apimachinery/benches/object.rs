//! Benchmarks of decoding, defaulting and validating a 4 KiB pod.

use std::hint::black_box;

use apimachinery::conform::conform;
use apimachinery::defaulting::default;
use apimachinery::patch::strategic::{OnConflict, create_three_way};
use apimachinery::patch::{PatchType, apply_patch};
use apimachinery::validate::validate;
use apimachinery::{GroupVersionKind, Schema, Value, json, protobuf, yaml};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const POD: &str = include_str!("pod.json");

fn schema() -> Schema<'static> {
    api::catalogue::schema(&GroupVersionKind::of("", "v1", "Pod")).expect("the catalogue has pods")
}

fn parsed() -> Value {
    json::parse(POD.as_bytes()).expect("the pod is JSON")
}

fn parse(bench: &mut Criterion) {
    bench.bench_function("object/parse", |run| run.iter(|| json::parse(black_box(POD.as_bytes()))));
}

fn decode(bench: &mut Criterion) {
    let schema = schema();
    bench.bench_function("object/conform", |run| {
        run.iter_batched_ref(parsed, |pod| conform(pod, schema), BatchSize::SmallInput);
    });
}

fn fill(bench: &mut Criterion) {
    let schema = schema();
    bench.bench_function("object/default", |run| {
        run.iter_batched_ref(parsed, |pod| default(pod, schema), BatchSize::SmallInput);
    });
}

fn check(bench: &mut Criterion) {
    let schema = schema();
    let pod = parsed();
    bench.bench_function("object/validate", |run| run.iter(|| validate(black_box(&pod), schema)));
}

/// Measures a complete write, which must take less than 25 µs.
fn all(bench: &mut Criterion) {
    let schema = schema();
    bench.bench_function("object/parse+conform+default+validate", |run| {
        run.iter(|| {
            let mut pod = json::parse(black_box(POD.as_bytes())).expect("the pod is JSON");
            let unknown = conform(&mut pod, schema).expect("the pod is valid");
            default(&mut pod, schema);
            (unknown, validate(&pod, schema), pod)
        });
    });
}

fn encode(bench: &mut Criterion) {
    let schema = schema();
    let pod = parsed();
    let mut bytes = Vec::new();
    protobuf::encode(&pod, schema, &mut bytes).expect("a pod has a protobuf form");
    let text = yaml::to_string(&pod);
    bench.bench_function("encode/json", |run| run.iter(|| json::to_vec(black_box(&pod))));
    bench.bench_function("encode/yaml", |run| run.iter(|| yaml::to_string(black_box(&pod))));
    bench.bench_function("encode/protobuf", |run| {
        run.iter(|| {
            let mut out = Vec::new();
            protobuf::encode(black_box(&pod), schema, &mut out).expect("a pod has a protobuf form");
            out
        });
    });
    bench.bench_function("decode/protobuf", |run| run.iter(|| protobuf::decode(black_box(&bytes), schema)));
    bench.bench_function("decode/yaml", |run| run.iter(|| yaml::parse(black_box(&text))));
}

fn patch(bench: &mut Criterion) {
    const OPERATIONS: &str = r#"[{"op":"test","path":"/spec/containers/0/name","value":"web"},
        {"op":"add","path":"/metadata/labels/two","value":"2"},
        {"op":"replace","path":"/spec/containers/0/image","value":"registry.example/web:2"},
        {"op":"remove","path":"/spec/containers/0/env/0"}]"#;
    const MERGE: &str = r#"{"metadata":{"labels":{"two":"2","pod-template-hash":null}},"spec":{"priority":3,"nodeSelector":{"a":"b"}}}"#;
    const STRATEGIC: &str = r#"{"metadata":{"labels":{"two":"2"}},"spec":{
        "$setElementOrder/containers":[{"name":"new"},{"name":"web"}],"containers":[{"name":"new"},
            {"name":"web","image":"registry.example/web:2","env":[{"name":"CACHE_SIZE","value":"changed"}]}]}}"#;
    let schema = schema();
    for (name, kind, body) in [
        ("patch/json", PatchType::Json, OPERATIONS),
        ("patch/merge", PatchType::Merge, MERGE),
        ("patch/strategic", PatchType::Strategic, STRATEGIC),
    ] {
        let apply = |pod| apply_patch(kind, pod, black_box(body.as_bytes()), Some(schema));
        apply(parsed()).expect("the patch applies to the pod");
        bench.bench_function(name, |run| run.iter_batched(parsed, apply, BatchSize::SmallInput));
    }
    let modified = apply_patch(PatchType::Strategic, parsed(), STRATEGIC.as_bytes(), Some(schema));
    let (Value::Object(current), Ok(Value::Object(modified))) = (parsed(), modified) else {
        panic!("a patched pod is an object")
    };
    bench.bench_function("patch/three-way", |run| {
        run.iter(|| create_three_way(&current, black_box(&modified), &current, schema, OnConflict::Overwrite));
    });
}

criterion_group!(object, parse, decode, fill, check, all, encode, patch);
criterion_main!(object);
