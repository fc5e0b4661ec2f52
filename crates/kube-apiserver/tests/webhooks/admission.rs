//! Admission webhook tests: mutation, validation, ordering, reinvocation and failure policies.

use apimachinery::{Value, json, value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Method;

use crate::hook::{Hook, HookResponse};
use crate::server::Cluster;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Returns an AdmissionReview with these response fields.
pub(crate) fn review_response(review: &Value, response: Value) -> HookResponse {
    let Value::Object(mut response) = response else { panic!("a response is an object") };
    response.insert("uid", review["request"]["uid"].clone());
    HookResponse::Json(
        200,
        value!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
    )
}

fn patch(operations: &Value) -> Value {
    value!({"allowed": true, "patchType": "JSONPatch", "patch": (BASE64.encode(json::to_vec(operations)))})
}

/// Returns a patch that adds a key to a ConfigMap's data.
pub(crate) fn adds(key: &str, value: &str) -> Value {
    patch(&value!([{"op": "add", "path": (format!("/data/{key}")), "value": value}]))
}

/// Returns a webhook for ConfigMaps, with additional or replaced fields.
pub(crate) fn entry(name: &str, client_config: Value, more: Value) -> Value {
    let mut entry = value!({
        "name": name,
        "clientConfig": client_config,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps", "configmaps/*"]}],
        // Objects in other namespaces, such as those the server writes itself, are excluded.
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
    });
    let Value::Object(more) = more else { panic!("fields are in an object") };
    for (key, value) in more {
        entry.as_object_mut().unwrap().insert(key, value);
    }
    entry
}

pub(crate) fn url(hook: &Hook, path: &str) -> Value {
    value!({"url": (hook.url(path)), "caBundle": (hook.bundle())})
}

pub(crate) async fn configure(cluster: &Cluster, kind: &str, name: &str, webhooks: Vec<Value>) {
    let plural = format!("{}s", kind.to_lowercase());
    let configuration = value!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": webhooks,
    });
    cluster.post(&format!("{CONFIGURATIONS}/{plural}"), &configuration).await.ok();
}

pub(crate) fn config_map(name: &str) -> Value {
    value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn mutating_webhooks_run_in_order_and_are_reinvoked_if_needed() {
    let hook = Hook::start(&["127.0.0.1"], |path, review| {
        let data = &review["request"]["object"]["data"];
        let count = data.as_object().map_or(0, |data| data.iter().count());
        match path.split('?').next().unwrap() {
            "/first" => review_response(review, adds("first", &count.to_string())),
            "/second" => review_response(review, adds("second", &count.to_string())),
            _ => review_response(review, value!({"allowed": true, "warnings": ["seen"]})),
        }
    })
    .await;
    let cluster = Cluster::start().await;
    let hooks = vec![
        entry("first.example.com", url(&hook, "/first"), value!({"reinvocationPolicy": "IfNeeded"})),
        entry("second.example.com", url(&hook, "/second"), value!({})),
        entry("third.example.com", url(&hook, "/third"), value!({})),
    ];
    configure(&cluster, "MutatingWebhookConfiguration", "all", hooks).await;
    let made = cluster.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(made.warnings(), ["seen"]);
    // The webhook `first` saw one key and `second` two; `first` then saw three, because `second` had changed the
    // object.
    assert_eq!(made.ok()["data"], value!({"a": "1", "first": "3", "second": "2"}));
    let paths: Vec<String> = hook.requests().iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(paths, ["/first?timeout=10s", "/second?timeout=10s", "/third?timeout=10s", "/first?timeout=10s"]);
    let (_, review) = &hook.requests()[0];
    assert_eq!(review["request"]["operation"], "CREATE".into());
    assert_eq!(review["request"]["name"], "a".into());
    assert_eq!(review["request"]["namespace"], "default".into());
    assert_eq!(review["request"]["userInfo"]["username"], "admin".into());
    assert_eq!(review["request"]["options"]["kind"], "CreateOptions".into());
    assert_eq!(review["request"]["oldObject"], Value::Null);
    assert_eq!(cluster.get(&format!("{CONFIG_MAPS}/a")).await.ok()["data"]["second"], "2".into());
}

#[tokio::test(flavor = "multi_thread")]
async fn validating_webhooks_reject_creates_updates_and_deletes_with_their_message() {
    let hook = Hook::start(&["hook.default.svc"], |_, review| {
        let request = &review["request"];
        let is_labeled = |object: &Value| object.at(&["metadata", "labels", "held"]).is_some();
        match request.str_at(&["operation"]).unwrap() {
            "CREATE" if is_labeled(&request["object"]) => review_response(
                review,
                value!({"allowed": false, "status": {"message": "no new ones", "code": 403, "reason": "Forbidden"}}),
            ),
            "UPDATE" if is_labeled(&request["object"]) && is_labeled(&request["oldObject"]) => {
                review_response(review, value!({"allowed": false}))
            }
            "DELETE" if is_labeled(&request["oldObject"]) => {
                review_response(review, value!({"allowed": false, "status": {"reason": "StillNeeded"}}))
            }
            _ => review_response(review, value!({"allowed": true})),
        }
    })
    .await;
    let cluster = Cluster::with(|config| config.aggregator_routing = false).await;
    serve(&cluster).await;
    let target = value!({"namespace": "default", "name": "hook", "path": "/judge", "port": (i64::from(hook.port()))});
    let service = value!({"service": target, "caBundle": (hook.bundle())});
    let webhook = entry("judge.example.com", service, value!({}));
    configure(&cluster, "ValidatingWebhookConfiguration", "judge", vec![webhook]).await;
    let mut is_labeled = config_map("h");
    is_labeled.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("labels", value!({"held": "yes"}));
    let denied = "admission webhook \"judge.example.com\" denied the request";
    assert_eq!(cluster.post(CONFIG_MAPS, &is_labeled).await.error_message(), format!("403 {denied}: no new ones"));
    cluster.post(CONFIG_MAPS, &config_map("h")).await.ok();
    let path = format!("{CONFIG_MAPS}/h");
    cluster.merge(&path, &value!({"metadata": {"labels": {"held": "yes"}}})).await.ok();
    let again = cluster.merge(&path, &value!({"data": {"a": "2"}})).await;
    assert_eq!(again.error_message(), format!("400 {denied} without explanation"));
    assert_eq!(cluster.delete(&path).await.error_message(), format!("400 {denied}: StillNeeded"));
    let all = cluster.delete(CONFIG_MAPS).await;
    assert_eq!(all.error_message(), format!("400 {denied}: StillNeeded"));
    cluster.merge(&path, &value!({"metadata": {"labels": {"held": null}}})).await.ok();
    cluster.delete(&path).await.ok();
    assert!(hook.requests().iter().all(|(path, _)| path == "/judge?timeout=10s"));
}

/// Creates a Service whose endpoint is on this host.
async fn serve(cluster: &Cluster) {
    let service = value!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    cluster.post("/api/v1/namespaces/default/services", &service).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_policy_decides_when_a_webhook_call_fails() {
    let hook = Hook::start(&["127.0.0.1"], |path, review| match path.split('?').next().unwrap() {
        "/slow" => HookResponse::NoResponse,
        "/broken" => HookResponse::Json(500, value!("boom")),
        _ => review_response(review, value!({"uid": "", "allowed": true})),
    })
    .await;
    let cluster = Cluster::start().await;
    let check = async |path: &str, more: Value, expect: &str| {
        let webhook = entry("h.example.com", url(&hook, path), more);
        configure(&cluster, "ValidatingWebhookConfiguration", "judge", vec![webhook]).await;
        let response = cluster.post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("x")).await;
        assert_eq!(if response.code == 201 { "201".to_owned() } else { response.error_message() }, expect);
        cluster.delete(&format!("{CONFIGURATIONS}/validatingwebhookconfigurations/judge")).await.ok();
    };
    let failed = "500 Internal error occurred: failed calling webhook \"h.example.com\": failed to call webhook:";
    let late = format!("{failed} Post \"{}?timeout=1s\": context deadline exceeded", hook.url("/slow"));
    check("/slow", value!({"timeoutSeconds": 1}), &late).await;
    check("/slow", value!({"timeoutSeconds": 1, "failurePolicy": "Ignore"}), "201").await;
    let broken =
        format!("{failed} an error on the server (\"\\\"boom\\\"\") has prevented the request from succeeding");
    check("/broken", value!({}), &broken).await;
    check("/broken", value!({"failurePolicy": "Ignore"}), "201").await;
    let only = value!({"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'other'"}]});
    check("/broken", only, "201").await;
    let exact =
        value!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*"]}]});
    check("/broken", exact, "201").await;
    check("/fine", value!({}), "201").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_see_subresource_objects_and_the_requested_versions() {
    let hook = Hook::start(&["127.0.0.1"], |path, review| {
        if path.starts_with("/scale") && review["request"]["kind"]["kind"] == "Scale".into() {
            return review_response(review, patch(&value!([{"op": "replace", "path": "/spec/replicas", "value": 4}])));
        }
        if path.starts_with("/old") {
            let change = value!([{"op": "replace", "path": "/spec/targetCPUUtilizationPercentage", "value": 33}]);
            return review_response(review, patch(&change));
        }
        review_response(review, value!({"allowed": true}))
    })
    .await;
    let cluster = Cluster::start().await;
    let rules = |group: &str, resource: &str| value!({"rules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource]}]});
    let hooks = vec![
        entry("scale.example.com", url(&hook, "/scale"), rules("apps", "deployments/scale")),
        entry("old.example.com", url(&hook, "/old"), rules("autoscaling", "horizontalpodautoscalers")),
        entry("bind.example.com", url(&hook, "/bind"), rules("", "pods/binding")),
    ];
    configure(&cluster, "MutatingWebhookConfiguration", "all", hooks).await;
    let template = value!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = value!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": (template.clone())},
    });
    let apps = "/apis/apps/v1/namespaces/default/deployments";
    cluster.post(apps, &deployment).await.ok();
    cluster.merge(&format!("{apps}/d/scale"), &value!({"spec": {"replicas": 2}})).await.ok();
    assert_eq!(cluster.get(&format!("{apps}/d")).await.ok()["spec"]["replicas"], 4.into());
    let scaler = value!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "s"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]},
    });
    let made = cluster.post("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", &scaler).await.ok();
    assert_eq!(made["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 33.into());
    let requests = hook.requests();
    let (_, seen) = requests.iter().find(|(path, _)| path.starts_with("/old")).unwrap();
    assert_eq!(seen["request"]["object"]["apiVersion"], "autoscaling/v1".into());
    assert_eq!(seen["request"]["requestKind"]["version"], "v2".into());
    let pod =
        value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": (template["spec"].clone())});
    cluster.post("/api/v1/namespaces/default/pods", &pod).await.ok();
    let binding = value!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    cluster.post("/api/v1/namespaces/default/pods/p/binding", &binding).await.ok();
    let requests = hook.requests();
    let (_, seen) = requests.iter().find(|(path, _)| path.starts_with("/bind")).unwrap();
    assert_eq!(seen["request"]["kind"]["kind"], "Binding".into());
    assert_eq!(seen["request"]["subResource"], "binding".into());
    assert_eq!(seen["request"]["object"]["target"]["name"], "n".into());
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_configurations_are_exempt_from_webhooks() {
    let hook = Hook::start(&["127.0.0.1"], |_, review| review_response(review, value!({"allowed": false}))).await;
    let cluster = Cluster::start().await;
    let everything = value!({
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}],
        "namespaceSelector": {},
    });
    let webhook = entry("no.example.com", url(&hook, "/"), everything);
    configure(&cluster, "ValidatingWebhookConfiguration", "no", vec![webhook]).await;
    assert_eq!(cluster.post(CONFIG_MAPS, &config_map("x")).await.code, 400);
    let path = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/no");
    cluster.send(Method::DELETE, &path, "", "").await.ok();
    cluster.post(CONFIG_MAPS, &config_map("x")).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_connect_request_opens_no_stream() {
    let hook = Hook::start(&["127.0.0.1"], |_, review| {
        review_response(review, value!({"allowed": false, "status": {"message": "no streams"}}))
    })
    .await;
    let cluster = Cluster::start().await;
    let streams = value!({
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/exec"]}],
    });
    let webhook = entry("streams.example.com", url(&hook, "/"), streams);
    configure(&cluster, "ValidatingWebhookConfiguration", "streams", vec![webhook]).await;
    let path = "/api/v1/namespaces/default/pods/p/exec?command=sh&command=-c&stdin=true";
    let message = cluster.post(path, &value!({})).await.error_message();
    assert_eq!(message, "400 admission webhook \"streams.example.com\" denied the request: no streams");
    let (_, review) = hook.requests().remove(0);
    let request = &review["request"];
    assert_eq!((&request["operation"], &request["subResource"]), (&"CONNECT".into(), &"exec".into()));
    assert_eq!(request["kind"]["kind"], "PodExecOptions".into());
    assert_eq!(request["object"]["command"], value!(["sh", "-c"]));
    assert_eq!(request["options"], Value::Null);
}
