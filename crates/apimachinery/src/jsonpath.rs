//! kubectl's JSONPath: paths such as `.status.conditions[?(@.type=="Ready")].status`, and templates with text around
//! paths in braces, `{range}` and `{end}`.
//!
//! A [`JsonPath`] is one path, parsed once and evaluated often: the printer column of a CRD. A [`Template`] is the
//! argument of `kubectl get -o jsonpath=…`.

mod parse;
mod template;

use std::ops::ControlFlow;

use crate::{Str, Value, go};

pub use template::Template;

#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Segment>,
}

/// Whether a field that no object has is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingKeys {
    Allow,
    Reject,
}

/// The text is not a valid JSONPath.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("unterminated {0}")]
    Unterminated(&'static str),
    #[error("unclosed action")]
    UnclosedAction,
    #[error("unclosed array expect ]")]
    UnclosedArray,
    #[error("unrecognized character in action: {}", unicode(*.0))]
    Character(char),
    #[error("unrecognized identifier {0}")]
    Identifier(String),
    #[error("cannot parse number {0}")]
    Number(String),
    /// The text in brackets is not an index, slice or key.
    #[error("invalid array index {0}")]
    Index(String),
    #[error("array index {0} is not a number")]
    IndexNumber(String),
    #[error("unquote string {0} error invalid syntax")]
    Unquote(String),
    /// `....`
    #[error("invalid multiple recursive descent")]
    Recursive,
    /// The path exceeds the length or nesting limit.
    #[error("path is too long")]
    TooLong,
}

/// A path cannot be evaluated on a tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// Holds Go's name of the value's type.
    #[error("{0} is not array or slice")]
    NotAList(&'static str),
    /// Holds the value as Go prints it.
    #[error("{0} is not array or slice and cannot be filtered")]
    NotFilterable(String),
    #[error("{0} is not found")]
    NotFound(String),
    #[error("array index out of bounds: index {index}, length {length}")]
    OutOfBounds {
        index: i64,
        /// The number of items in the list.
        length: usize,
    },
    #[error("starting index {start} is greater than ending index {end}")]
    Reversed { start: i64, end: i64 },
    #[error("step must be > 0")]
    Step,
    /// A comparison of several values.
    #[error("can only compare one element at a time")]
    NotOne,
    /// A comparison of values of different types.
    #[error("incompatible types for comparison")]
    Incompatible,
    /// A comparison of values that have no order.
    #[error("invalid type for comparison")]
    Incomparable,
    #[error("unrecognized filter operator {0}")]
    Operator(Str),
    #[error("unrecognized identifier {0}")]
    Identifier(Str),
    /// An `{end}` without `{range}`.
    #[error("not in range, nothing to end")]
    End,
    /// A step gives more than `RESULTS_MAX` results.
    #[error("too many results")]
    TooMany,
}

/// Maximum length of a CRD's path in bytes: longer than any path in use; bounds the parsing work.
const TEXT_BYTES_MAX: usize = 4096;
/// Maximum number of results of a CRD's path. A column shows one; recursive descent over a large object could give
/// millions.
const RESULTS_MAX: usize = 10_000;

#[derive(Clone, Debug, PartialEq)]
enum Node {
    /// Text outside of braces.
    Text(Value),
    Action(Vec<Segment>),
}

#[derive(Clone, Debug, PartialEq)]
enum Segment {
    Field(Str),
    Wildcard,
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<Segment>>),
    Exists(Vec<Segment>),
    Filter {
        left: Vec<Segment>,
        operator: Operator,
        right: Vec<Segment>,
    },
    /// A quoted string: one result, regardless of the input.
    Text(Value),
    /// A number or a boolean: one result for each input.
    Literal(Value),
    /// `range`, `end`, or an error when evaluated.
    Identifier(Str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
    /// Fails when evaluated.
    Unknown(Str),
}

