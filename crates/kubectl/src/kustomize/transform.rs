//! Transformations of all resources: namespace, names, labels, annotations, replicas.

use apimachinery::{Object, Value};

use super::Error;
use super::field_path::{Create, FieldSpec};
use super::file::{Kustomization, Label};
use super::resource::{Gvk, Resource, Set};
use super::specs;

/// Applies the transformations between patches and JSON patches.
pub(super) fn rename_and_label(kustomization: &Kustomization, set: &mut Set) -> Result<(), Error> {
    set_namespace(&kustomization.namespace, set)?;
    let (prefix, suffix) = (&kustomization.name_prefix, &kustomization.name_suffix);
    for resource in set.resources.iter_mut().filter(|resource| is_renamed(&resource.original_id().gvk)) {
        if !prefix.is_empty() {
            resource.prefixes.push(prefix.clone());
            resource.store_previous_id();
            resource.set_name(&format!("{prefix}{}", resource.name()));
        }
    }
    for resource in set.resources.iter_mut().filter(|resource| is_renamed(&resource.original_id().gvk)) {
        if !suffix.is_empty() {
            resource.suffixes.push(suffix.clone());
            resource.store_previous_id();
            resource.set_name(&format!("{}{suffix}", resource.name()));
        }
    }
    for label in &kustomization.labels {
        add_entries(&label.pairs, &label_fields(label), set)?;
    }
    add_entries(&kustomization.common_labels, &specs::common_labels(), set)?;
    add_entries(&kustomization.common_annotations, &specs::common_annotations(), set)
}

/// Sets the number of replicas of the resources that have or had a name.
pub(super) fn set_replicas(name: &str, count: i64, set: &mut Set) -> Result<(), Error> {
    let specs = specs::replicas();
    let mut found = false;
    for spec in &specs {
        for resource in &mut set.resources {
            if resource.all_ids().any(|id| id.name == name && spec.selects(&id.gvk)) {
                found = true;
                spec.visit(resource, Create::Scalar, &mut |field| {
                    *field = count.into();
                    Ok(())
                })?;
            }
        }
    }
    if found {
        return Ok(());
    }
    let kinds: Vec<String> = specs.iter().map(|spec| Gvk::new("", &spec.kind).to_string()).collect();
    Err(Error::new(format!(
        "resource with name {name} does not match a config with the following GVK [{}]",
        kinds.join(" ")
    )))
}

fn set_namespace(namespace: &str, set: &mut Set) -> Result<(), Error> {
    if namespace.is_empty() {
        return Ok(());
    }
    let specs = specs::namespaces();
    for at in 0..set.resources.len() {
        let resource = &mut set.resources[at];
        resource.store_previous_id();
        let gvk = resource.gvk();
        if !gvk.is_cluster_scoped() {
            resource.set_namespace(namespace);
        }
        if gvk == Gvk::new("v1", "Namespace") {
            resource.set_name(namespace);
        }
        if matches!(gvk.kind.as_str(), "RoleBinding" | "ClusterRoleBinding") {
            set_default_subjects(resource, namespace);
        }
        for spec in &specs {
            spec.visit(resource, Create::Scalar, &mut |field| {
                *field = namespace.into();
                Ok(())
            })?;
        }
        let id = set.resources[at].current_id();
        if set.resources.iter().filter(|other| other.current_id().same(&id)).count() > 1 {
            return Err(Error::new(format!("namespace transformation produces ID conflict: {id}")));
        }
    }
    Ok(())
}

/// Sets the namespace of the subjects called `default` of a role binding. Other subjects follow their service accounts.
fn set_default_subjects(resource: &mut Resource, namespace: &str) {
    let Some(Value::Array(subjects)) = resource.object.get_mut("subjects") else { return };
    for subject in subjects {
        if subject.str_at(&["name"]) == Some("default")
            && let Value::Object(subject) = subject
        {
            subject.insert("namespace", namespace);
        }
    }
}

/// Whether names of this kind get prefixes and suffixes.
fn is_renamed(gvk: &Gvk) -> bool {
    let api_service = gvk.group == "apiregistration.k8s.io" && gvk.kind == "APIService";
    !api_service && !matches!(gvk.kind.as_str(), "CustomResourceDefinition" | "Namespace")
}

fn label_fields(label: &Label) -> Vec<FieldSpec> {
    let mut fields = label.fields.clone();
    if label.include_selectors {
        fields.extend(specs::common_labels());
    } else if label.include_templates {
        fields.extend(specs::template_labels());
    } else {
        fields.push(FieldSpec::new("metadata/labels").created());
    }
    fields
}

fn add_entries(entries: &Object, specs: &[FieldSpec], set: &mut Set) -> Result<(), Error> {
    if entries.is_empty() {
        return Ok(());
    }
    for resource in &mut set.resources {
        for spec in specs {
            spec.visit(resource, Create::Map, &mut |field| match field {
                Value::Object(map) => {
                    for (key, value) in entries.iter() {
                        map.insert(key, value.clone());
                    }
                    Ok(())
                }
                _ => Err(Error::new("wrong node kind: expected MappingNode")),
            })?;
        }
    }
    Ok(())
}
