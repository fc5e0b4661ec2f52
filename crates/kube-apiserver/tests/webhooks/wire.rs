//! Wire format tests: field order of upstream's Go types, indentation for browsers and curl.

use apimachinery::{Value, json, value};
use http::Request;

use crate::server::Cluster;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Masks the values that differ between runs.
fn blotted(text: &str) -> String {
    const VARYING: [&str; 4] = ["\"uid\":", "\"resourceVersion\":", "\"creationTimestamp\":", "\"time\":"];
    VARYING.iter().fold(text.to_owned(), |text, key| {
        let (mut out, mut rest) = (String::new(), text.as_str());
        while let Some(at) = rest.find(key) {
            let value = at + key.len();
            let quote = value + rest[value..].find('"').unwrap() + 1;
            let end = quote + rest[quote..].find('"').unwrap();
            out.push_str(&rest[..quote]);
            out.push('*');
            rest = &rest[end..];
        }
        out + rest
    })
}

async fn made(cluster: &Cluster, path: &str, object: &Value) -> String {
    let request = Request::post(path).header("content-type", "application/json").header("user-agent", "test/1");
    cluster.bytes(request, json::to_vec(object)).await
}

async fn read(cluster: &Cluster, path: &str, headers: &[(&str, &str)]) -> String {
    let request = headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    cluster.bytes(request, "").await
}

fn config_map() -> Value {
    value!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "<&>", "a": "1"},
        "metadata": {"labels": {"z": "1", "a": "2"}, "annotations": {"n": "1"}, "name": "a"},
    })
}

