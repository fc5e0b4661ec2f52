//! Replacements: the value of one field is copied to fields of other resources.

use apimachinery::{Object, Value, regexp};

use super::Error;
use super::field_path::split;
use super::file::Reader;
use super::merge::{implicit, text_of};
use super::resource::{Id, Resource, Set};
use super::selector::Selector;

/// An entry of `replacements`.
#[derive(Clone, Debug, Default)]
pub(super) struct Replacement {
    source: Option<Source>,
    value: Option<String>,
    targets: Vec<Target>,
}

#[derive(Clone, Debug, Default)]
struct Source {
    selector: Selector,
    field_path: String,
    options: Options,
}

#[derive(Clone, Debug, Default)]
struct Target {
    select: Selector,
    reject: Vec<Selector>,
    field_paths: Vec<String>,
    options: Options,
}

/// Options of a replacement: the part of a field that is copied, and whether absent fields are created.
#[derive(Clone, Debug, Default)]
struct Options {
    delimiter: String,
    index: i64,
    create: bool,
}

const DEFAULT_PATH: &str = "metadata.name";
const PATTERN_BYTES_MAX: usize = 1 << 20;

impl Replacement {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, Error> {
        reader.known(&["source", "sourceValue", "targets", "path"])?;
        let source = reader.object("source")?.map(|source| {
            source.known(&["group", "version", "kind", "name", "namespace", "fieldPath", "options"])?;
            let selector = Selector {
                group: source.text("group")?,
                version: source.text("version")?,
                kind: source.text("kind")?,
                name: source.text("name")?,
                namespace: source.text("namespace")?,
                ..Selector::default()
            };
            let options = source.object("options")?.map(Options::read).transpose()?.unwrap_or_default();
            Ok(Source { selector, field_path: source.text("fieldPath")?, options })
        });
        let targets = reader.objects("targets", "types.TargetSelector", |target| {
            target.known(&["select", "reject", "fieldPaths", "options"])?;
            let Some(select) = target.object("select")? else {
                return Err(Error::new("target must specify resources to select"));
            };
            Ok(Target {
                select: Selector::read(select)?,
                reject: target.objects("reject", "types.Selector", Selector::read)?,
                field_paths: target.strings("fieldPaths")?,
                options: target.object("options")?.map(Options::read).transpose()?.unwrap_or_default(),
            })
        })?;
        let value = reader.has("sourceValue").then(|| reader.text("sourceValue")).transpose()?;
        Ok(Self { source: source.transpose()?, value, targets })
    }

    fn apply(&self, set: &mut Set) -> Result<(), Error> {
        if self.targets.is_empty() {
            return Err(Error::new("replacements must specify a source and at least one target"));
        }
        let value = match (&self.source, &self.value) {
            (Some(_), Some(_)) => return Err(Error::new("value and resource selectors are mutually exclusive")),
            (None, Some(text)) => implicit(text),
            (Some(source), None) => source.value(set)?,
            (None, None) => return Err(Error::new("replacements must specify a source and at least one target")),
        };
        self.targets.iter().try_for_each(|target| target.set(set, &value))
    }
}

/// Applies replacements in order.
pub(super) fn apply_all(replacements: &[Replacement], set: &mut Set) -> Result<(), Error> {
    replacements.iter().try_for_each(|replacement| replacement.apply(set))
}

impl Options {
    fn read(reader: Reader<'_>) -> Result<Self, Error> {
        reader.known(&["delimiter", "index", "encoding", "create"])?;
        Ok(Self { delimiter: reader.text("delimiter")?, index: reader.int("index")?, create: reader.bool("create")? })
    }
}

impl Source {
    fn value(&self, set: &Set) -> Result<Value, Error> {
        let selected: Vec<&Resource> =
            set.resources.iter().filter(|resource| ids(resource).iter().any(|id| self.selects(id))).collect();
        let resource = match selected.as_slice() {
            [resource] => resource,
            [] => return Err(Error::new(format!("nothing selected by {self}"))),
            _ => return Err(Error::new(format!("multiple matches for selector {self}"))),
        };
        let path = if self.field_path.is_empty() { DEFAULT_PATH } else { &self.field_path };
        let found = lookup(&resource.object, &segments(path));
        let Some(value) = found.filter(|value| !is_empty(value)) else {
            let id = self.id();
            return Err(Error::new(format!("fieldPath `{path}` is missing for replacement source {id}")));
        };
        let Options { delimiter, index, .. } = &self.options;
        if delimiter.is_empty() {
            return Ok(value.clone());
        }
        if matches!(value, Value::Object(_) | Value::Array(_)) {
            return Err(Error::new("delimiter option can only be used with scalar nodes"));
        }
        let text = text_of(value);
        let part = usize::try_from(*index).ok().and_then(|index| text.split(delimiter.as_str()).nth(index));
        match part {
            Some(part) => Ok(part.into()),
            None => Err(Error::new(format!("options.index {index} is out of bounds for value {text}"))),
        }
    }

