//! Built-in images, which every node has without a registry.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use apimachinery::{Value, value};

use crate::cluster::*;

/// Sends a request without a body to a server on this host. Returns the response.
fn send_request(port: u16, line: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("{line} HTTP/1.0\r\nx-asked-by: a test\r\n\r\n").as_bytes()).unwrap();
    let mut response = String::new();
    // A server that exits may close the connection before it has responded.
    let _ = stream.read_to_string(&mut response);
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_images_run_without_a_registry() {
    let cluster = cluster_with_built_in().await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hello = value!({"name": "c", "image": "knarr.local/hello", "imagePullPolicy": "Always",
        "env": [{"name": "PORT", "value": (port.to_string())},
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": (u32::from(port))}, "periodSeconds": 1, "failureThreshold": 1}});
    let pause = value!({"name": "pause", "image": "knarr.local/pause", "imagePullPolicy": "Never"});
    let spec = value!({"containers": [hello, pause], "hostNetwork": true, "terminationGracePeriodSeconds": 5});
    cluster.run(&with("hello", spec), "ready", is_ready).await;
    cluster.event("Pulled: Successfully pulled image \"knarr.local/hello\"").await;
    let page = send_request(port, "GET /");
    for part in ["Hello from hello", "node: node-1", "ip: 127.0.0.1", "x-asked-by: a test"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    send_request(port, "POST /ready?ok=false");
    cluster.wait(&PODS, "hello", "no longer ready", |pod| !is_ready(pod)).await;
    send_request(port, "POST /ready?ok=true");
    cluster.wait(&PODS, "hello", "ready again", is_ready).await;
    send_request(port, "POST /exit?code=3");
    let again = |pod: &Value| pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 3.into();
    cluster.wait(&PODS, "hello", "started again", again).await;
    let mut missing = pod("missing", "true");
    set_container(&mut missing, "image", "knarr.local/absent");
    cluster.create(&PODS, &missing).await;
    cluster.event("Failed: Failed to pull image \"knarr.local/absent\": built-in image").await;
    let listed = Command::new(env!("CARGO_BIN_EXE_knarr"))
        .args(["image", "ls", "--data-dir"])
        .arg(cluster.path(""))
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("knarr.local/hello:latest") && listed.contains("knarr.local/pause:latest"), "{listed}");
    cluster.finish().await;
}
