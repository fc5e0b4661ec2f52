//! Leader election of several candidates in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use apimachinery::Key;
use apimachinery::status::{Reason, Status};
use component_base::election::{Election, LeadershipEnd, Settings};
use controller::kinds;
use http::Method;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::api::Api;

fn lease() -> Key {
    Key::new("kube-system", "kcm")
}

fn election(api: &Api, identity: &str) -> Election {
    Election::new(api.client(), Settings::new(lease(), identity))
}

fn spec(api: &Api, field: &str) -> String {
    api.change(|cluster| cluster.get(&kinds::LEASES, &lease()).unwrap()["spec"][field].to_string())
}

#[tokio::test(start_paused = true)]
async fn only_one_candidate_leads_at_a_time() {
    let api = Api::new(Duration::ZERO);
    let leading = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..5 {
        let (election, leading) = (election(&api, &format!("c{number}")), Arc::clone(&leading));
        tasks.spawn(async move {
            let work = || async {
                assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead");
                tokio::time::sleep(Duration::from_secs(100)).await;
                leading.fetch_sub(1, Ordering::SeqCst);
            };
            election.lead(work, std::future::pending::<()>()).await
        });
    }
    let start = Instant::now();
    while let Some(outcome) = tasks.join_next().await {
        assert_eq!(outcome.unwrap(), LeadershipEnd::Released);
    }
    assert!(start.elapsed() < Duration::from_secs(5 * 105), "a released lease is acquired immediately");
    assert_eq!(spec(&api, "leaseTransitions"), "4", "five leaders, four changes of hands");
}

#[tokio::test(start_paused = true)]
async fn dead_leader_is_replaced_after_its_lease_expires() {
    let api = Api::new(Duration::ZERO);
    let mut first = election(&api, "first");
    first.acquire().await;
    assert_eq!(spec(&api, "holderIdentity"), "\"first\"");
    let mut second = election(&api, "second");
    let looking = tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(first.hold(), second.acquire()) });
    assert!(looking.await.is_err(), "a leader that renews stays");
    drop(first);
    let died = Instant::now();
    second.acquire().await;
    let waited = died.elapsed();
    assert!((10..25).contains(&waited.as_secs()), "{waited:?}");
    assert_eq!(spec(&api, "holderIdentity"), "\"second\"");
    assert_eq!(spec(&api, "leaseTransitions"), "1");
}

#[tokio::test(start_paused = true)]
async fn leader_that_cannot_renew_stops_before_another_starts() {
    let api = Api::new(Duration::ZERO);
    let stopped = Arc::new(AtomicBool::new(false));
    let leader = election(&api, "first");
    let (elected, was_elected) = oneshot::channel();
    let outcome = tokio::spawn({
        let stopped = Arc::clone(&stopped);
        async move {
            let work = || async {
                let _ = elected.send(());
                std::future::pending::<()>().await;
            };
            let outcome = leader.lead(work, std::future::pending::<()>()).await;
            stopped.store(true, Ordering::SeqCst);
            outcome
        }
    });
    was_elected.await.unwrap();
    api.reject_requests(|method, kind, _| {
        let rejected = *method == Method::PUT && kind == "leases.coordination.k8s.io";
        rejected.then(|| Status::failure(Reason::InternalError, "no"))
    });
    let silent = Instant::now();
    assert_eq!(outcome.await.unwrap(), LeadershipEnd::Lost);
    assert!(silent.elapsed() <= Duration::from_secs(12), "{:?}", silent.elapsed());
    api.accept_all();
    election(&api, "second").acquire().await;
    assert!(stopped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn stopped_leader_releases_the_lease() {
    let api = Api::new(Duration::ZERO);
    let stop = tokio::time::sleep(Duration::from_secs(30));
    let outcome = election(&api, "first").lead(std::future::pending::<()>, stop).await;
    assert_eq!(outcome, LeadershipEnd::Released);
    assert_eq!(spec(&api, "holderIdentity"), "\"\"");
    let freed = Instant::now();
    election(&api, "second").acquire().await;
    assert!(freed.elapsed() < Duration::from_millis(1));
}

#[tokio::test(start_paused = true)]
async fn stopped_leader_does_not_wait_for_an_unreachable_api_server() {
    let api = Api::new(Duration::ZERO);
    let (elected, was_elected) = oneshot::channel();
    let stop = async {
        was_elected.await.unwrap();
        api.go();
    };
    let work = || async {
        let _ = elected.send(());
        std::future::pending::<()>().await;
    };
    let stopped_at = Instant::now();
    assert_eq!(election(&api, "first").lead(work, stop).await, LeadershipEnd::Released);
    assert!(stopped_at.elapsed() < Duration::from_secs(5), "{:?}", stopped_at.elapsed());
}
