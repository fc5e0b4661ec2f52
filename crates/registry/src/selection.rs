//! Which objects of a kind a request is about: label and field selectors, checked against the kind.

use api::kind::{Kind, Version};
use machinery::meta::Meta;
use machinery::status::Status;
use machinery::{Str, Value, fields, go, labels};

use crate::options::ListOptions;

/// What a list or watch selects.
#[derive(Clone, Debug)]
pub struct Selection {
    labels: labels::Selector,
    fields: fields::Selector,
    is_everything: bool,
}

impl Selection {
    /// Reads the selectors of a request.
    pub fn of(kind: &Kind, version: &Version, options: &ListOptions) -> Result<Self, Status> {
        let labels = labels::Selector::parse(&options.label_selector);
        let labels = labels.map_err(|error| Status::bad_request(error.to_string()))?;
        let fields = fields::Selector::parse(&options.field_selector);
        let fields = fields.map_err(|error| Status::bad_request(error.to_string()))?;
        for requirement in fields.requirements() {
            let field = requirement.field.as_str();
            if !is_selectable(kind, field) {
                return Err(Status::bad_request(unknown_field(kind, version, field)));
            }
        }
        let is_everything = options.label_selector.is_empty() && fields.requirements().is_empty();
        Ok(Self { labels, fields, is_everything })
    }

    /// Whether it selects all objects, so that none need be looked at.
    pub const fn is_everything(&self) -> bool {
        self.is_everything
    }

    /// Whether an object is selected.
    pub fn matches(&self, kind: &Kind, object: &Value) -> bool {
        self.is_everything || (self.labels.matches_object(object) && self.matches_fields(kind, object))
    }

    /// Whether an object of which only these are known is selected.
    pub fn matches_by<'a>(
        &self,
        label: impl Fn(&str) -> Option<&'a str>,
        field: impl Fn(&str) -> Option<&'a str>,
    ) -> bool {
        self.is_everything || (self.labels.matches(label) && self.fields.matches(field))
    }

    /// The name that an object must have to be selected, if the selectors say so.
    pub fn name(&self) -> Option<&str> {
        self.fields.exact_value("metadata.name")
    }

    fn matches_fields(&self, kind: &Kind, object: &Value) -> bool {
        let requirements = self.fields.requirements();
        let values: Vec<(&str, Str)> =
            requirements.iter().map(|one| (one.field.as_str(), value(kind, object, &one.field))).collect();
        self.fields.matches(|field| values.iter().find(|(name, _)| *name == field).map(|(_, value)| value.as_str()))
    }
}

fn value(kind: &Kind, object: &Value, field: &str) -> Str {
    let meta = Meta::of(object);
    match field {
        "metadata.name" => meta.name().into(),
        "metadata.namespace" => meta.namespace().into(),
        _ => kind.selectable.iter().find(|one| one.name == field).map(|one| one.of(object)).unwrap_or_default(),
    }
}

fn is_selectable(kind: &Kind, field: &str) -> bool {
    matches!(field, "metadata.name" | "metadata.namespace") || kind.selectable.iter().any(|one| one.name == field)
}

/// Kinds with fields of their own word it one way, those with none another.
fn unknown_field(kind: &Kind, version: &Version, field: &str) -> String {
    if let Some(words) = kind.rules.refused_selector(&version.name, field) {
        return words;
    }
    if kind.selectable.is_empty() {
        let field = go::quote(field);
        format!("{field} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        format!("field label not supported: {field}")
    }
}
