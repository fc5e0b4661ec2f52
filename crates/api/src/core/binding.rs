//! Binding: assigns a pod to a node.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Scope;
use apimachinery::{At, Errors, Value};

use crate::kind::{Context, Kind, Rules, VirtualKind};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Namespaced,
        rules: Arc::new(Binding),
        ..Kind::question("", "v1", "Binding", "bindings", VirtualKind::Binding)
    }
}

#[derive(Debug)]
struct Binding;

impl Rules for Binding {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let target = root.get("target");
        let kind = target.get("kind");
        if !["", "Node"].contains(&kind.str()) {
            errors.push(Error::not_supported(kind.path(), kind.str(), &["Node", "<empty>"]));
        }
        if target.get("name").is_empty() {
            errors.push(target.get("name").required(""));
        }
    }
}
