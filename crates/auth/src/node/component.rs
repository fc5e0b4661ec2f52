//! Identities of node components: a group for the read permissions of the component, and a user for each node.

use crate::User;

/// The DNS server, which publishes its own endpoints.
pub const DNS: &str = "knarr:dns";
/// The pod network and the announcement of load balancer addresses.
pub const NETWORK: &str = "knarr:network";
/// The provisioner of volumes that are directories of the node.
pub const LOCAL_PATH: &str = "knarr:local-path";

/// The groups of all components.
pub const ALL: [&str; 3] = [DNS, NETWORK, LOCAL_PATH];

/// Returns the user of a component on a node: `knarr:dns:node-1`.
pub fn user_name(component: &str, node: &str) -> String {
    format!("{component}:{node}")
}

/// The component and node of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component<'a> {
    /// The component's group.
    pub component: &'static str,
    /// The node. Empty if the user name has none; such a user has no write permissions.
    pub node: &'a str,
}

/// Returns the components of a user. A certificate normally has one group, but an administrator can sign others.
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
    fn component_has_a_group_and_a_user_per_node() {
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
