//! Conversion between value trees and Rust structs without intermediate text: [`from_value`] and [`to_value`].
//!
//! Deciding code uses typed structs, the API machinery uses trees. Both directions use serde, with the same result as
//! writing the tree as JSON and parsing it.

mod read;
mod write;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Value;

/// A tree and a struct do not match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// Deserializes a struct from a tree.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    T::deserialize(value)
}

/// Serializes a struct into a tree.
pub fn to_value(it: impl Serialize) -> Result<Value, Error> {
    it.serialize(write::TreeSerializer)
}

impl serde::de::Error for Error {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl serde::ser::Error for Error {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

#[cfg(test)]
mod tests;
