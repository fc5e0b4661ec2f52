//! Discovery and OpenAPI of custom resources.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Arc;

use api::Kind;
use api::apiextensions::custom_resource::kind_of;
use api::kind::Version;
use apimachinery::{Value, value};
use openapi::discovery::{self, AggregatedVersion};
use openapi::{Table, v2, v3};

fn crd() -> Value {
    value!({
        "metadata": {"name": "widgets.stable.example.com"},
        "spec": {
            "group": "stable.example.com",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "shortNames": ["wd"]},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1", "served": true, "storage": true, "selectableFields": [{"jsonPath": ".spec.color"}], "subresources": {
                    "status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"},
                }, "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "A thing.",
                    "properties": {
                        "spec": {"type": "object", "description": "What is wanted.", "required": ["n", "port"], "properties": {
                            "n": {"type": "integer", "nullable": true, "default": 1},
                            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
                            "closed": {"type": "object", "x-kubernetes-embedded-resource": true, "required": ["kind"]},
                            "ratio": {"x-kubernetes-int-or-string": true, "example": 1},
                            "odd": {"x-kubernetes-int-or-string": true, "anyOf": [{"minLength": 1}]},
                            "map": {"type": "object", "nullable": true, "additionalProperties": {"type": "string", "nullable": true}},
                            "raw": {"type": "array", "x-kubernetes-preserve-unknown-fields": true},
                            "color": {"type": "string", "default": "red"},
                        }},
                    },
                }}},
                {"name": "v2", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
            ],
        },
    })
}

fn with_table<T>(test: impl FnOnce(&Table<'_>) -> T) -> T {
    let mut kinds = api::kinds::all();
    kinds.push(Arc::new(kind_of(&crd()).unwrap()));
    test(&Table { kinds: &kinds, served: &|_: &Kind, version: &Version| version.served })
}

const GROUP: &str = "stable.example.com";

#[test]
fn custom_resource_is_discovered() {
    with_table(|table| {
        assert_eq!(table.groups().last(), Some(&GROUP));
        assert_eq!(
            discovery::group(table, GROUP).unwrap(),
            value!({
                "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
                "versions": [{"groupVersion": "stable.example.com/v1", "version": "v1"}],
                "preferredVersion": {"groupVersion": "stable.example.com/v1", "version": "v1"},
            })
        );
        let resources = discovery::resources(table, GROUP, "v1").unwrap();
        assert_eq!(
            resources["resources"][0],
            value!({
                "name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget", "shortNames": ["wd"],
                "storageVersionHash": (resources["resources"][0]["storageVersionHash"].clone()),
                "verbs": ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
            })
        );
        assert_eq!(
            resources["resources"][1],
            value!({
                "name": "widgets/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
                "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"],
            })
        );
        assert_eq!(resources["resources"][2]["name"], value!("widgets/status"));
        assert_eq!(discovery::resources(table, GROUP, "v2"), None, "unserved versions have no document");
        let all = discovery::aggregated(table, AggregatedVersion::V2);
        let last = all["items"].as_array().unwrap().last().unwrap();
        assert_eq!(
            last["versions"][0]["resources"][0]["responseKind"],
            value!({"group": GROUP, "version": "v1", "kind": "Widget"})
        );
    });
}

