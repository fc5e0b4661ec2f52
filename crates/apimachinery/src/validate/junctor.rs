//! Validation of `allOf`, `anyOf`, `oneOf` and `not`.

use super::Checker;
use super::node::Node;
use crate::schema::{Junctors, NestedValidation};
use crate::{Path, Value, go};

impl Checker<'_> {
    pub(super) fn junctors(&mut self, value: &Value, junctors: &Junctors, path: &Path) {
        let quoted_path = || go::quote(&path.to_string());
        if !junctors.any_of.is_empty() {
            let (valid, best) = self.branches(value, &junctors.any_of, path);
            if valid == 0 {
                self.whole(format!("{} must validate at least one schema (anyOf)", quoted_path()));
                self.merge(best);
            }
        }
        if !junctors.one_of.is_empty() {
            let (valid, best) = self.branches(value, &junctors.one_of, path);
            let found = match valid {
                1 => None,
                0 => Some("Found none valid".to_owned()),
                _ => Some(format!("Found {valid} valid alternatives")),
            };
            if let Some(found) = found {
                self.whole(format!("{} must validate one and only one schema (oneOf). {found}", quoted_path()));
                self.merge(best);
            }
        }
        if !junctors.all_of.is_empty() {
            let mut valid = 0;
            for nested in &junctors.all_of {
                let branch = self.branch(value, nested, path);
                valid += usize::from(branch.errors.is_empty());
                self.merge(Some(branch));
            }
            if valid < junctors.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                self.whole(format!("{} must validate all the schemas (allOf){none}", quoted_path()));
            }
        }
        if let Some(not) = &junctors.not
            && self.branch(value, not, path).errors.is_empty()
        {
            self.whole(format!("{} must not validate the schema (not)", quoted_path()));
        }
    }

    /// Returns the number of valid branches and, if there is none, the branch that progressed furthest, whose errors
    /// are the most useful.
    fn branches(&self, value: &Value, all: &[NestedValidation], path: &Path) -> (usize, Option<Self>) {
        let mut valid = 0;
        let mut best: Option<Self> = None;
        for nested in all {
            let branch = self.branch(value, nested, path);
            if branch.errors.is_empty() {
                valid += 1;
            } else if best.as_ref().is_none_or(|best| branch.matches > best.matches) {
                best = Some(branch);
            }
        }
        (valid, best.filter(|_| valid == 0))
    }

    fn branch(&self, value: &Value, nested: &NestedValidation, path: &Path) -> Self {
        let mut branch = Self { base: self.base, errors: Vec::new(), matches: 0 };
        branch.value(value, None, Node::Nested(nested), path);
        branch
    }

    fn merge(&mut self, branch: Option<Self>) {
        if let Some(mut branch) = branch {
            self.errors.append(&mut branch.errors);
            self.matches += branch.matches;
        }
    }
}
