//! Paths into a tree as the printed columns of a CRD name them: `.status.conditions[?(@.type=="Ready")].status`.
//!
//! This is the path language of kubectl without its templates: one path, read once, followed often. What is not there
//! gives no result rather than an error.

mod parse;

use crate::{Str, Value, go};

/// A path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// Why a text is not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Something begins and does not end.
    #[error("unterminated {0}")]
    Unterminated(&'static str),
    /// A character that nothing begins with.
    #[error("unrecognized character in action: {0:?}")]
    Character(char),
    /// A word that means nothing.
    #[error("unrecognized identifier {0}")]
    Identifier(String),
    /// A number that is none.
    #[error("cannot parse number {0}")]
    Number(String),
    /// What stands in brackets is no index, slice or key.
    #[error("invalid array index {0}")]
    Index(String),
    /// A comparison that there is none of.
    #[error("unrecognized filter operator {0}")]
    Operator(String),
    /// `....`
    #[error("invalid multiple recursive descent")]
    Recursive,
    /// Longer or more deeply nested than anybody needs.
    #[error("path is too long")]
    TooLong,
}

/// Why a path cannot be followed in a tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A list is expected where something else is.
    #[error("{0} is not array or slice")]
    NotAList(&'static str),
    /// A list has no such item.
    #[error("array index out of bounds: index {index}, length {length}")]
    OutOfBounds {
        /// The index asked for.
        index: i64,
        /// How many items there are.
        length: usize,
    },
    /// A slice advances by less than one.
    #[error("step must be > 0")]
    Step,
    /// A comparison of several values, or of none.
    #[error("can only compare one element at a time")]
    NotOne,
    /// A comparison of values that have no order or are of different types.
    #[error("incompatible types for comparison")]
    Incomparable,
    /// More results than anybody can read.
    #[error("too many results")]
    TooMany,
}

/// How many values a step may give. A column shows one; recursive descent over a large object could give millions.
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

/// `[start:end:step]`. An end that stands for one item after a start of -1 is the end of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    start: i64,
    end: Option<i64>,
    single: bool,
    step: i64,
}

impl JsonPath {
    /// Reads a path, without the braces of a template.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::parse(text).map(|steps| Self { steps })
    }

    /// All values that the path leads to.
    pub fn find<'a>(&'a self, root: &'a Value) -> Result<Vec<&'a Value>, EvalError> {
        follow(&self.steps, vec![root])
    }

    /// The first value that the path leads to, if it leads anywhere.
    pub fn first<'a>(&'a self, root: &'a Value) -> Option<&'a Value> {
        self.find(root).ok()?.first().copied()
    }
}

/// A result as kubectl prints it.
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

/// The value and all below it that have something below them, outermost first. A tree is at most 128 levels deep.
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
    fn paths_lead_to_values() {
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
    fn what_cannot_be_followed_is_an_error() {
        let check = |path: &str, error: &str| assert_eq!(found(path), [error], "{path}");
        check(".spec.ports[2]", "array index out of bounds: index 2, length 2");
        check(".spec[0]", "object is not array or slice");
        check(".spec.ports[?(@.port==\"80\")]", "incompatible types for comparison");
        check(".spec.ports[?(@.other==1)]", "can only compare one element at a time");
        check(".spec.ports[::0]", "step must be > 0");
    }

    #[test]
    fn what_is_no_path_is_refused() {
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
