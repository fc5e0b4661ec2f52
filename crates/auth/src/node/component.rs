//! Identities of what runs on every node beside its kubelet: a group for what the component may read, a user for each node.

use crate::User;

/// Answers DNS queries, and publishes where.
pub const DNS: &str = "knarr:dns";
/// Connects pods, and announces addresses of load balancers.
pub const NETWORK: &str = "knarr:network";
/// Provisions volumes that are directories of the node.
pub const LOCAL_PATH: &str = "knarr:local-path";

/// All of them, by their groups.
pub const ALL: [&str; 3] = [DNS, NETWORK, LOCAL_PATH];

/// The user that a component is on a node: `knarr:dns:node-1`.
pub fn user_name(component: &str, node: &str) -> String {
    format!("{component}:{node}")
}

/// A component of a node, as a user shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component<'a> {
    /// Its group.
    pub component: &'static str,
    /// The node; empty if the user's name does not say it, and such a user may write nothing.
    pub node: &'a str,
}

/// The components that a user is. A certificate names one group, but nothing hinders an administrator to sign another.
pub fn of(user: &User) -> impl Iterator<Item = Component<'_>> {
    ALL.into_iter().filter(|component| user.is_in(component)).map(|component| {
        let node = user.name.strip_prefix(component).and_then(|rest| rest.strip_prefix(':'));
        Component { component, node: node.unwrap_or_default() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_known_by_its_group_and_its_node_by_its_name() {
        let check = |name: &str, group: &'static str, expect: Option<(&str, &str)>| {
            let user = User::authenticated(name, [group.into()]);
            let found = of(&user).next().map(|found| (found.component, found.node));
            assert_eq!(found, expect, "{name} {group}");
        };
        check(&user_name(DNS, "n1"), DNS, Some((DNS, "n1")));
        check("knarr:dns", DNS, Some((DNS, "")));
        check("knarr:network:n1", DNS, Some((DNS, "")));
        check("knarr:dns:n1", "devs", None);
    }
}
