//! Admission policy tests: the requests that policies see, and their reinvocation.

use apimachinery::{Value, json, value};
use http::Method;

use crate::admission::{adds, config_map, configure, entry, review_response, url};
use crate::hook::Hook;
use crate::server::Cluster;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Returns a rule that matches all operations on a resource.
fn rule(group: &str, resource: &str) -> Value {
    value!([{"apiGroups": [group], "apiVersions": ["*"], "operations": ["*"], "resources": [resource]}])
}

async fn post(cluster: &Cluster, kind: &str, name: &str, spec: Value) {
    let singular = kind.to_lowercase();
    let plural = match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{singular}s"),
    };
    let object = value!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "spec": spec});
    cluster.post(&format!("{POLICIES}/{plural}"), &object).await.ok();
}

/// Creates a policy that rejects requests for which its expression is false.
async fn validating(cluster: &Cluster, name: &str, constraints: Value, expression: &str) {
    let validations = value!([{"expression": expression, "message": (format!("{name} says no"))}]);
    let spec = value!({"matchConstraints": constraints, "validations": validations});
    post(cluster, "ValidatingAdmissionPolicy", name, spec).await;
    let spec = value!({"policyName": name, "validationActions": ["Deny"]});
    post(cluster, "ValidatingAdmissionPolicyBinding", name, spec).await;
}

/// Creates a policy that changes objects by a JSON patch.
async fn mutating(cluster: &Cluster, name: &str, rules: Value, again: &str, patch: &str) {
    let spec = value!({
        "matchConstraints": {"resourceRules": rules}, "reinvocationPolicy": again, "failurePolicy": "Fail",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    });
    post(cluster, "MutatingAdmissionPolicy", name, spec).await;
    post(cluster, "MutatingAdmissionPolicyBinding", name, value!({"policyName": name})).await;
}

fn deployment() -> Value {
    value!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

async fn scale(cluster: &Cluster, replicas: i64) -> crate::server::ApiResponse {
    cluster.merge(&format!("{DEPLOYMENTS}/d/scale"), &value!({"spec": {"replicas": replicas}})).await
}

async fn replicas(cluster: &Cluster) -> Value {
    cluster.get(&format!("{DEPLOYMENTS}/d")).await.ok()["spec"]["replicas"].clone()
}

#[tokio::test]
async fn policies_for_scale_see_scale_updates_and_policies_for_the_object_do_not() {
    let cluster = Cluster::start().await;
    cluster.post(DEPLOYMENTS, &deployment()).await.ok();
    let expression = "object.kind == 'Scale' && oldObject.spec.replicas == 1 && request.kind.kind == 'Scale' && \
        request.subResource == 'scale' && object.spec.replicas <= 3";
    validating(&cluster, "small", value!({"resourceRules": (rule("apps", "deployments/scale"))}), expression).await;
    validating(&cluster, "frozen", value!({"resourceRules": (rule("apps", "deployments"))}), "false").await;
    let message = scale(&cluster, 4).await.error_message();
    assert!(message.starts_with("422") && message.ends_with("small says no"), "{message}");
    scale(&cluster, 3).await.ok();
    assert_eq!(replicas(&cluster).await, 3.into());
    let message = cluster.merge(&format!("{DEPLOYMENTS}/d"), &value!({"spec": {"replicas": 2}})).await.error_message();
    assert!(message.ends_with("frozen says no"), "{message}");
}

#[tokio::test]
async fn mutating_policy_changes_a_scale() {
    let cluster = Cluster::start().await;
    cluster.post(DEPLOYMENTS, &deployment()).await.ok();
    let patch = "[JSONPatch{op: 'replace', path: '/spec/replicas', value: object.spec.replicas * 2}]";
    mutating(&cluster, "twice", rule("apps", "deployments/scale"), "Never", patch).await;
    let spec = value!({
        "matchConstraints": {"resourceRules": (rule("apps", "deployments/scale"))}, "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {
            "expression": "Object{spec: Object.spec{replicas: object.spec.replicas + 1}}"}}],
    });
    post(&cluster, "MutatingAdmissionPolicy", "z-more", spec).await;
    post(&cluster, "MutatingAdmissionPolicyBinding", "z-more", value!({"policyName": "z-more"})).await;
    assert_eq!(scale(&cluster, 2).await.ok()["spec"]["replicas"], 5.into());
    assert_eq!(replicas(&cluster).await, 5.into());
}

