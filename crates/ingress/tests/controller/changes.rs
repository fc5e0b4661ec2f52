//! The time from a write to the first request that it concerns.

use super::*;

/// Time within which a change is live.
const TARGET: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_is_live_within_50_ms() {
    let stand = Stand::start().await;
    let http = stand.address(0);
    stand.cluster.create(&INGRESSES, &ingress("first", "first.test")).await;
    let is_served = async |host: &str| get(http, host, "/").await.filter(|response| !response.contains(" 404 "));
    eventually("the first Ingress is served", || is_served("first.test")).await;
    let mut times = Vec::new();
    for number in 0..10 {
        let (name, host) = (format!("web-{number}"), format!("web-{number}.test"));
        stand.cluster.create(&INGRESSES, &ingress(&name, &host)).await;
        let start = Instant::now();
        eventually("the Ingress is served", || is_served(&host)).await;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!("{times:?}");
    // Some may wait for other tests on the same CPUs.
    assert!(times[times.len() / 2] < TARGET, "{times:?}");
}
