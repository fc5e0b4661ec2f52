//! MutatingAdmissionPolicy: its expressions make changes, by applying an object or by a JSON patch.

use std::sync::Arc;

use api::kind::Version;
use cel::{Host, Val};
use machinery::field::Cause;
use machinery::field_validation::FieldValidation;
use machinery::meta::Meta;
use machinery::patch::json::Patch as JsonPatch;
use machinery::status::{Reason, Status};
use machinery::{Value, apply};

use super::evaluate::{Given, Scope, conditions_hold};
use super::program::{Program, Programs};
use super::{Bound, fails_closed, in_force, is_exempt, matching, params};
use crate::admission::pods::{spec, text};
use crate::admission::{Attributes, Notes, Operation, Plugin, Seen, View};
use crate::body;
use crate::conversion::{in_version, to_stored};

const HOST: Host = Host::MutatingPolicy;

/// See the module.
#[derive(Default)]
pub struct MutatingAdmissionPolicy {
    programs: Programs,
}

impl Plugin for MutatingAdmissionPolicy {
    fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        // What is created under an object is of another kind than the object.
        let own = text(object, "kind") == attributes.kind.kind;
        if is_exempt(attributes) || !writes || !own {
            return Ok(());
        }
        let all = in_force(view, "mutatingadmissionpolicies", "mutatingadmissionpolicybindings");
        self.programs.keep(all.iter().map(|bound| &bound.policy));
        let mut seen = Vec::with_capacity(all.len());
        for bound in &all {
            self.run(bound, attributes, object, view)?;
            seen.push(object.clone());
        }
        // Once more for those who ask for it, if others changed what they saw.
        for (bound, seen) in all.iter().zip(seen) {
            if text(spec(&bound.policy), "reinvocationPolicy") == "IfNeeded" && seen != *object {
                self.run(bound, attributes, object, view)?;
            }
        }
        Ok(())
    }
}

impl MutatingAdmissionPolicy {
    fn run(
        &self,
        bound: &Bound,
        attributes: &Attributes<'_>,
        object: &mut Value,
        view: &dyn View,
    ) -> Result<(), Status> {
        let namespace = match (attributes.namespace, attributes.is("", "namespaces")) {
            ("", true) => view.object("", "namespaces", "", attributes.name),
            ("", false) => None,
            (name, _) => view.object("", "namespaces", "", name),
        };
        let constraints = &spec(&bound.policy)["matchConstraints"];
        let Some(seen) = matching::matches(constraints, attributes, object, namespace.as_ref()) else {
            return Ok(());
        };
        let program = self.programs.of(&bound.policy, HOST);
        for binding in &bound.bindings {
            let limits = spec(binding).get("matchResources").unwrap_or(&Value::Null);
            if matching::matches(limits, attributes, object, namespace.as_ref()).is_none() {
                continue;
            }
            let name = Meta::of(binding).name();
            let run = || -> Result<Value, String> {
                let found = params::of(&bound.policy, binding, attributes, view)
                    .map_err(|why| format!("failed to configure binding: {why}"))?;
                let mut changed = object.clone();
                for params in found {
                    let given = Given::of(attributes, &changed, namespace.as_ref(), params, seen);
                    changed = mutate(&program, given, changed, attributes, view, seen)?;
                }
                Ok(changed)
            };
            match run() {
                Ok(changed) => *object = changed,
                Err(why) if fails_closed(&bound.policy) => {
                    return Err(refusal(attributes, object, Meta::of(&bound.policy).name(), name, &why));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Runs all mutations of a policy, each on what the one before made.
fn mutate(
    program: &Arc<Program>,
    mut given: Given,
    object: Value,
    attributes: &Attributes<'_>,
    view: &dyn View,
    seen: Seen<'_>,
) -> Result<Value, String> {
    let authorizer = view.authorizer(attributes.user);
    let mut changed = false;
    for (at, rule) in program.rules.iter().enumerate() {
        let patched = {
            let scope = Scope::new(program, &given, attributes, &authorizer, HOST);
            let scope = scope.map_err(|failure| failure.to_string())?;
            if at == 0 && !conditions_hold(program, &scope)? {
                return Ok(object);
            }
            let made = scope.run(&rule.main)?;
            patched(text(&rule.entry, "patchType"), &made, &given.object, seen.version)?
        };
        changed = true;
        given.object = patched;
    }
    if !changed {
        return Ok(object);
    }
    let fit = body::again(given.object, seen.kind, seen.version, FieldValidation::Ignore);
    let mut object = fit.map_err(|status| status.message)?.object;
    to_stored(&mut object, seen.kind, seen.version);
    in_version(&mut object, attributes.kind, attributes.version);
    Ok(object)
}

fn patched(ty: &str, made: &Val<'_>, object: &Value, version: &Version) -> Result<Value, String> {
    let made = made.to_json().map_err(|failure| failure.to_string())?;
    match ty {
        "JSONPatch" => {
            let patch = JsonPatch::new(made).map_err(|error| format!("error in JSON patch: {error}"))?;
            patch.apply(object.clone()).map_err(|error| format!("error in JSON patch: {error}"))
        }
        _ => {
            let mut object = object.clone();
            if let Some(field) = ["apiVersion", "kind"].iter().find(|field| made.get(field).is_some()) {
                return Err(format!("error applying patch: {field} must not be set"));
            }
            let schema = version.schema();
            apply::validate(schema, &made, apply::Duplicates::Refused)
                .map_err(|wrong| format!("error applying patch: {wrong}"))?;
            apply::merge(schema, &mut object, &made);
            Ok(object)
        }
    }
}

fn refusal(attributes: &Attributes<'_>, object: &Value, policy: &str, binding: &str, why: &str) -> Status {
    let message = format!("policy '{policy}' with binding '{binding}' denied request: {why}");
    let mut status = attributes.forbidden(object, &message);
    status.reason = Reason::Invalid;
    status.code = status.reason.code();
    if let Some(details) = &mut status.details {
        details.causes.push(Cause { reason: String::new(), message, field: String::new() });
    }
    status
}
