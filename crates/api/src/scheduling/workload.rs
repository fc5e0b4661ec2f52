//! Workload: templates for PodGroups.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, names};

use super::policy;
use crate::field_rules::{immutable_with_value, looks, path_segment, required_and_looks};
use crate::go_form;
use crate::kind::{Context, Kind, Rules, age_column, name_column};

const TEMPLATES_MAX: usize = 8;

pub fn kind() -> Kind {
    let mut kind =
        Kind { rules: Arc::new(Workload), ..Kind::stored("scheduling.k8s.io", "v1alpha2", "Workload", "workloads") }
            .with_columns(&[name_column(), age_column()]);
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}

#[derive(Debug)]
struct Workload;

impl Rules for Workload {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        let controller = spec.get("controllerRef");
        if controller.is_present() {
            if !controller.get("apiGroup").is_empty() {
                looks(&controller.get("apiGroup"), names::dns1123_subdomain, errors);
            }
            for field in ["kind", "name"] {
                let at = controller.get(field);
                match at.str() {
                    "" => errors.push(at.required("")),
                    text => path_segment(text, at.path(), errors),
                }
            }
        }
        let templates = spec.get("podGroupTemplates");
        if templates.is_empty() {
            errors.push(templates.required("must have at least one item"));
        } else if templates.len() > TEMPLATES_MAX {
            errors.push(Error::too_many(templates.path(), templates.len(), TEMPLATES_MAX));
            return;
        }
        let mut seen = BTreeSet::new();
        for template in templates.items() {
            let name = template.get("name");
            required_and_looks(&name, names::dns1123_label, errors);
            if !seen.insert(name.str().to_owned()) {
                errors.push(Error::duplicate(template.path(), name.str()));
            }
            policy::validate(&template, errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        let (spec, had) = (root.get("spec"), before.get("spec"));
        let controller = spec.get("controllerRef");
        let bad_value = || go_form::bad_value_at(&controller, context.version.schema(), &["spec", "controllerRef"]);
        if had.get("controllerRef").is_present() {
            immutable_with_value(&controller, &had.get("controllerRef"), bad_value, errors);
        }
        let templates = spec.get("podGroupTemplates");
        let bad_value = || go_form::bad_value_at(&templates, context.version.schema(), &["spec", "podGroupTemplates"]);
        immutable_with_value(&templates, &had.get("podGroupTemplates"), bad_value, errors);
    }
}
