//! An authenticated identity, and the names Kubernetes reserves.

use std::collections::BTreeMap;

use machinery::{Object, Str, Value};

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
/// The extra that says which credential was used: a hash of a certificate, or the name of a token.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

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

    /// The same user with one value more among its extras.
    #[must_use]
    pub fn with_extra(mut self, key: &str, value: impl Into<Str>) -> Self {
        self.extra.entry(key.into()).or_default().push(value.into());
        self
    }

    /// The user as reviews and audit events show it: what is empty is left out.
    pub fn to_user_info(&self) -> Value {
        let mut info = Object::new();
        let list = |items: &[Str]| Value::Array(items.iter().cloned().map(Value::String).collect());
        for (key, text) in [("username", &self.name), ("uid", &self.uid)] {
            if !text.is_empty() {
                info.insert(key, text.clone());
            }
        }
        if !self.groups.is_empty() {
            info.insert("groups", list(&self.groups));
        }
        if !self.extra.is_empty() {
            let extra: Object = self.extra.iter().map(|(key, values)| (key.clone(), list(values))).collect();
            info.insert("extra", extra);
        }
        Value::Object(info)
    }

    /// Reads a `UserInfo`. What is absent or of another type is empty.
    pub fn from_user_info(info: &Value) -> Self {
        Self { name: text_of(info, "username"), ..Self::from_parts(info) }
    }

    /// Reads what a `UserInfo` and the specification of a SubjectAccessReview have in common: all but the name.
    pub(crate) fn from_parts(info: &Value) -> Self {
        let list = |items: &Value| {
            items.as_array().unwrap_or_default().iter().filter_map(Value::as_str).map(Str::from).collect()
        };
        let extra = info.get("extra").and_then(Value::as_object).into_iter().flat_map(Object::iter);
        Self {
            name: Str::default(),
            uid: text_of(info, "uid"),
            groups: info.get("groups").map(list).unwrap_or_default(),
            extra: extra.map(|(key, values)| (key.into(), list(values))).collect(),
        }
    }

    /// The node whose kubelet this is.
    pub fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE_PREFIX).filter(|node| !node.is_empty() && self.is_in(NODES))
    }
}

fn text_of(object: &Value, key: &str) -> Str {
    object.str_at(&[key]).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use machinery::value;

    use super::*;

    #[test]
    fn a_user_is_read_back_from_what_is_shown_of_it() {
        let user = User { uid: "u".into(), ..User::authenticated("a", ["g".into()]) }
            .with_extra("k", "1")
            .with_extra("k", "2");
        let shown = value!({"username": "a", "uid": "u", "groups": ["g", AUTHENTICATED], "extra": {"k": ["1", "2"]}});
        assert_eq!(user.to_user_info(), shown);
        assert_eq!(User::from_user_info(&shown), user);
        assert_eq!(User::default().to_user_info(), value!({}));
        assert_eq!(User::from_user_info(&value!({"groups": 1, "extra": {"k": null}, "uid": []})).groups, [""; 0]);
    }

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
