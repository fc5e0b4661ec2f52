//! An authenticated identity, and the names Kubernetes reserves.

use std::collections::BTreeMap;

use machinery::Str;

/// The group whose members may do anything.
pub const MASTERS: &str = "system:masters";
/// The group of everyone who proved who they are.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of everyone who did not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of whoever did not prove who they are.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of kubelets.
pub const NODES: &str = "system:nodes";
/// What the name of a kubelet starts with, before the name of its node.
pub const NODE_PREFIX: &str = "system:node:";

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name that rules are written for.
    pub name: Str,
    /// A mark that outlives a change of name; often empty.
    pub uid: Str,
    /// The groups it is in.
    pub groups: Vec<Str>,
    /// What else the authenticator knows.
    pub extra: BTreeMap<Str, Vec<Str>>,
}

impl User {
    /// A user who proved their name, with these groups and the one of all such users.
    pub fn authenticated(name: impl Into<Str>, groups: impl IntoIterator<Item = Str>) -> Self {
        let mut user = Self { name: name.into(), groups: groups.into_iter().collect(), ..Self::default() };
        user.join(AUTHENTICATED);
        user
    }

    /// Whoever did not say who they are.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// Whether the user is in `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|have| have == group)
    }

    /// Adds a group, once.
    pub fn join(&mut self, group: &str) {
        if !self.is_in(group) {
            self.groups.push(group.into());
        }
    }

    /// The node whose kubelet this is.
    pub fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE_PREFIX).filter(|node| !node.is_empty() && self.is_in(NODES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_is_known_by_its_name_and_its_group_together() {
        let node = |name: &str, groups: &[&str]| {
            User::authenticated(name, groups.iter().map(|group| Str::from(*group))).node().map(str::to_owned)
        };
        assert_eq!(node("system:node:a", &[NODES]).as_deref(), Some("a"));
        assert_eq!(node("system:node:a", &[]), None);
        assert_eq!(node("system:node:", &[NODES]), None);
        assert_eq!(node("a", &[NODES]), None);
    }

    #[test]
    fn a_group_is_joined_once() {
        let user = User::authenticated("a", [AUTHENTICATED.into()]);
        assert_eq!(user.groups, [AUTHENTICATED]);
    }
}
