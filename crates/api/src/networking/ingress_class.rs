//! IngressClass: selects the ingress controller.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Scope;
use apimachinery::names::dns1123_label;
use apimachinery::time::Time;
use apimachinery::{At, Errors, Value};

use super::validate_reference;
use crate::core::object_meta;
use crate::field_rules::{column, default_to, looks, raise_generation, start_generation};
use crate::formats::domain_prefixed_path;
use crate::kind::{Context, Kind, Rules, UpdateChecks, age_column, name_column};

const CONTROLLER_LENGTH_MAX: usize = 250;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        rules: Arc::new(IngressClass),
        update_checks: UpdateChecks { whole: 1, change: 1 },
        ..Kind::stored("networking.k8s.io", "v1", "IngressClass", "ingressclasses")
    }
    .with_columns(&[
        name_column(),
        column("Controller", "string", "Controller of the class.", |object, _| {
            object.text_at(&["spec", "controller"]).into()
        }),
        column("Parameters", "string", "Parameters of the class.", parameters),
        age_column(),
    ])
}

#[derive(Debug)]
struct IngressClass;

impl Rules for IngressClass {
    fn default(&self, object: &mut Value, _version: &str) {
        let parameters = object.get_mut("spec").and_then(|spec| spec.get_mut("parameters"));
        if let Some(parameters) = parameters {
            default_to(parameters, "scope", "Cluster");
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _context: &Context<'_>) {
        raise_generation(object, old, &["spec"]);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        let controller = spec.get("controller");
        if controller.len() > CONTROLLER_LENGTH_MAX {
            errors.push(Error::too_long(controller.path(), CONTROLLER_LENGTH_MAX));
        }
        domain_prefixed_path(&controller, errors);
        let parameters = spec.get("parameters");
        if parameters.is_present() {
            validate_parameters(&parameters, errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        let (root, before) = (At::root(object), At::root(old));
        let (spec, before) = (root.get("spec"), before.get("spec"));
        let controller = spec.get("controller");
        if controller.str() != before.get("controller").str() {
            errors.push(Error::invalid(controller.path(), controller.str(), crate::field_rules::IMMUTABLE));
        }
        self.validate(object, context, errors);
    }
}

fn validate_parameters(parameters: &At<'_>, errors: &mut Errors) {
    validate_reference(parameters, errors);
    let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
    match scope.str() {
        _ if scope.is_absent() => errors.push(scope.required("")),
        "Namespace" if namespace.is_absent() => {
            errors.push(namespace.required("`parameters.scope` is set to 'Namespace'"));
        }
        "Namespace" => looks(&namespace, dns1123_label, errors),
        "Cluster" if namespace.is_present() => {
            errors.push(namespace.forbidden("`parameters.scope` is set to 'Cluster'"));
        }
        "Cluster" => {}
        _ => errors.push(scope.not_supported(&["Cluster", "Namespace"])),
    }
}

fn parameters(object: &Value, _now: Time) -> Value {
    let Some(parameters) = object.at(&["spec", "parameters"]).filter(|found| !found.is_null()) else {
        return "<none>".into();
    };
    let text = |field: &str| parameters.text_at(&[field]);
    let group = text("apiGroup");
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group}/{}", text("kind"), text("name")).into()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn parameters_namespace_must_match_the_scope() {
        let check = |scope: &str, namespace: Value, expect: Option<&str>| {
            let parameters = value!({"kind": "K", "name": "n", "scope": scope, "namespace": (namespace)});
            let mut errors = Errors::new();
            validate_parameters(&At::root(&parameters), &mut errors);
            assert_eq!(errors.first().map(ToString::to_string).as_deref(), expect);
        };
        check("Cluster", Value::Null, None);
        check("Namespace", value!("a"), None);
        check("Namespace", Value::Null, Some("namespace: Required value: `parameters.scope` is set to 'Namespace'"));
        check("Cluster", value!("a"), Some("namespace: Forbidden: `parameters.scope` is set to 'Cluster'"));
    }
}
