//! The kubelet's HTTPS server, as monitoring and the API server use it.

use std::process::Command;

use apimachinery::time::Time;
use apimachinery::{Resource, Value, json, value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Event, Patch, Target, WatchOptions, WriteOptions};

use crate::cluster::*;

/// Sends a request to the kubelet. Returns the status code and the body.
fn kubelet_get(cluster: &Cluster, token: &str, path: &str) -> (u16, String) {
    kubelet_request("GET", cluster, token, path)
}

fn kubelet_request(method: &str, cluster: &Cluster, token: &str, path: &str) -> (u16, String) {
    let url = format!("https://{}{path}", cluster.kubelet_address());
    let authorization = format!("Authorization: Bearer {token}");
    let output = Command::new("curl")
        .args(["-sk", "--max-time", "30", "-w", "\n%{http_code}", "-X", method, "-H", &authorization, &url])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, code) = text.rsplit_once('\n').unwrap();
    (code.parse().unwrap(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_support_tail_timestamps_and_previous() {
    let cluster = cluster().await;
    let script = "for n in 1 2 3 4; do echo line $n; done; echo oops >&2; [ -e /out/again ] && sleep 1000; touch /out/again; exit 1";
    let mut talks = pod("talks", script);
    set(&mut talks, "volumes", value!([{"name": "out", "emptyDir": {}}]));
    set_container(&mut talks, "volumeMounts", value!([{"name": "out", "mountPath": "/out"}]));
    let again = |pod: &Value| is_ready(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == Value::Int(1);
    cluster.run(&talks, "started again", again).await;
    let logs = |query: &str| kubelet_get(&cluster, "a-token", &format!("/containerLogs/default/talks/c?{query}")).1;
    cluster.logged("talks", "c", 1, "oops").await;
    let lines = "line 1\nline 2\nline 3\nline 4\n";
    assert_eq!(logs("stream=Stdout"), lines);
    assert_eq!(logs("stream=Stderr"), "oops\n");
    assert_eq!(logs("stream=Stdout&tailLines=5"), lines);
    assert_eq!(logs("stream=Stdout&limitBytes=6"), "line 1");
    assert_eq!(logs("previous=true").lines().count(), 5);
    assert_eq!(logs("sinceTime=2999-01-01T00:00:00Z"), "");
    let stamped = logs("timestamps=true&tailLines=1");
    assert!(stamped.starts_with("20") && stamped.contains("Z "), "{stamped}");
    assert_eq!(kubelet_get(&cluster, "a-token", "/containerLogs/default/talks/none").0, 404);
    assert_eq!(kubelet_get(&cluster, "a-token", "/containerLogs/default/talks/c?tailLines=x").0, 422);
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn container_logs_are_rotated_and_the_oldest_are_deleted() {
    let cluster = cluster_with_config("containerLogMaxSize: 10Ki\ncontainerLogMaxFiles: 2\n").await;
    let made = cluster
        .run(&pod("talks", "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.01; done"), "ready", is_ready)
        .await;
    let dir = format!("default_talks_{}", made.str_at(&["metadata", "uid"]).unwrap());
    let dir = cluster.path("logs").join(dir).join("c");
    let files = || -> std::collections::BTreeSet<String> {
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    };
    let mut seen = std::collections::BTreeSet::new();
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    // Two logs were rotated; one of them remains beside the current one.
    while seen.len() < 3 {
        let now = files();
        assert!(now.len() <= 3, "{now:?}");
        seen.extend(now);
        assert!(tokio::time::Instant::now() < deadline, "{seen:?}");
        tokio::task::yield_now().await;
    }
    // A log that was just rotated has no successor yet.
    while !kubelet_get(&cluster, "a-token", "/containerLogs/default/talks/c?tailLines=1").1.starts_with("line ") {
        assert!(tokio::time::Instant::now() < deadline, "the current log is read");
    }
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn followed_log_ends_with_its_container() {
    let cluster = cluster().await;
    let mut ends = pod("ends", "for n in 1 2 3; do echo $n; sleep 0.3; done");
    set(&mut ends, "restartPolicy", "Never");
    cluster.run(&ends, "running", |pod| phase(pod) == "Running").await;
    assert_eq!(
        kubelet_get(&cluster, "a-token", "/containerLogs/default/ends/c?follow=true"),
        (200, "1\n2\n3\n".to_owned())
    );
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_authorized_by_the_api_server() {
    let cluster = cluster().await;
    assert_eq!(kubelet_get(&cluster, "a-token", "/healthz"), (200, "ok".to_owned()));
    assert_eq!(kubelet_get(&cluster, "no-such-token", "/healthz").0, 401);
    let (code, body) = kubelet_get(&cluster, "n-token", "/exec/default/a/b?command=x&output=1");
    assert_eq!(code, 403, "{body}");
    assert_eq!(kubelet_get(&cluster, "a-token", "/nothing").0, 404);
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_checks_are_listed_and_counted_and_head_has_no_body() {
    let cluster = cluster().await;
    let listed = "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n";
    assert_eq!(kubelet_get(&cluster, "a-token", "/healthz?verbose"), (200, listed.to_owned()));
    assert_eq!(kubelet_get(&cluster, "a-token", "/healthz/syncloop"), (200, "ok".to_owned()));
    assert_eq!(kubelet_get(&cluster, "a-token", "/healthz/absent").0, 404);
    let (code, slis) = kubelet_get(&cluster, "a-token", "/metrics/slis");
    assert_eq!(code, 200, "{slis}");
    assert!(slis.contains("kubernetes_healthcheck{name=\"syncloop\",type=\"healthz\"} 1\n"), "{slis}");
    let head = |token: &str, path: &str| {
        let url = format!("https://{}{path}", cluster.kubelet_address());
        let authorization = format!("Authorization: Bearer {token}");
        let output = Command::new("curl")
            .args(["-skI", "--http2", "--max-time", "30", "-H", &authorization, &url])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), text.lines().next().unwrap_or_default().trim().to_owned())
    };
    assert_eq!(head("a-token", "/healthz"), (Some(0), "HTTP/2 200".to_owned()));
    assert_eq!(head("a-token", "/pods"), (Some(0), "HTTP/2 200".to_owned()));
    assert_eq!(head("no-such-token", "/healthz"), (Some(0), "HTTP/2 401".to_owned()));
    assert_eq!(head("n-token", "/pods"), (Some(0), "HTTP/2 403".to_owned()));
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn authorized_users_can_run_a_command() {
    let cluster = cluster().await;
    let made = cluster.run(&pod("runs", "sleep 1000"), "ready", is_ready).await;
    let run = |token: &str, path: &str| kubelet_request("POST", &cluster, token, &format!("/run/default/runs/{path}"));
    assert_eq!(run("a-token", "c?cmd=echo%20one%20%20two"), (200, "one  two\n".to_owned()));
    let uid = made.str_at(&["metadata", "uid"]).unwrap();
    assert_eq!(run("a-token", &format!("{uid}/c?cmd=hostname")), (200, "runs\n".to_owned()));
    assert_eq!(run("a-token", "c?cmd=false"), (500, "command 'false' exited with 1: ".to_owned()));
    assert_eq!(run("a-token", "none?cmd=true").0, 404);
    assert_eq!(run("n-token", "c?cmd=true").0, 403);
    assert_eq!(kubelet_get(&cluster, "a-token", "/run/default/runs/c?cmd=true").0, 405);
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stats_and_metrics_include_every_container() {
    let cluster = cluster().await;
    let mut busy = pod("busy", "dd if=/dev/zero of=/scratch/file bs=1M count=1; while :; do :; done");
    set(&mut busy, "volumes", value!([{"name": "scratch", "emptyDir": {}}]));
    set_container(&mut busy, "volumeMounts", value!([{"name": "scratch", "mountPath": "/scratch"}]));
    set_container(&mut busy, "resources", value!({"limits": {"cpu": "200m", "memory": "64Mi"}}));
    set_container(
        &mut busy,
        "readinessProbe",
        value!({"exec": {"command": ["test", "-s", "/scratch/file"]}, "periodSeconds": 1}),
    );
    let made = cluster.run(&busy, "ready", is_ready).await;
    let (code, text) = kubelet_get(&cluster, "a-token", "/stats/summary");
    assert_eq!(code, 200, "{text}");
    let summary = json::parse(text.as_bytes()).unwrap();
    assert_eq!(summary["node"]["nodeName"], Value::from(NODE));
    assert_eq!(summary["pods"][0]["podRef"]["name"], Value::from("busy"));
    assert_eq!(summary["pods"][0]["containers"][0]["name"], Value::from("c"));
    let seconds = |text: &Value| Time::parse(text.as_str().unwrap()).unwrap().unix_seconds();
    let since = seconds(&made["metadata"]["creationTimestamp"]);
    let pod_stats = &summary["pods"][0];
    for start in [&pod_stats["startTime"], &pod_stats["containers"][0]["startTime"]] {
        assert!((since..since + 60).contains(&seconds(start)), "{start:?} {since}");
    }
    let volumes = pod_stats["volume"].as_array().unwrap();
    let scratch =
        volumes.iter().find(|volume| volume["name"] == Value::from("scratch")).expect("all volumes are listed");
    assert!(scratch["usedBytes"].as_int() >= Some(1 << 20), "{text}");
    assert!(pod_stats["ephemeral-storage"]["usedBytes"].as_int() >= Some(1 << 20), "{text}");
    let (_, text) = kubelet_get(&cluster, "a-token", "/metrics/resource");
    for metric in ["container_cpu_usage_seconds_total", "container_start_time_seconds"] {
        let metric = format!("{metric}{{container=\"c\",namespace=\"default\",pod=\"busy\"}}");
        assert!(text.contains(&metric), "{metric}: {text}");
    }
    let (_, text) = kubelet_get(&cluster, "a-token", "/metrics/cadvisor");
    let of = |name: &str| -> Vec<&str> {
        let own = |line: &&str| line.starts_with(&format!("{name}{{container=\"c\",id=\"/knarr-node-"));
        let line = text.lines().find(own).unwrap_or_else(|| panic!("{name}: {text}"));
        line.split_inclusive(['{', ',', '}']).collect()
    };
    let cpu = of("container_cpu_usage_seconds_total");
    for label in ["namespace=\"default\",", "pod=\"busy\","] {
        assert!(cpu.contains(&label), "{label} {cpu:?}");
    }
    // Some runtimes report the image by the requested name, others by digest.
    let image = cpu.iter().find_map(|label| label.strip_prefix("image=\"")).unwrap_or_default();
    assert!(image.starts_with(IMAGE) || image.contains("sha256:"), "{cpu:?}");
    let value = |name: &str| of(name).last().unwrap().trim().parse::<f64>().unwrap();
    assert_eq!(value("container_spec_memory_limit_bytes"), 64.0 * 1024.0 * 1024.0);
    assert_eq!(value("container_spec_cpu_quota"), 20_000.0);
    assert!(value("container_start_time_seconds") >= since as f64);
    assert!(value("container_cpu_cfs_periods_total") > 0.0);
    assert!(kubelet_get(&cluster, "a-token", "/metrics").1.contains("kubelet_running_pods 1"));
    let uid = made.str_at(&["metadata", "uid"]).unwrap();
    let probe = format!(
        "prober_probe_total{{container=\"c\",namespace=\"default\",pod=\"busy\",pod_uid=\"{uid}\",probe_type=\"Readiness\",result=\"successful\"}} "
    );
    let (_, text) = kubelet_get(&cluster, "a-token", "/metrics/probes");
    let count = text.lines().find_map(|line| line.strip_prefix(&probe)).unwrap_or_else(|| panic!("{text}"));
    assert!(count.parse::<u64>().unwrap() > 0, "{text}");
    let pods = json::parse(kubelet_get(&cluster, "a-token", "/pods").1.as_bytes()).unwrap();
    assert_eq!(pods["items"][0]["metadata"]["name"], Value::from("busy"));
    let config = json::parse(kubelet_get(&cluster, "a-token", "/configz").1.as_bytes()).unwrap();
    assert_eq!(config["kubeletconfig"]["clusterDomain"], Value::from("cluster.local"));
    // Fields that are not set have their default.
    assert_eq!(config["kubeletconfig"]["nodeStatusUpdateFrequency"], Value::from("10s"));
    assert_eq!(config["kubeletconfig"]["cgroupDriver"], Value::from("cgroupfs"));
    cluster.delete_wholly("busy").await;
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while kubelet_get(&cluster, "a-token", "/metrics/probes").1.contains(uid) {
        assert!(tokio::time::Instant::now() < deadline, "a deleted volume is not reported");
    }
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn serving_certificate_is_signed_by_the_cluster() {
    static REQUESTS: Resource =
        Resource::cluster("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest");
    test_requirements::program("openssl", "openssl");
    let cluster = cluster_with(&["--rotate-server-certificates"]).await;
    let options = WatchOptions { send_initial_events: true, ..WatchOptions::default() };
    let mut watch = cluster.client.watch(&Target::all(&REQUESTS), &options).await.unwrap();
    let waiting = async {
        loop {
            if let Event::Added(request) = watch.next().await.unwrap().unwrap() {
                return request;
            }
        }
    };
    let request = tokio::time::timeout(TIMEOUT, waiting).await.expect("the kubelet requests a certificate");
    assert_eq!(request["spec"]["signerName"], Value::from("kubernetes.io/kubelet-serving"));
    let name = request.str_at(&["metadata", "name"]).unwrap();
    let request_file = cluster.path("request.pem");
    std::fs::write(&request_file, STANDARD.decode(request.str_at(&["spec", "request"]).unwrap()).unwrap()).unwrap();
    // The test signs the request in place of the cluster's signer.
    let signed = Command::new("openssl")
        .args(["x509", "-req", "-days", "1", "-copy_extensions", "copy", "-in"])
        .arg(request_file)
        .arg("-CA")
        .arg(cluster.path("ca.pem"))
        .arg("-CAkey")
        .arg(cluster.path("ca.key"))
        .output()
        .unwrap();
    assert!(signed.status.success(), "{}", String::from_utf8_lossy(&signed.stderr));
    let approve = value!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Tested"}]}});
    let sign = value!({"status": {"certificate": (STANDARD.encode(signed.stdout))}});
    for (part, patch) in [("approval", approve), ("status", sign)] {
        let target = Target::named(&REQUESTS, "", name).subresource(part);
        cluster.client.patch(&target, &Patch::Strategic(patch), &WriteOptions::default()).await.unwrap();
    }
    let trusted = || {
        let url = format!("https://{}/healthz", cluster.kubelet_address());
        let arguments = ["-s", "--max-time", "30", "-H", "Authorization: Bearer a-token", "--cacert"];
        Command::new("curl").args(arguments).arg(cluster.path("ca.pem")).arg(url).output().unwrap().stdout
    };
    let deadline = std::time::Instant::now() + TIMEOUT;
    while trusted() != b"ok" {
        assert!(std::time::Instant::now() < deadline, "the kubelet presents no certificate of the cluster's CA");
    }
    cluster.finish().await;
}
