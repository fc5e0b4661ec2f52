//! View of a Node.

use apimachinery::Value;
use apimachinery::meta::Meta;

use super::{Taint, has_condition};

#[derive(Clone, Copy, Debug)]
pub struct Node<'a>(pub &'a Value);

impl<'a> Node<'a> {
    pub fn meta(self) -> Meta<'a> {
        Meta::of(self.0)
    }

    pub fn name(self) -> &'a str {
        self.meta().name()
    }

    pub fn taints(self) -> impl Iterator<Item = Taint<'a>> {
        let taints = self.0.list_at(&["spec", "taints"]);
        taints.iter().map(Taint::of)
    }

    /// Whether the Ready condition is True.
    pub fn is_ready(self) -> bool {
        has_condition(self.0, "Ready")
    }
}
