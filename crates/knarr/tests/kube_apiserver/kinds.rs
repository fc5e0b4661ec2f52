//! `kubectl explain` and `kubectl get` of every kind.

use std::collections::{BTreeMap, BTreeSet};

use crate::server::Server;

/// Accept header for a Table.
const TABLE: [&str; 2] = ["-H", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"];

/// Returns the default columns of `kubectl get` by resource name.
fn columns() -> BTreeMap<String, Vec<String>> {
    let kinds = api::kinds::all();
    let printer_columns = |kind: &api::kind::Kind| {
        let columns = kind.versions[0].columns.iter().filter(|column| column.priority == 0);
        columns.map(|column| column.name.clone()).collect()
    };
    kinds.iter().map(|kind| (kind.qualified_resource(), printer_columns(kind))).collect()
}

/// Returns the preferred version of a group, such as `apps/v1`.
fn preferred(server: &Server, group: &str) -> String {
    if group.is_empty() {
        return "v1".to_owned();
    }
    let (_, found) = server.code(&[], &format!("/apis/{group}"));
    let found = apimachinery::json::parse(found.as_bytes()).unwrap();
    found.str_at(&["preferredVersion", "groupVersion"]).unwrap().to_owned()
}

#[test]
fn kubectl_explains_and_prints_every_kind() {
    let server = Server::start();
    let listed = |flags: &str| -> BTreeSet<String> {
        server.kubectl(&format!("api-resources -o name {flags}")).lines().map(str::to_owned).collect()
    };
    let (resources, listable) = (listed(""), listed("--verbs=list"));
    assert!(resources.len() > 55, "{resources:?}");
    let columns = columns();
    for resource in &resources {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let version = preferred(&server, group);
        let explained = server.kubectl(&format!("explain {plural} --api-version={version}"));
        assert!(explained.contains("DESCRIPTION:") && explained.contains("FIELDS:"), "{resource}: {explained}");
        if !listable.contains(resource) {
            continue;
        }
        let expected = &columns[resource.as_str()];
        let root = if group.is_empty() { "api" } else { "apis" };
        let (_, table) = server.code(&TABLE, &format!("/{root}/{version}/{plural}"));
        let absent = expected.iter().find(|column| !table.contains(&format!("\"name\":\"{column}\"")));
        assert_eq!(absent, None, "{resource}: {table}");
        let printed = server.kubectl(&format!("get {resource} --all-namespaces"));
        let header = printed.lines().find(|line| line.contains("NAME")).unwrap_or_default();
        let is_empty = printed.contains("No resources found");
        let absent =
            expected.iter().map(|column| column.to_uppercase()).find(|column| !header.contains(column.as_str()));
        assert!(is_empty || absent.is_none(), "{resource} has no column {absent:?}: {printed}");
    }
}

#[test]
fn kubectl_explains_custom_resources_with_their_descriptions() {
    let server = Server::start();
    let definition = r#"{
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "description": "A widget turns.",
                "properties": {"spec": {"type": "object", "description": "What is wanted.", "properties": {
                    "size": {"type": "integer", "description": "How big it is."}
                }}}
            }}}]
        }
    }"#;
    let created = server.kubectl_with("create -f -", definition);
    assert_eq!(created, "customresourcedefinition.apiextensions.k8s.io/widgets.example.com created");
    for (what, expected) in [
        ("widgets", &["A widget turns.", "What is wanted.", "metadata"][..]),
        ("widgets.spec", &["What is wanted.", "How big it is.", "<integer>"]),
        ("widgets.metadata.labels", &["map[string]string"]),
    ] {
        let explained = server.kubectl(&format!("explain {what}"));
        let absent = expected.iter().find(|word| !explained.contains(**word));
        assert_eq!(absent, None, "{explained}");
    }
}

#[test]
fn events_are_selected_by_the_field_names_of_their_group() {
    let server = Server::start();
    let event = "{\"apiVersion\": \"events.k8s.io/v1\", \"kind\": \"Event\", \"metadata\": {\"name\": \"e\"}, \
        \"regarding\": {\"kind\": \"Pod\", \"name\": \"p\", \"namespace\": \"default\"}, \"note\": \"n\", \"action\": \"a\", \
        \"reason\": \"R\", \"type\": \"Normal\", \"eventTime\": \"2026-01-01T00:00:00.000000Z\", \
        \"reportingController\": \"test-controller\", \"reportingInstance\": \"i\"}";
    assert_eq!(server.kubectl_with("create -f -", event), "event.events.k8s.io/e created");
    let check = |resource: &str, selector: &str, expect: &str| {
        assert_eq!(
            server.kubectl(&format!("get {resource} --field-selector {selector} -o name")),
            expect,
            "{selector}"
        );
    };
    check("events.events.k8s.io", "reportingController=test-controller", "event.events.k8s.io/e");
    check("events.events.k8s.io", "regarding.name=p", "event.events.k8s.io/e");
    check("events.events.k8s.io", "regarding.name=q", "");
    check("events", "reportingComponent=test-controller", "event/e");
    check("events", "involvedObject.name=p,source=test-controller", "event/e");
}