    fn selects(&self, id: &Id) -> bool {
        let Selector { group, version, kind, name, namespace, .. } = &self.selector;
        let namespaced = namespace.is_empty() || self.id().effective_namespace() == id.effective_namespace();
        (name.is_empty() || *name == id.name) && namespaced && id.gvk.is_selected(group, version, kind)
    }

    fn id(&self) -> Id {
        let Selector { group, version, kind, name, namespace, .. } = self.selector.clone();
        let gvk = super::resource::Gvk { group, version, kind };
        Id { gvk, name, namespace, cluster_scoped: false }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.id())?;
        if !self.field_path.is_empty() {
            write!(out, ":{}", self.field_path)?;
        }
        Ok(())
    }
}

impl Target {
    fn set(&self, set: &mut Set, value: &Value) -> Result<(), Error> {
        let select = self.select.compile()?;
        let reject = self.reject.iter().map(|selector| Ok((selector, selector.compile()?)));
        let reject = reject.collect::<Result<Vec<_>, Error>>()?;
        for resource in &mut set.resources {
            let ids = ids(resource);
            let rejected = reject.iter().any(|(selector, matcher)| {
                let by_metadata = !(selector.label_selector.is_empty() && selector.annotation_selector.is_empty())
                    && matcher.selects_metadata(resource);
                by_metadata || (!selector.has_no_identity() && ids.iter().any(|id| matcher.selects_id(id)))
            });
            let selected = select.selects_metadata(resource) && ids.iter().any(|id| select.selects_id(id));
            if selected && !rejected {
                self.copy(&mut resource.object, value)?;
            }
        }
        Ok(())
    }

    fn copy(&self, object: &mut Value, value: &Value) -> Result<(), Error> {
        let default = [DEFAULT_PATH.to_owned()];
        let paths = if self.field_paths.is_empty() { &default[..] } else { &self.field_paths };
        for path in paths {
            let create = self.options.create.then_some(value);
            let mut count = 0;
            let mut set = |field: &mut Value| {
                count += 1;
                self.assign(field, value)
            };
            let found = visit(object, &segments(path), create, &mut set);
            let missing = if self.options.create { "find or create" } else { "find" };
            let missing = format!("unable to {missing} field {path:?} in replacement target");
            found.map_err(|error| error.context(&missing))?;
            if count == 0 {
                return Err(Error::new(missing));
            }
        }
        Ok(())
    }

