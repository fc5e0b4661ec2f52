//! ComponentStatus: whether a part of the control plane is well.

use crate::kind::{Kind, Question, Verb, names};

/// The row of ComponentStatus.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["cs"]),
        verbs: &[Verb::Get, Verb::List],
        ..Kind::question("", "v1", "ComponentStatus", "componentstatuses", Question::ComponentStatus)
    }
}
