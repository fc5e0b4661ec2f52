//! PersistentVolumes, their claims and classes, and CSI nodes.

use apimachinery::labels::format_labels;
use apimachinery::meta::Meta;
use apimachinery::{Object, Value};

use super::common::{self, optional_bool};
use super::query::{PODS, Query};
use super::read::{Read, go_list, name, namespace, quantity_text};
use super::volumes;
use super::writer::{Writer, line};
use super::{RelatedObjects, WriteResult};

const BETA_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_CLASS_ANNOTATIONS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

const ACCESS_MODES: [(&str, &str); 4] =
    [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];

pub(super) fn volume(w: &mut Writer<'_>, volume: &Value, _: &RelatedObjects) -> WriteResult {
    let spec = volume.sub("spec");
    line!(w, 0, "Name:\t{}", name(volume));
    common::metadata(w, volume);
    line!(w, 0, "Finalizers:\t{}", go_list(volume.list("metadata.finalizers")));
    line!(w, 0, "StorageClass:\t{}", class(volume));
    common::phase(w, volume);
    let claim = spec.sub("claimRef");
    let claim = match claim.is_null() {
        true => String::new(),
        false => format!("{}/{}", claim.text("namespace"), claim.text("name")),
    };
    line!(w, 0, "Claim:\t{claim}");
    line!(w, 0, "Reclaim Policy:\t{}", spec.text("persistentVolumeReclaimPolicy"));
    line!(w, 0, "Access Modes:\t{}", access_modes(&spec.texts("accessModes")));
    if spec.has("volumeMode") {
        line!(w, 0, "VolumeMode:\t{}", spec.text("volumeMode"));
    }
    line!(w, 0, "Capacity:\t{}", quantity_text(spec.sub("capacity.storage")));
    write_node_affinity(w, spec.sub("nodeAffinity.required"));
    line!(w, 0, "Message:\t{}", volume.text("status.message"));
    line!(w, 0, "Source:");
    volumes::write_persistent(w, spec);
    Ok(())
}

fn write_node_affinity(w: &mut Writer<'_>, required: &Value) {
    if required.is_null() {
        line!(w, 0, "Node Affinity:\t<none>");
        return;
    }
    line!(w, 0, "Node Affinity:\t");
    let terms = required.list("nodeSelectorTerms");
    line!(w, 1, "Required Terms:\t{}", if terms.is_empty() { "<none>" } else { "" });
    for (index, term) in terms.iter().enumerate() {
        write_term(w, 2, index, term.list("matchExpressions"));
    }
}

/// Writes the expressions of a term, one per line.
fn write_term(w: &mut Writer<'_>, level: usize, index: usize, expressions: &[Value]) {
    w.write(level, format_args!("Term {index}:\t"));
    if expressions.is_empty() {
        w.write(0, "<none>\n");
    }
    for (index, expression) in expressions.iter().enumerate() {
        if index > 0 {
            w.write(level, "\t");
        }
        let operator = expression.text_or("operator", "In").to_lowercase();
        let values = match expression.texts("values") {
            values if values.is_empty() => String::new(),
            values => format!(" [{}]", values.join(", ")),
        };
        line!(w, 0, "{} {operator}{values}", expression.text("key"));
    }
}

pub(super) fn claim_queries(claim: &Value) -> Result<Vec<Query>, String> {
    Ok(vec![Query::list(&PODS, namespace(claim))])
}

