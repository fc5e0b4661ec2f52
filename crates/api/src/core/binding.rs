//! Binding: ties a pod to its node.

use machinery::meta::Scope;

use crate::kind::{Kind, Question};

/// The row of Binding.
pub fn kind() -> Kind {
    Kind { scope: Scope::Namespaced, ..Kind::question("", "v1", "Binding", "bindings", Question::Binding) }
}