/// `[start:end:step]`. If `single`, it was written as the index `[start]`, and an `end` of 0, after a `start` of -1,
/// is the end of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    start: i64,
    end: Option<i64>,
    single: bool,
    step: i64,
}

impl JsonPath {
    /// Parses a path without the braces of a template.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(ParseError::TooLong);
        }
        let nodes = parse::template(&format!("{{{text}}}"))?;
        match <[Node; 1]>::try_from(nodes) {
            Ok([Node::Action(steps)]) => match steps.iter().find_map(Segment::identifier) {
                Some(word) => Err(ParseError::Identifier(word.to_owned())),
                None => Ok(Self { steps }),
            },
            // The text contains a closing brace.
            _ => Err(ParseError::Character('}')),
        }
    }

    /// Returns all values that the path selects.
    pub fn find<'a>(&'a self, root: &'a Value) -> Result<Vec<&'a Value>, EvalError> {
        Walk { missing: MissingKeys::Allow, results_max: RESULTS_MAX }.follow(&self.steps, vec![root])
    }

    /// Returns the first value that the path selects; [`None`] if there is none or the evaluation fails.
    pub fn first<'a>(&'a self, root: &'a Value) -> Option<&'a Value> {
        self.find(root).ok()?.first().copied()
    }
}

/// Formats a result like the cell of a printer column.
pub fn print(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        _ => template::print(value),
    }
}

/// The options of an evaluation.
#[derive(Clone, Copy)]
struct Walk {
    missing: MissingKeys,
    results_max: usize,
}

impl Walk {
    fn follow<'a>(self, steps: &'a [Segment], mut values: Vec<&'a Value>) -> Result<Vec<&'a Value>, EvalError> {
        for step in steps {
            values = self.step(step, values)?;
            if values.len() > self.results_max {
                return Err(EvalError::TooMany);
            }
        }
        Ok(values)
    }

    fn step<'a>(self, step: &'a Segment, values: Vec<&'a Value>) -> Result<Vec<&'a Value>, EvalError> {
        let mut out = Vec::new();
        match step {
            Segment::Field(name) => {
                let searched = !values.is_empty();
                out.extend(values.into_iter().filter_map(|value| value.get(name)));
                if out.is_empty() && searched && self.missing == MissingKeys::Reject {
                    return Err(EvalError::NotFound(name.to_string()));
                }
            }
            // DEVIATION: kubectl also selects the bytes of strings, as numbers.
            Segment::Wildcard => out.extend(values.into_iter().flat_map(children)),
            Segment::Recursive => {
                for value in values {
                    self.descend(value, &mut out)?;
                }
            }
            Segment::Slice(slice) => {
                for value in values.into_iter().filter(|value| !value.is_null()) {
                    if slice.apply(value, &mut out)?.is_break() {
                        break;
                    }
                }
            }
            Segment::Union(paths) => {
                for path in paths {
                    out.extend(self.follow(path, values.clone())?);
                }
            }
            Segment::Exists(path) => {
                for value in values {
                    out.extend(filterable(value)?.iter().filter(|item| self.exists(path, item)));
                }
            }
            Segment::Filter { left, operator, right } => {
                for value in values {
                    for item in filterable(value)? {
                        let Some(left) = self.one(left, item)? else { continue };
                        let Some(right) = self.one(right, item)? else { continue };
                        if operator.holds(left, right)? {
                            out.push(item);
                        }
                    }
                }
            }
            Segment::Text(text) => out.push(text),
            Segment::Literal(value) => out.extend(values.iter().map(|_| value)),
            // The template evaluates both after the action.
            Segment::Identifier(word) if word == "range" => return Ok(values),
            Segment::Identifier(word) if word == "end" => {}
            Segment::Identifier(word) => return Err(EvalError::Identifier(word.clone())),
        }
        Ok(out)
    }

