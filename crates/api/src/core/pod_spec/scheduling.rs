//! Tolerations, topology spread constraints, scheduling gates and resource claims.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::field::{BadValue, Error};
use apimachinery::{At, Errors, Value, names};

use super::Owner;
use super::affinity::{label_keys, label_selector};
use super::report::{invalid_text, positive, required};
use crate::field_rules::{looks, one_of};
use crate::go_form::pods;

pub(crate) fn tolerations(tolerations: &At<'_>, errors: &mut Errors) {
    for toleration in tolerations.items() {
        let (key, operator, value) = (toleration.get("key"), toleration.get("operator"), toleration.get("value"));
        let effect = toleration.get("effect");
        if !key.is_empty() {
            looks(&key, names::qualified_name, errors);
        }
        if key.is_empty() && operator.str() != "Exists" {
            let detail = r#"operator must be Exists when `key` is empty, which means "match all values and all keys""#;
            errors.push(invalid_text(&operator, detail));
        }
        if toleration.get("tolerationSeconds").is_present() && effect.str() != "NoExecute" {
            errors.push(invalid_text(&effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"));
        }
        match operator.str() {
            "Equal" | "" => {
                let wrong = names::label_value(value.str());
                if !wrong.is_empty() {
                    errors.push(Error::invalid(operator.path(), value.str(), wrong.join(";")));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.push(Error::invalid(operator.path(), value.str(), detail));
                }
            }
            // Feature gate for taint comparison operators: disabled.
            "Lt" | "Gt" => errors.push(operator.not_supported(&["Equal", "Exists", "Lt", "Gt"])),
            _ => errors.push(operator.not_supported(&["Equal", "Exists"])),
        }
        if !effect.is_empty() {
            one_of(&effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"], errors);
        }
    }
}

/// Validates topology spread constraints.
pub(crate) fn spread(constraints: &At<'_>, errors: &mut Errors) {
    let text = |constraint: &Value, field: &str| constraint.text_at(&[field]).to_owned();
    let pair = |it: &Value| (text(it, "topologyKey"), text(it, "whenUnsatisfiable"));
    let last: BTreeMap<_, _> = constraints.list().iter().enumerate().map(|(index, it)| (pair(it), index)).collect();
    for (index, constraint) in constraints.items().enumerate() {
        let (key, action) = (constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"));
        positive(&constraint.get("maxSkew"), errors);
        if key.is_empty() {
            errors.push(key.required("can not be empty"));
        }
        one_of(&action, &["DoNotSchedule", "ScheduleAnyway"], errors);
        if last.get(&pair(constraint.value())).is_some_and(|last| *last > index) {
            let path = constraint.path().field("{topologyKey, whenUnsatisfiable}");
            errors.push(Error::duplicate(&path, format!("{{{}, {}}}", key.str(), action.str())));
        }
        let domains = constraint.get("minDomains");
        if domains.is_present() {
            positive(&domains, errors);
            if action.str() != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", action.str());
                errors.push(domains.invalid(detail));
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let policy = constraint.get(policy);
            if policy.is_present() {
                one_of(&policy, &["Honor", "Ignore"], errors);
            }
        }
        label_keys(&constraint, errors);
        let selector = constraint.get("labelSelector");
        label_selector(selector.value(), selector.path(), errors);
    }
}

/// Validates scheduling gates.
pub(crate) fn gates(gates: &At<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for gate in gates.items() {
        let name = gate.get("name").str().to_owned();
        errors.extend(
            names::qualified_name(&name).into_iter().map(|detail| Error::invalid(gate.path(), name.as_str(), detail)),
        );
        if !seen.insert(name.clone()) {
            errors.push(Error::duplicate(gate.path(), name));
        }
    }
}

/// Validates the resource claims of a pod.
pub(crate) fn claims(claims: &At<'_>, owner: Owner<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for claim in claims.items() {
        if owner.is_mirror() {
            let error = Error::forbidden(&apimachinery::Path::ROOT, "static pods do not support resource claims");
            errors.push(Error { field: String::new(), ..error });
            continue;
        }
        let name = claim.get("name");
        if required(&name, errors) {
            if seen.insert(name.str().to_owned()) {
                looks(&name, names::dns1123_label, errors);
            } else {
                errors.push(name.duplicate());
            }
        }
        let (direct, template) = (claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName"));
        let blame = |detail: &str| {
            let bad_value = BadValue::Text(pods::print("PodResourceClaim", claim.value()));
            Error::invalid(claim.path(), bad_value, detail)
        };
        match (direct.is_present(), template.is_present()) {
            (true, true) => {
                errors
                    .push(blame("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"));
            }
            (false, false) => {
                errors.push(blame("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"));
            }
            _ => {}
        }
        for reference in [&direct, &template] {
            if reference.is_present() {
                looks(reference, names::dns1123_subdomain, errors);
            }
        }
    }
}
