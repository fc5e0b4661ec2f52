//! Outgoing request tests: service resolution, connection reuse and error messages.

use std::time::Duration;

use apimachinery::{Value, value};
use bytes::Bytes;
use kube_apiserver::backend::{Destination, Directory, Pools, Routing};

use crate::hook::{Hook, HookResponse};

const SOON: Duration = Duration::from_secs(20);

/// A cluster with one Service, which is a server in this process.
struct Cluster(u16);

impl Directory for Cluster {
    fn service(&self, namespace: &str, name: &str) -> Option<Value> {
        let spec = value!({"type": "ClusterIP", "clusterIP": "None", "ports": [{"name": "web", "port": 443}]});
        ((namespace, name) == ("ns", "hook")).then(|| value!({"spec": spec}))
    }

    fn slices(&self, _: &str, _: &str) -> Vec<Value> {
        let port = i64::from(self.0);
        vec![value!({"ports": [{"name": "web", "port": port}], "endpoints": [{"addresses": ["127.0.0.1"]}]})]
    }
}

async fn post(pools: &Pools, cluster: &Cluster, config: Value, within: Duration) -> Result<String, String> {
    let to = Destination::of(&config).unwrap();
    let sent = pools.post(cluster, &to, "timeout=10s", Bytes::from_static(b"{}"), within).await;
    sent.map(|(code, body)| format!("{code} {}", String::from_utf8_lossy(&body))).map_err(|error| error.to_string())
}

fn pools() -> Pools {
    Pools::new(Routing { to_endpoints: true, own: None })
}

#[tokio::test]
async fn service_is_called_by_its_dns_name_over_one_connection() {
    let hook = Hook::start(&["hook.ns.svc"], |_, _| HookResponse::Json(200, value!({"ok": true}))).await;
    let (pools, cluster) = (pools(), Cluster(hook.port()));
    let config = value!({"service": {"namespace": "ns", "name": "hook", "path": "/p"}, "caBundle": (hook.bundle())});
    for _ in 0..3 {
        let response = post(&pools, &cluster, config.clone(), SOON).await;
        assert_eq!(response.unwrap(), "200 OK {\"ok\":true}");
    }
    assert_eq!(hook.requests()[0].0, "/p?timeout=10s");
    assert_eq!(hook.connections(), 1);
}

#[tokio::test]
async fn failures_have_the_messages_of_go_clients() {
    let hook = Hook::start(&["other.example"], |_, _| HookResponse::NoResponse).await;
    let (pools, cluster) = (pools(), Cluster(hook.port()));
    let service = |name: &str, bundle: &str| value!({"service": {"namespace": "ns", "name": name}, "caBundle": bundle});
    let check = async |config: Value, within: Duration, expect: &str| {
        assert_eq!(post(&pools, &cluster, config, within).await.unwrap_err(), expect);
    };
    check(service("none", ""), SOON, "Post \"https://none.ns.svc:443/?timeout=10s\": service \"none\" not found").await;
    check(
        service("hook", &hook.bundle()),
        SOON,
        "Post \"https://hook.ns.svc:443/?timeout=10s\": tls: failed to verify certificate: x509: certificate is not valid for hook.ns.svc",
    )
    .await;
    let stranger = Hook::start(&["hook.ns.svc"], |_, _| HookResponse::NoResponse).await;
    check(
        service("hook", &stranger.bundle()),
        SOON,
        "Post \"https://hook.ns.svc:443/?timeout=10s\": tls: failed to verify certificate: x509: certificate signed by unknown authority",
    )
    .await;
    let own = Hook::start(&["127.0.0.1"], |_, _| HookResponse::NoResponse).await;
    let silent = value!({"url": (own.url("/x")), "caBundle": (own.bundle())});
    let expect = format!("Post \"{}?timeout=10s\": context deadline exceeded", own.url("/x"));
    check(silent, Duration::from_millis(200), &expect).await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let unreachable = value!({"url": (format!("https://{free}/"))});
    let expect = format!("Post \"https://{free}/?timeout=10s\": dial tcp {free}: connect: connection refused");
    check(unreachable, SOON, &expect).await;
}

/// CVE-2020-8561: a webhook redirected the API server to addresses that only the server reaches.
#[tokio::test]
async fn redirect_of_a_webhook_is_not_followed() {
    let internal = Hook::start(&["hook.ns.svc"], |_, _| HookResponse::Json(200, value!({"ok": true}))).await;
    let to = internal.url("/");
    let hook = Hook::start(&["hook.ns.svc"], move |_, _| HookResponse::Redirect(to.clone())).await;
    let config = value!({"service": {"namespace": "ns", "name": "hook"}, "caBundle": (hook.bundle())});
    let response = post(&pools(), &Cluster(hook.port()), config, SOON).await;
    assert!(response.as_ref().is_ok_and(|response| response.starts_with("307")), "{response:?}");
    assert_eq!((hook.requests().len(), internal.connections()), (1, 0));
}
