//! Validation shared by the access review kinds.

use apimachinery::field::Error;
use apimachinery::{At, Errors, GroupVersionKind, Object, Value};

use crate::catalogue;
use crate::go_form;
use crate::kind::{Context, Rules};

/// The validation rules of one access review kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Review {
    /// SubjectAccessReview.
    Subject,
    /// LocalSubjectAccessReview.
    LocalSubject,
    /// SelfSubjectAccessReview.
    SelfSubject,
}

impl Rules for Review {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        validate_spec(&spec, *self, errors);
        let metadata = root.get("metadata");
        let allowed: &[&str] = match self {
            Self::LocalSubject => &["creationTimestamp", "managedFields", "namespace", "uid"],
            Self::Subject | Self::SelfSubject => &["creationTimestamp", "managedFields", "uid"],
        };
        let fields = metadata.value().as_object().into_iter().flat_map(Object::keys);
        if fields.into_iter().any(|field| !allowed.contains(&field)) {
            let except = if *self == Self::LocalSubject { " except for namespace" } else { "" };
            errors.push(metadata.invalid(format!("must be empty{except}")));
        }
        if *self == Self::LocalSubject {
            validate_local(&spec, metadata.get("namespace").str(), errors);
        }
    }
}

fn validate_spec(spec: &At<'_>, review: Review, errors: &mut Errors) {
    let (resource, other) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    let bad_value = |at: &At<'_>, field: &'static str| {
        let gvk = GroupVersionKind::of("authorization.k8s.io", "v1", "SubjectAccessReview");
        match catalogue::schema(&gvk) {
            Some(schema) if at.is_present() => go_form::bad_value_at(at, schema, &["spec", field]),
            _ => Value::Null.into(),
        }
    };
    if resource.is_present() && other.is_present() {
        let bad_value = bad_value(&other, "nonResourceAttributes");
        errors.push(Error::invalid(
            other.path(),
            bad_value,
            "cannot be specified in combination with resourceAttributes",
        ));
    }
    if resource.is_absent() && other.is_absent() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(Error::invalid(resource.path(), Value::Null, detail));
    }
    if review != Review::SelfSubject && spec.get("user").is_empty() && spec.get("groups").is_empty() {
        let user = spec.get("user");
        errors.push(Error::invalid(user.path(), "", "at least one of user or group must be specified"));
    }
    for field in ["fieldSelector", "labelSelector"] {
        validate_selector(&resource.get(field), errors);
    }
}

fn validate_local(spec: &At<'_>, namespace: &str, errors: &mut Errors) {
    let (resource, other) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    if resource.is_present() && resource.get("namespace").str() != namespace {
        let at = resource.get("namespace");
        errors.push(Error::invalid(at.path(), at.str(), "must match metadata.namespace"));
    }
    if other.is_present() {
        errors.push(other.invalid("disallowed on this kind of request"));
    }
}

fn validate_selector(selector: &At<'_>, errors: &mut Errors) {
    if selector.is_absent() {
        return;
    }
    let (raw, requirements) = (selector.get("rawSelector"), selector.get("requirements"));
    match (raw.is_empty(), requirements.is_empty()) {
        (false, false) => errors.push(raw.invalid("may not specified at the same time as requirements")),
        (true, true) => errors.push(
            requirements
                .required(format!("when {} is specified, requirements or rawSelector is required", selector.path())),
        ),
        _ => {}
    }
    for requirement in requirements.items() {
        let (key, operator, values) = (requirement.get("key"), requirement.get("operator"), requirement.get("values"));
        if key.is_empty() {
            errors.push(key.required("must be specified"));
        }
        match operator.str() {
            "In" | "NotIn" if values.is_empty() => {
                errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(Error::invalid(operator.path(), other, "not a valid selector operator")),
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::time::Time;
    use apimachinery::value;

    use super::*;
    use crate::kind::{Requester, Version};

    fn check(review: Review, object: &Value, expect: &[&str]) {
        let version = Version::built_in("authorization.k8s.io", "v1", "SubjectAccessReview");
        let requester = Requester::default();
        let context = Context { version: &version, subresource: "", now: Time::from_unix(0, 0), requester: &requester };
        let mut errors = Errors::new();
        review.validate(object, &context, &mut errors);
        let messages: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(messages, expect);
    }

    #[test]
    fn review_requires_one_set_of_attributes_and_a_subject() {
        check(Review::SelfSubject, &value!({"spec": {"resourceAttributes": {"verb": "get"}}}), &[]);
        check(
            Review::Subject,
            &value!({"spec": {"nonResourceAttributes": {"path": "/x"}, "resourceAttributes": {}}}),
            &[
                r#"spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":""}: cannot be specified in combination with resourceAttributes"#,
                r#"spec.user: Invalid value: "": at least one of user or group must be specified"#,
            ],
        );
        check(
            Review::LocalSubject,
            &value!({"metadata": {"namespace": "a"}, "spec": {"user": "u", "resourceAttributes": {"namespace": "b"}}}),
            &[r#"spec.resourceAttributes.namespace: Invalid value: "b": must match metadata.namespace"#],
        );
    }
}
