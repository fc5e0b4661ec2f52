//! Benchmark of API priority and fairness: admitting and finishing a request with thirteen flow schemas.

use std::hint::black_box;

use apimachinery::{Str, Value};
use criterion::{Criterion, criterion_group, criterion_main};
use flowcontrol::{Digest, Estimate, FlowControl, Moment, Outcome, Target, bootstrap};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn server(total: u32) -> FlowControl {
    let objects = bootstrap::objects();
    let (levels, mut schemas): (Vec<Value>, Vec<Value>) =
        objects.into_iter().partition(|object| object["kind"] == "PriorityLevelConfiguration".into());
    for name in ["more", "still-more"] {
        let mut copy = schemas[3].clone();
        apimachinery::meta::MetaMut::of(&mut copy).expect("it has metadata").set("name", name);
        schemas.push(copy);
    }
    assert_eq!(schemas.len(), 13);
    let mut control = FlowControl::new(total, Moment::default());
    control.reconfigure(&schemas, &levels, Moment::default());
    control
}

fn arrive(criterion: &mut Criterion) {
    let target =
        Target::Resource { group: "apps", resource: "deployments", subresource: "status", namespace: "default" };
    let users: [(&str, &[&str], &str); 3] = [
        ("exempt", &["system:masters", "system:authenticated"], "admin"),
        ("node", &["system:nodes", "system:authenticated"], "system:node:worker-1"),
        ("last", &["developers", "system:authenticated"], "ann@example.org"),
    ];
    for (name, groups, user) in users {
        let groups: Vec<Str> = groups.iter().map(|group| Str::from(*group)).collect();
        let digest = Digest { user, groups: &groups, verb: "patch", target };
        let mut control = server(600);
        let mut nanos = 0;
        criterion.bench_function(&format!("arrive-finish/{name}"), |bencher| {
            bencher.iter(|| {
                nanos += 1000;
                let arrival = control.arrive(black_box(&digest), &Estimate::One, Moment::from_nanos(nanos));
                let Outcome::Admitted(ticket) = arrival.outcome else { panic!("the server is idle") };
                control.finish(ticket, Moment::from_nanos(nanos + 500))
            });
        });
        criterion.bench_function(&format!("classify/{name}"), |bencher| {
            bencher.iter(|| control.classify(black_box(&digest)).priority_level.len());
        });
    }
}

fn saturated(criterion: &mut Criterion) {
    let groups: Vec<Str> = vec!["system:authenticated".into()];
    let target = Target::Resource { group: "", resource: "pods", subresource: "", namespace: "default" };
    let mut control = server(20);
    let users: Vec<String> = (0..64).map(|user| format!("user-{user}")).collect();
    let (mut running, mut nanos) = (std::collections::VecDeque::new(), 0);
    for step in 0..1000 {
        let digest = Digest { user: &users[step % 64], groups: &groups, verb: "get", target };
        if let Outcome::Admitted(ticket) = control.arrive(&digest, &Estimate::One, Moment::default()).outcome {
            running.push_back(ticket);
        }
    }
    let mut step = 0;
    criterion.bench_function("arrive-finish/saturated", |bencher| {
        bencher.iter(|| {
            (step, nanos) = (step + 1, nanos + 1000);
            let digest = Digest { user: &users[step % 64], groups: &groups, verb: "get", target };
            black_box(control.arrive(&digest, &Estimate::One, Moment::from_nanos(nanos)));
            let ticket = running.pop_front().expect("a request is running");
            running.extend(control.finish(ticket, Moment::from_nanos(nanos)));
        });
    });
}

criterion_group!(benches, arrive, saturated);
criterion_main!(benches);
