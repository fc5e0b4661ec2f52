//! Kustomize: builds objects from a directory with a kustomization file.
//!
//! ```text
//! resources ─> generators ─> components ─> patches ─> namespace ─> prefix, suffix ─> labels, annotations
//!           ─> JSON patches ─> replicas ─> images ─> replacements          (once per kustomization, bases first)
//!           ─> content hashes ─> name references ─> order                  (once)
//! ```
//!
//! Objects remember their earlier names, so that patches and references by an original name still find them.
//!
//! Files outside the root of their kustomization are not read.
// DEVIATION: kustomizations with remote resources, plugins (generators, transformers, validators), Helm charts, vars,
// CRDs, transformer configurations, custom OpenAPI schemas or build metadata are rejected.

mod field_path;
mod file;
mod generate;
mod hash;
mod image;
mod loader;
mod merge;
mod name_reference;
mod order;
mod patch;
mod replacement;
mod resource;
mod selector;
mod specs;
mod target;
mod transform;

use std::io::Write;
use std::path::Path;

use apimachinery::{Value, yaml};

pub use loader::Restriction;

use crate::Failure;

/// The objects of a kustomization, in output order.
#[derive(Clone, Debug, Default)]
pub struct Built {
    pub objects: Vec<Value>,
    /// Messages about deprecated fields.
    pub warnings: Vec<String>,
}

/// A kustomization cannot be built; the message is kustomize's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Prefixes the message with the operation that failed.
    fn context(self, operation: impl std::fmt::Display) -> Self {
        Self(format!("{operation}: {}", self.0))
    }
}

/// Builds the kustomization in `directory`. Warnings are returned also if the build fails.
pub fn build(directory: &Path, restriction: Restriction) -> (Vec<String>, Result<Vec<Value>, Error>) {
    let mut warnings = Vec::new();
    let objects = target::build(directory, restriction, &mut warnings);
    (warnings, objects)
}

/// Returns the objects as YAML documents.
pub fn to_yaml(objects: &[Value]) -> String {
    let documents: Vec<String> = objects.iter().map(yaml::to_string).collect();
    documents.join("---\n")
}

/// Returns the objects of a kustomization as YAML documents. Messages about deprecated fields go to standard error.
pub fn build_yaml(directory: &str, restriction: Restriction) -> Result<String, Failure> {
    let (warnings, objects) = build(Path::new(directory), restriction);
    for warning in warnings {
        let _ = writeln!(std::io::stderr().lock(), "{warning}");
    }
    match objects {
        Ok(objects) => Ok(to_yaml(&objects)),
        Err(error) => Err(Failure::new(error.to_string())),
    }
}

#[cfg(test)]
mod tests;