const META: &str = r#""metadata":{"name":"a","namespace":"default","uid":"*","resourceVersion":"*","creationTimestamp":"*","labels":{"a":"2","z":"1"},"annotations":{"n":"1"},"managedFields":[{"manager":"test","operation":"Update","apiVersion":"v1","time":"*","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:a":{},"f:b":{}},"f:metadata":{"f:annotations":{".":{},"f:n":{}},"f:labels":{".":{},"f:a":{},"f:z":{}}}}}]},"data":{"a":"1","b":"\u003c\u0026\u003e"}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn objects_lists_and_events_have_gos_field_order() {
    let cluster = Cluster::start().await;
    let mut watch = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=0&labelSelector=z")).await;
    let object = format!("{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",{META}");
    assert_eq!(blotted(&made(&cluster, CONFIG_MAPS, &config_map()).await), format!("{object}\n"));
    assert_eq!(blotted(&read(&cluster, &format!("{CONFIG_MAPS}/a"), &[]).await), format!("{object}\n"));
    assert_eq!(
        blotted(&read(&cluster, &format!("{CONFIG_MAPS}?labelSelector=z"), &[]).await),
        format!(
            "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"*\"}},\"items\":[{{{META}]}}\n"
        )
    );
    assert_eq!(blotted(&watch.next_line().await), format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_metadata_and_statuses_have_gos_field_order() {
    let cluster = Cluster::start().await;
    made(&cluster, CONFIG_MAPS, &config_map()).await;
    let path = format!("{CONFIG_MAPS}/a");
    let table = read(&cluster, &path, &[("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")]).await;
    assert!(
        blotted(&table).starts_with(
            r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"*"},"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"#
        ),
        "{table}"
    );
    let row = r#""object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"default","#;
    assert!(table.contains(r#""rows":[{"cells":["a",2,"#) && table.contains(row), "{table}");
    let metadata =
        read(&cluster, &path, &[("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")]).await;
    assert!(
        blotted(&metadata).starts_with(
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"default","uid":"*","#
        ),
        "{metadata}"
    );
    assert_eq!(
        read(&cluster, &format!("{CONFIG_MAPS}/none"), &[]).await,
        concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"none\" not found","reason":"NotFound","details":{"name":"none","kind":"configmaps"},"code":404}"#,
            "\n"
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_are_indented_for_browsers_and_curl_and_on_request() {
    let cluster = Cluster::start().await;
    made(&cluster, CONFIG_MAPS, &config_map()).await;
    let path = format!("{CONFIG_MAPS}/a");
    let line = read(&cluster, &path, &[]).await;
    let indented = String::from_utf8(json::indent(line.as_bytes())).unwrap();
    assert!(indented.starts_with(
        "{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {\n    \"name\": \"a\",\n"
    ));
    assert!(indented.ends_with("\n}"));
    assert_eq!(read(&cluster, &path, &[("user-agent", "curl/8.5.0")]).await, indented);
    assert_eq!(read(&cluster, &path, &[("user-agent", "Mozilla/5.0 (X11)")]).await, indented);
    assert_eq!(read(&cluster, &format!("{path}?pretty=true"), &[]).await, indented);
    assert_eq!(read(&cluster, &path, &[("accept", "application/json;pretty=1")]).await, indented);
    assert_eq!(read(&cluster, &format!("{path}?pretty=false"), &[("user-agent", "curl/8.5.0")]).await, line);
    let curl = [("user-agent", "curl/8.5.0")];
    let begins =
        "{\n  \"kind\": \"ConfigMapList\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {\n    \"resourceVersion\": \"";
    assert!(read(&cluster, CONFIG_MAPS, &curl).await.starts_with(begins));
    assert!(read(&cluster, "/api/v1/none", &curl).await.starts_with("{\n  \"kind\": \"Status\",\n"));
    assert!(read(&cluster, "/apis/apps", &curl).await.starts_with("{\n  \"kind\": \"APIGroup\",\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_has_upstreams_order() {
    let cluster = Cluster::start().await;
    assert!(read(&cluster, "/version", &[]).await.starts_with("{\n  \"major\": \"1\",\n  \"minor\": \"36\",\n"));
    assert!(
        read(&cluster, "/", &[]).await.starts_with("{\n  \"paths\": [\n    \"/.well-known/openid-configuration\",\n")
    );
    let versions = read(&cluster, "/api", &[]).await;
    assert!(
        versions.starts_with(r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"#),
        "{versions}"
    );
    assert_eq!(
        read(&cluster, "/apis/apps", &[]).await,
        concat!(
            r#"{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}"#,
            "\n"
        )
    );
    let core = read(&cluster, "/api/v1", &[]).await;
    assert!(
        core.starts_with(
            r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"bindings","singularName":"binding","namespaced":true,"kind":"Binding","verbs":["create"]},"#
        ),
        "{core}"
    );
    let accept = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let all = read(&cluster, "/apis", &accept).await;
    assert!(
        all.starts_with(
            r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"apiregistration.k8s.io"},"versions":[{"version":"v1","resources":[{"resource":"apiservices","responseKind":{"group":"","version":"","kind":"APIService"},"scope":"Cluster","singularResource":"apiservice","verbs":["#
        ),
        "{all}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resource_fields_are_sorted() {
    let cluster = Cluster::start().await;
    let definition = value!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    cluster.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.ok();
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    cluster.until(path, |response| response.code == 200).await;
    let widget = value!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
        "spec": {"b": 1, "a": 2}, "data": {"x": 1},
    });
    let object = concat!(
        r#"{"apiVersion":"example.com/v1","data":{"x":1},"kind":"Widget","metadata":{"creationTimestamp":"*","generation":1,"#,
        r#""managedFields":[{"apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:x":{}},"f:spec":{".":{},"f:a":{},"f:b":{}}},"manager":"test","operation":"Update","time":"*"}],"#,
        r#""name":"a","namespace":"default","resourceVersion":"*","uid":"*"},"spec":{"a":2,"b":1}}"#
    );
    assert_eq!(blotted(&made(&cluster, path, &widget).await), format!("{object}\n"));
    assert_eq!(blotted(&read(&cluster, &format!("{path}/a"), &[]).await), format!("{object}\n"));
    let list = blotted(&read(&cluster, path, &[]).await);
    assert!(
        list.starts_with(&format!(
            r#"{{"apiVersion":"example.com/v1","items":[{object}],"kind":"WidgetList","metadata":{{"#
        )),
        "{list}"
    );
    let mut watch = cluster.watch(&format!("{path}?watch=true&resourceVersion=0")).await;
    assert_eq!(blotted(&watch.next_line().await), format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_an_earlier_release_are_served_in_gos_field_order() {
    let stored = [(
        "/registry/configmaps/default/old",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","labels":{"z":"1"},"name":"old","namespace":"default","uid":"7b0c"},"data":{"a":"1"}}"#,
    )];
    let cluster = Cluster::on(&stored, |_| {}).await;
    let meta = r#""metadata":{"name":"old","namespace":"default","uid":"*","resourceVersion":"*","creationTimestamp":"*","labels":{"z":"1"}"#;
    let expect = format!("{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",{meta}}},\"data\":{{\"a\":\"1\"}}}}\n");
    let path = format!("{CONFIG_MAPS}/old");
    assert_eq!(blotted(&read(&cluster, &path, &[]).await), expect);
    assert_eq!(blotted(&read(&cluster, &format!("{path}?resourceVersion=0"), &[]).await), expect);
    let list = blotted(&read(&cluster, &format!("{CONFIG_MAPS}?labelSelector=z"), &[]).await);
    assert!(list.contains(&format!("\"items\":[{{{meta}}},\"data\":{{\"a\":\"1\"}}}}]")), "{list}");
    let changed = cluster.merge(&path, &value!({"data": {"b": "2"}})).await.ok();
    assert_eq!(changed["data"], value!({"a": "1", "b": "2"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn strategic_patch_of_the_wrong_type_returns_upstreams_conversion_error() {
    let cluster = Cluster::start().await;
    made(&cluster, CONFIG_MAPS, &config_map()).await;
    let check = async |patch: Value, expect: &str| {
        let media = "application/strategic-merge-patch+json";
        let sent = cluster.send(http::Method::PATCH, &format!("{CONFIG_MAPS}/a"), media, json::to_vec(&patch)).await;
        assert_eq!(sent.error_message(), expect);
    };
    check(
        value!({"metadata": {"labels": "invalid"}}),
        r#"422  "" is invalid: patch: Invalid value: "map[metadata:map[labels:invalid]]": cannot restore map from string"#,
    )
    .await;
    check(
        value!({"metadata": {"finalizers": 1}}),
        r#"422  "" is invalid: patch: Invalid value: "map[metadata:map[finalizers:1]]": cannot restore slice from int64"#,
    )
    .await;
    check(
        value!({"metadata": [1]}),
        r#"422  "" is invalid: patch: Invalid value: "map[metadata:[1]]": cannot restore struct from: slice"#,
    )
    .await;
    check(
        value!({"data": {"a": 1}}),
        r#"422  "" is invalid: patch: Invalid value: "map[data:map[a:1]]": cannot convert int64 to string"#,
    )
    .await;
    check(
        value!({"immutable": "yes"}),
        r#"422  "" is invalid: patch: Invalid value: "map[immutable:yes]": unrecognized type: bool"#,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_custom_resources_are_sorted_by_name() {
    let cluster = Cluster::start().await;
    for (plural, kind, group) in [("foos", "Foo", "bar.com"), ("examples", "Example", "test.com")] {
        let definition = value!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": (format!("{plural}.{group}"))},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "shortNames": ["exmp"]},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        });
        cluster.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.ok();
        cluster.until(&format!("/apis/{group}/v1/{plural}"), |response| response.code == 200).await;
    }
    let aggregated = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    for headers in [&[][..], &aggregated[..]] {
        let groups = read(&cluster, "/apis", headers).await;
        let at = |group: &str| groups.find(&format!("\"name\":\"{group}\"")).unwrap();
        assert!(at("bar.com") < at("test.com"), "{groups}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn swagger_describes_selectors_and_watches() {
    let cluster = Cluster::start().await;
    let swagger = read(&cluster, "/openapi/v2", &[]).await;
    for text in ["list of returned", "Watch for changes to the described resources"] {
        assert!(swagger.contains(text), "{text}");
    }
}
