//! Memory of a dashboard without sessions.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

use bytes::Bytes;
use dashboard::{Config, Dashboard, Exposure, Settings};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};

/// The limit of the idle cost.
const BYTES_MAX: u64 = 2 << 20;

/// Returns the memory that this process has written: heap, stacks and changed data.
fn private_bytes() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

async fn read(dashboard: &Dashboard, path: &str) {
    let request = Request::get(path).header("Host", "localhost:1").header("Accept-Encoding", "gzip");
    let response = dashboard.serve(request.body(Full::<Bytes>::default()).unwrap()).await;
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    response.into_body().collect().await.unwrap();
}

#[tokio::test]
async fn dashboard_without_sessions_takes_less_than_2_mb() {
    let assets = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/assets")).unwrap();
    let assets = assets.map(|entry| entry.unwrap());
    let assets: Vec<_> = assets.filter(|entry| entry.path().extension().is_some_and(|it| it == "gz")).collect();
    let embedded: u64 = assets.iter().map(|entry| entry.metadata().unwrap().len()).sum();
    assert!(embedded > 100_000, "{embedded} bytes");
    let before = private_bytes();
    let dashboard = Dashboard::new(Config {
        server: client::Config::new("https://127.0.0.1:1".parse().unwrap()),
        exposure: Exposure::Loopback { port: 1 },
        node_records: None,
        settings: Settings::default(),
    });
    read(&dashboard, "/dashboard/").await;
    for asset in assets {
        let name = asset.path().file_stem().unwrap().to_str().unwrap().to_owned();
        read(&dashboard, &format!("/dashboard/assets/{name}")).await;
    }
    // Pages of the executable: those of the assets count, the code of a debug build does not.
    let taken = private_bytes().saturating_sub(before) + embedded;
    println!("{taken} bytes after a visit of all pages");
    assert!(taken < BYTES_MAX, "{taken} bytes");
}