pub(super) fn claim(w: &mut Writer<'_>, claim: &Value, related: &RelatedObjects) -> WriteResult {
    common::identity(w, claim);
    line!(w, 0, "StorageClass:\t{}", class(claim));
    common::phase(w, claim);
    line!(w, 0, "Volume:\t{}", claim.text("spec.volumeName"));
    common::metadata(w, claim);
    line!(w, 0, "Finalizers:\t{}", go_list(claim.list("metadata.finalizers")));
    write_claim_size(w, claim);

    let mut users: Vec<String> =
        users(claim, related.list(&PODS).unwrap_or_default()).into_iter().map(str::to_owned).collect();
    users.sort();
    w.write(0, "Used By:\t");
    common::multiline(w, "", &users);

    let conditions = claim.list("status.conditions");
    if !conditions.is_empty() {
        line!(w, 0, "Conditions:");
        line!(w, 1, "Type\tStatus\tLastProbeTime\tLastTransitionTime\tReason\tMessage");
        line!(w, 1, "----\t------\t-----------------\t------------------\t------\t-------");
    }
    for condition in conditions {
        let [kind, status, reason, message] =
            ["type", "status", "reason", "message"].map(|field| condition.text(field));
        let [probed, changed] =
            ["lastProbeTime", "lastTransitionTime"].map(|field| w.clock.rfc1123(condition.text(field)));
        line!(w, 1, "{kind} \t{status} \t{probed} \t{changed} \t{reason} \t{message}");
    }
    Ok(())
}

/// Writes the template of a claim in a pod.
pub(super) fn write_claim_template(w: &mut Writer<'_>, template: &Value) {
    line!(w, 0, "StorageClass:\t{}", class(template));
    line!(w, 0, "Volume:\t{}", template.text("spec.volumeName"));
    common::metadata(w, template);
    write_claim_size(w, template);
}

fn write_claim_size(w: &mut Writer<'_>, claim: &Value) {
    let bound = !claim.text("spec.volumeName").is_empty();
    let (capacity, modes) = match bound {
        true => (quantity_text(claim.sub("status.capacity.storage")), access_modes(&claim.texts("status.accessModes"))),
        false => (String::new(), String::new()),
    };
    line!(w, 0, "Capacity:\t{capacity}");
    line!(w, 0, "Access Modes:\t{modes}");
    if claim.has("spec.volumeMode") {
        line!(w, 0, "VolumeMode:\t{}", claim.text("spec.volumeMode"));
    }
    let source = claim.sub("spec.dataSource");
    if !source.is_null() {
        line!(w, 0, "DataSource:");
        if source.has("apiGroup") {
            line!(w, 1, "APIGroup:\t{}", source.text("apiGroup"));
        }
        line!(w, 1, "Kind:\t{}", source.text("kind"));
        line!(w, 1, "Name:\t{}", source.text("name"));
    }
}

/// Returns the pods that mount a claim or own it. A pod that mounts it twice is returned twice.
fn users<'a>(claim: &Value, pods: &'a [Value]) -> Vec<&'a str> {
    let mounts = |pod: &Value| {
        let volumes = pod.list("spec.volumes").iter();
        volumes.filter(|volume| volume.text("persistentVolumeClaim.claimName") == name(claim)).count()
    };
    let mut users: Vec<&Value> = pods.iter().flat_map(|pod| std::iter::repeat_n(pod, mounts(pod))).collect();
    for owner in Meta::of(claim).owner_references().filter(|owner| owner.kind() == "Pod") {
        let is_owner = |pod: &&Value| pod.text("metadata.uid") == owner.uid();
        if let Some(pod) = pods.iter().find(is_owner)
            && !users.iter().any(is_owner)
        {
            users.push(pod);
        }
    }
    users.into_iter().map(name).collect()
}

/// Writes the claim templates of a StatefulSet.
pub(super) fn write_claim_templates(w: &mut Writer<'_>, templates: &[Value]) {
    line!(w, 0, "Volume Claims:{}", if templates.is_empty() { "\t<none>" } else { "" });
    for template in templates {
        line!(w, 1, "Name:\t{}", name(template));
        line!(w, 1, "StorageClass:\t{}", class(template));
        common::labels_indented(w, "  ", "Labels", template.map("metadata.labels"));
        common::labels_indented(w, "  ", "Annotations", template.map("metadata.annotations"));
        let capacity = match template.sub("spec.resources.requests.storage") {
            Value::Null => "<default>".to_owned(),
            capacity => quantity_text(capacity),
        };
        line!(w, 1, "Capacity:\t{capacity}");
        line!(w, 1, "Access Modes:\t{}", go_list(template.list("spec.accessModes")));
    }
}

