//! Service accounts: user names, groups, and tokens with their bound objects.
//!
//! A token is checked in two steps, because the second needs objects of the cluster. [`token::Checker::check`] returns
//! the claimed identity and the objects that must exist. [`bound::validate`] compares them with the objects found.

pub mod bound;
pub mod legacy;
pub mod openid;
pub mod request;
pub mod token;

use apimachinery::{Str, names};

use crate::User;

/// The extra field with the name of the pod that a token is bound to.
pub const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
/// The extra field with the UID of that pod.
pub const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// The extra field with the node of the bound pod, or with the bound node itself.
pub const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// The extra field with the UID of that node.
pub const NODE_UID: &str = "authentication.kubernetes.io/node-uid";

/// The group of all service accounts.
pub const GROUP: &str = "system:serviceaccounts";
const PREFIX: &str = "system:serviceaccount:";

/// Returns the user of a service account.
pub fn user(namespace: &str, name: &str, uid: &str) -> User {
    User { uid: uid.into(), ..User::authenticated(user_name(namespace, name), groups(namespace)) }
}

/// Returns the user name of a service account.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}:{name}")
}

/// Returns the groups of all service accounts of a namespace.
pub fn groups(namespace: &str) -> [Str; 2] {
    [GROUP.into(), format!("{GROUP}:{namespace}").into()]
}

/// Parses namespace and name of a service account from a user name.
pub fn parse(user_name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user_name.strip_prefix(PREFIX)?.split_once(':')?;
    let sound = names::dns1123_label(namespace).is_empty() && names::dns1123_subdomain(name).is_empty();
    sound.then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_account_is_parsed_from_its_user_name() {
        assert_eq!(parse(&user("kube-system", "a", "").name), Some(("kube-system", "a")));
        for other in [
            "a",
            "system:serviceaccount:",
            "system:serviceaccount:a",
            "system:serviceaccount::b",
            "system:serviceaccount:a:b:c",
            "system:serviceaccount:a.b:c",
            "system:serviceaccount:a:B",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn service_account_has_the_common_and_namespace_groups() {
        let groups = user("ns", "a", "u").groups;
        assert_eq!(groups, [GROUP, "system:serviceaccounts:ns", "system:authenticated"]);
    }
}
