//! Defaulting, validation and columns shared by RoleBinding and ClusterRoleBinding.

use apimachinery::field::Error;
use apimachinery::table::Column;
use apimachinery::{At, Errors, GroupVersionKind, Value, names};

use super::{GROUP, RoleScope};
use crate::catalogue;
use crate::field_rules::{column, default_empty_to, items_mut, path_segment, wide_column};
use crate::go_form;
use crate::kind::{age_column, name_column};

/// Defaults the API group of `roleRef` and of user and group subjects.
pub(super) fn default(object: &mut Value) {
    if let Some(role) = object.as_object_mut().map(|object| object.get_or_insert_with("roleRef", Value::object)) {
        default_empty_to(role, "apiGroup", GROUP);
    }
    for subject in items_mut(object, "subjects") {
        if matches!(subject.str_at(&["kind"]), Some("User" | "Group")) {
            default_empty_to(subject, "apiGroup", GROUP);
        }
    }
}

/// Validates a binding to a role of one of the kinds in `roles`.
pub(super) fn validate(object: &Value, roles: &[&str], reach: RoleScope, errors: &mut Errors) {
    let root = At::root(object);
    let role = root.get("roleRef");
    if role.get("apiGroup").str() != GROUP {
        errors.push(Error::not_supported(role.get("apiGroup").path(), role.get("apiGroup").str(), &[GROUP]));
    }
    if !roles.contains(&role.get("kind").str()) {
        errors.push(Error::not_supported(role.get("kind").path(), role.get("kind").str(), roles));
    }
    match role.get("name").str() {
        "" => errors.push(role.get("name").required("")),
        name => path_segment(name, role.get("name").path(), errors),
    }
    let subjects = root.get("subjects");
    for subject in subjects.items() {
        validate_subject(&subject, reach, errors);
    }
}

/// Rejects a change of `roleRef`.
pub(super) fn validate_same_role(object: &Value, old: &Value, kind: &'static str, errors: &mut Errors) {
    let (root, before) = (At::root(object), At::root(old));
    let role = root.get("roleRef");
    if role.value() != before.get("roleRef").value() {
        let schema = catalogue::schema(&GroupVersionKind::of(GROUP, "v1", kind));
        let bad_value =
            schema.map_or_else(|| role.value().into(), |schema| go_form::bad_value_at(&role, schema, &["roleRef"]));
        errors.push(Error::invalid(role.path(), bad_value, "cannot change roleRef"));
    }
}

pub(super) fn columns() -> Vec<Column> {
    vec![
        name_column(),
        column("Role", "string", "Role of the binding.", |object, _| {
            let role_ref = |field: &str| object.text_at(&["roleRef", field]);
            format!("{}/{}", role_ref("kind"), role_ref("name")).into()
        }),
        age_column(),
        wide_column("Users", "string", "Users of the binding.", |object, _| subjects(object, "User")),
        wide_column("Groups", "string", "Groups of the binding.", |object, _| subjects(object, "Group")),
        wide_column("ServiceAccounts", "string", "Service accounts of the binding.", |object, _| {
            subjects(object, "ServiceAccount")
        }),
    ]
}

fn validate_subject(subject: &At<'_>, reach: RoleScope, errors: &mut Errors) {
    let (name, group) = (subject.get("name"), subject.get("apiGroup"));
    if name.is_empty() {
        errors.push(name.required(""));
    }
    let belongs_to = |api_group: &str, errors: &mut Errors| {
        if group.str() != api_group {
            errors.push(Error::not_supported(group.path(), group.str(), &[api_group]));
        }
    };
    match subject.get("kind").str() {
        "ServiceAccount" => {
            if !name.is_empty() {
                let wrong = names::dns1123_subdomain(name.str());
                errors.extend(wrong.into_iter().map(|wrong| Error::invalid(name.path(), name.str(), wrong)));
            }
            belongs_to("", errors);
            if reach == RoleScope::Cluster && subject.get("namespace").is_empty() {
                errors.push(subject.get("namespace").required(""));
            }
        }
        "User" | "Group" => belongs_to(GROUP, errors),
        kind => {
            let known = ["ServiceAccount", "User", "Group"];
            errors.push(Error::not_supported(subject.get("kind").path(), kind, &known));
        }
    }
}

fn subjects(object: &Value, kind: &str) -> Value {
    let subjects = object.list_at(&["subjects"]);
    let subjects = subjects.iter().filter(|subject| subject.str_at(&["kind"]) == Some(kind));
    let names: Vec<_> = subjects
        .map(|subject| {
            let name = subject.text_at(&["name"]);
            match kind {
                "ServiceAccount" => format!("{}/{name}", subject.text_at(&["namespace"])),
                _ => name.to_owned(),
            }
        })
        .collect();
    names.join(", ").into()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::validation;

    #[test]
    fn role_ref_is_immutable_and_subjects_are_validated() {
        let check = |object: Value, expect: &[&str]| {
            assert_eq!(validation::create(&crate::rbac::cluster_role_binding::kind(), &object), expect);
        };
        let role = value!({"kind": "ClusterRole", "name": "view"});
        check(value!({"roleRef": (role.clone()), "subjects": [{"kind": "User", "name": "u"}]}), &[]);
        check(
            value!({"roleRef": (role.clone()), "subjects": [{"kind": "ServiceAccount", "name": "sa"}, {"kind": "X"}]}),
            &[
                "subjects[0].namespace: Required value",
                "subjects[1].name: Required value",
                "subjects[1].kind: Unsupported value: \"X\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
            ],
        );
        let old = value!({"roleRef": role});
        let new = value!({"roleRef": {"kind": "ClusterRole", "name": "edit"}});
        let (_, errors) = validation::update(&crate::rbac::cluster_role_binding::kind(), "", &new, &old);
        let bad_value = r#"{"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"edit"}"#;
        assert_eq!(errors, [format!("roleRef: Invalid value: {bad_value}: cannot change roleRef")]);
    }
}
