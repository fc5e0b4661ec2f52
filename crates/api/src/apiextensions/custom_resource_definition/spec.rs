//! Validation of a CRD's spec.
//!
//! Upstream validates its internal type, where fields equal in all versions are at the top level. Error paths follow
//! it: `spec.validation` rather than `spec.versions[0].schema`.

use apimachinery::field::{BadValue, Error};
use apimachinery::meta::Meta;
use apimachinery::{At, Errors, Path, Value, go, names};

use super::{conversion, invalid, schema, validate_names, versions};

/// Annotation that links to the approval of a CRD in a protected Kubernetes group.
pub(super) const APPROVED: &str = "api-approved.kubernetes.io";

/// A CRD spec with the fields that are equal in all versions moved to the top level.
pub(super) struct HoistedSpec<'a> {
    versions: &'a [Value],
    pub schema: Option<&'a Value>,
    pub subresources: Option<&'a Value>,
    pub columns: Option<&'a Value>,
    pub selectable: Option<&'a Value>,
}

impl<'a> HoistedSpec<'a> {
    pub(super) fn new(spec: &'a Value) -> Self {
        let versions = spec.list_at(&["versions"]);
        let common = |key: &str| {
            let first = present(versions.first()?, key);
            versions.iter().all(|version| present(version, key) == first).then_some(first).flatten()
        };
        Self {
            versions,
            schema: common("schema"),
            subresources: common("subresources"),
            columns: common("additionalPrinterColumns"),
            selectable: common("selectableFields"),
        }
    }

    /// Returns a field of the version, unless all versions share its value.
    fn own(&self, version: &'a Value, key: &str) -> Option<&'a Value> {
        let common = match key {
            "schema" => self.schema,
            "subresources" => self.subresources,
            "additionalPrinterColumns" => self.columns,
            _ => self.selectable,
        };
        if common.is_some() { None } else { present(version, key) }
    }

    /// Formats the versions for an error message: with Go field names and without the shared fields.
    fn bad_value(&self, versions: &Value) -> BadValue {
        if versions.as_array().is_none_or(<[_]>::is_empty) {
            return BadValue::from(versions);
        }
        let rendered: Vec<_> = self.versions.iter().map(|version| self.format_version(version)).collect();
        BadValue::Text(format!("[{}]", rendered.join(",")))
    }

    fn format_version(&self, version: &'a Value) -> String {
        let bool = |key: &str| version.get(key).and_then(Value::as_bool).unwrap_or_default();
        let own = |key: &str| self.own(version, key).map_or_else(|| "null".to_owned(), go::json);
        let warning = present(version, "deprecationWarning").map_or_else(|| "null".to_owned(), go::json);
        format!(
            r#"{{"Name":{},"Served":{},"Storage":{},"Deprecated":{},"DeprecationWarning":{warning},"Schema":{},"Subresources":{},"AdditionalPrinterColumns":{},"SelectableFields":{}}}"#,
            go::json(&version.get("name").cloned().unwrap_or_else(|| "".into())),
            bool("served"),
            bool("storage"),
            bool("deprecated"),
            own("schema"),
            own("subresources"),
            own("additionalPrinterColumns"),
            own("selectableFields"),
        )
    }
}

/// Validates a spec. `old`: the CRD that is being replaced, on update.
pub(super) fn validate(spec: &At<'_>, old: Option<&Value>, errors: &mut Errors) {
    let hoisted = HoistedSpec::new(spec.value());
    validate_group_and_scope(spec, errors);
    validate_schemas_are_there(spec, &hoisted, errors);
    let unchanged = |schema: &Value| old.is_some_and(|old| has_schema(old, schema));
    validate_versions(spec, &hoisted, &unchanged, errors);
    let names = spec.get("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        if names.get(field).is_empty() {
            errors.push(names.get(field).required(""));
        }
    }
    validate_names(&names, errors);
    if let Some(common) = hoisted.schema {
        let status = versions::has_status(hoisted.subresources)
            || hoisted.versions.iter().any(|version| versions::has_status(hoisted.own(version, "subresources")));
        if !unchanged(common) {
            schema::validate(&At::new(common, spec.path().field("validation")), status, errors);
        }
    }
    if let Some(common) = hoisted.subresources {
        versions::validate_subresources(&At::new(common, spec.path().field("subresources")), errors);
    }
    if let Some(common) = hoisted.columns {
        versions::validate_columns(&At::new(common, spec.path().field("additionalPrinterColumns")), errors);
    }
    if let Some(common) = hoisted.selectable.filter(|common| !is_empty_list(common)) {
        let at = At::new(common, spec.path().field("selectableFields"));
        match hoisted.schema {
            Some(schema) => versions::validate_selectable(&at, schema, errors),
            None => {
                let detail = "may only be set when validations.schema is included";
                errors.push(Error::invalid(at.path(), "", detail));
            }
        }
    }
    conversion::validate(&spec.get("conversion"), old, errors);
}

