//! Between a tree and Rust structs, without text in between: [`from_value`] and [`to_value`].
//!
//! The deciding code works with typed structs, the machinery with trees. Both directions go through serde, with the
//! same meaning as if the tree were written as JSON and read again.

mod read;
mod write;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Value;

/// Why a tree and a struct do not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// Reads a struct out of a tree.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    T::deserialize(value)
}

/// Writes a struct into a tree.
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
