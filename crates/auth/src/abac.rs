//! ABAC authorizer: a policy file with one JSON policy per line.

use apimachinery::{Str, Value, json};

use crate::{Attributes, Authorizer, Decision, Target, User};

const API_VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("line {line} of the policy file is not JSON")]
    Syntax {
        /// The line number, starting at 1.
        line: usize,
        source: json::Error,
    },
    #[error("line {line} of the policy file is not a Policy of {API_VERSION}")]
    Kind {
        /// The line number, starting at 1.
        line: usize,
    },
}

/// The policies of a file.
#[derive(Clone, Debug, Default)]
pub struct Policies(Vec<Policy>);

#[derive(Clone, Debug)]
struct Policy {
    user: Str,
    group: Str,
    readonly: bool,
    api_group: Str,
    namespace: Str,
    resource: Str,
    path: Str,
}

impl Policies {
    /// Parses a policy file. Empty lines and lines that start with `#` are ignored.
    pub fn parse(file: &str) -> Result<Self, Error> {
        let lines = file.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let policy_lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        policy_lines.map(|(line, text)| Policy::parse(line, text)).collect::<Result<_, _>>().map(Self)
    }
}

impl Authorizer for Policies {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if self.0.iter().any(|policy| policy.permits(attributes)) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion("No policy matched.".to_owned())
        }
    }
}

impl Policy {
    fn parse(line: usize, text: &str) -> Result<Self, Error> {
        let policy = json::parse(text.as_bytes()).map_err(|source| Error::Syntax { line, source })?;
        let is_policy = policy["apiVersion"].as_str() == Some(API_VERSION) && policy["kind"].as_str() == Some("Policy");
        let Some(spec) = policy.get("spec").filter(|_| is_policy) else { return Err(Error::Kind { line }) };
        let text = |key: &str| Str::from(spec[key].as_str().unwrap_or_default());
        Ok(Self {
            user: text("user"),
            group: text("group"),
            readonly: spec["readonly"] == Value::Bool(true),
            api_group: text("apiGroup"),
            namespace: text("namespace"),
            resource: text("resource"),
            path: text("nonResourcePath"),
        })
    }

    fn permits(&self, attributes: &Attributes<'_>) -> bool {
        self.is_for(attributes.user)
            && (!self.readonly || attributes.is_read_only())
            && match attributes.target {
                Target::Path(path) => match self.path.strip_suffix('*') {
                    Some(prefix) => path.starts_with(prefix),
                    None => self.path == path,
                },
                Target::Resource(resource) => {
                    is(&self.namespace, resource.namespace)
                        && is(&self.resource, resource.resource)
                        && is(&self.api_group, resource.group)
                }
            }
    }

    /// Whether the policy applies to the user. A policy without user and group applies to no user. A policy with both
    /// requires both.
    fn is_for(&self, user: &User) -> bool {
        let user_fits = self.user.is_empty() || is(&self.user, &user.name);
        let group_fits = self.group.is_empty() || self.group == "*" || user.is_in(&self.group);
        !(self.user.is_empty() && self.group.is_empty()) && user_fits && group_fits
    }
}

fn is(pattern: &str, word: &str) -> bool {
    pattern == "*" || pattern == word
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Resource;

    fn policies(specs: &[&str]) -> Policies {
        let line = |spec| format!(r#"{{"apiVersion":"{API_VERSION}","kind":"Policy","spec":{spec}}}"#);
        Policies::parse(&specs.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap()
    }

    #[test]
    fn policies_allow_matching_requests() {
        let pods = Target::Resource(Resource { resource: "pods", namespace: "a", ..Resource::default() });
        let check = |spec: &str, verb: &str, target: Target<'_>, expect: bool| {
            let user = User::authenticated("eve", ["devs".into()]);
            let decision = policies(&[spec]).authorize(&Attributes { user: &user, verb, target });
            assert_eq!(matches!(decision, Decision::Allow(_)), expect, "{spec} {verb} {target:?}");
        };
        let all = r#""apiGroup":"*","namespace":"*","resource":"*","nonResourcePath":"*""#;
        check(&format!(r#"{{"user":"eve",{all}}}"#), "delete", pods, true);
        check(&format!(r#"{{"user":"bob",{all}}}"#), "delete", pods, false);
        check(&format!(r#"{{"group":"devs",{all}}}"#), "delete", pods, true);
        check(&format!(r#"{{"user":"eve","group":"ops",{all}}}"#), "delete", pods, false);
        check(&format!(r#"{{{all}}}"#), "get", pods, false);
        check(&format!(r#"{{"user":"*","readonly":true,{all}}}"#), "get", pods, true);
        check(&format!(r#"{{"user":"*","readonly":true,{all}}}"#), "create", pods, false);
        check(r#"{"user":"*","namespace":"b","resource":"pods"}"#, "get", pods, false);
        check(r#"{"user":"*","nonResourcePath":"/healthz/*"}"#, "get", Target::Path("/healthz/etcd"), true);
        check(r#"{"user":"*","nonResourcePath":"/healthz"}"#, "get", Target::Path("/healthz/etcd"), false);
    }

    #[test]
    fn invalid_line_is_reported_with_its_number() {
        assert_eq!(Policies::parse("# x\n\nnope").unwrap_err().to_string(), "line 3 of the policy file is not JSON");
        let other = Policies::parse(r#"{"kind":"Pod"}"#).unwrap_err();
        assert!(matches!(other, Error::Kind { line: 1 }));
    }
}
