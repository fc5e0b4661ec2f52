//! Strategic merge patches on built-in types, and kubectl's patches for a changed manifest.

use api::catalogue;
use apimachinery::patch::strategic::{OnConflict, create_three_way, create_two_way};
use apimachinery::patch::{PatchType, apply_patch};
use apimachinery::{GroupVersionKind, Object, Schema, Value, json};

fn schema(group: &str, version: &str, kind: &str) -> Schema<'static> {
    let kind = GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() };
    catalogue::schema(&kind).unwrap_or_else(|| panic!("no {kind:?}"))
}

fn object(text: &str) -> Object {
    match json::parse(text.as_bytes()) {
        Ok(Value::Object(object)) => object,
        other => panic!("{text}: {other:?}"),
    }
}

fn check(schema: Schema<'_>, live: &str, patch: &str, expect: &str) {
    let patched = apply_patch(PatchType::Strategic, object(live).into(), patch.as_bytes(), Some(schema));
    let patched = patched.unwrap_or_else(|error| panic!("{live} + {patch}: {error}"));
    assert_eq!(patched.to_string(), Value::Object(object(expect)).to_string(), "{live} + {patch}");
}

#[test]
fn lists_of_a_pod_are_merged_by_their_keys() {
    let pod = |live: &str, patch: &str, expect: &str| {
        let spec = |text: &str| format!("{{\"spec\":{text}}}");
        check(schema("", "v1", "Pod"), &spec(live), &spec(patch), &spec(expect));
    };
    pod(
        r#"{"containers":[{"name":"a","image":"x","env":[{"name":"E","value":"1"}]}]}"#,
        r#"{"containers":[{"name":"a","env":[{"name":"E","value":"2"},{"name":"F","value":"3"}]}]}"#,
        r#"{"containers":[{"name":"a","image":"x","env":[{"name":"E","value":"2"},{"name":"F","value":"3"}]}]}"#,
    );
    pod(
        r#"{"containers":[{"name":"a"},{"name":"b"}],"initContainers":[{"name":"i"}]}"#,
        r#"{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"initContainers":[{"name":"i","$patch":"delete"}]}"#,
        r#"{"containers":[{"name":"b"},{"name":"a"}],"initContainers":[]}"#,
    );
    pod(
        r#"{"containers":[{"name":"a","ports":[{"containerPort":80,"protocol":"TCP"}]}]}"#,
        r#"{"containers":[{"name":"a","ports":[{"containerPort":80,"name":"http"}]}]}"#,
        r#"{"containers":[{"name":"a","ports":[{"containerPort":80,"protocol":"TCP","name":"http"}]}]}"#,
    );
    pod(
        r#"{"containers":[{"name":"a","volumeMounts":[{"mountPath":"/a","name":"v"}]}]}"#,
        r#"{"containers":[{"name":"a","volumeMounts":[{"mountPath":"/b","name":"v"}]}]}"#,
        r#"{"containers":[{"name":"a","volumeMounts":[{"mountPath":"/b","name":"v"},{"mountPath":"/a","name":"v"}]}]}"#,
    );
    pod(
        r#"{"volumes":[{"name":"v","emptyDir":{}}]}"#,
        r#"{"volumes":[{"name":"v","$retainKeys":["name","configMap"],"configMap":{"name":"c"}}]}"#,
        r#"{"volumes":[{"name":"v","configMap":{"name":"c"}}]}"#,
    );
    pod(
        r#"{"tolerations":[{"key":"a"}],"nodeSelector":{"x":"y"}}"#,
        r#"{"tolerations":[{"key":"b"}],"nodeSelector":{"x":null,"z":"w"}}"#,
        r#"{"tolerations":[{"key":"b"}],"nodeSelector":{"z":"w"}}"#,
    );
    pod(
        r#"{"hostAliases":[{"ip":"1.1.1.1","hostnames":["a"]}],"imagePullSecrets":[{"name":"s"}]}"#,
        r#"{"hostAliases":[{"ip":"1.1.1.1","hostnames":["b"]}],"imagePullSecrets":[{"name":"t"}]}"#,
        r#"{"hostAliases":[{"ip":"1.1.1.1","hostnames":["b"]}],"imagePullSecrets":[{"name":"t"},{"name":"s"}]}"#,
    );
}

#[test]
fn pods_conditions_are_merged_by_their_type() {
    check(
        schema("", "v1", "Pod"),
        r#"{"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"Initialized","status":"True"}]}}"#,
        r#"{"status":{"$setElementOrder/conditions":[{"type":"Ready"}],"conditions":[{"type":"Ready","status":"True"}]}}"#,
        r#"{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Initialized","status":"True"}]}}"#,
    );
}

#[test]
fn finalizers_are_a_set_and_owners_a_map_on_every_object() {
    for (group, version, kind) in [("", "v1", "ConfigMap"), ("apps", "v1", "Deployment"), ("batch", "v1", "Job")] {
        check(
            schema(group, version, kind),
            r#"{"metadata":{"finalizers":["a","b"],"ownerReferences":[{"uid":"1","name":"x"}]}}"#,
            r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],
                "ownerReferences":[{"uid":"1","$patch":"delete"},{"uid":"2","name":"y"}]}}"#,
            r#"{"metadata":{"finalizers":["b"],"ownerReferences":[{"uid":"2","name":"y"}]}}"#,
        );
    }
}

