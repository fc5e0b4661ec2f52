//! Builds the `Kind` that a CustomResourceDefinition defines.

mod embedded;
pub mod field_path;
pub mod rule;
mod strategy;
mod validator;

use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use apimachinery::jsonpath::JsonPath;
use apimachinery::meta::{Meta, Scope};
use apimachinery::schema::structural::{self, Structural};
use apimachinery::table::{self, Cell, Column};
use apimachinery::{At, GroupVersion, GroupVersionKind, Schema, Str, Value, value};

use crate::catalogue;
use crate::kind::{
    FieldExtractor, Kind, Persistence, ReplicaPaths, Selectable, Shape, Subresource, SubresourceAction, Verb, Version,
    name_column,
};
use crate::version_priority::version_priority;

use strategy::{CustomResource, CustomVersion};

/// A CRD from which no kind can be built. This does not happen for a validated CRD.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The schema of a version cannot be converted to types.
    #[error("the schema of version {version} makes no types")]
    Schema {
        /// The name of the CRD version, such as `v1`.
        version: String,
        source: structural::Error,
    },
    #[error("no version is marked as the storage version")]
    NoStorage,
}

/// Verbs of custom resources, in discovery order.
const VERBS: &[Verb] = &[
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Create,
    Verb::Update,
    Verb::Watch,
];

/// Verbs that remain while the CRD is being deleted.
const TERMINATING_VERBS: &[Verb] = &[Verb::Delete, Verb::DeleteCollection, Verb::Get, Verb::List, Verb::Watch];

