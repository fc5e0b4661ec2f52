//! Aggregated API server tests: discovery, OpenAPI, proxying and availability.

use std::net::{IpAddr, Ipv4Addr};

use apimachinery::{Value, json, value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::Response;
use http_body_util::Full;

use crate::cluster::Cluster;
use crate::server::{Backend, ReceivedRequest, never};

const REGISTERED: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1.ice.example.com";

/// Serves one resource and returns the identity headers of the request.
fn serve(seen: &ReceivedRequest) -> Response<Full<Bytes>> {
    let path = seen.path.split('?').next().unwrap();
    let flavour = |name: &str| {
        let who = seen.headers.get("x-remote-user").map_or("", |value| value.to_str().unwrap());
        value!({
            "apiVersion": "ice.example.com/v1", "kind": "Flavour",
            "metadata": {"name": name, "namespace": "default", "annotations": {"asked-by": who}},
        })
    };
    let (code, response) = match path {
        "/apis/ice.example.com/v1" => (
            200,
            value!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "ice.example.com/v1",
                "resources": [{
                    "name": "flavours", "singularName": "flavour", "namespaced": true, "kind": "Flavour",
                    "verbs": ["get", "list"], "shortNames": ["fl"],
                }],
            }),
        ),
        "/openapi/v3" => (
            200,
            value!({
                "paths": {"apis/ice.example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/ice.example.com/v1?hash=1"}},
            }),
        ),
        "/openapi/v2" => (
            200,
            value!({
                "swagger": "2.0", "definitions": {}, "info": {"title": "ice", "version": "1"},
                "paths": {"/apis/ice.example.com/v1/namespaces/{namespace}/flavours": {}},
            }),
        ),
        "/openapi/v3/apis/ice.example.com/v1" => {
            (200, value!({"openapi": "3.0.0", "info": {"title": "ice"}, "paths": {}}))
        }
        "/apis/ice.example.com/v1/namespaces/default/flavours" => (
            200,
            value!({
                "apiVersion": "ice.example.com/v1", "kind": "FlavourList", "metadata": {}, "items": [(flavour("lemon"))],
            }),
        ),
        "/apis/ice.example.com/v1/namespaces/default/flavours/lemon" => (200, flavour("lemon")),
        "/apis/ice.example.com/v1/namespaces/default/flavours/elsewhere" => {
            return Response::builder()
                .status(302)
                .header("location", "https://evil.example/")
                .body(Full::default())
                .unwrap();
        }
        _ => (404, value!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})),
    };
    let response = Full::new(Bytes::from(json::to_vec(&response)));
    Response::builder().status(code).header("content-type", "application/json").body(response).unwrap()
}

fn registered(port: u16, bundle: &str) -> Value {
    value!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME},
        "spec": {
            "group": "ice.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "caBundle": bundle,
            "service": {"namespace": "default", "name": "ice", "port": (i64::from(port))},
        },
    })
}

/// Returns a Service whose endpoint is in this process.
fn service() -> Value {
    value!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "ice"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    })
}

fn reason(object: &Value) -> &str {
    object["status"]["conditions"][0]["reason"].as_str().unwrap_or_default()
}

