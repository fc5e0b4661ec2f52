//! ControllerRevision: a state that a workload can go back to.

use crate::kind::Kind;

/// The row of ControllerRevision.
pub fn kind() -> Kind {
    Kind::stored("apps", "v1", "ControllerRevision", "controllerrevisions")
}