    /// Sets a field, or one part of it. A scalar keeps its type.
    fn assign(&self, field: &mut Value, value: &Value) -> Result<(), Error> {
        let Options { delimiter, index, .. } = &self.options;
        let mut value = value.clone();
        if !delimiter.is_empty() {
            if matches!(field, Value::Object(_) | Value::Array(_)) {
                return Err(Error::new("delimiter option can only be used with scalar nodes"));
            }
            let text = text_of(field);
            let mut parts: Vec<&str> = text.split(delimiter.as_str()).collect();
            let part = text_of(&value);
            match usize::try_from(*index) {
                Err(_) => parts.insert(0, &part),
                Ok(index) if index >= parts.len() => parts.push(&part),
                Ok(index) => parts[index] = &part,
            }
            value = parts.join(delimiter).into();
        }
        let scalar = !matches!(value, Value::Object(_) | Value::Array(_));
        *field = match field {
            Value::String(_) if scalar => text_of(&value).into(),
            Value::Int(_) | Value::Float(_) | Value::Bool(_) if scalar => implicit(&text_of(&value)),
            _ => value,
        };
        Ok(())
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(object) => object.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Returns the current identity and the earlier ones.
fn ids(resource: &Resource) -> Vec<Id> {
    let current = Id { cluster_scoped: false, ..resource.current_id() };
    std::iter::once(current).chain(resource.previous_ids()).collect()
}

/// Splits `spec.containers.[name=a.b].image`; brackets keep dots together.
fn segments(path: &str) -> Vec<String> {
    let mut segments: Vec<String> = Vec::new();
    let mut parts = split(path, '.').into_iter();
    while let Some(mut part) = parts.next() {
        if part.starts_with('[') && !part.ends_with(']') {
            for more in parts.by_ref() {
                part = format!("{part}.{more}");
                if more.ends_with(']') {
                    break;
                }
            }
            if !part.contains('=') {
                part = part.trim_matches(['[', ']']).to_owned();
            }
        }
        segments.push(part);
    }
    segments
}

/// Splits `[key=value]`.
fn condition(segment: &str) -> Option<(&str, &str)> {
    segment.strip_prefix('[')?.strip_suffix(']')?.split_once('=')
}

/// Finds a single field.
fn lookup<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    let Some((first, rest)) = path.split_first() else { return Some(value) };
    let next = match value {
        Value::Object(object) => object.get(first)?,
        Value::Array(items) => match condition(first) {
            Some((key, wanted)) => items.iter().find(|item| item_text(item, key).is_some_and(|text| text == wanted))?,
            None if first == "-" => items.last()?,
            None => items.get(first.parse::<usize>().ok()?)?,
        },
        _ => return None,
    };
    lookup(next, rest)
}

/// Returns the text of a field of an item; of the item itself if the key is empty.
fn item_text(item: &Value, key: &str) -> Option<String> {
    if key.is_empty() { Some(text_of(item)) } else { item.get(key).map(text_of) }
}

/// Calls `set` with each field at a path. With `create`, absent fields and items are created.
fn visit(
    value: &mut Value,
    path: &[String],
    create: Option<&Value>,
    set: &mut dyn FnMut(&mut Value) -> Result<(), Error>,
) -> Result<(), Error> {
    let Some((first, rest)) = path.split_first() else { return set(value) };
    match value {
        Value::Array(items) if first == "*" => items.iter_mut().try_for_each(|item| visit(item, rest, create, set)),
        Value::Array(items) => visit_item(items, first, rest, create, set),
        Value::Object(object) => {
            if create.is_some() && object.get(first).is_none_or(Value::is_null) {
                object.insert(first.as_str(), placeholder(rest));
            }
            object.get_mut(first).map_or(Ok(()), |field| visit(field, rest, create, set))
        }
        Value::Null => Ok(()),
        _ => Err(Error::new("wrong node kind: expected MappingNode but was ScalarNode")),
    }
}

fn visit_item(
    items: &mut Vec<Value>,
    first: &str,
    rest: &[String],
    create: Option<&Value>,
    set: &mut dyn FnMut(&mut Value) -> Result<(), Error>,
) -> Result<(), Error> {
    if let Some((key, pattern)) = condition(first) {
        let regex = regexp::compile(pattern, PATTERN_BYTES_MAX).map_err(|error| Error::new(error.to_string()))?;
        let matches = |item: &Value| item_text(item, key).is_some_and(|text| regex.is_match(&text));
        if create.is_some() && !items.iter().any(matches) {
            let named = |key: &str| [(key, implicit(pattern))].into_iter().collect::<Object>();
            items.push(if key.is_empty() { pattern.into() } else { named(key).into() });
        }
        return items.iter_mut().filter(|item| matches(item)).try_for_each(|item| visit(item, rest, create, set));
    }
    let Ok(index) = first.parse::<usize>() else {
        return Err(Error::new("wrong node kind: expected MappingNode but was SequenceNode"));
    };
    if create.is_some() && index == items.len() {
        items.push(placeholder(rest));
    }
    let count = items.len();
    match items.get_mut(index) {
        Some(item) => visit(item, rest, create, set),
        None => Err(Error::new(format!("index {index} specified but only {count} elements found"))),
    }
}

/// Returns the value to create for the remaining path.
fn placeholder(rest: &[String]) -> Value {
    match rest.first() {
        None => Value::Null,
        Some(next) if condition(next).is_some() || next == "*" || next.parse::<usize>().is_ok() => {
            Value::Array(Vec::new())
        }
        Some(_) => Value::object(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_at_dots_outside_of_brackets() {
        assert_eq!(segments("spec.containers.[name=a.b].image"), ["spec", "containers", "[name=a.b]", "image"]);
        assert_eq!(segments("metadata.annotations.[a.b/c]"), ["metadata", "annotations", "a.b/c"]);
        assert_eq!(segments(r"data.a\.b"), ["data", "a.b"]);
    }
}