#[tokio::test(flavor = "multi_thread")]
async fn mutating_policy_is_reinvoked_after_webhooks_only_if_needed() {
    let hook = Hook::start(&["127.0.0.1"], |_, review| review_response(review, adds("hook", "x"))).await;
    let cluster = Cluster::start().await;
    let count = |key: &str| format!("[JSONPatch{{op: 'add', path: '/data/{key}', value: string(size(object.data))}}]");
    mutating(&cluster, "a-never", rule("", "configmaps"), "Never", &count("never")).await;
    mutating(&cluster, "b-again", rule("", "configmaps"), "IfNeeded", &count("again")).await;
    let made = cluster.post(CONFIG_MAPS, &config_map("alone")).await.ok();
    assert_eq!(made["data"], value!({"a": "1", "never": "1", "again": "2"}), "no later plugin changed it");
    let hooks = vec![entry("h.example.com", url(&hook, "/"), value!({}))];
    configure(&cluster, "MutatingWebhookConfiguration", "h", hooks).await;
    let made = cluster.post(CONFIG_MAPS, &config_map("both")).await.ok();
    assert_eq!(made["data"], value!({"a": "1", "hook": "x", "never": "1", "again": "4"}));
}

#[tokio::test]
async fn namespace_selector_matches_the_new_labels_of_a_namespace() {
    let cluster = Cluster::start().await;
    let constraints = value!({"resourceRules": (rule("", "namespaces")),
        "namespaceSelector": {"matchLabels": {"guarded": "yes"}}});
    validating(&cluster, "guard", constraints, "false").await;
    let namespace = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    cluster.post("/api/v1/namespaces", &namespace).await.ok();
    let label = |value: Value| value!({"metadata": {"labels": {"guarded": value}}});
    cluster.merge("/api/v1/namespaces/n", &label("no".into())).await.ok();
    let message = cluster.merge("/api/v1/namespaces/n", &label("yes".into())).await.error_message();
    assert!(message.ends_with("guard says no"), "{message}");
}