#[test]
fn custom_resource_is_described_by_its_schema() {
    with_table(|table| {
        let document = v3::document(table, "apis/stable.example.com/v1").unwrap();
        let schemas = &document["components"]["schemas"];
        let widget = &schemas["com.example.stable.v1.Widget"];
        assert_eq!(widget["description"], value!("A thing."));
        assert_eq!(
            widget["properties"]["spec"]["properties"]["n"],
            value!({"type": "integer", "nullable": true, "default": 1})
        );
        assert_eq!(widget["properties"]["apiVersion"]["type"], value!("string"));
        assert_eq!(
            widget["properties"]["metadata"]["allOf"][0]["$ref"],
            value!("#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        );
        assert_eq!(
            widget["x-kubernetes-group-version-kind"],
            value!([{"group": GROUP, "version": "v1", "kind": "Widget"}])
        );
        let template = &widget["properties"]["spec"]["properties"]["template"];
        assert_eq!(
            template["properties"]["kind"]["type"],
            value!("string"),
            "an embedded resource is a complete object"
        );
        let fields = &widget["properties"]["spec"]["properties"];
        assert_eq!(fields["closed"]["required"], value!(["kind", "apiVersion"]));
        let either = value!([{"type": "integer"}, {"type": "string"}]);
        assert_eq!(fields["ratio"], value!({"x-kubernetes-int-or-string": true, "anyOf": (either.clone())}));
        assert_eq!(fields["port"]["anyOf"], either);
        assert_eq!(fields["odd"]["allOf"], value!([{"anyOf": either}]));
        assert_eq!(widget["x-kubernetes-selectable-fields"], value!([{"fieldPath": "spec.color"}]));
        assert_eq!(
            schemas["com.example.stable.v1.WidgetList"]["properties"]["items"]["items"]["$ref"],
            value!("#/components/schemas/com.example.stable.v1.Widget")
        );
        let path = "/apis/stable.example.com/v1/namespaces/{namespace}/widgets/{name}";
        let patch = &document["paths"][path]["patch"];
        assert_eq!(patch["operationId"], value!("patchStableExampleComV1NamespacedWidget"));
        let types: Vec<_> = patch["requestBody"]["content"].as_object().unwrap().keys().collect();
        assert_eq!(
            types,
            ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]
        );
        assert!(document["paths"].get("/apis/stable.example.com/v1/watch/widgets").is_none());
    });
}

#[test]
fn openapi_v2_drops_unsupported_keywords() {
    with_table(|table| {
        let document = v2::document(table);
        let widget = &document["definitions"]["com.example.stable.v1.Widget"];
        let fields = &widget["properties"]["spec"]["properties"];
        assert_eq!(fields["n"], value!({"default": 1}), "nullable fields have no type");
        assert_eq!(fields["port"], value!({"x-kubernetes-int-or-string": true}));
        assert_eq!(widget["properties"]["spec"]["required"], value!(["port"]), "nullable fields are optional");
        assert_eq!(
            fields["template"],
            value!({"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            "preserved unknown fields have no description"
        );
        assert_eq!(fields["closed"]["properties"]["kind"]["type"], value!("string"));
        assert_eq!(fields["map"], value!({"additionalProperties": {}}));
        assert_eq!(fields["raw"], value!({"x-kubernetes-preserve-unknown-fields": true}));
        assert_eq!(fields["color"], value!({"type": "string", "default": "red"}));
        assert!(v2::to_protobuf(&document).len() > 500_000);
    });
}

#[test]
fn openapi_v2_of_a_kind_without_a_schema_is_an_untyped_object() {
    let mut crd = crd();
    let versions = crd.get_mut("spec").and_then(|spec| spec.get_mut("versions")).unwrap();
    let schema = value!({"openAPIV3Schema": {
        "type": "object", "description": "Anything.", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"spec": {"type": "object"}},
    }});
    let version = value!({"name": "v1", "served": true, "storage": true, "schema": schema});
    *versions.as_array_mut().unwrap() = vec![version];
    let kinds = [Arc::new(kind_of(&crd).unwrap())];
    let table = Table { kinds: &kinds, served: &|_: &Kind, version: &Version| version.served };
    let gvk = value!([{"group": GROUP, "version": "v1", "kind": "Widget"}]);
    assert_eq!(
        v2::document(&table)["definitions"]["com.example.stable.v1.Widget"],
        value!({"type": "object", "x-kubernetes-group-version-kind": (gvk.clone())})
    );
    let document = v3::document(&table, "apis/stable.example.com/v1").unwrap();
    let widget = &document["components"]["schemas"]["com.example.stable.v1.Widget"];
    assert_eq!(widget["x-kubernetes-preserve-unknown-fields"], value!(true));
    assert_eq!(widget["properties"]["kind"]["type"], value!("string"));
}

#[test]
fn changed_schema_changes_the_hash() {
    let hash = |crd: &Value| {
        let kinds = [Arc::new(kind_of(crd).unwrap())];
        let table = Table { kinds: &kinds, served: &|_: &Kind, version: &Version| version.served };
        v3::document_hash(&table, "apis/stable.example.com/v1").unwrap()
    };
    let mut changed = crd();
    let versions = changed.get_mut("spec").and_then(|spec| spec.get_mut("versions")).unwrap();
    let schema = versions.as_array_mut().unwrap()[0].get_mut("schema").unwrap().get_mut("openAPIV3Schema").unwrap();
    schema.as_object_mut().unwrap().insert("description", "Another thing.");
    assert_ne!(hash(&crd()), hash(&changed));
    assert_eq!(hash(&crd()), hash(&crd()));
}
