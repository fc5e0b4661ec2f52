//! Benchmarks of CEL: compiling an expression once, and evaluating it repeatedly over an object.

use std::hint::black_box;

use apimachinery::{Value, json};
use cel::{Env, EnvSet, Type, Val};
use criterion::{Criterion, criterion_group, criterion_main};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DEPLOYMENT: &str = r#"{"spec": {"replicas": 3, "template": {"spec": {"containers": [
    {"name": "a", "image": "registry.example/a:v1"}, {"name": "b", "image": "registry.example/b:v1"},
    {"name": "c", "image": "registry.example/c:v1"}, {"name": "d", "image": "registry.example/d:v1"}]}}},
    "replicas": 3, "metadata": {"name": "web", "labels": {"app": "web"}}}"#;

const EXPRESSIONS: [(&str, &str); 4] = [
    ("compare", "self.replicas <= 5"),
    ("presence", "has(self.metadata.labels) && 'app' in self.metadata.labels"),
    ("containers", "self.spec.template.spec.containers.all(c, c.image.startsWith('registry.example/'))"),
    ("pattern", "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"),
];

fn env() -> Env {
    EnvSet::default().new.with_variable("self", Type::Dyn)
}

fn compile(criterion: &mut Criterion) {
    let env = env();
    for (name, expression) in EXPRESSIONS {
        criterion.bench_function(&format!("compile/{name}"), |bencher| {
            bencher.iter(|| env.compile(black_box(expression)));
        });
    }
}

fn run(criterion: &mut Criterion) {
    let env = env();
    let object: Value = json::parse(DEPLOYMENT.as_bytes()).expect("the object is JSON");
    for (name, expression) in EXPRESSIONS {
        let compiled = env.compile(expression).expect("the expression is right");
        criterion.bench_function(&format!("run/{name}"), |bencher| {
            bencher.iter(|| {
                let variables =
                    [("self", Val::json(black_box(&object), None).expect("an untyped expression has no type error"))];
                compiled.program.evaluate(&variables).map(|outcome| outcome.cost)
            });
        });
    }
}

/// Each expression exhausts the cost limit of one expression, or one of the resource limits.
const BOMBS: [(&str, &str); 18] = [
    ("all", "lists.range(1000).all(a, lists.range(1000).all(b, a * b >= 0))"),
    ("exists", "lists.range(1000).exists(a, lists.range(1000).exists(b, a + b < 0))"),
    ("exists_one", "lists.range(1000).all(a, lists.range(1000).exists_one(b, a == b))"),
    ("map", "lists.range(100000).map(a, lists.range(100000).map(b, a + b))"),
    ("filter", "lists.range(1000).all(a, lists.range(1000).filter(b, a > b).size() >= 0)"),
    ("strings", "lists.range(1000).all(a, lists.range(1000).all(b, 'a' + 'b' != 'c'))"),
    ("numbers", "lists.range(1000).all(a, lists.range(1000).all(b, string(a) != '' || int(string(b)) >= 0))"),
    (
        "times",
        "lists.range(1000).all(a, lists.range(1000).all(b, timestamp('2026-01-01T00:00:00Z' + '') > timestamp(a)))",
    ),
    ("urls", "lists.range(1000).all(a, lists.range(1000).all(b, isURL('https://example.com:80/' + 'path')))"),
    ("quantities", "lists.range(1000).all(a, lists.range(1000).all(b, isQuantity(string(b) + '.5Gi')))"),
    ("versions", "lists.range(1000).all(a, lists.range(1000).all(b, isSemver('1.2.' + string(b))))"),
    ("addresses", "lists.range(1000).all(a, lists.range(1000).all(b, isIP('10.0.0.1' + '7')))"),
    (
        "durations",
        "lists.range(1000).all(a, lists.range(1000).all(b, duration(string(b) + 'h1.5s') >= duration('0s')))",
    ),
    ("zones", "lists.range(1000).all(a, lists.range(1000).all(b, timestamp(a).getHours('Europe/' + 'Paris') >= 0))"),
    (
        "patterns",
        "lists.range(1000).all(a, lists.range(1000).all(b, !'b'.matches('[x-z]{1,9}' + string(a * 1000 + b))))",
    ),
    (
        "unicode",
        "lists.range(1000).all(a, lists.range(1000).all(b, !'b'.matches('\\\\pL{20}' + string(a * 1000 + b))))",
    ),
    ("lists", "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).max() >= 0))"),
    ("formats", "lists.range(1000).all(a, lists.range(1000).all(b, '%d %d'.format([a, b]) != ''))"),
];

fn bombs(criterion: &mut Criterion) {
    let env = EnvSet::default().stored;
    for (name, expression) in BOMBS {
        let compiled = env.compile(expression).unwrap_or_else(|findings| panic!("{name}: {findings}"));
        criterion.bench_function(&format!("bomb/{name}"), |bencher| {
            bencher.iter(|| compiled.program.evaluate(&()).map(|outcome| outcome.cost).expect_err("it costs too much"));
        });
    }
}

criterion_group!(benches, compile, run, bombs);
criterion_main!(benches);
