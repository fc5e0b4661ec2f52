//! CustomResourceDefinition: defines an API kind at run time.

mod conditions;
mod conversion;
mod schema;
mod spec;
mod versions;

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, MetaMut, Scope};
use apimachinery::time::Time;
use apimachinery::{At, Errors, GroupVersion, Object, Path, Value, go, names, value};

use crate::kind::{self, Context, Kind, Persistence, Rules, Subresource};

pub use conditions::{CLEANUP_FINALIZER, Condition, Deletion, conditions, is_established, set_terminating};

pub fn kind() -> Kind {
    Kind {
        short_names: kind::names(&["crd", "crds"]),
        categories: kind::names(&["api-extensions"]),
        scope: Scope::Cluster,
        // DEVIATION: CRDs are stored as v1; upstream still stores them as v1beta1.
        persistence: Persistence::Stored {
            prefix: "apiextensions.k8s.io/customresourcedefinitions".into(),
            version: GroupVersion { group: "apiextensions.k8s.io".into(), version: "v1".into() },
            expires: false,
        },
        subresources: vec![Subresource::status()],
        unconditional_update: false,
        is_dismantled: true,
        rules: Arc::new(CustomResourceDefinition),
        qualified_finalizers: false,
        ..Kind::stored("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
    }
}

#[derive(Debug)]
struct CustomResourceDefinition;

impl Rules for CustomResourceDefinition {
    fn default(&self, object: &mut Value, _version: &str) {
        let Some(Value::Object(spec)) = object.get_mut("spec") else { return };
        if let Some(Value::Object(names)) = spec.get_mut("names") {
            default_names(names);
        }
        let conversion = spec.get_or_insert_with("conversion", || value!({"strategy": "None"}));
        if conversion.is_null() {
            *conversion = value!({"strategy": "None"});
        }
        let path = ["webhook", "clientConfig", "service"];
        let service = path.iter().try_fold(conversion, |at, key| at.get_mut(key));
        if let Some(Value::Object(service)) = service {
            service.get_or_insert_with("port", || Value::Int(443));
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        if let Value::Object(fields) = object {
            fields.insert("status", empty_status());
        }
        remember_storage(object);
        if let Some(mut meta) = MetaMut::of(object) {
            meta.set("generation", 1);
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        let preserved_field = if context.subresource == "status" { "spec" } else { "status" };
        if let (Value::Object(fields), Some(value)) = (&mut *object, old.get(preserved_field)) {
            fields.insert(preserved_field, value.clone());
        }
        if context.subresource == "status" {
            return keep_metadata(object, old);
        }
        remember_storage(object);
        if object.get("spec") != old.get("spec")
            && let Some(mut meta) = MetaMut::of(object)
        {
            meta.set("generation", Meta::of(old).generation() + 1);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let (spec_at, meta) = (root.get("spec"), Meta::of(object));
        if !meta.name().is_empty() {
            let required = format!("{}.{}", spec_at.get("names").get("plural").str(), spec_at.get("group").str());
            if meta.name() != required {
                let metadata = Path::of("metadata");
                let detail = "must be spec.names.plural+\".\"+spec.group";
                errors.push(Error::invalid(&metadata.field("name"), meta.name(), detail));
            }
        }
        spec::validate(&spec_at, None, errors);
        validate_status(&root, errors);
        validate_stored_versions(&root, errors);
        spec::validate_approval(object, None, errors);
        spec::validate_preserving(&spec_at, None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        if context.subresource == "status" {
            return validate_status(&root, errors);
        }
        let (spec_at, before) = (root.get("spec"), At::root(old));
        spec::validate(&spec_at, Some(old), errors);
        spec::validate_immutable(&spec_at, &before.get("spec"), is_established(old), errors);
        validate_status(&root, errors);
        validate_stored_versions(&root, errors);
        spec::validate_approval(object, Some(old), errors);
        spec::validate_preserving(&spec_at, Some(&before.get("spec")), errors);
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>, _context: &Context<'_>) -> Vec<String> {
        schema::unknown_formats(object)
            .iter()
            .map(|format| format!("unrecognized format {}", go::quote(format)))
            .collect()
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "" => &["status"],
            "status" => &["metadata", "spec"],
            _ => &[],
        }
    }

    /// Adds the cleanup finalizer, so that custom resources are deleted before their CRD.
    fn prepare_delete(&self, object: &mut Value, now: Time) {
        if let Some(mut meta) = MetaMut::of(object) {
            meta.add_finalizer(CLEANUP_FINALIZER);
        }
        set_terminating(object, Deletion::Pending, now);
    }
}

/// Restores the metadata of `old`: a status write changes only the status and managedFields.
fn keep_metadata(object: &mut Value, old: &Value) {
    let Some(mut meta) = MetaMut::of(object) else { return };
    for field in ["annotations", "deletionTimestamp", "finalizers", "generation", "labels", "ownerReferences"] {
        match Meta::of(old).value(field) {
            Some(value) => meta.set(field, value.clone()),
            None => drop(meta.remove(field)),
        }
    }
}

fn default_names(names: &mut Object) {
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_empty = |names: &Object, key: &str| names.get(key).and_then(Value::as_str).unwrap_or_default().is_empty();
    if kind.is_empty() {
        return;
    }
    if is_empty(names, "singular") {
        names.insert("singular", kind.to_lowercase());
    }
    if is_empty(names, "listKind") {
        names.insert("listKind", format!("{kind}List"));
    }
}

fn empty_status() -> Value {
    value!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": null})
}

/// Adds the current storage version to `status.storedVersions`.
fn remember_storage(object: &mut Value) {
    let root = At::root(object);
    let spec = root.get("spec");
    let versions = spec.get("versions");
    let stored: Vec<Value> =
        versions.items().filter(|one| one.get("storage").bool()).map(|one| one.get("name").str().into()).collect();
    let Value::Object(fields) = object else { return };
    let Value::Object(status) = fields.get_or_insert_with("status", empty_status) else { return };
    let known = status.get_or_insert_with("storedVersions", || Value::Null);
    for version in stored {
        match known {
            Value::Array(known) if known.contains(&version) => {}
            Value::Array(known) => known.push(version),
            _ => *known = Value::Array(vec![version]),
        }
    }
}

fn validate_status(root: &At<'_>, errors: &mut Errors) {
    let status = root.get("status");
    validate_names(&status.get("acceptedNames"), errors);
}

fn validate_stored_versions(root: &At<'_>, errors: &mut Errors) {
    let (status, spec) = (root.get("status"), root.get("spec"));
    let stored = status.get("storedVersions");
    if stored.is_empty() {
        return errors.push(stored.invalid("must have at least one stored version"));
    }
    let mut left: Vec<_> = stored.items().map(|one| (one.str().to_owned(), one.path().to_string())).collect();
    for version in spec.get("versions").items() {
        let at = left.iter().position(|(name, _)| name == version.get("name").str());
        match at {
            Some(at) => drop(left.remove(at)),
            None if version.get("storage").bool() => {
                let detail = format!("must have the storage version {}", version.get("name").str());
                errors.push(stored.invalid(detail));
            }
            None => {}
        }
    }
    for (name, path) in left {
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until \
             a storage migration ensures no data remains persisted in {name} and removes {name} from \
             status.storedVersions"
        );
        errors.push(Error::invalid(&Path::of(&path), name.as_str(), detail));
    }
}

/// Validates the syntax of names in spec and status. Names of the spec are also required.
fn validate_names(at: &At<'_>, errors: &mut Errors) {
    for field in ["plural", "singular"] {
        let name = at.get(field);
        if !name.is_empty() {
            invalid(&name, &names::dns1035_label(name.str()), "", errors);
        }
    }
    for field in ["kind", "listKind"] {
        let name = at.get(field);
        if !name.is_empty() {
            let wrong = names::dns1035_label(&name.str().to_lowercase());
            invalid(&name, &wrong, "may have mixed case, but should otherwise match: ", errors);
        }
    }
    for name in at.get("shortNames").items() {
        invalid(&name, &names::dns1035_label(name.str()), "", errors);
    }
    let list_kind = at.get("listKind");
    if !list_kind.is_empty() && list_kind.str() == at.get("kind").str() {
        errors.push(list_kind.invalid("kind and listKind may not be the same"));
    }
    for name in at.get("categories").items() {
        invalid(&name, &names::dns1035_label(name.str()), "", errors);
    }
}

/// Adds one error that joins all violations of a name.
fn invalid(at: &At<'_>, wrong: &[String], before: &str, errors: &mut Errors) {
    if !wrong.is_empty() {
        // An absent string is reported as the empty string.
        errors.push(Error::invalid(at.path(), at.str(), format!("{before}{}", wrong.join(","))));
    }
}

#[cfg(test)]
mod tests;
