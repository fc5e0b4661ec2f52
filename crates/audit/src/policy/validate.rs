//! Audit policy validation, with upstream's messages.

use apimachinery::field::{BadValue, Error, Errors};
use apimachinery::{Path, Value, names};

use super::{Level, Stage};

/// Returns all validation errors of a policy.
pub(super) fn policy(object: &Value) -> Errors {
    let mut findings = Vec::new();
    stages(object, &Path::of("omitStages"), &mut findings);
    let rules = Path::of("rules");
    for (at, value) in object.list_at(&["rules"]).iter().enumerate() {
        rule(value, &rules.index(at), &mut findings);
    }
    findings
}

fn rule(rule: &Value, path: &Path<'_>, findings: &mut Errors) {
    level(rule.text_at(&["level"]), &path.field("level"), findings);
    paths(rule, &path.field("nonResourceURLs"), findings);
    resources(rule, &path.field("resources"), findings);
    stages(rule, &path.field("omitStages"), findings);
    let has = |field: &str| !rule.list_at(&[field]).is_empty();
    if has("nonResourceURLs") && (has("resources") || has("namespaces")) {
        let bad_value = BadValue::from(&rule["nonResourceURLs"]);
        let detail = "rules cannot apply to both regular resources and non-resource URLs";
        findings.push(Error::invalid(&path.field("nonResourceURLs"), bad_value, detail));
    }
}

fn level(level: &str, path: &Path<'_>, findings: &mut Errors) {
    if level.is_empty() {
        findings.push(Error::required(path, ""));
    } else if Level::from_name(level).is_none() {
        findings.push(Error::not_supported(path, level, &Level::ALL.map(Level::name)));
    }
}

fn paths(rule: &Value, path: &Path<'_>, findings: &mut Errors) {
    for (at, url) in rule.list_at(&["nonResourceURLs"]).iter().enumerate() {
        let url = url.as_str().unwrap_or_default();
        if url == "*" {
            continue;
        }
        if !url.starts_with('/') {
            let detail = "non-resource URL rules must begin with a '/' character";
            findings.push(Error::invalid(&path.index(at), url, detail));
        }
        if url.find('*').is_some_and(|star| star + 1 < url.len()) {
            let detail = "non-resource URL wildcards '*' must be the final character of the rule";
            findings.push(Error::invalid(&path.index(at), url, detail));
        }
    }
}

fn resources(rule: &Value, path: &Path<'_>, findings: &mut Errors) {
    for list in rule.list_at(&["resources"]) {
        let group = list.text_at(&["group"]);
        let problems = if group.is_empty() { Vec::new() } else { names::dns1123_subdomain(group) };
        if !problems.is_empty() {
            findings.push(Error::invalid(&path.field("group"), group, problems.join(",")));
        }
        if !list.list_at(&["resourceNames"]).is_empty() && list.list_at(&["resources"]).is_empty() {
            let bad_value = BadValue::from(&list["resourceNames"]);
            let detail = "using resourceNames requires at least one resource";
            findings.push(Error::invalid(&path.field("resourceNames"), bad_value, detail));
        }
    }
}

fn stages(value: &Value, path: &Path<'_>, findings: &mut Errors) {
    for (at, stage) in value.list_at(&["omitStages"]).iter().enumerate() {
        let stage = stage.as_str().unwrap_or_default();
        if Stage::from_name(stage).is_none() {
            let allowed = Stage::ALL.map(Stage::name).join(",");
            findings.push(Error::invalid(&path.index(at), stage, format!("allowed stages are {allowed}")));
        }
    }
}
