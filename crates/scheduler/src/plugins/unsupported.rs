//! Plug-ins that are still to come: a pod that needs one of them waits and says why.

use crate::framework::{Cycle, Plugin, Prepared};

/// The plug-in of this name.
pub struct Unsupported(pub &'static str);

impl Plugin for Unsupported {
    fn name(&self) -> &'static str {
        self.0
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> Prepared<'a> {
        match cycle.pod.unsupported {
            Some((plugin, reason)) if plugin == self.0 => Prepared::Reject(reason.to_owned()),
            _ => Prepared::Skip,
        }
    }
}
