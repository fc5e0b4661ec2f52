//! SelfSubjectRulesReview: the permissions of a user in a namespace.

use apimachinery::status::Status;
use apimachinery::{Object, Str, Value, value};

use crate::rbac::Rule;

/// The rules of a user.
#[derive(Clone, Debug, Default)]
pub struct UserRules<'a> {
    pub rules: Vec<&'a Rule>,
    /// Errors because of which rules may be missing.
    pub errors: Vec<String>,
    /// Whether an authorizer cannot list its rules.
    pub incomplete: bool,
}

/// Returns the namespace of a review.
pub fn namespace(review: &Value) -> Result<&str, Status> {
    let namespace = review.text_at(&["spec", "namespace"]);
    if namespace.is_empty() { Err(Status::bad_request("no namespace on request")) } else { Ok(namespace) }
}

/// Returns the status of a review.
pub fn status(known: &UserRules<'_>) -> Value {
    let resources = known.rules.iter().filter(|rule| !rule.resources.is_empty()).map(|rule| {
        let parts =
            [("apiGroups", &rule.api_groups), ("resources", &rule.resources), ("resourceNames", &rule.resource_names)];
        listed(rule, &parts)
    });
    let paths = known.rules.iter().filter(|rule| !rule.non_resource_urls.is_empty());
    let paths = paths.map(|rule| listed(rule, &[("nonResourceURLs", &rule.non_resource_urls)]));
    let mut status = value!({
        "resourceRules": (Value::Array(resources.collect())),
        "nonResourceRules": (Value::Array(paths.collect())),
        "incomplete": (known.incomplete),
    });
    let error = match known.errors.as_slice() {
        [] => return status,
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    status.as_object_mut().expect("the value was created as an object").insert("evaluationError", error);
    status
}

fn listed(rule: &Rule, parts: &[(&str, &Vec<Str>)]) -> Value {
    let list = |values: &[Str]| Value::Array(values.iter().cloned().map(Value::String).collect());
    let mut out: Object = [("verbs", list(&rule.verbs))].into_iter().collect();
    for (key, values) in parts.iter().filter(|(_, values)| !values.is_empty()) {
        out.insert(*key, list(values));
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], paths: &[&str]) -> Rule {
        let list = |values: &[&str]| values.iter().map(|word| Str::from(*word)).collect();
        Rule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: Vec::new(),
            non_resource_urls: list(paths),
        }
    }

    #[test]
    fn resource_and_non_resource_rules_are_listed_separately() {
        let (pods, health) = (rule(&["get"], &[""], &["pods"], &[]), rule(&["get"], &[], &[], &["/healthz"]));
        let known = UserRules { rules: vec![&pods, &health], errors: vec!["a".into(), "b".into()], incomplete: true };
        let expect = value!({
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}],
            "incomplete": true,
            "evaluationError": "[a, b]",
        });
        assert_eq!(status(&known), expect);
        let nothing = value!({"resourceRules": [], "nonResourceRules": [], "incomplete": false});
        assert_eq!(status(&UserRules::default()), nothing);
    }

    #[test]
    fn review_requires_a_namespace() {
        assert_eq!(namespace(&value!({"spec": {"namespace": "a"}})).ok(), Some("a"));
        assert_eq!(namespace(&value!({})).unwrap_err().message, "no namespace on request");
    }
}
