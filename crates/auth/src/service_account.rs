//! Service accounts as users: their names, their tokens, and what a token is bound to.
//!
//! A token is checked in two steps, since the second needs a look at the cluster: [`token::Checker::check`] says who
//! the bearer claims to be and which objects must still exist; [`bound::judge`] compares that with what was found.

pub mod bound;
pub mod legacy;
pub mod openid;
pub mod request;
pub mod token;

use machinery::{Str, names};

use crate::User;

/// The extra that names the pod a token is bound to.
pub const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
/// The extra with the uid of the pod a token is bound to.
pub const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// The extra that names the node of the pod that a token is bound to, or the node it is bound to itself.
pub const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// The extra with the uid of that node.
pub const NODE_UID: &str = "authentication.kubernetes.io/node-uid";

/// The group of all service accounts.
pub const GROUP: &str = "system:serviceaccounts";
const PREFIX: &str = "system:serviceaccount:";

/// The user that a service account is.
pub fn user(namespace: &str, name: &str, uid: &str) -> User {
    User { uid: uid.into(), ..User::authenticated(user_name(namespace, name), groups(namespace)) }
}

/// The name of the user that a service account is.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}:{name}")
}

/// The groups that every service account of a namespace is in.
pub fn groups(namespace: &str) -> [Str; 2] {
    [GROUP.into(), format!("{GROUP}:{namespace}").into()]
}

/// The namespace and name of the service account that a user name stands for.
pub fn parse(user_name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user_name.strip_prefix(PREFIX)?.split_once(':')?;
    let sound = names::dns1123_label(namespace).is_empty() && names::dns1123_subdomain(name).is_empty();
    sound.then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_is_read_back_from_its_user_name() {
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
    fn a_service_account_is_in_the_groups_of_all_and_of_its_namespace() {
        let groups = user("ns", "a", "u").groups;
        assert_eq!(groups, [GROUP, "system:serviceaccounts:ns", "system:authenticated"]);
    }
}
