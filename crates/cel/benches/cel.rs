//! How long it takes to compile an expression once, and to run it over an object often.

use std::hint::black_box;

use cel::{Env, EnvSet, Type, Val};
use criterion::{Criterion, criterion_group, criterion_main};
use machinery::{Value, json};

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
                let variables = [("self", Val::json(black_box(&object), None).expect("no schema, no mismatch"))];
                compiled.program.evaluate(&variables).map(|outcome| outcome.cost)
            });
        });
    }
}

criterion_group!(benches, compile, run);
criterion_main!(benches);
