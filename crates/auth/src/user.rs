//! Users: authenticated identities, and reserved user and group names.

use std::collections::BTreeMap;

use apimachinery::{Object, Str, Value};

/// The group with unrestricted access.
pub const MASTERS: &str = "system:masters";
/// The group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of all unauthenticated requests.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user name of unauthenticated requests.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of kubelets.
pub const NODES: &str = "system:nodes";
/// Prefix of a kubelet's user name. The node name follows.
pub const NODE_PREFIX: &str = "system:node:";
/// The extra field with the credential's ID: a certificate hash or a token ID.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: Str,
    /// An identifier that survives a rename; often empty.
    pub uid: Str,
    pub groups: Vec<Str>,
    /// Additional information from the authenticator.
    pub extra: BTreeMap<Str, Vec<Str>>,
}

impl User {
    /// Returns a user with these groups and `system:authenticated`.
    pub fn authenticated(name: impl Into<Str>, groups: impl IntoIterator<Item = Str>) -> Self {
        let mut user = Self { name: name.into(), groups: groups.into_iter().collect(), ..Self::default() };
        user.join(AUTHENTICATED);
        user
    }

    /// Returns the user of an unauthenticated request.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|have| have == group)
    }

    /// Adds a group if it is missing.
    pub fn join(&mut self, group: &str) {
        if !self.is_in(group) {
            self.groups.push(group.into());
        }
    }

    /// Returns the user with an additional extra value.
    #[must_use]
    pub fn with_extra(mut self, key: &str, value: impl Into<Str>) -> Self {
        self.extra.entry(key.into()).or_default().push(value.into());
        self
    }

    /// Returns the `UserInfo` for reviews and audit events, without empty fields.
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

    /// Parses a `UserInfo`. Fields that are absent or of another type are empty.
    pub fn from_user_info(info: &Value) -> Self {
        Self { name: text_of(info, "username"), ..Self::from_parts(info) }
    }

    /// Parses the fields shared by `UserInfo` and the spec of a SubjectAccessReview: all except the name.
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

    /// Returns the node name if the user is a kubelet.
    pub fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE_PREFIX).filter(|node| !node.is_empty() && self.is_in(NODES))
    }
}

fn text_of(object: &Value, key: &str) -> Str {
    object.text_at(&[key]).into()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn user_round_trips_through_user_info() {
        let user = User { uid: "u".into(), ..User::authenticated("a", ["g".into()]) }
            .with_extra("k", "1")
            .with_extra("k", "2");
        let user_info =
            value!({"username": "a", "uid": "u", "groups": ["g", AUTHENTICATED], "extra": {"k": ["1", "2"]}});
        assert_eq!(user.to_user_info(), user_info);
        assert_eq!(User::from_user_info(&user_info), user);
        assert_eq!(User::default().to_user_info(), value!({}));
        assert_eq!(User::from_user_info(&value!({"groups": 1, "extra": {"k": null}, "uid": []})).groups, [""; 0]);
    }

    #[test]
    fn kubelet_requires_both_user_name_and_group() {
        let node = |name: &str, groups: &[&str]| {
            User::authenticated(name, groups.iter().map(|group| Str::from(*group))).node().map(str::to_owned)
        };
        assert_eq!(node("system:node:a", &[NODES]).as_deref(), Some("a"));
        assert_eq!(node("system:node:a", &[]), None);
        assert_eq!(node("system:node:", &[NODES]), None);
        assert_eq!(node("a", &[NODES]), None);
    }

    #[test]
    fn group_is_added_once() {
        let user = User::authenticated("a", [AUTHENTICATED.into()]);
        assert_eq!(user.groups, [AUTHENTICATED]);
    }
}
