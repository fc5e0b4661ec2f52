//! Namespace: a scope for names.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, MetaMut, Scope, name_is_dns_label};
use apimachinery::{At, Errors, Path, Str, Value, names as rules_of_names, value};

use crate::core::object_meta;
use crate::field_rules::{column, default_empty_to, default_to, keep};
use crate::kind::{Context, Kind, Rules, Selectable, Subresource, UpdateChecks, Verb, age_column, name_column, names};

/// Label that allows selectors to select a namespace by name.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Finalizer that keeps a namespace until its content is deleted.
pub const FINALIZER: &str = "kubernetes";

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["ns"]),
        scope: Scope::Cluster,
        verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch],
        subresources: vec![
            Subresource { verbs: &[Verb::Update], ..Subresource::updatable("finalize") },
            Subresource::status(),
        ],
        returns_deleted: true,
        is_dismantled: true,
        name_rule: name_is_dns_label,
        selectable: vec![Selectable::new("status.phase", phase)],
        rules: Arc::new(Namespace),
        update_checks: UpdateChecks { whole: 1, change: 1 },
        ..Kind::stored("", "v1", "Namespace", "namespaces")
    }
    .with_columns(&[
        name_column(),
        column("Status", "string", "Phase of the namespace.", |object, _| phase(object).into()),
        age_column(),
    ])
}

#[derive(Debug)]
struct Namespace;

impl Rules for Namespace {
    fn mark_deleted(&self, object: &mut Value) {
        if let Some(mut meta) = MetaMut::of(object) {
            // The deletion of a namespace waits for its content, not for a grace period.
            meta.remove("deletionGracePeriodSeconds");
        }
        if let Value::Object(fields) = object
            && let Value::Object(status) = fields.get_or_insert_with("status", Value::object)
        {
            status.insert("phase", "Terminating");
        }
    }

    fn blocks_deletion(&self, object: &Value) -> bool {
        object.at(&["spec", "finalizers"]).and_then(Value::as_array).is_some_and(|finalizers| !finalizers.is_empty())
    }

    fn default(&self, object: &mut Value, _version: &str) {
        label(object);
        default_to(object, "status", Value::object());
        if let Some(status) = object.get_mut("status") {
            default_empty_to(status, "phase", "Active");
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        default_to(object, "spec", Value::object());
        let Some(fields) = object.as_object_mut() else { return };
        fields.insert("status", value!({"phase": "Active"}));
        let Some(spec) = fields.get_mut("spec") else { return };
        default_to(spec, "finalizers", Vec::<Value>::new());
        if let Some(finalizers) = spec.get_mut("finalizers").and_then(Value::as_array_mut)
            && !finalizers.iter().any(|finalizer| finalizer.as_str() == Some(FINALIZER))
        {
            finalizers.push(FINALIZER.into());
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if context.subresource != "finalize" {
            keep(object, old, "spec");
        }
        if context.subresource != "status" {
            keep(object, old, "status");
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        let finalizers = spec.get("finalizers");
        finalizers.items().for_each(|finalizer| validate_finalizer(finalizer.str(), finalizers.path(), errors));
    }

    fn validate_update(&self, object: &Value, _old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        let root = At::root(object);
        match context.subresource {
            "status" => validate_phase(object, errors),
            "finalize" => {
                let spec = root.get("spec");
                let finalizers = spec.get("finalizers");
                for finalizer in finalizers.items() {
                    validate_finalizer(finalizer.str(), finalizer.path(), errors);
                }
            }
            _ => self.validate(object, context, errors),
        }
    }

    fn canonicalize(&self, object: &mut Value) {
        // generateName is resolved after defaulting.
        label(object);
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec"],
            _ => &["status"],
        }
    }
}

fn label(object: &mut Value) {
    let name = Meta::of(object).name().to_owned();
    if !name.is_empty()
        && let Some(mut meta) = MetaMut::of(object)
    {
        meta.set_label(NAME_LABEL, &name);
    }
}

fn validate_finalizer(name: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.extend(rules_of_names::qualified_name(name).into_iter().map(|wrong| Error::invalid(path, name, wrong)));
    if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.push(Error::invalid(path, name, detail));
    }
}

fn validate_phase(object: &Value, errors: &mut Errors) {
    let status = Path::of("status");
    // `Phase` is upstream's path.
    let path = status.field("Phase");
    let phase = phase(object);
    let (expected, message) = if Meta::of(object).is_deleting() {
        ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
    } else {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    };
    if phase != expected {
        errors.push(Error::invalid(&path, phase, message));
    }
}

fn phase(object: &Value) -> Str {
    object.text_at(&["status", "phase"]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizers_are_qualified_or_standard() {
        let check = |name: &str, expect: usize| {
            let mut errors = Errors::new();
            validate_finalizer(name, &Path::of("f"), &mut errors);
            assert_eq!(errors.len(), expect, "{name}");
        };
        check("kubernetes", 0);
        check("example.com/a", 0);
        check("a", 1);
        check("", 3);
    }

    #[test]
    fn phase_depends_on_the_deletion_timestamp() {
        let check = |object: Value, expect: Option<&str>| {
            let mut errors = Errors::new();
            validate_phase(&object, &mut errors);
            assert_eq!(errors.first().map(ToString::to_string).as_deref(), expect);
        };
        check(value!({"status": {"phase": "Active"}}), None);
        let deleting = value!({"deletionTimestamp": "2024-01-01T00:00:00Z"});
        check(value!({"metadata": (deleting), "status": {"phase": "Terminating"}}), None);
        check(
            value!({"status": {"phase": "Terminating"}}),
            Some("status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"),
        );
    }
}
