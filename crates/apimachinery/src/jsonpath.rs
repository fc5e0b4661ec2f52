//! JSONPath of CRD printer columns: `.status.conditions[?(@.type=="Ready")].status`.
//!
//! The language is kubectl's JSONPath without templates: one path, parsed once, evaluated often. A missing field gives
//! no result instead of an error.

mod parse;

use crate::{Str, Value, go};

#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// A text is not a valid JSONPath.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("unterminated {0}")]
    Unterminated(&'static str),
    #[error("unrecognized character in action: {0:?}")]
    Character(char),
    #[error("unrecognized identifier {0}")]
    Identifier(String),
    #[error("cannot parse number {0}")]
    Number(String),
    /// The text in brackets is not an index, slice or key.
    #[error("invalid array index {0}")]
    Index(String),
    #[error("unrecognized filter operator {0}")]
    Operator(String),
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
    #[error("{0} is not array or slice")]
    NotAList(&'static str),
    #[error("array index out of bounds: index {index}, length {length}")]
    OutOfBounds {
        index: i64,
        /// The number of items in the list.
        length: usize,
    },
    #[error("step must be > 0")]
    Step,
    /// A comparison of several values, or of none.
    #[error("can only compare one element at a time")]
    NotOne,
    /// A comparison of values that have no order or are of different types.
    #[error("incompatible types for comparison")]
    Incomparable,
    /// A step gives more than `RESULTS_MAX` results.
    #[error("too many results")]
    TooMany,
}

/// Maximum number of results of a step. A column shows one; recursive descent over a large object could give millions.
const RESULTS_MAX: usize = 10_000;

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(Str),
    Wildcard,
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<Step>>),
    Exists(Vec<Step>),
    Filter { left: Vec<Step>, operator: Operator, right: Vec<Step> },
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
}

/// `[start:end:step]`. `single` is a single index, whose end after a start of -1 is the end of the list.
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
        parse::parse(text).map(|steps| Self { steps })
    }

    /// Returns all values that the path selects.
    pub fn find<'a>(&'a self, root: &'a Value) -> Result<Vec<&'a Value>, EvalError> {
        follow(&self.steps, vec![root])
    }

    /// Returns the first value that the path selects; [`None`] if there is none or the evaluation fails.
    pub fn first<'a>(&'a self, root: &'a Value) -> Option<&'a Value> {
        self.find(root).ok()?.first().copied()
    }
}

/// Formats a result like kubectl.
pub fn print(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.to_string(),
        Value::Float(float) => go::float(*float),
        _ => go::json(value),
    }
}

fn follow<'a>(steps: &'a [Step], mut values: Vec<&'a Value>) -> Result<Vec<&'a Value>, EvalError> {
    for step in steps {
        values = step.apply(values)?;
        if values.len() > RESULTS_MAX {
            return Err(EvalError::TooMany);
        }
    }
    Ok(values)
}

impl Step {
    fn apply<'a>(&'a self, values: Vec<&'a Value>) -> Result<Vec<&'a Value>, EvalError> {
        let mut out = Vec::new();
        match self {
            Self::Field(name) => out.extend(values.into_iter().filter_map(|value| value.get(name))),
            Self::Wildcard => out.extend(values.into_iter().flat_map(children)),
            Self::Recursive => {
                for value in values {
                    descend(value, &mut out)?;
                }
            }
            Self::Slice(slice) => {
                for value in values.into_iter().filter(|value| !value.is_null()) {
                    slice.apply(value, &mut out)?;
                }
            }
            Self::Union(paths) => {
                for path in paths {
                    out.extend(follow(path, values.clone())?);
                }
            }
            Self::Exists(path) => {
                for value in values {
                    let items = list(value)?;
                    out.extend(
                        items.iter().filter(|item| follow(path, vec![item]).is_ok_and(|found| !found.is_empty())),
                    );
                }
            }
            Self::Filter { left, operator, right } => {
                for value in values {
                    for item in list(value)? {
                        if operator.holds(one(left, item)?, one(right, item)?)? {
                            out.push(item);
                        }
                    }
                }
            }
            Self::Literal(value) => out.push(value),
        }
        Ok(out)
    }
}

impl Slice {
    fn apply<'a>(&self, value: &'a Value, out: &mut Vec<&'a Value>) -> Result<(), EvalError> {
        let items = list(value)?;
        let length = items.len();
        let signed = i64::try_from(length).unwrap_or(i64::MAX);
        let start = if self.start < 0 { self.start + signed } else { self.start };
        let end = match self.end {
            None => signed,
            Some(end) if end < 0 || end == 0 && self.single => end.saturating_add(signed),
            Some(end) => end,
        };
        if start != end {
            if start >= signed || start < 0 {
                return Err(EvalError::OutOfBounds { index: start, length });
            }
            if end > signed || end < 0 {
                return Err(EvalError::OutOfBounds { index: end.saturating_sub(1), length });
            }
        }
        if self.step < 1 {
            return Err(EvalError::Step);
        }
        let (start, end) = (usize::try_from(start).unwrap_or(0), usize::try_from(end).unwrap_or(0));
        let step = usize::try_from(self.step).unwrap_or(usize::MAX);
        out.extend(items.get(start..end).unwrap_or_default().iter().step_by(step));
        Ok(())
    }
}

impl Operator {
    fn holds(self, left: &Value, right: &Value) -> Result<bool, EvalError> {
        let order = match (left, right) {
            (Value::Bool(left), Value::Bool(right)) if matches!(self, Self::Equal | Self::NotEqual) => left.cmp(right),
            (Value::Int(left), Value::Int(right)) => left.cmp(right),
            (Value::Float(left), Value::Float(right)) => left.partial_cmp(right).ok_or(EvalError::Incomparable)?,
            (Value::String(left), Value::String(right)) => left.cmp(right),
            _ => return Err(EvalError::Incomparable),
        };
        Ok(match self {
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Greater => order.is_gt(),
        })
    }
}

fn list(value: &Value) -> Result<&[Value], EvalError> {
    value.as_array().ok_or(EvalError::NotAList(value.kind()))
}

fn one<'a>(path: &'a [Step], item: &'a Value) -> Result<&'a Value, EvalError> {
    match follow(path, vec![item])?.as_slice() {
        [value] => Ok(value),
        _ => Err(EvalError::NotOne),
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(object) => object.values().collect(),
        _ => Vec::new(),
    }
}

/// Collects the value and all descendants that have children, outermost first. A tree is at most 128 levels deep.
fn descend<'a>(value: &'a Value, out: &mut Vec<&'a Value>) -> Result<(), EvalError> {
    let below = children(value);
    if below.is_empty() {
        return Ok(());
    }
    if out.len() >= RESULTS_MAX {
        return Err(EvalError::TooMany);
    }
    out.push(value);
    below.into_iter().try_for_each(|child| descend(child, out))
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
        check("..port", &["80", "81"]);
        check(".spec.ports.*", &[r#"{"name":"a","port":80}"#, r#"{"name":"b","port":81}"#]);
    }

    #[test]
    fn invalid_evaluations_are_errors() {
        let check = |path: &str, error: &str| assert_eq!(found(path), [error], "{path}");
        check(".spec.ports[2]", "array index out of bounds: index 2, length 2");
        check(".spec[0]", "object is not array or slice");
        check(".spec.ports[?(@.port==\"80\")]", "incompatible types for comparison");
        check(".spec.ports[?(@.other==1)]", "can only compare one element at a time");
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
