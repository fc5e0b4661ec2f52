//! Conversion webhook tests: objects stored in one version are read, written, listed and watched in another.

use apimachinery::{Value, value};

use crate::hook::{Hook, HookResponse};
use crate::server::Cluster;

const V1: &str = "/apis/stable.example.com/v1/namespaces/default/routes";
const V2: &str = "/apis/stable.example.com/v2/namespaces/default/routes";

/// Starts a converter: in `v1` an address is one string, in `v2` a host and a port.
pub(crate) async fn converter() -> Hook {
    Hook::start(&["127.0.0.1"], |path, review| {
        let request = &review["request"];
        let desired = request.str_at(&["desiredAPIVersion"]).unwrap();
        let objects = request["objects"].as_array().unwrap().iter();
        let converted: Vec<Value> = objects.map(|object| convert(object, desired)).collect();
        let result = match path.starts_with("/refuses") {
            true => value!({"status": "Failure", "message": "not today"}),
            false => value!({"status": "Success"}),
        };
        let response = value!({"uid": (request["uid"].clone()), "result": result, "convertedObjects": converted});
        HookResponse::Json(
            200,
            value!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}),
        )
    })
    .await
}

fn convert(object: &Value, desired: &str) -> Value {
    let mut out = object.as_object().unwrap().clone();
    out.insert("apiVersion", desired);
    let spec = &object["spec"];
    let spec = match spec.str_at(&["address"]) {
        Some(address) => {
            let (host, port) = address.split_once(':').unwrap();
            value!({"host": host, "port": port})
        }
        None => value!({"address": (format!("{}:{}", spec["host"].as_str().unwrap(), spec["port"].as_str().unwrap()))}),
    };
    out.insert("spec", spec);
    Value::Object(out)
}

fn definition(hook: &Hook, path: &str) -> Value {
    let version = |name: &str, storage: bool, fields: &[&str]| {
        let properties: apimachinery::Object =
            fields.iter().map(|field| (*field, value!({"type": "string"}))).collect();
        value!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": properties}},
        }}})
    };
    let client = value!({"url": (hook.url(path)), "caBundle": (hook.bundle())});
    value!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "routes.stable.example.com"},
        "spec": {
            "group": "stable.example.com",
            "names": {"kind": "Route", "plural": "routes", "singular": "route", "listKind": "RouteList"},
            "scope": "Namespaced",
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}},
            "versions": [(version("v1", true, &["address"])), (version("v2", false, &["host", "port"]))],
        },
    })
}

async fn define(cluster: &Cluster, hook: &Hook, path: &str) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.post(definitions, &definition(hook, path)).await.ok();
    cluster.until(V2, |response| response.code == 200).await;
}

pub(crate) fn route(version: &str, name: &str, spec: Value) -> Value {
    let api_version = format!("stable.example.com/{version}");
    value!({"apiVersion": api_version, "kind": "Route", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_read_and_written_in_any_version_of_the_crd() {
    let hook = converter().await;
    let cluster = Cluster::start().await;
    define(&cluster, &hook, "/").await;
    cluster.post(V1, &route("v1", "a", value!({"address": "a:1"}))).await.ok();
    assert_eq!(hook.requests().len(), 0, "an object sent in the storage version needs no conversion");
    let read = cluster.get(&format!("{V2}/a")).await.ok();
    assert_eq!(
        (&read["apiVersion"], &read["spec"]),
        (&"stable.example.com/v2".into(), &value!({"host": "a", "port": "1"}))
    );
    let made = cluster.post(V2, &route("v2", "b", value!({"host": "b", "port": "2", "more": "x"}))).await.ok();
    assert_eq!(
        (&made["apiVersion"], &made["spec"]),
        (&"stable.example.com/v2".into(), &value!({"host": "b", "port": "2"}))
    );
    assert_eq!(cluster.get(&format!("{V1}/b")).await.ok()["spec"], value!({"address": "b:2"}));
    let patched = cluster.merge(&format!("{V2}/a"), &value!({"spec": {"port": "9"}})).await.ok();
    assert_eq!(patched["spec"], value!({"host": "a", "port": "9"}));
    assert_eq!(cluster.get(&format!("{V1}/a")).await.ok()["spec"], value!({"address": "a:9"}));
    let before = hook.requests().len();
    let list = cluster.get(V2).await.ok();
    assert_eq!(hook.requests().len(), before + 1, "a list needs one review");
    let hosts: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["spec"]["host"]).collect();
    assert_eq!(hosts, [&Value::from("a"), &Value::from("b")]);
    cluster.delete(&format!("{V2}/b")).await.ok();
    assert_eq!(cluster.get(&format!("{V1}/b")).await.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_is_converted_once_for_all_watches() {
    let hook = converter().await;
    let cluster = Cluster::start().await;
    define(&cluster, &hook, "/").await;
    // The watches start from a resourceVersion, because each watch converts its initial objects separately.
    let list = cluster.get(V2).await.ok();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watches = Vec::new();
    for _ in 0..8 {
        watches.push(cluster.watch(&format!("{V2}?watch=true&resourceVersion={version}")).await);
    }
    cluster.post(V1, &route("v1", "a", value!({"address": "a:1"}))).await.ok();
    for watch in &mut watches {
        let event = watch.next().await;
        assert_eq!((&event["type"], &event["object"]["spec"]), (&"ADDED".into(), &value!({"host": "a", "port": "1"})));
    }
    assert_eq!(hook.requests().len(), 1);
    // A later watch also sees the initial objects in its version.
    let mut late = cluster.watch(&format!("{V2}?watch=true")).await;
    assert_eq!(late.next().await["object"]["apiVersion"], "stable.example.com/v2".into());
}

#[tokio::test(flavor = "multi_thread")]
async fn conversion_failure_returns_the_webhooks_message() {
    let hook = converter().await;
    let cluster = Cluster::start().await;
    define(&cluster, &hook, "/refuses").await;
    cluster.post(V1, &route("v1", "a", value!({"address": "a:1"}))).await.ok();
    let failed = "500 conversion webhook for stable.example.com/v1, Kind=Route failed: not today";
    assert_eq!(cluster.get(&format!("{V2}/a")).await.error_message(), failed);
    let list = cluster.get(V2).await;
    assert_eq!(
        list.error_message(),
        "500 conversion webhook for stable.example.com/v1, Kind=RouteList failed: not today"
    );
    let made = cluster.post(V2, &route("v2", "b", value!({"host": "b", "port": "2"}))).await;
    assert_eq!(made.error_message(), "500 conversion webhook for stable.example.com/v2, Kind=Route failed: not today");
    assert_eq!(cluster.get(&format!("{V1}/b")).await.code, 404);
    let mut watch = cluster.watch(&format!("{V2}?watch=true")).await;
    assert_eq!(watch.next().await["type"], "ERROR".into());
}