    /// Whether a path selects something. kubectl counts most failures of the path as a result.
    fn exists<'a>(self, path: &'a [Segment], item: &'a Value) -> bool {
        match self.follow(path, vec![item]) {
            Ok(found) => !found.is_empty(),
            Err(EvalError::NotFound(_) | EvalError::Incompatible | EvalError::Incomparable) => false,
            Err(_) => true,
        }
    }

    fn one<'a>(self, path: &'a [Segment], item: &'a Value) -> Result<Option<&'a Value>, EvalError> {
        match self.follow(path, vec![item])?.as_slice() {
            [] => Ok(None),
            [value] => Ok(Some(value)),
            _ => Err(EvalError::NotOne),
        }
    }

    /// Collects the value and all descendants that have children or are non-empty strings, outermost first. A tree is
    /// at most 128 levels deep.
    fn descend<'a>(self, value: &'a Value, out: &mut Vec<&'a Value>) -> Result<(), EvalError> {
        let below = children(value);
        if below.is_empty() && value.as_str().is_none_or(str::is_empty) {
            return Ok(());
        }
        if out.len() >= self.results_max {
            return Err(EvalError::TooMany);
        }
        out.push(value);
        below.into_iter().try_for_each(|child| self.descend(child, out))
    }
}

impl Segment {
    /// Returns the word, if this segment is an identifier.
    fn identifier(&self) -> Option<&str> {
        match self {
            Self::Identifier(word) => Some(word),
            _ => None,
        }
    }
}

impl Slice {
    /// Appends the selected items. As in upstream, an empty selection ends the step for all further values.
    fn apply<'a>(&self, value: &'a Value, out: &mut Vec<&'a Value>) -> Result<ControlFlow<()>, EvalError> {
        let items = value.as_array().ok_or(EvalError::NotAList(go::type_name(value)))?;
        let length = items.len();
        let signed = i64::try_from(length).unwrap_or(i64::MAX);
        let start = if self.start < 0 { self.start.saturating_add(signed) } else { self.start };
        let end = match self.end {
            None => signed,
            Some(end) if end < 0 || end == 0 && self.single => end.saturating_add(signed),
            Some(end) => end,
        };
        if start == end {
            return Ok(ControlFlow::Break(()));
        }
        if start >= signed || start < 0 {
            return Err(EvalError::OutOfBounds { index: start, length });
        }
        if end > signed || end < 0 {
            return Err(EvalError::OutOfBounds { index: end.saturating_sub(1), length });
        }
        if start > end {
            return Err(EvalError::Reversed { start, end });
        }
        if self.step < 1 {
            return Err(EvalError::Step);
        }
        let (start, end) = (usize::try_from(start).unwrap_or(0), usize::try_from(end).unwrap_or(0));
        let step = usize::try_from(self.step).unwrap_or(usize::MAX);
        out.extend(items.get(start..end).unwrap_or_default().iter().step_by(step));
        Ok(ControlFlow::Continue(()))
    }
}

impl Operator {
    fn holds(&self, left: &Value, right: &Value) -> Result<bool, EvalError> {
        let basic = |value: &Value| !matches!(value, Value::Null | Value::Array(_) | Value::Object(_));
        if let Self::Unknown(operator) = self {
            return Err(EvalError::Operator(operator.clone()));
        }
        if !basic(left) || !basic(right) {
            return Err(EvalError::Incomparable);
        }
        let order = match (left, right) {
            (Value::Bool(left), Value::Bool(right)) if matches!(self, Self::Equal | Self::NotEqual) => left.cmp(right),
            (Value::Bool(_), Value::Bool(_)) => return Err(EvalError::Incomparable),
            (Value::Int(left), Value::Int(right)) => left.cmp(right),
            (Value::Float(left), Value::Float(right)) => left.partial_cmp(right).ok_or(EvalError::Incomparable)?,
            (Value::String(left), Value::String(right)) => left.cmp(right),
            _ => return Err(EvalError::Incompatible),
        };
        Ok(match self {
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Greater => order.is_gt(),
            Self::Unknown(_) => false,
        })
    }
}

