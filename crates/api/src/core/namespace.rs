//! Namespace: where names are unique.

use machinery::meta::{Scope, name_is_dns_label};

use crate::kind::{Kind, Subresource, Verb, names};

/// The row of Namespace.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["ns"]),
        scope: Scope::Cluster,
        verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch],
        subresources: vec![
            Subresource { verbs: &[Verb::Update], ..Subresource::part("finalize") },
            Subresource::status(),
        ],
        returns_deleted: true,
        name_rule: name_is_dns_label,
        ..Kind::stored("", "v1", "Namespace", "namespaces")
    }
}
