//! NamespaceAutoProvision: a namespace in which something is created is there, because it is made first.

use machinery::{Value, value};

use super::{Attributes, Operation, View};

/// The name of the plug-in.
pub const NAME: &str = "NamespaceAutoProvision";

/// The namespace that must be made before a write, if it is not there.
pub fn missing(attributes: &Attributes<'_>, view: &dyn View) -> Option<Value> {
    let Attributes { operation, namespace, dry_run, .. } = *attributes;
    let is_question = attributes.kind.kind.ends_with("Review");
    if operation != Operation::Create || dry_run || namespace.is_empty() || is_question {
        return None;
    }
    let known = view.object("", "namespaces", "", namespace).is_some();
    (!known).then(|| value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{Cluster, attributes};

    #[test]
    fn what_is_created_in_no_namespace_needs_none() {
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
