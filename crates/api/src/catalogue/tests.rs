use apimachinery::schema::{ListKind, Message, Omit, Shape, Struct, Wire};
use apimachinery::value;

use super::*;

fn core(kind: &'static str) -> Schema<'static> {
    schema(&GroupVersionKind::of("", "v1", kind)).unwrap()
}

/// Follows fields, list items and map values.
fn walk(mut at: Schema<'static>, path: &str) -> Schema<'static> {
    for step in path.split('.') {
        at = match step {
            "*" => at.item().or_else(|| at.child("")).unwrap(),
            name => at.field(name).unwrap_or_else(|| panic!("no {name} in {path}")).1,
        };
    }
    at
}

#[test]
fn types_have_go_names() {
    let check = |path: &str, name: &str| assert_eq!(walk(core("Pod"), path).ty().name, name, "{path}");
    check("metadata", "v1.ObjectMeta");
    check("metadata.labels", "map[string]string");
    check("metadata.uid", "types.UID");
    check("metadata.creationTimestamp", "v1.Time");
    check("spec", "v1.PodSpec");
    check("spec.containers", "[]v1.Container");
    check("spec.containers.*.ports.*.protocol", "v1.Protocol");
    check("spec.containers.*.ports.*.containerPort", "int32");
    check("spec.containers.*.command", "[]string");
    check("spec.containers.*.resources.limits", "v1.ResourceList");
    check("spec.containers.*.resources.limits.*", "resource.Quantity");
    check("spec.containers.*.livenessProbe.httpGet.port", "intstr.IntOrString");
    let name = |kind, path| walk(core(kind), path).ty().name.clone();
    assert_eq!(name("Secret", "data"), "map[string][]uint8");
    assert_eq!(name("APIResourceList", "resources.*.verbs"), "v1.Verbs");
    assert_eq!(
        name("PersistentVolumeClaim", "status.allocatedResourceStatuses"),
        "map[v1.ResourceName]v1.ClaimResourceStatus"
    );
}

#[test]
fn lists_and_maps_have_merge_strategies() {
    let kind = |path| match walk(core("Pod"), path).shape() {
        Shape::List(list) => list.kind.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(kind("spec.containers.*.ports"), ListKind::Map(["containerPort".into(), "protocol".into()].into()));
    assert_eq!(kind("metadata.finalizers"), ListKind::Set);
    assert_eq!(kind("spec.containers.*.command"), ListKind::Atomic);
    let atomic = |kind, path| match walk(core(kind), path).shape() {
        Shape::Struct(Struct { atomic, .. }) => *atomic,
        Shape::Map(map) => map.atomic,
        other => panic!("{other:?}"),
    };
    assert!(atomic("Pod", "spec.nodeSelector"));
    assert!(!atomic("Pod", "metadata.labels"));
    assert!(atomic("Pod", "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution.*.labelSelector"));
    assert!(atomic("Event", "involvedObject"));
    assert!(!atomic("PersistentVolume", "spec.claimRef"), "the field's granular overrides the type's atomic");
}

#[test]
fn fields_have_their_struct_tags() {
    let port = walk(core("Pod"), "spec.containers.*.ports.*");
    assert_eq!(port.field("protocol").unwrap().0.default, Some(value!("TCP")));
    assert!(port.field("containerPort").unwrap().0.required);
    let (created, _) = walk(core("Pod"), "metadata").field("creationTimestamp").unwrap();
    assert_eq!((created.omit, created.pointer), (Omit::Zero, false));
    let (deleted, _) = walk(core("Pod"), "metadata").field("deletionTimestamp").unwrap();
    assert_eq!((deleted.omit, deleted.pointer), (Omit::Empty, true));
    let (volumes, _) = walk(core("Pod"), "spec").field("volumes").unwrap();
    assert!(volumes.patch.merge && volumes.patch.retain_keys);
    assert_eq!(volumes.patch.merge_key.as_deref(), Some("name"));
}

#[test]
fn inlined_structs_are_flat_in_json_and_nested_in_protobuf() {
    let volume = walk(core("Pod"), "spec.volumes.*");
    let (host_path, ty) = volume.field("hostPath").unwrap();
    assert_eq!(ty.ty().name, "v1.HostPathVolumeSource");
    assert_eq!(*host_path.inlined, ["VolumeSource"]);
    let Shape::Struct(Struct { fields, message, .. }) = volume.shape() else { panic!() };
    assert!(fields.is_sorted_by(|a, b| a.name < b.name));
    let [(1, Wire::Field(name)), (2, Wire::Inline { pointer: false, message: source })] = &*message.fields else {
        panic!("{message:?}")
    };
    assert_eq!(fields[usize::from(*name)].name, "name");
    let Some((1, Wire::Field(first))) = source.fields.first() else { panic!() };
    assert_eq!(fields[usize::from(*first)].name, "hostPath");
    let Shape::Struct(Struct { message, .. }) = core("Pod").shape() else { panic!() };
    assert_eq!(message.fields.len(), 3, "apiVersion and kind are in the envelope");
}

#[test]
fn every_struct_is_consistent() {
    let catalogue = load();
    for at in 0..catalogue.types.len() {
        let schema = catalogue.types.schema(TypeId::from(at));
        let Shape::Struct(Struct { fields, message, .. }) = schema.shape() else { continue };
        assert!(fields.is_sorted_by(|a, b| a.name < b.name), "{schema:?}: every JSON name once, in order");
        let mut seen = vec![false; fields.len()];
        check_message(schema, message, &mut seen);
    }
}

fn check_message(schema: Schema<'_>, message: &Message, seen: &mut [bool]) {
    assert!(message.fields.is_sorted_by(|a, b| a.0 < b.0), "{schema:?}: every number once, in order");
    for (number, wire) in &message.fields {
        assert!((1..1 << 29).contains(number));
        match wire {
            Wire::Field(at) | Wire::Wrapped(at) => {
                assert!(!std::mem::replace(&mut seen[usize::from(*at)], true), "{schema:?}: a field has one number");
            }
            Wire::Inline { message, .. } => check_message(schema, message, seen),
        }
    }
}

#[test]
fn kinds_are_found_by_name_and_listed_in_order() {
    assert!(kinds().map(|(kind, _)| kind).is_sorted());
    assert!(kinds().len() > 740);
    for (kind, found) in kinds() {
        assert_eq!(schema(kind).unwrap().ty().name, found.ty().name);
    }
    assert!(schema(&GroupVersionKind::of("apps", "v1", "Pod")).is_none());
    assert!(has_version(&GroupVersion::of("apps", "v1")));
    assert!(!has_version(&GroupVersion::of("apps", "v2")));
}

#[test]
fn named_lists_are_wrapped_in_protobuf() {
    let wire = |schema: Schema<'static>, name: &str| {
        let Shape::Struct(Struct { fields, message, .. }) = schema.shape() else { panic!() };
        let wrapped = |wire: &Wire| matches!(wire, Wire::Wrapped(at) if fields[usize::from(*at)].name == name);
        message.fields.iter().any(|(_, wire)| wrapped(wire))
    };
    assert!(wire(walk(core("APIResourceList"), "resources.*"), "verbs"));
    assert!(!wire(walk(core("APIResourceList"), "resources.*"), "shortNames"));
    let review = schema(&GroupVersionKind::of("authentication.k8s.io", "v1", "TokenReview")).unwrap();
    assert!(wire(walk(review, "status.user"), "extra"));
}
