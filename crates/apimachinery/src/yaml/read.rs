//! YAML to tree: builds trees from the events of a YAML parser.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::Error;
use super::resolve::{Meaning, resolve};
use crate::{Object, Str, Value};

/// The limit of the JSON parser.
const DEPTH_MAX: usize = 127;

/// Maximum number of nodes in the anchored and aliased values of one document; long texts count as several nodes.
/// Upstream accepts the first 400,000 nodes of any kind.
const ALIASED_MAX: usize = 400_000;

/// Iterator over the documents of a text.
pub struct Documents<'i> {
    parser: Parser<'i, StrInput<'i>>,
    /// The values of anchors, by anchor ID.
    anchors: BTreeMap<usize, Anchor>,
    /// The remaining number of nodes for anchored and aliased values.
    left: usize,
    /// The duplicate keys of the current document.
    repeated: Vec<String>,
    /// The path of the value that is being read, if lines are recorded. List items have their index as their key.
    path: Option<Vec<Str>>,
    /// The paths of the keys and list items of the current document, and their lines.
    lines: Vec<(Vec<Str>, usize)>,
    finished: bool,
    /// Whether `yes`, `on` and similar are strings instead of booleans.
    bool_words_as_text: bool,
}

#[derive(Clone)]
struct Anchor {
    value: Value,
    weight: usize,
    depth: usize,
}

/// A mapping under construction.
#[derive(Default)]
struct Mapping {
    entries: Vec<(Str, Value)>,
    /// The index of each key, and whether the mapping itself set it, as opposed to a merge.
    places: BTreeMap<Str, (usize, bool)>,
}

impl<'i> Documents<'i> {
    pub(super) fn new(text: &'i str) -> Self {
        let options = granit_parser::options! {
            emit_comments: false,
            flow_nesting_limit: DEPTH_MAX + 1,
            block_nesting_limit: DEPTH_MAX + 1,
        };
        // Go's parser skips the byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let parser = Parser::new_from_str_with_options(text, options);
        Self {
            parser,
            anchors: BTreeMap::new(),
            left: ALIASED_MAX,
            repeated: Vec::new(),
            path: None,
            lines: Vec::new(),
            finished: false,
            bool_words_as_text: false,
        }
    }

    /// Reads `y`, `yes`, `on`, `n`, `no` and `off` as strings, as YAML 1.2 and kustomize do.
    #[must_use]
    pub const fn with_bool_words_as_text(mut self) -> Self {
        self.bool_words_as_text = true;
        self
    }

    /// Records the line of each key and list item, for error messages.
    #[must_use]
    pub fn with_lines(mut self) -> Self {
        self.path = Some(Vec::new());
        self
    }

    /// Returns the duplicate keys of the last document: `line 3: key "a" already set in map`.
    pub fn repeated(&self) -> &[String] {
        &self.repeated
    }

    /// Returns the path and line of each key and list item of the last document in the order of the text, if lines are
    /// recorded. List items have their index as their key.
    pub fn lines(&self) -> &[(Vec<Str>, usize)] {
        &self.lines
    }

    fn document(&mut self) -> Result<Option<Value>, Error> {
        loop {
            let Some((event, _)) = self.parser.next_event().transpose()? else { return Ok(None) };
            match event {
                Event::DocumentStart(..) => {
                    self.anchors.clear();
                    self.left = ALIASED_MAX;
                    self.repeated.clear();
                    self.lines.clear();
                    let value = self.node(0)?;
                    // The document is complete only after its end event.
                    self.event()?;
                    return Ok(Some(value));
                }
                Event::StreamEnd => return Ok(None),
                _ => {}
            }
        }
    }