#[tokio::test]
async fn policies_see_request_options_and_connect_options() {
    let cluster = Cluster::start().await;
    let about = |resource: &str| value!({"resourceRules": (rule("", resource))});
    let written = "request.operation == 'DELETE' ? request.options.gracePeriodSeconds == 7 && \
        request.options.propagationPolicy == 'Orphan' && request.options.preconditions.uid == oldObject.metadata.uid : \
        request.options.fieldManager == 'me' && request.options.fieldValidation == 'Strict'";
    validating(&cluster, "options", about("configmaps"), written).await;
    let expression = "request.kind.kind == 'PodExecOptions' && object.command[0] == 'ls' && !has(request.options)";
    validating(&cluster, "streams", about("pods/exec"), expression).await;
    let message = cluster.post(CONFIG_MAPS, &config_map("a")).await.error_message();
    assert!(message.contains("options"), "{message}");
    let named = format!("{CONFIG_MAPS}?fieldManager=me&fieldValidation=Strict");
    let made = cluster.post(&named, &config_map("a")).await.ok();
    let path = format!("{CONFIG_MAPS}/a");
    let message = cluster.delete(&path).await.error_message();
    assert!(message.contains("options"), "{message}");
    let uid = made["metadata"]["uid"].clone();
    let options = value!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 7,
        "propagationPolicy": "Orphan", "preconditions": {"uid": uid}});
    cluster.send(Method::DELETE, &path, "application/json", json::to_vec(&options)).await.ok();
    let exec = |command: &str| format!("/api/v1/namespaces/default/pods/p/exec?command={command}");
    let message = cluster.post(&exec("rm"), &value!({})).await.error_message();
    assert!(message.ends_with("streams says no"), "{message}");
    assert_eq!(cluster.post(&exec("ls"), &value!({})).await.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn admission_metrics_count_plugins_webhooks_and_policies() {
    let hook = Hook::start(&["127.0.0.1"], |path, review| match path.split('?').next() {
        Some("/no") => review_response(review, value!({"allowed": false, "status": {"code": 418}})),
        _ => review_response(review, value!({"allowed": true})),
    })
    .await;
    let cluster = Cluster::start().await;
    let about = value!({"resourceRules": (rule("", "configmaps"))});
    validating(&cluster, "named", about, "object.metadata.name != 'bad'").await;
    mutating(
        &cluster,
        "marked",
        rule("", "configmaps"),
        "Never",
        "[JSONPatch{op: 'add', path: '/data/m', value: 'x'}]",
    )
    .await;
    let nowhere = value!({"url": "https://127.0.0.1:1/", "caBundle": (hook.bundle())});
    let hooks = vec![
        entry("yes.example.com", url(&hook, "/yes"), value!({})),
        entry("gone.example.com", nowhere, value!({"failurePolicy": "Ignore"})),
        entry("no.example.com", url(&hook, "/no"), value!({"objectSelector": {"matchLabels": {"refuse": "yes"}}})),
    ];
    configure(&cluster, "ValidatingWebhookConfiguration", "all", hooks).await;
    cluster.post(CONFIG_MAPS, &config_map("good")).await.ok();
    assert_eq!(cluster.post(CONFIG_MAPS, &config_map("bad")).await.code, 422);
    let mut labelled = config_map("labelled");
    labelled.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("labels", value!({"refuse": "yes"}));
    assert_eq!(cluster.post(CONFIG_MAPS, &labelled).await.code, 418);
    let response = cluster.get("/metrics").await;
    let text = response.body.as_str().unwrap();
    let has = |series: &str| assert!(text.lines().any(|line| line.starts_with(series)), "{series} in\n{text}");
    let policy = "apiserver_validating_admission_policy_check_total{enforcement_action";
    has(&format!("{policy}=\"allow\",error_type=\"no_error\",policy=\"named\",policy_binding=\"named\"}} 2"));
    has(&format!("{policy}=\"deny\",error_type=\"no_error\",policy=\"named\",policy_binding=\"named\"}} 1"));
    has(
        "apiserver_mutating_admission_policy_check_total{error_type=\"no_error\",policy=\"marked\",policy_binding=\"marked\"} 3",
    );
    let call = "apiserver_admission_webhook_request_total{code";
    let create = "operation=\"CREATE\"";
    has(&format!("{call}=\"200\",name=\"yes.example.com\",{create},rejected=\"false\",type=\"validating\"}} 2"));
    has(&format!("{call}=\"418\",name=\"no.example.com\",{create},rejected=\"true\",type=\"validating\"}} 1"));
    has(&format!(
        "apiserver_admission_webhook_rejection_count{{error_type=\"no_error\",name=\"no.example.com\",{create},rejection_code=\"418\",type=\"validating\"}} 1"
    ));
    has("apiserver_admission_webhook_fail_open_count{name=\"gone.example.com\",type=\"validating\"} 2");
    has(&format!(
        "apiserver_admission_webhook_admission_duration_seconds_count{{name=\"yes.example.com\",{create},rejected=\"false\",type=\"validating\"}} 2"
    ));
    has(&format!(
        "apiserver_admission_controller_admission_duration_seconds_count{{name=\"NamespaceLifecycle\",{create},rejected=\"false\",type=\"admit\"}}"
    ));
    has("apiserver_cel_compilation_duration_seconds_count 2");
    has("apiserver_cel_evaluation_duration_seconds_count");
}