async fn available(cluster: &Cluster, reason_is: &str) -> Value {
    cluster.until(&format!("{REGISTERED}/{NAME}"), |object| reason(object) == reason_is).await
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregated_api_is_discovered_described_and_proxied() {
    let backend = Backend::start(IpAddr::V4(Ipv4Addr::LOCALHOST), &["ice.default.svc"], never(), serve).await;
    let cluster = Cluster::start().await;
    let object = registered(backend.address.port(), &BASE64.encode(&backend.certificate));
    cluster.create(REGISTERED, object).await;
    let missing = available(&cluster, "ServiceNotFound").await;
    assert_eq!(missing["status"]["conditions"][0]["message"], "service/ice in \"default\" is not present".into());
    let (code, response) = cluster.raw("GET", "/apis/ice.example.com/v1/namespaces/default/flavours", None).await;
    assert_eq!((code, response), (503, Bytes::from("service unavailable\n")));
    cluster.create("/api/v1/namespaces/default/services", service()).await;
    available(&cluster, "Passed").await;
    let path = "/apis/ice.example.com/v1/namespaces/default/flavours/lemon";
    let lemon = cluster.until(path, |_| true).await;
    assert_eq!(lemon["metadata"]["annotations"]["asked-by"], "admin".into());
    let seen = backend.seen().into_iter().find(|seen| seen.path == path).unwrap();
    assert_eq!(seen.headers["x-remote-group"], "system:masters");
    let (code, _) = cluster.raw("GET", "/apis/ice.example.com/v1/namespaces/default/flavours/elsewhere", None).await;
    assert_eq!(code, 502, "a redirect is not passed on");
    let groups = cluster.call("GET", "/apis", None).await.1;
    let last = groups["groups"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["preferredVersion"]["groupVersion"], "ice.example.com/v1".into());
    let index = cluster.call("GET", "/openapi/v3", None).await.1;
    assert!(index.at(&["paths", "apis/ice.example.com/v1"]).is_some());
    let document = cluster.call("GET", "/openapi/v3/apis/ice.example.com/v1?hash=1", None).await.1;
    assert_eq!(document["info"]["title"], "ice".into());
    let swagger = cluster.call("GET", "/openapi/v2", None).await.1;
    assert!(swagger.at(&["paths", "/apis/ice.example.com/v1/namespaces/{namespace}/flavours"]).is_some());
    kubectl_finds_it(&cluster).await;
    let deleted = cluster.call("DELETE", &format!("{REGISTERED}/{NAME}"), None).await;
    assert_eq!(deleted.0, 200, "{}", deleted.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregated_resources_are_not_served_in_the_wrong_scope() {
    let listed = value!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "ice.example.com/v1",
        "resources": [
            {"name": "flavours", "singularName": "flavour", "namespaced": true, "kind": "Flavour", "verbs": ["get"]},
            {"name": "cones", "singularName": "cone", "namespaced": false, "kind": "Cone", "verbs": ["get"]},
        ],
    });
    let respond = move |seen: &ReceivedRequest| match seen.path.as_str() {
        "/apis/ice.example.com/v1" => {
            let listed = Full::new(Bytes::from(json::to_vec(&listed)));
            Response::builder().header("content-type", "application/json").body(listed).unwrap()
        }
        _ => serve(seen),
    };
    let backend = Backend::start(IpAddr::V4(Ipv4Addr::LOCALHOST), &["ice.default.svc"], never(), respond).await;
    let cluster = Cluster::start().await;
    cluster.create("/api/v1/namespaces/default/services", service()).await;
    cluster.create(REGISTERED, registered(backend.address.port(), &BASE64.encode(&backend.certificate))).await;
    available(&cluster, "Passed").await;
    cluster.until("/apis/ice.example.com/v1/namespaces/default/flavours/lemon", |_| true).await;
    let root = "/apis/ice.example.com/v1";
    for (method, path, expect) in [
        ("GET", "namespaces/default/cones", 404),
        ("POST", "namespaces/default/cones/c/proxy/x", 404),
        ("GET", "flavours/lemon", 404),
        ("DELETE", "watch/namespaces/default/flavours/lemon", 405),
        ("POST", "proxy/namespaces/default/flavours", 405),
    ] {
        let path = format!("{root}/{path}");
        assert_eq!(cluster.call(method, &path, None).await.0, expect, "{method} {path}");
        assert!(!backend.seen().iter().any(|seen| seen.path == path), "{method} {path} was passed on");
    }
}

async fn kubectl_finds_it(cluster: &Cluster) {
    let kubectl_output = async |arguments: &[&str]| {
        let output = cluster.kubectl(("LANG", "C"), arguments, "").await;
        println!("{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(kubectl_output(&["get", "fl", "-o", "name"]).await, "flavour.ice.example.com/lemon");
    let resources = kubectl_output(&["api-resources", "--api-group=ice.example.com", "-o", "name"]).await;
    assert_eq!(resources, "flavours.ice.example.com");
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_api_service_becomes_unavailable_and_recovers() {
    let backend = Backend::start(IpAddr::V4(Ipv4Addr::LOCALHOST), &["ice.default.svc"], never(), serve).await;
    let port = backend.address.port();
    let cluster = Cluster::start().await;
    cluster.create("/api/v1/namespaces/default/services", service()).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    cluster.create(REGISTERED, registered(nobody, "")).await;
    let failed = available(&cluster, "FailedDiscoveryCheck").await;
    let message = failed["status"]["conditions"][0]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("failing or missing response from https://localhost:"), "{message}");
    assert!(message.ends_with("connect: connection refused"), "{message}");
    let mut changed = failed;
    let spec = changed.get_mut("spec").unwrap().as_object_mut().unwrap();
    spec.insert("service", registered(port, "")["spec"]["service"].clone());
    let (code, response) = cluster.call("PUT", &format!("{REGISTERED}/{NAME}"), Some(changed)).await;
    assert_eq!(code, 200, "{response}");
    available(&cluster, "Passed").await;
    // The server responds but its certificate is not trusted: its responses must not reach clients.
    let (code, response) = cluster.raw("GET", "/apis/ice.example.com/v1/namespaces/default/flavours", None).await;
    assert_eq!(code, 503);
    assert!(String::from_utf8_lossy(&response).contains("certificate signed by unknown authority"), "{response:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn local_api_services_are_registered_for_built_in_groups_and_crds() {
    let cluster = Cluster::start().await;
    let core = cluster.until(&format!("{REGISTERED}/v1."), |object| reason(object) == "Local").await;
    assert_eq!(core["spec"]["groupPriorityMinimum"], 18_000.into());
    let definition = value!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cones.ice.example.com"},
        "spec": {
            "group": "ice.example.com", "scope": "Namespaced",
            "names": {"plural": "cones", "singular": "cone", "kind": "Cone", "listKind": "ConeList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.create(definitions, definition).await;
    let made = available(&cluster, "Local").await;
    assert_eq!(made["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "true".into());
    let path = format!("{definitions}/cones.ice.example.com");
    assert_eq!(cluster.call("DELETE", &path, None).await.0, 200);
    let list = cluster.until(REGISTERED, |list| !json::to_string(list).contains(NAME)).await;
    assert!(list["items"].as_array().unwrap().len() > 10);
}