/// Rejects changes of immutable fields.
pub(super) fn validate_immutable(spec: &At<'_>, old: &At<'_>, established: bool, errors: &mut Errors) {
    let mut same = |at: &At<'_>, before: &At<'_>| {
        if at.str() != before.str() {
            errors.push(at.invalid("field is immutable"));
        }
    };
    let (names, names_before) = (spec.get("names"), old.get("names"));
    if established {
        same(&spec.get("scope"), &old.get("scope"));
        same(&names.get("kind"), &names_before.get("kind"));
    }
    same(&spec.get("group"), &old.get("group"));
    same(&names.get("plural"), &names_before.get("plural"));
}

/// Requires an approval annotation for CRDs in protected Kubernetes groups.
pub(super) fn validate_approval(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let group = object.text_at(&["spec", "group"]);
    if !is_protected(group) {
        return;
    }
    let approval_state = approval(object);
    if old.is_some_and(|old| approval(old) == approval_state) {
        return;
    }
    let metadata = Path::of("metadata");
    let annotations = metadata.field("annotations");
    let path = annotations.key(APPROVED);
    match approval_state {
        Approval::Missing => errors.push(Error::required(&path, approval_state.message(object))),
        Approval::Invalid => {
            let value = Meta::of(object).annotation(APPROVED).unwrap_or_default();
            errors.push(Error::invalid(&path, value, approval_state.message(object)));
        }
        Approval::Approved | Approval::Bypassed => {}
    }
}

/// Rejects setting `preserveUnknownFields` to true; the replacement is `x-kubernetes-preserve-unknown-fields`.
pub(super) fn validate_preserving(spec: &At<'_>, old: Option<&At<'_>>, errors: &mut Errors) {
    let preserving = spec.get("preserveUnknownFields");
    if preserving.bool() && !old.is_some_and(|old| old.get("preserveUnknownFields").bool()) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        errors.push(preserving.invalid(detail));
    }
}

/// API approval state of a CRD in a protected group, from the annotation [`APPROVED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approval {
    /// There is no annotation.
    Missing,
    /// The value is neither a URL nor starts with `unapproved`.
    Invalid,
    /// The value is a URL.
    Approved,
    /// The value starts with `unapproved`.
    Bypassed,
}

/// Whether a group is k8s.io, kubernetes.io or a subdomain of one of them.
pub(super) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group == *own || group.strip_suffix(own).is_some_and(|before| before.ends_with('.')))
}

pub(super) fn approval(object: &Value) -> Approval {
    match Meta::of(object).annotation(APPROVED).unwrap_or_default() {
        "" => Approval::Missing,
        annotation if annotation.starts_with("unapproved") => Approval::Bypassed,
        annotation if is_link(annotation) => Approval::Approved,
        _ => Approval::Invalid,
    }
}

impl Approval {
    /// Returns the condition or error message.
    pub(super) fn message(self, object: &Value) -> String {
        let annotation = Meta::of(object).annotation(APPROVED).unwrap_or_default();
        match self {
            Self::Missing => {
                format!(
                    "protected groups must have approval annotation {}, see https://github.com/kubernetes/enhancements/pull/1111",
                    go::quote(APPROVED)
                )
            }
            Self::Invalid => format!(
                "protected groups must have approval annotation {} with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111",
                go::quote(APPROVED)
            ),
            Self::Approved => format!("approved in {annotation}"),
            Self::Bypassed => format!("not approved: {}", go::quote(annotation)),
        }
    }
}