    fn event(&mut self) -> Result<(Event<'i>, usize), Error> {
        let next = self.parser.next_event().transpose()?;
        let (event, span): (Event<'i>, Span) = next.ok_or_else(|| {
            let start = granit_parser::Marker::new(0, 1, 0);
            ScanError::new(start, "unexpected end of stream")
        })?;
        Ok((event, span.start.line()))
    }

    fn node(&mut self, depth: usize) -> Result<Value, Error> {
        let (event, line) = self.event()?;
        self.value(event, line, depth)
    }

    fn value(&mut self, event: Event<'i>, line: usize, depth: usize) -> Result<Value, Error> {
        let anchor = event.anchor_id();
        let value = match event {
            Event::Alias(id) => return self.alias(id, line, depth),
            Event::Scalar(text, _, _, None) if self.bool_words_as_text && is_old_bool(&text) => {
                Value::String((&*text).into())
            }
            Event::Scalar(text, style, _, tag) => scalar(&text, style, tag.as_deref(), line)?,
            Event::SequenceStart(..) => self.sequence(line, depth + 1)?,
            Event::MappingStart(..) => self.mapping(line, depth + 1)?,
            _ => Value::Null,
        };
        if let Some(id) = anchor {
            let (weight, deep) = measure(&value);
            self.spend(weight)?;
            self.anchors.insert(id, Anchor { value: value.clone(), weight, depth: deep });
        }
        Ok(value)
    }

    fn alias(&mut self, id: usize, line: usize, depth: usize) -> Result<Value, Error> {
        let Some(Anchor { weight, depth: deep, .. }) = self.anchors.get(&id) else {
            return Err(Error::Recursive { line });
        };
        if depth + deep > DEPTH_MAX {
            return Err(Error::Depth { line });
        }
        self.spend(*weight)?;
        Ok(self.anchors[&id].value.clone())
    }

    fn spend(&mut self, weight: usize) -> Result<(), Error> {
        self.left = self.left.checked_sub(weight).ok_or(Error::Aliases)?;
        Ok(())
    }

    fn sequence(&mut self, line: usize, depth: usize) -> Result<Value, Error> {
        if depth > DEPTH_MAX {
            return Err(Error::Depth { line });
        }
        let mut items = Vec::new();
        loop {
            match self.event()? {
                (Event::SequenceEnd, _) => return Ok(Value::Array(items)),
                (event, line) => {
                    self.enter(|| items.len().to_string().into(), line);
                    let item = self.value(event, line, depth)?;
                    self.leave();
                    items.push(item);
                }
            }
        }
    }

    fn mapping(&mut self, line: usize, depth: usize) -> Result<Value, Error> {
        if depth > DEPTH_MAX {
            return Err(Error::Depth { line });
        }
        let mut mapping = Mapping::default();
        loop {
            let (event, line) = self.event()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(Value::Object(Object::from_entries(mapping.entries, |_| {})));
            }
            if is_merge(&event) {
                let merged = self.node(depth)?;
                mapping.merge(merged).ok_or(Error::Merge { line })?;
                continue;
            }
            let key = self.key(event, line)?;
            self.enter(|| key.clone(), line);
            // Go's parser reports the line on which the second value begins.
            let (event, line) = self.event()?;
            let value = self.value(event, line, depth)?;
            self.leave();
            if !mapping.set(&key, value, true) {
                self.repeated.push(format!("line {line}: key {key:?} already set in map"));
            }
        }
    }

    fn enter(&mut self, key: impl FnOnce() -> Str, line: usize) {
        if let Some(path) = &mut self.path {
            path.push(key());
            self.lines.push((path.clone(), line));
        }
    }

    fn leave(&mut self) {
        if let Some(path) = &mut self.path {
            path.pop();
        }
    }

    /// Returns a key as the string that JSON has for it.
    fn key(&mut self, event: Event<'i>, line: usize) -> Result<Str, Error> {
        if !matches!(event, Event::Scalar(..) | Event::Alias(_)) {
            return Err(Error::Key { line });
        }
        match self.value(event, line, DEPTH_MAX)? {
            Value::String(key) => Ok(key),
            Value::Bool(key) => Ok(if key { "true".into() } else { "false".into() }),
            Value::Int(key) => Ok(key.to_string().into()),
            // Go prints a float key with the digits of a 32-bit float.
            Value::Float(key) => Ok(crate::go::shortest_float(&format!("{:e}", key as f32)).into()),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(Error::Key { line }),
        }
    }
}

