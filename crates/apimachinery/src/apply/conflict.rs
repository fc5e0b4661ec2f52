//! Apply conflicts: fields that an applier wants to change and other managers own.

use std::fmt;

use super::fieldset::FieldSet;
use super::managers::{Operation, Owner};
use super::path::Element;
use crate::go;

/// The conflicts that made an apply fail with 409. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(Vec<Conflict>);

/// A field and the manager that owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    owner: String,
    path: Vec<Element>,
}

/// One conflict as a cause of a `Status`; the cause's reason is `FieldManagerConflict`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `conflict with "kubectl" using apps/v1`
    pub message: String,
    /// `.spec.replicas`
    pub field: String,
}

impl Conflicts {
    /// Builds the conflicts from the fields that each owner would lose; [`None`] if no owner would lose any.
    pub(super) fn of<'a>(owned: impl IntoIterator<Item = (&'a Owner, FieldSet)>) -> Option<Self> {
        let mut owned: Vec<_> = owned.into_iter().filter(|(_, fields)| !fields.is_empty()).collect();
        owned.sort_by_cached_key(|(owner, _)| owner.identifier());
        let mut conflicts = Vec::new();
        for (owner, fields) in owned {
            let owner = show(owner);
            fields.for_each(|path| {
                conflicts.push(Conflict { owner: owner.clone(), path: path.iter().map(|it| (*it).clone()).collect() });
            });
        }
        (!conflicts.is_empty()).then_some(Self(conflicts))
    }

    /// Returns the conflicts, sorted by owner.
    pub fn list(&self) -> &[Conflict] {
        &self.0
    }

    /// Returns the conflicts as the causes of a `Status`.
    pub fn causes(&self) -> impl Iterator<Item = Cause> {
        self.0
            .iter()
            .map(|conflict| Cause { message: format!("conflict with {}", conflict.owner), field: conflict.field() })
    }

    /// Returns the conflicts on fields outside `allowed`; [`None`] if none remain.
    pub(super) fn outside(self, allowed: &FieldSet) -> Option<Self> {
        let left: Vec<_> = self.0.into_iter().filter(|conflict| !allowed.has(&conflict.path)).collect();
        (!left.is_empty()).then_some(Self(left))
    }
}

impl Conflict {
    /// Returns the owner as printed in messages: `"kubectl" using apps/v1`.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the field as printed in messages: `.spec.replicas`.
    pub fn field(&self) -> String {
        self.path.iter().map(ToString::to_string).collect()
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = &self.0[..] {
            return write!(out, "Apply failed with 1 conflict: conflict with {}: {}", one.owner, one.field());
        }
        write!(out, "Apply failed with {} conflicts: ", self.0.len())?;
        for (at, of_one) in self.0.chunk_by(|a, b| a.owner == b.owner).enumerate() {
            write!(out, "{}conflicts with {}:", if at > 0 { "\n" } else { "" }, of_one[0].owner)?;
            for conflict in of_one {
                write!(out, "\n- {}", conflict.field())?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Conflicts {}

fn show(owner: &Owner) -> String {
    let mut rendered = go::quote(&owner.manager);
    if !owner.subresource.is_empty() {
        rendered = format!("{rendered} with subresource {}", go::quote(&owner.subresource));
    }
    if owner.operation == Operation::Update {
        rendered = format!("{rendered} using {}", owner.api_version);
    }
    rendered
}
