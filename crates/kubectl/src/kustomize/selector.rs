//! Selection of resources by kind, name, namespace, labels and annotations.

use apimachinery::{Object, labels, regexp};
use regex::Regex;

use super::Error;
use super::file::Reader;
use super::resource::{Id, Resource, Set, string_map};

/// The fields of a selector; each but the last two is a regular expression. Empty fields select everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
    pub label_selector: String,
    pub annotation_selector: String,
}

/// A selector with compiled expressions.
pub(super) struct Matcher {
    group: Option<Regex>,
    version: Option<Regex>,
    kind: Option<Regex>,
    name: Option<Regex>,
    namespace: Option<Regex>,
    labels: Option<labels::Selector>,
    annotations: Option<labels::Selector>,
}

const PATTERN_BYTES_MAX: usize = 1 << 20;

impl Selector {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, Error> {
        reader.known(&["group", "version", "kind", "name", "namespace", "labelSelector", "annotationSelector"])?;
        Ok(Self {
            group: reader.text("group")?,
            version: reader.text("version")?,
            kind: reader.text("kind")?,
            name: reader.text("name")?,
            namespace: reader.text("namespace")?,
            label_selector: reader.text("labelSelector")?,
            annotation_selector: reader.text("annotationSelector")?,
        })
    }

    /// Whether no field that identifies a resource is set.
    pub(super) fn has_no_identity(&self) -> bool {
        [&self.group, &self.version, &self.kind, &self.name, &self.namespace].into_iter().all(String::is_empty)
    }

    pub(super) fn compile(&self) -> Result<Matcher, Error> {
        Ok(Matcher {
            group: anchored(&self.group)?,
            version: anchored(&self.version)?,
            kind: anchored(&self.kind)?,
            name: anchored(&self.name)?,
            namespace: anchored(&self.namespace)?,
            labels: label_selector(&self.label_selector)?,
            annotations: label_selector(&self.annotation_selector)?,
        })
    }

    /// Returns the positions of the resources that match by their original or current name and namespace.
    pub(super) fn select(&self, set: &Set) -> Result<Vec<usize>, Error> {
        let matcher = self.compile()?;
        let selected = set.resources.iter().enumerate().filter(|(_, resource)| matcher.selects(resource));
        Ok(selected.map(|(at, _)| at).collect())
    }
}

impl Matcher {
    fn selects(&self, resource: &Resource) -> bool {
        let (current, original) = (resource.current_id(), resource.original_id());
        let any = |pattern: &Option<Regex>, texts: [&str; 2]| {
            pattern.as_ref().is_none_or(|pattern| texts.iter().any(|text| pattern.is_match(text)))
        };
        any(&self.namespace, [original.effective_namespace(), current.effective_namespace()])
            && any(&self.name, [&original.name, &current.name])
            && self.selects_kind(&current)
            && self.selects_metadata(resource)
    }

    fn selects_kind(&self, id: &Id) -> bool {
        let is = |pattern: &Option<Regex>, text: &str| pattern.as_ref().is_none_or(|pattern| pattern.is_match(text));
        is(&self.group, &id.gvk.group) && is(&self.version, &id.gvk.version) && is(&self.kind, &id.gvk.kind)
    }

    /// Whether one identity matches: its kind, name and namespace as written.
    pub(super) fn selects_id(&self, id: &Id) -> bool {
        let is = |pattern: &Option<Regex>, text: &str| pattern.as_ref().is_none_or(|pattern| pattern.is_match(text));
        self.selects_kind(id) && is(&self.name, &id.name) && is(&self.namespace, &id.namespace)
    }

    /// Whether the labels and annotations match.
    pub(super) fn selects_metadata(&self, resource: &Resource) -> bool {
        let matches = |selector: &Option<labels::Selector>, field: &str| {
            selector
                .as_ref()
                .is_none_or(|selector| matches(selector, &string_map(&resource.object, &["metadata", field])))
        };
        matches(&self.labels, "labels") && matches(&self.annotations, "annotations")
    }
}

fn matches(selector: &labels::Selector, map: &Object) -> bool {
    selector.matches_labels(Some(map))
}

fn anchored(pattern: &str) -> Result<Option<Regex>, Error> {
    if pattern.is_empty() {
        return Ok(None);
    }
    let compiled = regexp::compile(&format!("^(?:{pattern})$"), PATTERN_BYTES_MAX);
    compiled.map(Some).map_err(|error| Error::new(error.to_string()))
}

fn label_selector(text: &str) -> Result<Option<labels::Selector>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    labels::Selector::parse(text).map(Some).map_err(|error| Error::new(error.to_string()))
}
