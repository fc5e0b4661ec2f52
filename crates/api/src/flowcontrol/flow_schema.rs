//! FlowSchema: assigns requests to a priority level.

mod policy;

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, Scope};
use apimachinery::{At, Errors, Value, names, value};

use crate::field_rules::{
    column, drop_field, keep, keep_for_status, looks, raise_generation, reset_with_metadata, same, start_generation,
};
use crate::go_form;
use crate::kind::{Context, Kind, Rules, Subresource, UpdateChecks, age_column, name_column};

const PRECEDENCE_MAX: i64 = 10_000;
const PRECEDENCE_DEFAULT: i64 = 1000;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        update_checks: UpdateChecks { whole: 1, change: 0 },
        rules: Arc::new(FlowSchema),
        ..Kind::stored("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas")
    }
    .with_columns(&[
        name_column(),
        column("PriorityLevel", "string", "Priority level of the flows.", |object, _| {
            object.text_at(&["spec", "priorityLevelConfiguration", "name"]).into()
        }),
        column("MatchingPrecedence", "string", "Precedence; the lowest matching value wins.", |object, _| {
            At::root(object).get("spec").get("matchingPrecedence").int().into()
        }),
        column("DistinguisherMethod", "string", "Attribute that distinguishes flows.", |object, _| {
            object.str_at(&["spec", "distinguisherMethod", "type"]).unwrap_or("<none>").into()
        }),
        age_column(),
        column("MissingPL", "string", "Whether the priority level does not exist.", |object, _| {
            dangling(object).into()
        }),
    ])
}

#[derive(Debug)]
struct FlowSchema;

impl Rules for FlowSchema {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        reset_with_metadata(subresource)
    }

    fn default(&self, object: &mut Value, _version: &str) {
        let Some(object) = object.as_object_mut() else { return };
        let spec = object.get_or_insert_with("spec", Value::object);
        if spec.get("matchingPrecedence").and_then(Value::as_int).unwrap_or_default() == 0
            && let Some(spec) = spec.as_object_mut()
        {
            spec.insert("matchingPrecedence", PRECEDENCE_DEFAULT);
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        drop_field(object, "status");
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if context.subresource == "status" {
            keep_for_status(object, old);
        } else {
            keep(object, old, "status");
            raise_generation(object, old, &["spec"]);
        }
    }

    fn validate(&self, object: &Value, context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let name = Meta::of(object).name();
        validate_spec(&root.get("spec"), name, context, errors);
        let fixed = mandatory(name);
        if fixed.as_ref().is_some_and(|fixed| !same(root.get("spec").value(), fixed)) {
            let spec = root.get("spec");
            let bad_value = go_form::bad_value_at(&spec, context.version.schema(), &["spec"]);
            let detail = format!("spec of '{name}' must equal the fixed value");
            errors.push(Error::invalid(spec.path(), bad_value, detail));
        }
        super::conditions(&root.get("status"), errors);
    }
}

fn validate_spec(spec: &At<'_>, name: &str, context: &Context<'_>, errors: &mut Errors) {
    let precedence = spec.get("matchingPrecedence");
    if precedence.int() <= 0 {
        errors.push(precedence.invalid("must be a positive value"));
    }
    if precedence.int() > PRECEDENCE_MAX {
        errors.push(precedence.invalid(format!("must not be greater than {PRECEDENCE_MAX}")));
    }
    if precedence.int() == 1 && name != "exempt" {
        errors.push(precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1"));
    }
    let method = spec.get("distinguisherMethod");
    let known = ["ByNamespace", "ByUser"];
    if method.is_present() && !known.contains(&method.get("type").str()) {
        let bad_value = go_form::bad_value_at(&method, context.version.schema(), &["spec", "distinguisherMethod"]);
        errors.push(Error::not_supported(method.get("type").path(), bad_value, &known));
    }
    let level = spec.get("priorityLevelConfiguration");
    if level.get("name").is_empty() {
        errors.push(level.get("name").required("must reference a priority level"));
    } else {
        looks(&level.get("name"), names::dns1123_subdomain, errors);
    }
    let rules = spec.get("rules");
    for rule in rules.items() {
        policy::validate(&rule, errors);
    }
}

/// Returns the required spec of a mandatory FlowSchema.
fn mandatory(name: &str) -> Option<Value> {
    let everything = |subjects: Value| {
        value!([{
            "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
            "resourceRules": [{
                "apiGroups": ["*"], "clusterScope": true, "namespaces": ["*"], "resources": ["*"], "verbs": ["*"]
            }],
            "subjects": subjects
        }])
    };
    match name {
        "exempt" => {
            let rules = everything(value!([{"kind": "Group", "group": {"name": "system:masters"}}]));
            Some(value!({"matchingPrecedence": 1, "priorityLevelConfiguration": {"name": "exempt"}, "rules": rules}))
        }
        "catch-all" => {
            let rules = everything(value!([
                {"kind": "Group", "group": {"name": "system:unauthenticated"}},
                {"kind": "Group", "group": {"name": "system:authenticated"}}
            ]));
            Some(value!({
                "matchingPrecedence": 10000, "priorityLevelConfiguration": {"name": "catch-all"},
                "distinguisherMethod": {"type": "ByUser"}, "rules": rules
            }))
        }
        _ => None,
    }
}

fn dangling(object: &Value) -> String {
    let conditions = object.list_at(&["status", "conditions"]);
    let found = conditions.iter().find(|condition| condition.str_at(&["type"]) == Some("Dangling"));
    found.and_then(|condition| condition.str_at(&["status"])).unwrap_or("?").to_owned()
}