fn is_link(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty()
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && !rest.starts_with('/')
            && !rest.is_empty()
    })
}

fn validate_group_and_scope(spec: &At<'_>, errors: &mut Errors) {
    let group = spec.get("group");
    let wrong = names::dns1123_subdomain(group.str());
    if group.is_empty() {
        errors.push(group.required(""));
    } else if !wrong.is_empty() {
        invalid(&group, &wrong, "", errors);
    } else if !group.str().contains('.') {
        errors.push(group.invalid("should be a domain with at least one dot"));
    }
    let scope = spec.get("scope");
    match scope.str() {
        "" => errors.push(scope.required("")),
        "Cluster" | "Namespaced" => {}
        _ => errors.push(scope.not_supported(&["Cluster", "Namespaced"])),
    }
}

fn validate_schemas_are_there(spec: &At<'_>, hoisted: &HoistedSpec<'_>, errors: &mut Errors) {
    if hoisted.schema.is_some_and(|common| present(common, "openAPIV3Schema").is_some()) {
        return;
    }
    for version in spec.get("versions").items() {
        let own = hoisted.own(version.value(), "schema");
        if own.and_then(|own| present(own, "openAPIV3Schema")).is_none() {
            errors.push(version.get("schema").get("openAPIV3Schema").required(""));
        }
    }
}

fn validate_versions(
    spec: &At<'_>,
    hoisted: &HoistedSpec<'_>,
    unchanged: &dyn Fn(&Value) -> bool,
    errors: &mut Errors,
) {
    let all = spec.get("versions");
    let mut stored = 0;
    let mut seen: Vec<&str> = Vec::new();
    let mut unique = true;
    for version in all.items() {
        let name = version.value().text_at(&["name"]);
        stored += usize::from(version.get("storage").bool());
        unique &= !seen.contains(&name);
        seen.push(name);
        invalid(&version.get("name"), &names::dns1035_label(name), "", errors);
        validate_version(&version, hoisted, unchanged, errors);
    }
    let bad_value = || hoisted.bad_value(all.value());
    if !unique {
        errors.push(Error::invalid(all.path(), bad_value(), "must contain unique version names"));
    }
    if stored != 1 {
        errors.push(Error::invalid(all.path(), bad_value(), "must have exactly one version marked as storage version"));
    }
    // Upstream's internal type also has a field `version` with the first version.
    if let Some(first) = seen.first().filter(|first| !first.is_empty()) {
        let wrong = names::dns1035_label(first);
        if !wrong.is_empty() {
            errors.push(Error::invalid(&spec.path().field("version"), *first, wrong.join(",")));
        }
    }
}

/// Validates the fields that are specific to a version.
fn validate_version(
    version: &At<'_>,
    hoisted: &HoistedSpec<'_>,
    unchanged: &dyn Fn(&Value) -> bool,
    errors: &mut Errors,
) {
    versions::validate_deprecation(version, errors);
    let own = |key: &str| hoisted.own(version.value(), key);
    let subresources = hoisted.subresources.or_else(|| own("subresources"));
    if let Some(schema) = own("schema").filter(|schema| !unchanged(schema)) {
        let status = versions::has_status(subresources);
        schema::validate(&At::new(schema, version.path().field("schema")), status, errors);
    }
    if own("subresources").is_some() {
        versions::validate_subresources(&version.get("subresources"), errors);
    }
    if own("additionalPrinterColumns").is_some() {
        versions::validate_columns(&version.get("additionalPrinterColumns"), errors);
    }
    if own("selectableFields").is_some_and(|fields| !is_empty_list(fields)) {
        let at = version.get("selectableFields");
        match present(version.value(), "schema").filter(|schema| present(schema, "openAPIV3Schema").is_some()) {
            Some(schema) => versions::validate_selectable(&at, schema, errors),
            None => {
                let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
                errors.push(Error::invalid(at.path(), "", detail));
            }
        }
    }
}

/// Whether a version of the CRD has exactly this schema, so that it was accepted before.
fn has_schema(crd: &Value, schema: &Value) -> bool {
    let versions = crd.list_at(&["spec", "versions"]);
    versions.iter().any(|version| version.get("schema") == Some(schema))
}

fn present<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|value| !value.is_null())
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_none_or(<[_]>::is_empty)
}