#[test]
fn selector_of_a_disruption_budget_is_replaced() {
    check(
        schema("policy", "v1", "PodDisruptionBudget"),
        r#"{"spec":{"selector":{"matchLabels":{"a":"b"}}}}"#,
        r#"{"spec":{"selector":{"matchLabels":{"c":"d"}}}}"#,
        r#"{"spec":{"selector":{"matchLabels":{"c":"d"}}}}"#,
    );
}

#[test]
fn service_ports_are_merged_by_port_number() {
    check(
        schema("", "v1", "Service"),
        r#"{"spec":{"ports":[{"port":80,"protocol":"TCP","targetPort":8080},{"port":443,"protocol":"TCP"}]}}"#,
        r#"{"spec":{"ports":[{"port":443,"$patch":"delete"},{"port":80,"targetPort":"http"}]}}"#,
        r#"{"spec":{"ports":[{"port":80,"protocol":"TCP","targetPort":"http"}]}}"#,
    );
}

#[test]
fn apply_to_a_deployment_keeps_the_sidecar_and_changes_the_strategy() {
    let deployment = schema("apps", "v1", "Deployment");
    let original = object(
        r#"{"spec":{"replicas":1,"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}},
            "template":{"spec":{"containers":[{"name":"app","image":"x"},{"name":"old"}]}}}}"#,
    );
    let modified = object(
        r#"{"spec":{"strategy":{"type":"Recreate"},
            "template":{"spec":{"containers":[{"name":"app","image":"y"}]}}}}"#,
    );
    let current = object(
        r#"{"spec":{"replicas":5,"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":1}},
            "template":{"spec":{"containers":[{"name":"app","image":"x"},{"name":"old"},{"name":"sidecar"}]}}}}"#,
    );
    let patch = create_three_way(&original, &modified, &current, deployment, OnConflict::Overwrite).unwrap();
    let patch = Value::from(patch).to_string();
    assert_eq!(
        patch,
        concat!(
            r#"{"spec":{"replicas":null,"strategy":{"$retainKeys":["type"],"rollingUpdate":null,"type":"Recreate"},"#,
            r#""template":{"spec":{"$setElementOrder/containers":[{"name":"app"}],"#,
            r#""containers":[{"image":"y","name":"app"},{"$patch":"delete","name":"old"}]}}}}"#,
        ),
    );
    let expect = r#"{"spec":{"strategy":{"type":"Recreate"},
        "template":{"spec":{"containers":[{"name":"app","image":"y"},{"name":"sidecar"}]}}}}"#;
    check(deployment, &Value::from(current).to_string(), &patch, expect);
}

#[test]
fn two_way_patches_lead_from_one_pod_to_another() {
    let pod = schema("", "v1", "Pod");
    let from = object(
        r#"{"spec":{"containers":[{"name":"a","image":"x","ports":[{"containerPort":1},{"containerPort":2}]},{"name":"b"}],
            "volumes":[{"name":"v","emptyDir":{}}]}}"#,
    );
    let to = object(
        r#"{"spec":{"containers":[{"name":"c"},{"name":"a","image":"y","ports":[{"containerPort":2},{"containerPort":3}]}],
            "volumes":[{"name":"v","hostPath":{"path":"/"}}]}}"#,
    );
    let patch = create_two_way(&from, &to, pod).unwrap();
    let patched = apimachinery::patch::strategic::apply(from, patch, pod).unwrap();
    assert_eq!(Value::from(patched).to_string(), Value::from(to).to_string());
}

/// Detects merge strategies that the implementation cannot execute.
#[test]
fn every_merged_list_of_objects_has_a_key_that_its_items_have() {
    let mut seen = 0;
    for (kind, schema) in catalogue::kinds() {
        visit(schema, &mut Vec::new(), &mut |owner, field| {
            let (field, ty) = owner.field(field).expect("it has just been visited");
            let Some(item) = ty.item().filter(|_| field.patch.merge) else { return };
            seen += 1;
            match &field.patch.merge_key {
                Some(key) => assert!(item.field(key).is_some(), "{kind:?}: {owner:?}.{}: no {key}", field.name),
                None => assert!(item.item().is_none() && item.field("name").is_none(), "{owner:?}.{}", field.name),
            }
        });
    }
    assert!(seen > 80, "{seen}");
}

/// Calls `each` with every field of every struct below `schema`, once per type.
fn visit(schema: Schema<'static>, seen: &mut Vec<*const ()>, each: &mut impl FnMut(Schema<'static>, &str)) {
    use apimachinery::schema::Shape;
    let address = std::ptr::from_ref(schema.ty()).cast::<()>();
    if seen.contains(&address) {
        return;
    }
    seen.push(address);
    match schema.shape() {
        Shape::Struct(shape) => {
            for field in &shape.fields {
                each(schema, &field.name);
                visit(schema.other(field.ty), seen, each);
            }
        }
        Shape::Map(map) => visit(schema.other(map.value), seen, each),
        Shape::List(list) => visit(schema.other(list.item), seen, each),
        _ => {}
    }
}
