//! Benchmark: time to open the schema catalogue.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn open(bench: &mut Criterion) {
    bench.bench_function("catalogue/open", |run| run.iter(|| black_box(api::catalogue::load())));
}

criterion_group!(catalogue, open);
criterion_main!(catalogue);
