//! What Go's decoder says, and where.

use crate::json::format_float;
use crate::schema::{Field, Schema};
use crate::{Value, quantity, time};

/// Why a tree is no value of a type, in the words of Go's decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A value of another kind than the field.
    #[error("json: cannot unmarshal {found} into Go struct field {strukt}.{path} of type {wanted}")]
    Field {
        /// The value: `string`, or `number 1.5` if it is a number that does not fit.
        found: String,
        /// The innermost Go struct on the way.
        strukt: String,
        /// The JSON names on the way, with those of inlined Go structs, without indexes.
        path: String,
        /// The Go type of the field.
        wanted: String,
    },
    /// The whole tree is of another kind than the type.
    #[error("json: cannot unmarshal {found} into Go value of type {wanted}")]
    Whole {
        /// The value.
        found: String,
        /// The Go type.
        wanted: String,
    },
    /// Not base64.
    #[error("illegal base64 data at input byte {at}")]
    Base64 {
        /// The first byte that cannot be.
        at: usize,
    },
    /// Not a quantity.
    #[error(transparent)]
    Quantity(#[from] quantity::Error),
    /// Not a time.
    #[error(transparent)]
    Time(#[from] time::Error),
    /// Neither `true`, nor `false`, nor a schema.
    #[error("boolean or JSON schema expected")]
    BooleanOrSchema,
}

/// Where a walk is: grows on the stack, and prints as upstream prints paths of unknown fields and of wrong values.
pub struct Frame<'a> {
    parent: Option<&'a Frame<'a>>,
    step: Step<'a>,
}

pub enum Step<'a> {
    Root,
    Field { field: &'a Field, owner: Schema<'a> },
    Key(&'a str),
    Index(usize),
}

impl<'a> Frame<'a> {
    pub const ROOT: Frame<'static> = Frame { parent: None, step: Step::Root };

    pub const fn step<'b>(&'b self, step: Step<'b>) -> Frame<'b>
    where
        'a: 'b,
    {
        Frame { parent: Some(self), step }
    }

    pub const fn field<'b>(&'b self, field: &'b Field, owner: Schema<'b>) -> Frame<'b>
    where
        'a: 'b,
    {
        self.step(Step::Field { field, owner })
    }

    /// With indexes and keys: `spec.containers[0].name`.
    pub fn path(&self) -> String {
        let mut out = self.parent.map(Frame::path).unwrap_or_default();
        let name = match &self.step {
            Step::Root => return out,
            Step::Index(at) => return format!("{out}[{at}]"),
            Step::Field { field, .. } => field.name.as_str(),
            Step::Key(key) => key,
        };
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(name);
        out
    }

    /// A value of another kind than the type.
    pub fn kind(&self, value: &Value, schema: Schema<'_>) -> Error {
        self.mismatch(value.kind().to_owned(), &schema.ty().name)
    }

    /// A number that is none of the type's.
    pub fn number(&self, value: &Value, schema: Schema<'_>) -> Error {
        self.mismatch(literal(value), &schema.ty().name)
    }

    pub fn mismatch(&self, found: String, wanted: &str) -> Error {
        let wanted = wanted.to_owned();
        match self.innermost() {
            Some(owner) => {
                let name = owner.ty().name.as_str();
                let strukt = name.rsplit_once('.').map_or(name, |(_, name)| name).to_owned();
                Error::Field { found, strukt, path: self.names(), wanted }
            }
            None => Error::Whole { found, wanted },
        }
    }

    fn innermost(&self) -> Option<Schema<'a>> {
        match &self.step {
            Step::Field { owner, .. } => Some(*owner),
            _ => self.parent.and_then(Frame::innermost),
        }
    }

    /// Field names alone, those of inlined Go structs among them.
    fn names(&self) -> String {
        let mut out = self.parent.map(Frame::names).unwrap_or_default();
        if let Step::Field { field, .. } = &self.step {
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

/// A number as it was probably written: the tree does not keep the text.
// DEVIATION: upstream quotes the literal (`1.50`, `1e3`); we quote the number it stands for.
pub fn literal(value: &Value) -> String {
    match value {
        Value::Int(int) => format!("number {int}"),
        // From 2^53 on a float is likelier to have been an integer that does not fit 64 bits.
        Value::Float(float) if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 => {
            format!("number {float:.1}")
        }
        Value::Float(float) => format!("number {}", format_float(*float)),
        _ => value.kind().to_owned(),
    }
}
