//! The names of service accounts as users.

use machinery::Str;

use crate::User;

/// The group of all service accounts.
pub const GROUP: &str = "system:serviceaccounts";
const PREFIX: &str = "system:serviceaccount:";

/// The user that a service account is.
pub fn user(namespace: &str, name: &str, uid: &str) -> User {
    let groups = [Str::from(GROUP), format!("{GROUP}:{namespace}").into()];
    User { uid: uid.into(), ..User::authenticated(format!("{PREFIX}{namespace}:{name}"), groups) }
}

/// The namespace and name of the service account that a user name stands for.
pub fn parse(user_name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user_name.strip_prefix(PREFIX)?.split_once(':')?;
    let sound = !namespace.is_empty() && !name.is_empty() && !name.contains(':');
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
