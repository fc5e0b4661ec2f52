//! Label and field selectors, validated against the kind.

use api::kind::{Kind, Version};
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{Str, Value, fields, go, labels};

use crate::options::ListOptions;

/// The selectors of a list or watch.
#[derive(Clone, Debug)]
pub struct Selection {
    labels: labels::Selector,
    fields: fields::Selector,
    is_everything: bool,
    selects_content: bool,
}

impl Selection {
    /// Parses and validates the selectors of a request.
    pub fn of(kind: &Kind, version: &Version, options: &ListOptions) -> Result<Self, Status> {
        let labels = labels::Selector::parse(&options.label_selector);
        let labels = labels.map_err(|error| Status::bad_request(error.to_string()))?;
        let fields = fields::Selector::parse(&options.field_selector);
        let fields = fields.map_err(|error| Status::bad_request(error.to_string()))?;
        for requirement in fields.requirements() {
            let field = requirement.field.as_str();
            if !is_selectable(kind, version, field) {
                return Err(Status::bad_request(unknown_field(kind, version, field)));
            }
        }
        let is_everything = options.label_selector.is_empty() && fields.requirements().is_empty();
        let selects_content = fields.requirements().iter().any(|one| !is_of_metadata(&one.field));
        Ok(Self { labels, fields, is_everything, selects_content })
    }

    /// Whether both selectors are empty, so that objects need not be inspected.
    pub const fn is_everything(&self) -> bool {
        self.is_everything
    }

    /// Whether the field selector uses a field other than name and namespace.
    pub const fn selects_content(&self) -> bool {
        self.selects_content
    }

    /// Whether the label selector has requirements.
    pub const fn selects_labels(&self) -> bool {
        !self.labels.is_everything()
    }

    /// Whether an object in a version is selected.
    pub fn matches(&self, kind: &Kind, version: &Version, object: &Value) -> bool {
        self.is_everything || (self.labels.matches_object(object) && self.matches_fields(kind, version, object))
    }

    /// Whether an object with these labels and fields is selected.
    pub fn matches_by<'a>(
        &self,
        label: impl Fn(&str) -> Option<&'a str>,
        field: impl Fn(&str) -> Option<&'a str>,
    ) -> bool {
        self.is_everything || (self.labels.matches(label) && self.fields.matches(field))
    }

    /// Returns the name that the field selector requires, if any.
    pub fn name(&self) -> Option<&str> {
        self.fields.exact_value("metadata.name")
    }

    fn matches_fields(&self, kind: &Kind, version: &Version, object: &Value) -> bool {
        let requirements = self.fields.requirements();
        let values: Vec<(&str, Str)> =
            requirements.iter().map(|one| (one.field.as_str(), value(kind, version, object, &one.field))).collect();
        self.fields.matches(|field| values.iter().find(|(name, _)| *name == field).map(|(_, value)| value.as_str()))
    }
}

fn value(kind: &Kind, version: &Version, object: &Value, field: &str) -> Str {
    let meta = Meta::of(object);
    match field {
        "metadata.name" => meta.name().into(),
        "metadata.namespace" => meta.namespace().into(),
        _ => {
            let mut fields = kind.selectable_in(version).iter();
            fields.find(|one| one.name == field).map(|one| one.of(object)).unwrap_or_default()
        }
    }
}

fn is_of_metadata(field: &str) -> bool {
    matches!(field, "metadata.name" | "metadata.namespace")
}

fn is_selectable(kind: &Kind, version: &Version, field: &str) -> bool {
    is_of_metadata(field) || kind.selectable_in(version).iter().any(|one| one.name == field)
}

/// Returns the error message for an unsupported field. Kinds with selectable fields have a different message than those
/// without.
fn unknown_field(kind: &Kind, version: &Version, field: &str) -> String {
    if let Some(message) = kind.rules.field_selector_error(&version.name, field) {
        return message;
    }
    if kind.selectable.is_empty() {
        let field = go::quote(field);
        format!("{field} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        format!("field label not supported: {field}")
    }
}
