//! Errors of Go's JSON decoder, with their paths.

use crate::json::format_float;
use crate::schema::{Field, Schema};
use crate::{Value, quantity, time};

/// A tree does not match a type; the messages are those of Go's decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field's value has the wrong type.
    #[error("json: cannot unmarshal {found} into Go struct field {strukt}.{path} of type {expected}")]
    Field {
        /// The JSON type of the value, such as `string`, or a number that does not fit: `number 1.5`.
        found: String,
        /// The innermost Go struct on the path.
        strukt: String,
        /// The JSON names on the path, including those of inlined Go structs, without indexes.
        path: String,
        expected: String,
    },
    /// The root value has the wrong type.
    #[error("json: cannot unmarshal {found} into Go value of type {expected}")]
    Root {
        found: String,
        /// The Go type.
        expected: String,
    },
    #[error("illegal base64 data at input byte {at}")]
    Base64 {
        /// The offset of the first invalid byte.
        at: usize,
    },
    #[error(transparent)]
    Quantity(#[from] quantity::Error),
    #[error(transparent)]
    Time(#[from] time::Error),
    #[error("boolean or JSON schema expected")]
    BooleanOrSchema,
}

/// A path element of a walk, linked to its parent on the stack. Prints upstream's paths of unknown fields and of wrong
/// values.
pub(super) struct Frame<'a> {
    parent: Option<&'a Frame<'a>>,
    step: FrameSegment<'a>,
}

pub(super) enum FrameSegment<'a> {
    Root,
    Field { field: &'a Field, owner: Schema<'a> },
    Key(&'a str),
    Index(usize),
}

impl<'a> Frame<'a> {
    pub(super) const ROOT: Frame<'static> = Frame { parent: None, step: FrameSegment::Root };

    pub(super) const fn step<'b>(&'b self, step: FrameSegment<'b>) -> Frame<'b>
    where
        'a: 'b,
    {
        Frame { parent: Some(self), step }
    }

    pub(super) const fn field<'b>(&'b self, field: &'b Field, owner: Schema<'b>) -> Frame<'b>
    where
        'a: 'b,
    {
        self.step(FrameSegment::Field { field, owner })
    }

    /// Returns the path with indexes and keys: `spec.containers[0].name`.
    pub(super) fn path(&self) -> String {
        let mut out = self.parent.map(Frame::path).unwrap_or_default();
        let name = match &self.step {
            FrameSegment::Root => return out,
            FrameSegment::Index(at) => return format!("{out}[{at}]"),
            FrameSegment::Field { field, .. } => field.name.as_str(),
            FrameSegment::Key(key) => key,
        };
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(name);
        out
    }

    /// Returns the error for a value of the wrong type.
    pub(super) fn kind(&self, value: &Value, schema: Schema<'_>) -> Error {
        self.mismatch(value.kind().to_owned(), &schema.ty().name)
    }

    /// Returns the error for a number that the type cannot represent.
    pub(super) fn number(&self, value: &Value, schema: Schema<'_>) -> Error {
        self.mismatch(literal(value), &schema.ty().name)
    }

    pub(super) fn mismatch(&self, found: String, expected: &str) -> Error {
        let expected = expected.to_owned();
        match self.innermost() {
            Some(owner) => {
                let name = owner.ty().name.as_str();
                let strukt = name.rsplit_once('.').map_or(name, |(_, name)| name).to_owned();
                Error::Field { found, strukt, path: self.names(), expected }
            }
            None => Error::Root { found, expected },
        }
    }

    fn innermost(&self) -> Option<Schema<'a>> {
        match &self.step {
            FrameSegment::Field { owner, .. } => Some(*owner),
            _ => self.parent.and_then(Frame::innermost),
        }
    }

    /// Returns the field names only, including those of inlined Go structs.
    fn names(&self) -> String {
        let mut out = self.parent.map(Frame::names).unwrap_or_default();
        if let FrameSegment::Field { field, .. } = &self.step {
            for name in field.inlined.iter().chain([&field.name]) {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
        }
        out
    }
}

/// Returns a number as it was probably written; the tree does not preserve the text.
// DEVIATION: upstream prints the literal (`1.50`, `1e3`); Knarr prints the parsed number.
pub(super) fn literal(value: &Value) -> String {
    match value {
        Value::Int(int) => format!("number {int}"),
        // From 2^53 on a float was more likely an integer that does not fit 64 bits.
        Value::Float(float) if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 => {
            format!("number {float:.1}")
        }
        Value::Float(float) => format!("number {}", format_float(*float)),
        _ => value.kind().to_owned(),
    }
}
