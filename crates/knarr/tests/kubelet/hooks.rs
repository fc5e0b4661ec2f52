//! Lifecycle hooks, probes, and the order in which the containers of a pod terminate.

use std::io::{BufRead, BufReader, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use apimachinery::{Value, value};

use crate::cluster::*;

/// Starts a server that records the requested paths for as long as the test runs.
fn listen() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            if BufReader::new(&stream).read_line(&mut line).is_ok_and(|length| length > 0) {
                heard.lock().unwrap().push(line.split(' ').nth(1).unwrap_or_default().to_owned());
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    (port, requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn post_start_and_pre_stop_hooks_run_before_ready_and_before_termination() {
    let cluster = cluster().await;
    let (port, requests) = listen();
    let get = |path: &str| value!({"httpGet": {"host": "127.0.0.1", "port": (i64::from(port)), "path": path}});
    let mut hooked = pod("asks", "sleep 1000");
    set_container(&mut hooked, "lifecycle", value!({"postStart": (get("/started")), "preStop": (get("/stops"))}));
    cluster.run(&hooked, "ready", is_ready).await;
    assert_eq!(*requests.lock().unwrap(), ["/started"]);
    cluster.delete("asks").await;
    assert_eq!(*requests.lock().unwrap(), ["/started", "/stops"]);

    let mut waits = pod("waits", "trap 'exit 0' TERM; while :; do sleep 0.1; done");
    set(&mut waits, "terminationGracePeriodSeconds", 30);
    let sleep = |seconds: i64| value!({"sleep": {"seconds": seconds}});
    set_container(&mut waits, "lifecycle", value!({"postStart": (sleep(2)), "preStop": (sleep(2))}));
    let start = Instant::now();
    cluster.run(&waits, "ready", is_ready).await;
    assert!(start.elapsed() >= Duration::from_secs(2));
    let start = Instant::now();
    cluster.delete("waits").await;
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(20), "{took:?}");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_grace_period_overrides_the_pods_and_https_probes_work() {
    let cluster = cluster().await;
    let mut deaf = pod("deaf", "trap '' TERM; while :; do sleep 0.1; done");
    set(&mut deaf, "terminationGracePeriodSeconds", 3600);
    let probe = value!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1,
        "terminationGracePeriodSeconds": 1});
    set_container(&mut deaf, "livenessProbe", probe);
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_int() >= Some(1);
    cluster.run(&deaf, "started again", restarted).await;
    let now = client::DeleteOptions { grace_seconds: Some(1), ..Default::default() };
    cluster.client.delete(&client::Target::named(&PODS, "default", "deaf"), &now).await.unwrap();
    cluster.wait_until_deleted("deaf").await;

    let config = std::fs::read_to_string(cluster.path("admin.kubeconfig")).unwrap();
    let (_, address) = config.split_once("https://127.0.0.1:").unwrap();
    let port: i64 = address.split('"').next().unwrap().parse().unwrap();
    let secure = |name: &str, scheme: &str| {
        let mut pod = pod(name, "sleep 1000");
        let get = value!({"host": "127.0.0.1", "port": port, "path": "/livez", "scheme": scheme});
        set_container(&mut pod, "readinessProbe", value!({"httpGet": get, "periodSeconds": 1, "timeoutSeconds": 5}));
        pod
    };
    cluster.run(&secure("secure", "HTTPS"), "ready", is_ready).await;
    cluster.create(&PODS, &secure("plain", "HTTP")).await;
    cluster.event("Unhealthy: Readiness probe failed: ").await;
    assert!(!is_ready(&cluster.get(&PODS, "plain").await));
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_terminate_after_main_containers_in_reverse_order() {
    let cluster = cluster().await;
    std::fs::create_dir(cluster.path("out")).unwrap();
    let logging_container = |name: &str, sidecar: bool| {
        let script = format!("trap 'echo {name} >>/out/log; exit 0' TERM; while :; do sleep 0.1; done");
        let mut container = container(name, &script);
        let fields = container.as_object_mut().unwrap();
        fields.insert("volumeMounts", value!([{"name": "out", "mountPath": "/out"}]));
        if sidecar {
            fields.insert("restartPolicy", "Always");
        }
        container
    };
    let spec = value!({"initContainers": [(logging_container("first", true)), (logging_container("second", true))],
        "containers": [(logging_container("main", false))], "terminationGracePeriodSeconds": 30,
        "volumes": [{"name": "out", "hostPath": {"path": (cluster.path("out").display().to_string())}}]});
    cluster.run(&with("order", spec), "ready", is_ready).await;
    cluster.delete("order").await;
    assert_eq!(std::fs::read_to_string(cluster.path("out/log")).unwrap(), "main\nsecond\nfirst\n");
    cluster.finish().await;
}
