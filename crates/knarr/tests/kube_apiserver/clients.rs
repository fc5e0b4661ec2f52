//! Third-party clients: the kube crate and the Python client.

use std::process::Command;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

use crate::server::Server;

async fn connect(server: &Server) -> Client {
    let file = kube::config::Kubeconfig::read_from(server.dir.path().join("kubeconfig")).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn kube_crate_lists_watches_and_writes() {
    let server = Server::start();
    let client = connect(&server).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let made = |name: &str| -> ConfigMap {
        serde_json::from_value(serde_json::json!({"metadata": {"name": name}, "data": {"a": "b"}})).unwrap()
    };
    let first = maps.create(&PostParams::default(), &made("one")).await.unwrap();
    let version = first.metadata.resource_version.unwrap();
    let mut changes = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    maps.create(&PostParams::default(), &made("two")).await.unwrap();
    let patch = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "c"}});
    let applied = PatchParams::apply("test").force();
    assert_eq!(maps.patch("two", &applied, &Patch::Apply(&patch)).await.unwrap().data.unwrap()["a"], "c");
    maps.delete("one", &DeleteParams::default()).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let event = tokio::time::timeout(Duration::from_secs(20), changes.next()).await.unwrap().unwrap().unwrap();
        seen.push(match event {
            WatchEvent::Added(map) => format!("added {}", map.metadata.name.unwrap()),
            WatchEvent::Modified(map) => format!("modified {}", map.metadata.name.unwrap()),
            WatchEvent::Deleted(map) => format!("deleted {}", map.metadata.name.unwrap()),
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(seen, ["added two", "modified two", "deleted one"]);
    let page = maps.list(&ListParams::default().limit(1)).await.unwrap();
    assert_eq!(page.items.len(), 1);
    let missing = maps.get("one").await.unwrap_err();
    assert!(matches!(missing, kube::Error::Api(status) if status.is_not_found()));

    let streaming = watcher::Config::default().streaming_lists();
    let mut objects = watcher(maps, streaming).applied_objects().boxed();
    let name = async { objects.next().await.unwrap().unwrap().metadata.name.unwrap() };
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), name).await.unwrap(), "two");
    let pods: Api<Pod> = Api::all(client);
    assert!(pods.list_metadata(&ListParams::default()).await.unwrap().items.is_empty());
}

/// The Python program under test. It prints only unexpected results.
const PROGRAM: &str = r#"
import sys
from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

config.load_kube_config(sys.argv[1])
core, apps = client.CoreV1Api(), client.AppsV1Api()
made = core.create_namespaced_config_map("default", {"metadata": {"name": "py"}, "data": {"a": "b"}})
stream = watch.Watch().stream(core.list_namespaced_config_map, "default",
    resource_version=made.metadata.resource_version, timeout_seconds=20)
core.patch_namespaced_config_map("py", "default", {"data": {"a": "c"}})
event = next(stream)
assert event["type"] == "MODIFIED" and event["object"].data == {"a": "c"}, event
template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
apps.create_namespaced_deployment("default", {"metadata": {"name": "web"},
    "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}})
assert apps.read_namespaced_deployment_scale("web", "default").spec.replicas == 1
assert [one.metadata.name for one in apps.list_deployment_for_all_namespaces().items] == ["web"]
try:
    core.create_namespaced_config_map("default", {"metadata": {"name": "Bad_Name"}})
    raise SystemExit("a bad name was taken")
except ApiException as error:
    assert error.status == 422, error
custom = client.CustomObjectsApi()
assert custom.list_cluster_custom_object("rbac.authorization.k8s.io", "v1", "clusterroles")["items"]
core.delete_namespaced_config_map("py", "default")
"#;

#[test]
fn python_client_lists_watches_and_writes() {
    let server = Server::start();
    let program = server.dir.path().join("program.py");
    std::fs::write(&program, PROGRAM).unwrap();
    // Debian's interpreter, for which its package python3-kubernetes is installed.
    let output = Command::new("/usr/bin/python3")
        .args(["-W", "ignore"])
        .arg(&program)
        .arg(server.dir.path().join("kubeconfig"))
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.is_empty(), "{text}");
}

/// Splits off the first length-delimited protobuf field, which must have this one-byte tag. It is independent of the
/// server's codec, so that an error there is not repeated here.
fn take_field(bytes: &[u8], tag: u8) -> (&[u8], &[u8]) {
    assert_eq!(bytes[0], tag, "unexpected tag in {bytes:?}");
    let (mut length, mut at) = (0_usize, 1);
    for shift in (0..).step_by(7) {
        let byte = bytes[at];
        length |= usize::from(byte & 0x7f) << shift;
        at += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    bytes[at..].split_at(length)
}

#[test]
fn protobuf_watch_sends_bare_watch_events_with_enveloped_objects() {
    let server = Server::start();
    for name in ["one", "two"] {
        server.kubectl(&format!("create configmap {name} --from-literal=a=b"));
    }
    let accept = "Accept: application/vnd.kubernetes.protobuf;stream=watch";
    let path =
        "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=2&fieldSelector=metadata.name!=kube-root-ca.crt";
    let stream = server.curl(&["-N", "-H", accept], path).stdout;
    let (mut rest, mut frames) = (stream.as_slice(), Vec::new());
    while let [a, b, c, d, after @ ..] = rest {
        let (frame, after) = after.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
        frames.push(frame);
        rest = after;
    }
    assert_eq!(frames.len(), 2, "one frame for each object");
    for (frame, name) in frames.into_iter().zip(["one", "two"]) {
        let (event_type, rest) = take_field(frame, 0x0a);
        assert_eq!(event_type, b"ADDED");
        let (raw_extension, rest) = take_field(rest, 0x12);
        assert!(rest.is_empty(), "a WatchEvent has two fields");
        let object = take_field(raw_extension, 0x0a).0.strip_prefix(b"k8s\0").expect("the object has an envelope");
        let (type_meta, object) = take_field(object, 0x0a);
        assert_eq!(type_meta, b"\x0a\x02v1\x12\x09ConfigMap");
        let (map, _) = take_field(object, 0x12);
        let (metadata, _) = take_field(map, 0x0a);
        assert_eq!(take_field(metadata, 0x0a).0, name.as_bytes());
    }
}