/// Builds the kind of a CRD, with its accepted names.
///
/// # Errors
/// If the CRD was not validated and is invalid.
pub fn kind_of(crd: &Value) -> Result<Kind, Error> {
    let root = At::root(crd);
    let (spec, status) = (root.get("spec"), root.get("status"));
    let (accepted, requested) = (status.get("acceptedNames"), spec.get("names"));
    let names = if accepted.get("plural").is_empty() { requested } else { accepted };
    let name = |field: &str| Str::from(names.get(field).str());
    let group = spec.get("group").str();
    let listed = |field: &str| names.get(field).items().map(|one| Str::from(one.str())).collect::<Vec<_>>();
    let (mut versions, mut own) = (Vec::new(), Vec::new());
    for version in spec.get("versions").items() {
        let (row, rules) = version_of(&version, group, names.get("kind").str())?;
        versions.push(row);
        own.push(rules);
    }
    versions.sort_by_key(|version| Reverse(version_priority(&version.name)));
    let all = spec.get("versions");
    let stored = all.items().find(|version| version.get("storage").bool()).ok_or(Error::NoStorage)?;
    let stored_fields = selectable_of(&stored);
    let stored = GroupVersion { group: group.into(), version: stored.get("name").str().into() };
    let terminating = crd.at(&["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null());
    Ok(Kind {
        short_names: listed("shortNames"),
        categories: listed("categories"),
        singular: name("singular"),
        scope: if spec.get("scope").str() == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
        versions,
        persistence: Persistence::Stored {
            prefix: format!("{group}/{}", names.get("plural").str()).into(),
            version: stored,
            expires: false,
        },
        verbs: if terminating { TERMINATING_VERBS } else { VERBS },
        subresources: Vec::new(),
        unconditional_update: false,
        selectable: stored_fields,
        group: group.into(),
        kind: name("kind"),
        list_kind: match names.get("listKind").str() {
            "" => format!("{}List", names.get("kind").str()).into(),
            list_kind => list_kind.into(),
        },
        plural: name("plural"),
        name_rule: apimachinery::meta::name_is_dns_subdomain,
        create_on_update: false,
        dependents: crate::kind::Dependents::Delete,
        returns_deleted: false,
        update_checks: crate::kind::UpdateChecks { whole: 1, change: 1 },
        validates_metadata: false,
        ends_names: true,
        is_dismantled: false,
        field_annotations: &[],
        allocates: None,
        converter: converter_of(&spec),
        edition: edition_of(crd),
        qualified_finalizers: false,
        rules: Arc::new(CustomResource::new(own)),
    })
}

fn version_of(version: &At<'_>, group: &str, kind: &str) -> Result<(Version, CustomVersion), Error> {
    let (name, schema) = (version.get("name").str(), version.get("schema"));
    let schema = match schema.get("openAPIV3Schema").value() {
        Value::Null => value!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        schema => schema.clone(),
    };
    let types = Structural::enveloped(&schema, envelope())
        .map_err(|source| Error::Schema { version: name.to_owned(), source })
        .map(Arc::new)?;
    let subresources = version.get("subresources");
    let warning = version.get("deprecationWarning");
    let deprecation = version.get("deprecated").bool().then(|| match warning.value() {
        Value::String(text) => text.clone(),
        _ => format!("{group}/{name} {kind} is deprecated").into(),
    });
    let row = Version {
        name: name.into(),
        served: version.get("served").bool(),
        shape: Shape::Custom(types.shared(), types.root()),
        deprecation,
        columns: columns_of(&version.get("additionalPrinterColumns")),
        convert: None,
        selectable: selectable_of(version),
        subresources: subresources_of(&subresources),
    };
    let published = published(schema, &version.get("selectableFields"));
    let rules =
        CustomVersion::new(name, published, types, subresources.get("status").is_present(), scale_of(&subresources));
    Ok((row, rules))
}

/// Returns a hash of UID and generation: it differs between CRDs and changes with the spec.
fn edition_of(crd: &Value) -> u64 {
    let meta = Meta::of(crd);
    let mut hasher = DefaultHasher::new();
    (meta.uid(), meta.generation()).hash(&mut hasher);
    // 0 is reserved for built-in kinds.
    hasher.finish() | 1
}

/// Returns the schema of the fields that every object has: apiVersion, kind and metadata.
fn envelope() -> Schema<'static> {
    let kind = GroupVersionKind::of("meta.k8s.io", "v1", "PartialObjectMetadata");
    catalogue::schema(&kind).expect("the catalogue has PartialObjectMetadata")
}

/// Returns the schema for OpenAPI, with `x-kubernetes-selectable-fields`.
fn published(mut schema: Value, selectable: &At<'_>) -> Value {
    let path = |field: At<'_>| value!({"fieldPath": (field.get("jsonPath").str().trim_start_matches('.'))});
    let paths: Vec<Value> = selectable.items().map(path).collect();
    if let (Value::Object(fields), false) = (&mut schema, paths.is_empty()) {
        fields.insert("x-kubernetes-selectable-fields", paths);
    }
    schema
}

/// Returns the conversion webhook, if the CRD's strategy is Webhook.
fn converter_of(spec: &At<'_>) -> Option<Arc<Value>> {
    let conversion = spec.get("conversion");
    (conversion.get("strategy").str() == "Webhook").then(|| Arc::new(conversion.get("webhook").value().clone()))
}

/// Returns the name column followed by `additionalPrinterColumns`, or by the age if there are none.
fn columns_of(declared: &At<'_>) -> Vec<Column> {
    let mut columns = vec![name_column()];
    if declared.is_empty() {
        let description = "Time since the object was created.";
        columns.push(Column::new("Age", "date", description, Cell::Function(table::age_cell)));
    }
    for column in declared.items() {
        let path = column.get("jsonPath");
        // A column with an unparsable path is omitted.
        let Ok(path) = JsonPath::parse(path.str()) else { continue };
        let text = |field: &str| column.get(field).str().to_owned();
        columns.push(Column {
            name: text("name"),
            ty: text("type"),
            format: text("format"),
            description: text("description"),
            priority: i32::try_from(column.get("priority").int()).unwrap_or_default(),
            cell: Cell::Path(path),
        });
    }
    columns
}

fn subresources_of(declared: &At<'_>) -> Vec<Subresource> {
    let mut out = Vec::new();
    if declared.get("status").is_present() {
        out.push(Subresource::status());
    }
    if let Some(paths) = scale_of(declared) {
        out.push(Subresource {
            kind: Some(GroupVersionKind::of("autoscaling", "v1", "Scale")),
            does: SubresourceAction::Scale(paths),
            ..Subresource::updatable("scale")
        });
    }
    out
}

fn scale_of(subresources: &At<'_>) -> Option<ReplicaPaths> {
    let scale = subresources.get("scale");
    let steps = |field: &str| {
        let path = scale.get(field);
        let steps = path.str().strip_prefix('.')?.split('.').map(Str::from).collect::<Vec<_>>();
        Some(steps)
    };
    Some(ReplicaPaths {
        desired: steps("specReplicasPath")?,
        actual: steps("statusReplicasPath")?,
        selector: steps("labelSelectorPath"),
    })
}

fn selectable_of(version: &At<'_>) -> Vec<Selectable> {
    let fields = version.get("selectableFields");
    let selectable = fields.items().filter_map(|field| {
        let path = field.get("jsonPath");
        let value = FieldExtractor::Path(JsonPath::parse(path.str()).ok()?);
        Some(Selectable { name: path.str().trim_start_matches('.').into(), value })
    });
    selectable.collect()
}

#[cfg(test)]
mod tests;