fn filterable(value: &Value) -> Result<&[Value], EvalError> {
    value.as_array().ok_or_else(|| EvalError::NotFilterable(go::display(value)))
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(object) => object.values().collect(),
        _ => Vec::new(),
    }
}

/// Formats a character like Go's `%#U`: `U+0023 '#'`.
fn unicode(c: char) -> String {
    let code = u32::from(c);
    if go::is_printable(c) { format!("U+{code:04X} '{c}'") } else { format!("U+{code:04X}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::value;

    fn found(path: &str) -> Vec<String> {
        let root = value!({
            "spec": {"replicas": 3, "on": true, "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]},
            "metadata": {"annotations": {"a.b/c": "x"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Bad", "status": "False"}]},
            "none": null
        });
        let path = JsonPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        path.find(&root).map_or_else(|error| vec![error.to_string()], |found| found.into_iter().map(print).collect())
    }

    #[test]
    fn paths_select_values() {
        let check = |path: &str, expect: &[&str]| assert_eq!(found(path), expect, "{path}");
        check(".spec.replicas", &["3"]);
        check("$.spec.replicas", &["3"]);
        check(".spec.nothing.more", &[]);
        check(".none", &["<no value>"]);
        check(r".metadata.annotations.a\.b/c", &["x"]);
        check(r".metadata.annotations['a\.b/c']", &["x"]);
        check(".spec.ports[0].name", &["a"]);
        check(".spec.ports[-1].name", &["b"]);
        check(".spec.ports[*].port", &["80", "81"]);
        check(".spec.ports[0:2].port", &["80", "81"]);
        check(".spec.ports[::2].port", &["80"]);
        check(".spec.ports[0,1].port", &["80", "81"]);
        check(".spec.ports[0]['name','port']", &["a", "80"]);
        check(r#".status.conditions[?(@.type=="Ready")].status"#, &["True"]);
        check(".status.conditions[?(@.type!='Ready')].status", &["False"]);
        check(".spec.ports[?(@.port>80)].name", &["b"]);
        check(".spec.ports[?(@.port<=80)].name", &["a"]);
        check(".spec.ports[?(@.name)].name", &["a", "b"]);
        check(".spec.ports[?(@.other)].name", &[]);
        check(".spec.ports[?(@.other==1)].name", &[]);
        check("..port", &["80", "81"]);
        check(".spec.ports.*", &[r#"{"name":"a","port":80}"#, r#"{"name":"b","port":81}"#]);
    }

    #[test]
    fn invalid_evaluations_are_errors() {
        let check = |path: &str, error: &str| assert_eq!(found(path), [error], "{path}");
        check(".spec.ports[2]", "array index out of bounds: index 2, length 2");
        check(".spec[0]", "map[string]interface {} is not array or slice");
        check(".spec.ports[?(@.port==\"80\")]", "incompatible types for comparison");
        check(".spec.ports[?(@.name===1)]", "unrecognized filter operator ===");
        check(".spec.ports[::0]", "step must be > 0");
    }

    #[test]
    fn invalid_paths_are_rejected() {
        for bad in [".a[", ".a[?(@.b", "....", ".a[x]", ".a[?(@.b=~1)]", "#", ".a{", "\"a", "range", ".a[?(@.b==1)"] {
            assert!(JsonPath::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(JsonPath::parse(&".a".repeat(5000)), Err(ParseError::TooLong));
        assert_eq!(JsonPath::parse(&"[?(".repeat(1000)), Err(ParseError::Unterminated("filter")));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(path in r#"[.a\[\]?(@)=<>!"'*:,0-9\\ $-]{0,30}"#) {
            if let Ok(path) = JsonPath::parse(&path) {
                let _ = path.find(&value!({"a": [{"a": 1}, {"a": "x"}]}));
            }
        }
    }
}
