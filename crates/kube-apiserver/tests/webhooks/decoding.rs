//! Field validation tests (unknown and duplicate fields) and response form tests.

use apimachinery::value;
use http::Method;

use crate::server::{ApiResponse, Cluster};

const APPLY: &str = "application/apply-patch+yaml";

/// Starts a cluster with a CRD that preserves unknown fields.
async fn with_widgets() -> Cluster {
    let cluster = Cluster::start().await;
    let definition = value!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"spec": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true, "properties": {"foo": {"type": "string"}}}}}}}]}});
    cluster.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.ok();
    cluster.until("/apis/example.com/v1/widgets", |response| response.code == 200).await;
    cluster
}

async fn apply(cluster: &Cluster, path: &str, mode: &str, body: &str) -> ApiResponse {
    let path = format!("{path}?fieldManager=m&fieldValidation={mode}");
    cluster.send(Method::PATCH, &path, APPLY, body.to_owned()).await
}

#[tokio::test]
async fn duplicate_key_in_an_apply_is_handled_by_field_validation() {
    let cluster = with_widgets().await;
    let body =
        "\napiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: w\nspec:\n  other: 1\n  foo: a\n  foo: b\n";
    let widget = "/apis/example.com/v1/namespaces/default/widgets/w";
    let warning = r#"line 9: key "foo" already set in map"#;
    let strict = apply(&cluster, widget, "Strict", body).await;
    let start = "400 error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  ";
    assert_eq!(strict.error_message(), format!("{start}{warning}"));
    assert_eq!(cluster.get(widget).await.code, 404);
    let warned = apply(&cluster, widget, "Warn", body).await;
    assert_eq!((warned.code, warned.warnings()), (201, vec![warning.replace('"', "\\\"")]));
    let ignored = apply(&cluster, widget, "Ignore", body).await;
    assert_eq!((ignored.code, ignored.warnings()), (200, vec![]));
    assert_eq!(ignored.body.str_at(&["spec", "foo"]), Some("b"));
}

#[tokio::test]
async fn field_validation_applies_to_an_applied_scale() {
    let cluster = Cluster::start().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = value!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    cluster.post(deployments, &deployment).await.ok();
    let body = "apiVersion: autoscaling/v1\nkind: Scale\nmetadata:\n  name: d\nspec:\n  replicas: 1\n  replicas: 1\n";
    let scale = format!("{deployments}/d/scale");
    let strict = apply(&cluster, &scale, "Strict", body).await;
    assert!(
        strict.error_message().contains(r#"line 7: key "replicas" already set in map"#),
        "{}",
        strict.error_message()
    );
    let warned = apply(&cluster, &scale, "Warn", body).await;
    assert_eq!((warned.code, warned.warnings().len()), (200, 1));
}

#[tokio::test]
async fn field_validation_errors_of_built_in_kinds_are_in_text_order() {
    let cluster = Cluster::start().await;
    let text = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"unknownField": "x", "replicas": 1, "replicas": 2}}"#;
    let path = "/apis/apps/v1/namespaces/default/deployments?fieldValidation=Strict";
    let message = cluster.send(Method::POST, path, "application/json", text).await.error_message();
    let expected = r#"strict decoding error: unknown field "spec.unknownField", duplicate field "spec.replicas""#;
    assert!(message.ends_with(expected), "{message}");
}

#[tokio::test]
async fn review_is_not_returned_as_a_table() {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let cluster = Cluster::start().await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = value!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let response = cluster.post_as(path, TABLE, &review).await;
    assert!(
        response.error_message().starts_with("406 only the following media types are accepted"),
        "{}",
        response.error_message()
    );
    let whole = cluster.post_as(path, &format!("{TABLE},application/json"), &review).await.ok();
    assert_eq!(whole["status"]["allowed"], value!(true));
    assert_eq!(cluster.get_as("/api/v1/namespaces", TABLE).await.ok().str_at(&["kind"]), Some("Table"));
}