pub(super) fn class_description(w: &mut Writer<'_>, class: &Value, _: &RelatedObjects) -> WriteResult {
    line!(w, 0, "Name:\t{}", name(class));
    let annotations = class.map("metadata.annotations");
    let set = |annotation: &&str| annotations.get(annotation).and_then(Value::as_str) == Some("true");
    line!(w, 0, "IsDefaultClass:\t{}", if DEFAULT_CLASS_ANNOTATIONS.iter().any(set) { "Yes" } else { "No" });
    line!(w, 0, "Annotations:\t{}", format_labels(class.at(&["metadata", "annotations"])));
    line!(w, 0, "Provisioner:\t{}", class.text("provisioner"));
    line!(w, 0, "Parameters:\t{}", format_labels(class.get("parameters")));
    line!(w, 0, "AllowVolumeExpansion:\t{}", optional_bool(class.sub("allowVolumeExpansion")));
    let options = class.texts("mountOptions");
    line!(w, 0, "MountOptions:{}", if options.is_empty() { "\t<none>" } else { "" });
    for option in options {
        line!(w, 1, "{option}");
    }
    for (title, field) in [("ReclaimPolicy", "reclaimPolicy"), ("VolumeBindingMode", "volumeBindingMode")] {
        if class.has(field) {
            line!(w, 0, "{title}:\t{}", class.text(field));
        }
    }
    if class.has("allowedTopologies") {
        let terms = class.list("allowedTopologies");
        line!(w, 0, "AllowedTopologies:\t{}", if terms.is_empty() { "<none>" } else { "" });
        for (index, term) in terms.iter().enumerate() {
            write_term(w, 1, index, term.list("matchLabelExpressions"));
        }
    }
    Ok(())
}

pub(super) fn attributes_class(w: &mut Writer<'_>, class: &Value, _: &RelatedObjects) -> WriteResult {
    line!(w, 0, "Name:\t{}", name(class));
    line!(w, 0, "Annotations:\t{}", format_labels(class.at(&["metadata", "annotations"])));
    line!(w, 0, "DriverName:\t{}", class.text("driverName"));
    line!(w, 0, "Parameters:\t{}", format_labels(class.get("parameters")));
    Ok(())
}

pub(super) fn csi_node(w: &mut Writer<'_>, node: &Value, _: &RelatedObjects) -> WriteResult {
    line!(w, 0, "Name:\t{}", name(node));
    common::metadata(w, node);
    common::time(w, "CreationTimestamp", node.text("metadata.creationTimestamp"));
    line!(w, 0, "Spec:");
    if node.has("spec.drivers") {
        line!(w, 1, "Drivers:");
    }
    for driver in node.list("spec.drivers") {
        line!(w, 2, "{}:", driver.text("name"));
        line!(w, 3, "Node ID:\t{}", driver.text("nodeID"));
        if driver.has("allocatable.count") {
            line!(w, 3, "Allocatables:");
            line!(w, 4, "Count:\t{}", driver.int("allocatable.count"));
        }
        if driver.has("topologyKeys") {
            line!(w, 3, "Topology Keys:\t{}", go_list(driver.list("topologyKeys")));
        }
    }
    Ok(())
}

/// Returns the storage class of a volume or a claim; the annotation of older versions comes first.
fn class(object: &Value) -> &str {
    let annotations: &Object = object.map("metadata.annotations");
    let annotated = annotations.get(BETA_CLASS_ANNOTATION).and_then(Value::as_str);
    annotated.unwrap_or_else(|| object.text("spec.storageClassName"))
}

/// Formats access modes in their usual order: `RWO,ROX`.
fn access_modes(modes: &[&str]) -> String {
    let present = ACCESS_MODES.iter().filter(|(mode, _)| modes.contains(mode));
    present.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}
