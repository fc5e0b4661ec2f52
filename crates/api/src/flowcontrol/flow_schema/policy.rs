//! FlowSchema rules: match requests by subject and by resource or path.

use apimachinery::field::Error;
use apimachinery::{At, Errors, names};

use crate::field_rules::looks;

const SUBJECTS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub(super) fn validate(rule: &At<'_>, errors: &mut Errors) {
    let subjects = rule.get("subjects");
    if subjects.is_empty() {
        errors.push(subjects.required("subjects must contain at least one value"));
    }
    for subject in subjects.items() {
        validate_subject(&subject, errors);
    }
    let (resources, others) = (rule.get("resourceRules"), rule.get("nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        errors.push(rule.required("at least one of resourceRules and nonResourceRules has to be non-empty"));
    }
    for resource in resources.items() {
        validate_resources(&resource, errors);
    }
    for other in others.items() {
        validate_verbs(&other.get("verbs"), errors);
        validate_urls(&other.get("nonResourceURLs"), errors);
    }
}

fn validate_subject(subject: &At<'_>, errors: &mut Errors) {
    let kind = subject.get("kind");
    let Some((_, field)) = SUBJECTS.iter().find(|(name, _)| *name == kind.str()) else {
        errors.push(Error::not_supported(kind.path(), kind.str(), &["Group", "ServiceAccount", "User"]));
        return;
    };
    let who = subject.get(field);
    if who.is_absent() {
        errors.push(who.required(format!("{field} is required when subject kind is '{}'", kind.str())));
    } else if kind.str() == "ServiceAccount" {
        validate_service_account(&who, errors);
    } else if who.get("name").is_empty() {
        errors.push(who.get("name").required(""));
    }
    for (other, name) in SUBJECTS.iter().filter(|(_, name)| name != field) {
        if subject.get(name).is_present() {
            errors.push(subject.get(name).forbidden(format!("{name} is forbidden when subject kind is not '{other}'")));
        }
    }
}

fn validate_service_account(account: &At<'_>, errors: &mut Errors) {
    let (name, namespace) = (account.get("name"), account.get("namespace"));
    match name.str() {
        "" => errors.push(name.required("")),
        "*" => {}
        _ => looks(&name, names::dns1123_subdomain, errors),
    }
    if namespace.is_empty() {
        errors.push(namespace.required("must specify namespace for service account"));
    } else {
        looks(&namespace, names::dns1123_label, errors);
    }
}

fn validate_resources(rule: &At<'_>, errors: &mut Errors) {
    validate_verbs(&rule.get("verbs"), errors);
    for (field, what, one) in [("apiGroups", "api groups", "api group"), ("resources", "resources", "resource")] {
        let list = rule.get(field);
        if list.is_empty() {
            errors.push(list.required(format!("resource rules must supply at least one {one}")));
        }
        validate_wildcard(&list, what, errors);
    }
    let namespaces = rule.get("namespaces");
    if namespaces.is_empty() && !rule.get("clusterScope").bool() {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.push(namespaces.required(detail));
    } else if !validate_wildcard(&namespaces, "namespaces", errors) {
        for namespace in namespaces.items() {
            looks(&namespace, names::dns1123_label, errors);
        }
    }
}

fn validate_verbs(verbs: &At<'_>, errors: &mut Errors) {
    if verbs.is_empty() {
        errors.push(verbs.required("verbs must contain at least one value"));
    } else if !validate_wildcard(verbs, "verbs", errors) && !verbs.items().all(|verb| VERBS.contains(&verb.str())) {
        errors.push(verbs.not_supported(VERBS));
    }
}

fn validate_urls(urls: &At<'_>, errors: &mut Errors) {
    if urls.is_empty() {
        errors.push(urls.required("nonResourceURLs must contain at least one value"));
    } else if !validate_wildcard(urls, "non-resource URLs", errors) {
        for url in urls.items() {
            if let Some(wrong) = url_fault(url.str()) {
                errors.push(Error::invalid(url.path(), url.str(), wrong));
            }
        }
    }
}

fn url_fault(path: &str) -> Option<&'static str> {
    let stars = path.matches('*').count();
    match path {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || (stars == 1 && !path.ends_with("/*")) => Some("wildcard can only do suffix matching"),
        _ => None,
    }
}

/// Returns whether the list has a wildcard, which must be the only item.
fn validate_wildcard(list: &At<'_>, what: &str, errors: &mut Errors) -> bool {
    let wild = list.items().any(|item| item.str() == "*");
    if wild && list.len() > 1 {
        errors.push(list.invalid(format!("if '*' is present, must not specify other {what}")));
    }
    wild
}
