//! Host namespaces, mount propagation, runtime classes, gRPC probes and pull secrets of pods.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use apimachinery::{Resource, Value, value};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use image_store::{Name, Store};

use crate::cluster::*;
use crate::registry::Registry;

#[tokio::test(flavor = "multi_thread")]
async fn host_namespaces_are_used_on_request() {
    let cluster = cluster().await;
    let spaces = ["pid", "ipc", "uts", "mnt"];
    let host_namespaces =
        spaces.map(|space| fs::read_link(format!("/proc/self/ns/{space}")).unwrap().display().to_string());
    let script = "for s in pid ipc uts mnt; do readlink /proc/self/ns/$s; done";
    let mut shares = pod("shares", script);
    let mut keeps = pod("keeps", script);
    for pod in [&mut shares, &mut keeps] {
        set(pod, "restartPolicy", "Never");
    }
    set(&mut shares, "hostPID", true);
    set(&mut shares, "hostIPC", true);
    let seen = |stdout: String| -> Vec<bool> {
        stdout.lines().zip(&host_namespaces).map(|(line, host_namespaces)| line == host_namespaces).collect()
    };
    assert_eq!(seen(cluster.output(&shares).await), [true, true, false, false]);
    assert_eq!(seen(cluster.output(&keeps).await), [false; 4]);
    cluster.finish().await;
}

/// A directory that is a shared mount, unmounted on drop.
struct SharedMount(PathBuf);

impl SharedMount {
    fn new(path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        let shared = Self(path);
        shared.mount(&["--bind"], &shared.0.clone(), &shared.0.clone());
        assert!(Command::new("mount").arg("--make-shared").arg(&shared.0).status().unwrap().success());
        shared
    }

    fn mount(&self, how: &[&str], what: &Path, target: &Path) {
        assert!(Command::new("mount").args(how).arg(what).arg(target).status().unwrap().success());
    }
}

impl Drop for SharedMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--recursive").arg(&self.0).output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mount_propagation_and_recursive_read_only_are_applied() {
    let cluster = cluster().await;
    let shared = SharedMount::new(cluster.path("shared"));
    fs::create_dir(shared.0.join("later")).unwrap();
    let pod_with_mount = |name: &str, script: &str, mount: Value| {
        let mut pod = pod(name, script);
        set(&mut pod, "restartPolicy", "Never");
        set(&mut pod, "volumes", value!([{"name": "v", "hostPath": {"path": (shared.0.display().to_string())}}]));
        let mut mount = mount;
        let fields = mount.as_object_mut().unwrap();
        fields.insert("name", "v");
        fields.insert("mountPath", "/v");
        set_container(&mut pod, "volumeMounts", Value::Array(vec![mount]));
        pod
    };
    let follows = pod_with_mount(
        "follows",
        "echo waits; while ! test -e /v/later/file; do sleep 0.1; done; echo seen",
        value!({"mountPropagation": "HostToContainer"}),
    );
    cluster.create(&PODS, &follows).await;
    cluster.wait(&PODS, "follows", "there", |pod| phase(pod) == "Running").await;
    cluster.logged("follows", "c", 0, "waits").await;
    shared.mount(&["-t", "tmpfs"], Path::new("tmpfs"), &shared.0.join("later"));
    fs::write(shared.0.join("later/file"), "").unwrap();
    cluster.logged("follows", "c", 0, "seen").await;

    // A mount in a container propagates to the host if both sides are shared.
    let mut gives = pod_with_mount(
        "gives",
        "mkdir /v/given && mount -t tmpfs tmpfs /v/given && echo 1 >/v/given/file && echo done && exec sleep 1000",
        value!({"mountPropagation": "Bidirectional"}),
    );
    set_container(&mut gives, "securityContext", value!({"privileged": true}));
    cluster.create(&PODS, &gives).await;
    cluster.wait(&PODS, "gives", "there", |pod| phase(pod) == "Running").await;
    cluster.logged("gives", "c", 0, "done").await;
    assert_eq!(fs::read_to_string(shared.0.join("given/file")).unwrap(), "1\n");

    let tries = "touch /v/x 2>/dev/null && echo written; touch /v/later/x 2>/dev/null && echo written below; echo over";
    let flat = pod_with_mount("flat", tries, value!({"readOnly": true}));
    assert_eq!(cluster.output(&flat).await, "written below\nover\n", "read-only is the mount alone");
    let node = cluster.get(&NODES, NODE).await;
    let handlers = node["status"]["runtimeHandlers"].as_array().unwrap_or_default();
    if handlers.iter().any(|one| one["features"]["recursiveReadOnlyMounts"] == Value::Bool(true)) {
        let deep = pod_with_mount("deep", tries, value!({"readOnly": true, "recursiveReadOnly": "Enabled"}));
        assert_eq!(cluster.output(&deep).await, "over\n", "and recursively if requested");
    } else {
        println!("not tried: this runtime does not protect what is mounted below");
    }
    cluster.delete("gives").await;
    drop(shared);
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runtime_class_selects_another_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let (program, log) = (dir.path().join("runc"), dir.path().join("log"));
    fs::write(&program, format!("#!/bin/sh\necho \"$@\" >> {}\nexec runc \"$@\"\n", log.display())).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let handler = format!("other={}", program.display());
    let cluster = cluster_with_built_in_and(&["--runtime-handler", &handler]).await;
    static CLASSES: Resource = Resource::cluster("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass");
    let class = |name: &str| value!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name});
    cluster.create(&CLASSES, &class("other")).await;
    cluster.create(&CLASSES, &class("missing")).await;
    let mut runs = pod("runs", "echo ran");
    set(&mut runs, "restartPolicy", "Never");
    let mut plain = runs.clone();
    set(&mut runs, "runtimeClassName", "other");
    assert_eq!(cluster.output(&runs).await, "ran\n");
    let calls = fs::read_to_string(&log).unwrap();
    assert!(calls.contains("create") && calls.contains("start"), "{calls}");
    plain.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("name", "plain");
    assert_eq!(cluster.output(&plain).await, "ran\n");
    assert_eq!(fs::read_to_string(&log).unwrap().matches("create").count(), calls.matches("create").count());
    let mut lost = pod("lost", "echo ran");
    set(&mut lost, "runtimeClassName", "missing");
    cluster.create(&PODS, &lost).await;
    let event = cluster.event("FailedCreatePodSandBox").await;
    assert!(event.str_at(&["message"]).unwrap().contains("missing"), "{event:?}");
    cluster.delete("lost").await;
    cluster.finish().await;
}

