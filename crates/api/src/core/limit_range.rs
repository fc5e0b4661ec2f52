//! LimitRange: bounds and defaults for what the pods of a namespace ask for.

use crate::kind::{Kind, names};

/// The row of LimitRange.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["limits"]),
        create_on_update: true,
        ..Kind::stored("", "v1", "LimitRange", "limitranges")
    }
}
