//! Defaulting and validation shared by both webhook configuration kinds.

use std::collections::BTreeSet;

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, names};

use super::expressions::{Expressions, Uses};
use super::{client_config, match_conditions, match_resources};
use crate::field_rules::{
    default_to, items_mut, label_selector, one_of_if_present, raise_generation, same, start_generation,
};
use crate::kind::{Context, Rules};

/// AdmissionReview versions that a webhook may list in `admissionReviewVersions`.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const HARMLESS: &[&str] = &["None", "NoneOnDryRun"];
const TIMEOUT_SECONDS_MAX: i64 = 30;

/// The validation rules of one webhook configuration kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Webhooks {
    Mutating,
    Validating,
}

impl Rules for Webhooks {
    fn default(&self, object: &mut Value, _version: &str) {
        for webhook in items_mut(object, "webhooks") {
            default_to(webhook, "failurePolicy", "Fail");
            default_to(webhook, "matchPolicy", "Equivalent");
            default_to(webhook, "namespaceSelector", Value::object());
            default_to(webhook, "objectSelector", Value::object());
            default_to(webhook, "timeoutSeconds", 10);
            if *self == Self::Mutating {
                default_to(webhook, "reinvocationPolicy", "Never");
            }
            match_resources::default_rules(webhook, "rules");
            let service = webhook.get_mut("clientConfig").and_then(|config| config.get_mut("service"));
            if let Some(service) = service {
                default_to(service, "port", 443);
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _context: &Context<'_>) {
        raise_generation(object, old, &["webhooks"]);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        self.validate_all(object, &Leniency::default(), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, _context: &Context<'_>, errors: &mut Errors) {
        self.validate_all(object, &Leniency::of(object, old), errors);
    }
}

/// Checks that are skipped on update because the old object already violated them.
#[derive(Default)]
struct Leniency<'a> {
    side_effects: bool,
    review_versions: bool,
    names: bool,
    selectors: bool,
    conditions: bool,
    stored: BTreeSet<&'a str>,
}

impl<'a> Leniency<'a> {
    fn of(object: &Value, old: &'a Value) -> Self {
        let webhooks = |of: &'a Value| of.list_at(&["webhooks"]);
        let (new_webhooks, olds) = (object.list_at(&["webhooks"]), webhooks(old));
        let mut names = BTreeSet::new();
        let conditions = |webhook: &Value| webhook.get("matchConditions").cloned().unwrap_or(Value::Null);
        let mut stored = BTreeSet::new();
        for webhook in olds {
            stored.extend(super::expressions::of_items(webhook.get("matchConditions"), "expression"));
        }
        Self {
            side_effects: !olds.iter().all(|hook| HARMLESS.contains(&hook.text_at(&["sideEffects"]))),
            review_versions: !olds.iter().all(|hook| {
                let versions = hook.list_at(&["admissionReviewVersions"]);
                versions.is_empty()
                    || versions.iter().any(|v| REVIEW_VERSIONS.contains(&v.as_str().unwrap_or_default()))
            }),
            names: !olds.iter().all(|hook| names.insert(hook.text_at(&["name"]))),
            selectors: olds.iter().any(|hook| {
                let at = At::root(hook);
                let mut wrong = Errors::new();
                label_selector(&at.get("namespaceSelector"), &mut wrong);
                label_selector(&at.get("objectSelector"), &mut wrong);
                !wrong.is_empty()
            }),
            conditions: new_webhooks.len() == olds.len()
                && new_webhooks.iter().zip(olds).all(|(new, old)| same(&conditions(new), &conditions(old))),
            stored,
        }
    }
}

impl Webhooks {
    fn validate_all(self, object: &Value, lenient: &Leniency<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let webhooks = root.get("webhooks");
        let uses = Uses { params: false, authorizer: true, mutation: false };
        let expressions = Expressions::new(uses, lenient.stored.clone());
        let mut seen = BTreeSet::new();
        for webhook in webhooks.items() {
            self.validate_one(&webhook, lenient, errors);
            client_config::validate(&webhook.get("clientConfig"), errors);
            if !lenient.conditions {
                match_conditions::validate(&webhook.get("matchConditions"), &expressions, errors);
            }
            validate_review_versions(&webhook.get("admissionReviewVersions"), lenient.review_versions, errors);
            let name = webhook.get("name");
            if !lenient.names && !name.is_empty() && !seen.insert(name.str().to_owned()) {
                errors.push(name.duplicate());
            }
        }
    }

    fn validate_one(self, webhook: &At<'_>, lenient: &Leniency<'_>, errors: &mut Errors) {
        validate_name(&webhook.get("name"), errors);
        let rules = webhook.get("rules");
        for rule in rules.items() {
            match_resources::validate_rule(&rule, errors);
        }
        one_of_if_present(&webhook.get("failurePolicy"), &["Fail", "Ignore"], errors);
        one_of_if_present(&webhook.get("matchPolicy"), &["Equivalent", "Exact"], errors);
        let allowed = if lenient.side_effects { &["None", "NoneOnDryRun", "Some", "Unknown"] } else { HARMLESS };
        let effects = webhook.get("sideEffects");
        if effects.is_absent() {
            errors.push(effects.required(format!("must specify one of {}", allowed.join(", "))));
        }
        one_of_if_present(&effects, allowed, errors);
        let timeout = webhook.get("timeoutSeconds");
        if timeout.is_present() && !(1..=TIMEOUT_SECONDS_MAX).contains(&timeout.int()) {
            errors.push(timeout.invalid("the timeout value must be between 1 and 30 seconds"));
        }
        if !lenient.selectors {
            label_selector(&webhook.get("namespaceSelector"), errors);
            label_selector(&webhook.get("objectSelector"), errors);
        }
        if self == Self::Mutating {
            one_of_if_present(&webhook.get("reinvocationPolicy"), &["IfNeeded", "Never"], errors);
        }
    }
}

/// A webhook name is a DNS subdomain with at least three labels.
fn validate_name(name: &At<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(name.required(""));
        return;
    }
    let wrong = names::dns1123_subdomain(name.str());
    if !wrong.is_empty() {
        errors.push(name.invalid(wrong.join(",")));
    } else if name.str().split('.').count() < 3 {
        errors.push(name.invalid("should be a domain with at least three segments separated by dots"));
    } else {
        for label in name.str().split('.') {
            let wrong = names::dns1123_label(label);
            if !wrong.is_empty() {
                errors.push(Error::invalid(name.path(), label, wrong.join(",")));
            }
        }
    }
}

fn validate_review_versions(versions: &At<'_>, lenient: bool, errors: &mut Errors) {
    if versions.is_empty() {
        errors.push(versions.required(format!("must specify one of {}", REVIEW_VERSIONS.join(", "))));
        return;
    }
    let mut seen = BTreeSet::new();
    for version in versions.items() {
        if !seen.insert(version.str()) {
            errors.push(version.invalid("duplicate version"));
            continue;
        }
        let wrong = names::dns1035_label(version.str());
        errors.extend(wrong.into_iter().map(|wrong| version.invalid(wrong)));
    }
    if !lenient && !REVIEW_VERSIONS.iter().any(|version| seen.contains(version)) {
        errors.push(versions.invalid(format!("must include at least one of {}", REVIEW_VERSIONS.join(", "))));
    }
}
