//! What a pod of 4 KiB costs on its way from bytes to a valid object.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use machinery::conform::conform;
use machinery::defaulting::default;
use machinery::validate::validate;
use machinery::{GroupVersionKind, Schema, Value, json};

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

/// The whole way of a write, which is to stay under 25 µs.
fn all(bench: &mut Criterion) {
    let schema = schema();
    bench.bench_function("object/parse+conform+default+validate", |run| {
        run.iter(|| {
            let mut pod = json::parse(black_box(POD.as_bytes())).expect("the pod is JSON");
            let unknown = conform(&mut pod, schema).expect("the pod is a pod");
            default(&mut pod, schema);
            (unknown, validate(&pod, schema), pod)
        });
    });
}

criterion_group!(object, parse, decode, fill, check, all);
criterion_main!(object);