/// Starts a gRPC health server that returns the current status.
async fn health(status: Arc<AtomicU8>) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let status = Arc::clone(&status);
            let service = hyper::service::service_fn(move |_| {
                let body = Bytes::from(vec![0, 0, 0, 0, 2, 0x08, status.load(Ordering::SeqCst)]);
                let trailers = async {
                    Some(Ok(http::HeaderMap::from_iter([(
                        http::HeaderName::from_static("grpc-status"),
                        http::HeaderValue::from_static("0"),
                    )])))
                };
                let response = http::Response::builder().header("content-type", "application/grpc");
                async move { response.body(Full::new(body).with_trailers(trailers)) }
            });
            let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(async move { drop(serving.serve_connection(TokioIo::new(stream), service).await) });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_readiness_probe_determines_readiness() {
    let cluster = cluster().await;
    let status = Arc::new(AtomicU8::new(2));
    let port = health(Arc::clone(&status)).await;
    let mut probed = pod("probed", "exec sleep 1000");
    set(&mut probed, "hostNetwork", true);
    let probe = value!({"grpc": {"port": (i64::from(port)), "service": "s"}, "periodSeconds": 1});
    set_container(&mut probed, "readinessProbe", probe);
    cluster.create(&PODS, &probed).await;
    cluster.event("Unhealthy: Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")").await;
    assert!(!is_ready(&cluster.get(&PODS, "probed").await));
    status.store(1, Ordering::SeqCst);
    cluster.wait(&PODS, "probed", "ready", is_ready).await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn image_pull_secret_is_used_for_a_private_registry() {
    let cluster = cluster().await;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let image = store.build(&Name::parse("test.local/private:1").unwrap(), &busybox()).await.unwrap();
    let mut registry = Registry { authorization: Some("Basic bWU6c2VjcmV0"), ..Registry::default() };
    registry.add_store(dir.path());
    registry.tag("test/private", image.manifest.as_str());
    let host = registry.start();
    let mut reads = pod("reads", "echo inside");
    set(&mut reads, "restartPolicy", "Never");
    set_container(&mut reads, "image", format!("{host}/test/private:1"));
    let mut rejected = reads.clone();
    rejected.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("name", "refused");
    cluster.create(&PODS, &rejected).await;
    cluster.event("Failed: Failed to pull image").await;
    cluster.delete("refused").await;

    let config = format!(r#"{{"auths": {{"{host}": {{"username": "me", "password": "secret"}}}}}}"#);
    let secret = value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": "default"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config}});
    cluster.create(&SECRETS, &secret).await;
    set(&mut reads, "imagePullSecrets", value!([{"name": "login"}]));
    assert_eq!(cluster.output(&reads).await, "inside\n");
    // The image is on the node now, but pods without the pull secret must not use it.
    let named = |pod: &Value, name: &str| {
        let mut pod = pod.clone();
        pod.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("name", name);
        set_container(&mut pod, "imagePullPolicy", "Never");
        pod
    };
    let stranger = named(&rejected, "stranger");
    let waits = |pod: &Value| {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        waiting.str_at(&["reason"]) == Some("ErrImageNeverPull")
    };
    let message = cluster.run(&stranger, "refused", waits).await;
    let message = message["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("does not have the proper auth credentials"), "{message}");
    assert_eq!(cluster.output(&named(&reads, "again")).await, "inside\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_need_missing_host_features_are_rejected() {
    let cluster = cluster().await;
    let node = cluster.get(&NODES, NODE).await;
    let pages = node["status"]["capacity"]["hugepages-2Mi"].as_str().unwrap_or("0");
    if pages == "0" {
        let mut huge = pod("huge", "true");
        let amounts = value!({"hugepages-2Mi": "2Mi", "memory": "16Mi"});
        set_container(&mut huge, "resources", value!({"limits": amounts}));
        let rejected = cluster.run(&huge, "refused", |pod| phase(pod) == "Failed").await;
        assert_eq!(rejected.str_at(&["status", "reason"]), Some("OutOfhugepages-2Mi"));
    } else {
        println!("not tried: this host has huge pages");
    }
    if fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with('Y')) {
        println!("not tried: this host enforces AppArmor profiles");
    } else {
        let mut confined = pod("confined", "true");
        let profile = value!({"type": "Localhost", "localhostProfile": "none-of-this-name"});
        set(&mut confined, "securityContext", value!({"appArmorProfile": profile}));
        let rejected = cluster.run(&confined, "refused", |pod| phase(pod) == "Failed").await;
        assert_eq!(rejected.str_at(&["status", "reason"]), Some("AppArmor"));
    }
    cluster.finish().await;
}
