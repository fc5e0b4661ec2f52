//! Hostile CRD tests: CRDs on which upstream drops the connection, or that it should reject, get an error and the
//! server keeps running.

use apimachinery::{Value, json, value};

use crate::server::Cluster;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns a CRD with this schema as text, because some schemas cannot be represented as a tree.
fn definition(schema: &str) -> String {
    format!(
        r#"{{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {{"name": "widgets.example.com"}}, "spec": {{"group": "example.com", "scope": "Namespaced",
        "names": {{"plural": "widgets", "kind": "Widget"}},
        "versions": [{{"name": "v1", "served": true, "storage": true, "schema": {{"openAPIV3Schema": {schema}}}}}]}}}}"#
    )
}

/// Returns the schema of an object with one property.
fn with(property: &str) -> String {
    format!(r#"{{"type": "object", "properties": {{"x": {property}}}}}"#)
}

/// Returns a schema with this nesting depth.
fn nested(levels: usize) -> String {
    let open = r#"{"type": "object", "properties": {"x": "#.repeat(levels);
    format!("{open}{{\"type\": \"string\"}}{}", "}}".repeat(levels))
}

fn rule(rule: &str) -> String {
    let rule = json::to_string(&value!([{"rule": rule}]));
    with(&format!(
        r#"{{"type": "array", "items": {{"type": "array", "items": {{"type": "array", "items": {{"type": "string"}}}}}},
        "x-kubernetes-validations": {rule}}}"#
    ))
}

#[tokio::test]
async fn hostile_crds_are_rejected_with_a_message() {
    let cluster = Cluster::start().await;
    let wide: Vec<String> = (0..20_000).map(|at| format!(r#""p{at}": {{"type": "whatever"}}"#)).collect();
    let worst = [
        ("null", 422),
        ("[]", 400),
        ("\"text\"", 400),
        ("{}", 422),
        (r#"{"type": "nonsense"}"#, 422),
        (r#"{"type": 7}"#, 400),
        (r#"{"type": "object", "nullable": true}"#, 422),
        (r#"{"type": "object", "properties": {"x": null}}"#, 422),
        (r#"{"type": "object", "properties": []}"#, 400),
        (
            r#"{"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}"#,
            422,
        ),
        (&with(r##"{"$ref": "#/definitions/x"}"##), 422),
        (&with(r#"{"type": "array"}"#), 422),
        (&with(r#"{"type": "array", "items": [{"type": "string"}]}"#), 422),
        (&with(r#"{"type": "array", "items": {"type": "string"}, "uniqueItems": true}"#), 422),
        (&with(r#"{"type": "string", "pattern": "(["}"#), 422),
        (&with(r#"{"type": "string", "pattern": "(?=a)"}"#), 422),
        (&with(r#"{"type": "integer", "default": "five"}"#), 422),
        (&with(r#"{"type": "integer", "default": {}}"#), 422),
        (
            &with(
                r#"{"type": "object", "properties": {"y": {"type": "string"}}, "additionalProperties": {"type": "string"}}"#,
            ),
            422,
        ),
        (&with(r#"{"type": "object", "additionalProperties": {"$ref": "x"}}"#), 422),
        (&with(r#"{"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}"#), 422),
        (&with(r#"{"type": "string", "x-kubernetes-list-type": "set"}"#), 422),
        (&with(r#"{"allOf": [{"type": "string"}]}"#), 422),
        (&with(r#"{"type": "string", "x-kubernetes-validations": [{"rule": "self.nope("}]}"#), 422),
        (&with(r#"{"type": "string", "x-kubernetes-validations": [{"rule": ""}]}"#), 422),
        (&with(r#"{"type": "string", "x-kubernetes-validations": [null]}"#), 422),
        (&rule("self.all(a, a.all(b, b.all(c, c.matches('(a+)+$'))))"), 422),
        (&nested(80), 400),
        (&nested(4_000), 400),
        (&format!(r#"{{"type": "object", "properties": {{{}}}}}"#, wide.join(",")), 422),
    ];
    for (schema, code) in worst {
        let response = cluster.send(http::Method::POST, DEFINITIONS, "application/json", definition(schema)).await;
        let excerpt: String = schema.chars().take(120).collect();
        assert_eq!(response.code, code, "{excerpt}: {}", response.error_message());
        assert_eq!(response.body["kind"], value!("Status"), "{excerpt}");
        assert!(!response.body.str_at(&["message"]).unwrap_or_default().is_empty(), "{excerpt}");
    }
    let fine = definition(&with(r#"{"type": "string", "x-kubernetes-validations": [{"rule": "self.size() < 9"}]}"#));
    cluster.send(http::Method::POST, DEFINITIONS, "application/json", fine).await.ok();
    let served =
        cluster.until("/apis/example.com/v1/namespaces/default/widgets", |response| response.code == 200).await;
    assert_eq!(served.body["items"], Value::Array(Vec::new()));
}
