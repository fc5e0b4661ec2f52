//! NamespaceAutoProvision: creates the namespace of a new object if it does not exist.

use api::resources::NAMESPACES;
use apimachinery::{Value, value};

use super::{Attributes, Operation, View};

pub(crate) const NAME: &str = "NamespaceAutoProvision";

/// Returns the namespace to create before the write, or `None` if it exists.
pub(crate) fn missing(attributes: &Attributes<'_>, view: &dyn View) -> Option<Value> {
    let Attributes { operation, namespace, dry_run, .. } = *attributes;
    let is_question = attributes.kind.kind.ends_with("Review");
    if operation != Operation::Create || dry_run || namespace.is_empty() || is_question {
        return None;
    }
    let known = view.object(NAMESPACES, "", namespace).is_some();
    (!known).then(|| value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Cluster, attributes};

    #[test]
    fn only_namespaced_creates_provision_a_namespace() {
        let (kind, user) = (api::core::config_map::kind(), auth::User::default());
        let made = |namespace: &'static str, change: fn(&mut Attributes<'_>)| {
            let cluster = Cluster::default().with("", "namespaces", r#"{"metadata": {"name": "here"}}"#);
            let mut attributes = attributes(&kind, &user, Operation::Create);
            attributes.namespace = namespace;
            change(&mut attributes);
            missing(&attributes, &cluster).map(|namespace| namespace["metadata"]["name"].clone())
        };
        assert_eq!(made("new", |_| {}), Some(value!("new")));
        assert_eq!(made("here", |_| {}), None);
        assert_eq!(made("", |_| {}), None);
        assert_eq!(made("new", |attributes| attributes.dry_run = true), None);
        assert_eq!(made("new", |attributes| attributes.operation = Operation::Update), None);
    }
}
