//! Controller configurations, one value per type.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The configurations of all controllers of a process. Clones share them.
#[derive(Clone, Default)]
pub struct Configs(Arc<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Configs {
    /// Adds a configuration and replaces one of the same type.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, config: T) -> Self {
        Arc::make_mut(&mut self.0).insert(TypeId::of::<T>(), Arc::new(config));
        self
    }

    /// Returns the configuration of a type.
    pub fn of<T: Any>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

impl fmt::Debug for Configs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Configs({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_found_by_type_and_the_last_one_is_used() {
        let configs = Configs::default().with(7u8).with("text").with(8u8);
        assert_eq!((configs.of::<u8>(), configs.of::<&str>(), configs.of::<u16>()), (Some(&8), Some(&"text"), None));
    }
}