impl Iterator for Documents<'_> {
    type Item = Result<Value, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let document = self.document().transpose();
        self.finished = !matches!(document, Some(Ok(_)));
        document
    }
}

impl Mapping {
    /// Sets a key; returns false if the mapping itself has set it before. The later value counts, even one from a
    /// merge.
    fn set(&mut self, key: &Str, value: Value, own: bool) -> bool {
        let Some((at, was_own)) = self.places.get_mut(key) else {
            self.places.insert(key.clone(), (self.entries.len(), own));
            self.entries.push((key.clone(), value));
            return true;
        };
        let first = !(own && *was_own);
        *was_own |= own;
        self.entries[*at].1 = value;
        first
    }

    /// Merges a mapping, or several, of which earlier ones take precedence.
    fn merge(&mut self, merged: Value) -> Option<()> {
        match merged {
            Value::Object(object) => {
                for (key, value) in object {
                    self.set(&key, value, false);
                }
                Some(())
            }
            Value::Array(items) => items.into_iter().rev().try_for_each(|item| match item {
                Value::Object(_) => self.merge(item),
                _ => None,
            }),
            _ => None,
        }
    }
}

/// Whether a text is a boolean only in YAML 1.1.
fn is_old_bool(text: &str) -> bool {
    matches!(resolve(text), Meaning::Bool(_)) && !matches!(text.to_ascii_lowercase().as_str(), "true" | "false")
}

fn is_merge(event: &Event<'_>) -> bool {
    matches!(event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<")
        || matches!(event, Event::Scalar(text, .., Some(tag)) if text == "<<" && core(tag).as_deref() == Some("merge"))
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, line: usize) -> Result<Value, Error> {
    let string = || Value::String(text.into());
    let Some(tag) = tag else {
        let meaning = if style == ScalarStyle::Plain { resolve(text) } else { Meaning::Text };
        return meaning.value(text).ok_or_else(|| Error::NotFinite { line, text: text.to_owned() });
    };
    let wrong = || Error::Tag { line, text: text.to_owned(), tag: tag.original() };
    let meaning = match (core(tag).as_deref(), resolve(text)) {
        (Some("binary"), _) => {
            let bytes = STANDARD.decode(text.replace([' ', '\n', '\r', '\t'], "")).map_err(|_| wrong())?;
            return Ok(Value::String(String::from_utf8_lossy(&bytes).into()));
        }
        (Some("float"), Meaning::Int(int)) => Meaning::Float(int as f64),
        (Some("null"), meaning @ Meaning::Null)
        | (Some("bool"), meaning @ Meaning::Bool(_))
        | (Some("int"), meaning @ (Meaning::Int(_) | Meaning::Uint(_)))
        | (Some("float"), meaning @ (Meaning::Float(_) | Meaning::Uint(_)))
        | (Some("timestamp"), meaning @ Meaning::Timestamp) => meaning,
        (Some("null" | "bool" | "int" | "float" | "timestamp"), _) => return Err(wrong()),
        // An unknown tag makes the scalar a string.
        _ => return Ok(string()),
    };
    meaning.value(text).ok_or_else(|| Error::NotFinite { line, text: text.to_owned() })
}

/// Returns the name of a tag in YAML's own namespace.
fn core(tag: &Tag) -> Option<Cow<'_, str>> {
    tag.suffix_in_namespace("tag:yaml.org,2002:")
}

/// Returns the number of nodes in a value, and its nesting depth.
fn measure(value: &Value) -> (usize, usize) {
    /// The number of bytes of text that count as one node.
    const NODE: usize = 32;
    match value {
        Value::String(text) => (1 + text.len() / NODE, 0),
        Value::Array(items) => measure_items(items.iter().map(|item| (0, measure(item)))),
        Value::Object(object) => measure_items(object.iter().map(|(key, item)| (1 + key.len() / NODE, measure(item)))),
        _ => (1, 0),
    }
}

fn measure_items(items: impl Iterator<Item = (usize, (usize, usize))>) -> (usize, usize) {
    let (weight, depth) =
        items.fold((1, 0), |(weight, depth), (key, (more, deep))| (weight + key + more, depth.max(deep)));
    (weight, depth + 1)
}
