//! MutatingAdmissionPolicy: mutates objects by apply configurations and JSON patches.

use std::sync::Arc;

use api::resources::{MUTATING_ADMISSION_POLICIES, MUTATING_ADMISSION_POLICY_BINDINGS, NAMESPACES};
use api_registry::conversion::{in_version, to_stored};
use api_registry::decode;
use apimachinery::field::Cause;
use apimachinery::field_validation::FieldValidation;
use apimachinery::meta::Meta;
use apimachinery::patch::json::Patch as JsonPatch;
use apimachinery::status::{Reason, Status};
use apimachinery::{Schema, Value, apply};
use cel::{ExpressionContext, Val};

use super::evaluate::{ExpressionInputs, Scope, conditions_hold};
use super::program::{Program, Programs};
use super::{Bound, fails_closed, in_force, is_exempt, matching, params};
use crate::measure::{Check, Measurement, Policies};
use crate::pods::spec;
use crate::reinvocation::{Reinvocation, ReinvocationPolicy};
use crate::{Attributes, Notes, Operation, Plugin, VersionedKind, View};

const HOST: ExpressionContext = ExpressionContext::MutatingPolicy;

#[derive(Default)]
pub(crate) struct MutatingAdmissionPolicy {
    programs: Programs,
}

impl Plugin for MutatingAdmissionPolicy {
    fn admit_round(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        view: &dyn View,
        _: &mut Notes,
        round: &mut Reinvocation,
    ) -> Result<(), Status> {
        if is_exempt(attributes) || !matches!(attributes.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        let all = in_force(view, MUTATING_ADMISSION_POLICIES, MUTATING_ADMISSION_POLICY_BINDINGS);
        if all.is_empty() {
            return Ok(());
        }
        self.programs.keep(all.iter().map(|bound| &*bound.policy));
        let namespace = match (attributes.namespace, attributes.is(NAMESPACES)) {
            ("", true) => view.object(NAMESPACES, "", attributes.name),
            ("", false) => None,
            (name, _) => view.object(NAMESPACES, "", name),
        };
        round.resume(object);
        for bound in &all {
            let program = self.programs.of(&bound.policy, HOST, view);
            let request = Request { attributes, view, namespace: namespace.as_deref(), bound, program: &program };
            request.run(object, round)?;
        }
        round.finish(object);
        Ok(())
    }
}

/// A request and one policy that may match it.
struct Request<'a> {
    attributes: &'a Attributes<'a>,
    view: &'a dyn View,
    namespace: Option<&'a Value>,
    bound: &'a Bound,
    program: &'a Arc<Program>,
}

impl Request<'_> {
    /// Applies the policy for each binding and each of its parameters.
    fn run(&self, object: &mut Value, round: &mut Reinvocation) -> Result<(), Status> {
        let Request { attributes, namespace, bound, .. } = *self;
        let constraints = &spec(&bound.policy)["matchConstraints"];
        let Some(seen) = matching::matches(constraints, attributes, object, namespace) else {
            return Ok(());
        };
        for binding in &bound.bindings {
            let limits = spec(binding).get("matchResources").unwrap_or(&Value::Null);
            if matching::matches(limits, attributes, object, namespace).is_none() {
                continue;
            }
            match params::of(&bound.policy, binding, attributes, self.view) {
                Ok(found) => {
                    for params in found {
                        self.run_with(binding, params, seen, object, round)?;
                    }
                }
                Err(error) => {
                    self.apply_failure_policy(binding, object, &format!("failed to configure binding: {error}"))?;
                }
            }
        }
        Ok(())
    }

    fn run_with(
        &self,
        binding: &Value,
        params: Option<Value>,
        seen: VersionedKind<'_>,
        object: &mut Value,
        round: &mut Reinvocation,
    ) -> Result<(), Status> {
        let name = |of: &Value| format!("{}/{}", Meta::of(of).namespace(), Meta::of(of).name());
        let param = params.as_ref().map(name).unwrap_or_default();
        let id = format!("{}{}/{param}", name(&self.bound.policy), name(binding));
        if !round.wants(&id) {
            return Ok(());
        }
        let given = ExpressionInputs::of(self.attributes, object, self.namespace, params, seen);
        let began = self.view.reading();
        let made = self.mutate(given, object, seen);
        let took = self.view.reading().saturating_sub(began);
        self.view.measured(Measurement::Evaluation(took));
        let denies = made.is_err() && fails_closed(&self.bound.policy);
        self.view.measured(Measurement::Check(Check {
            by: Policies::Mutating,
            policy: Meta::of(&self.bound.policy).name(),
            binding: Meta::of(binding).name(),
            action: if denies { "deny" } else { "allow" },
            failed: made.is_err(),
            took,
        }));
        match made {
            Ok(made) => {
                let changed = made != *object;
                *object = made;
                round.record_call(&id, ReinvocationPolicy::of(spec(&self.bound.policy)), changed);
                Ok(())
            }
            Err(error) => self.apply_failure_policy(binding, object, &error),
        }
    }

    /// Applies the failure policy after a failed evaluation.
    fn apply_failure_policy(&self, binding: &Value, object: &Value, cause: &str) -> Result<(), Status> {
        if !fails_closed(&self.bound.policy) {
            return Ok(());
        }
        let (policy, binding) = (Meta::of(&self.bound.policy).name(), Meta::of(binding).name());
        Err(denial_status(self.attributes, object, policy, binding, cause))
    }

    /// Runs the mutations of the policy sequentially; each sees the result of the previous one.
    fn mutate(&self, mut given: ExpressionInputs, object: &Value, seen: VersionedKind<'_>) -> Result<Value, String> {
        let authorizer = self.view.authorizer(self.attributes.user);
        let subresource_kind = self.attributes.subresource_kind();
        let schema = subresource_kind.and_then(api::catalogue::schema).unwrap_or_else(|| seen.version.schema());
        let mut changed = false;
        for (at, rule) in self.program.rules.iter().enumerate() {
            let patched = {
                let scope = Scope::new(self.program, &given, self.attributes, &authorizer, HOST);
                let scope = scope.map_err(|failure| failure.to_string())?;
                if at == 0 && !conditions_hold(self.program, &scope)? {
                    return Ok(object.clone());
                }
                let made = scope.run(&rule.main)?;
                patched(rule.entry.text_at(&["patchType"]), &made, &given.object, schema)?
            };
            changed = true;
            given.object = patched;
        }
        if !changed {
            return Ok(object.clone());
        }
        let fit = match subresource_kind {
            Some(gvk) => decode::plain_again(given.object, gvk),
            None => decode::again(given.object, seen.kind, seen.version, FieldValidation::Ignore),
        };
        let mut object = fit.map_err(|status| status.message)?.object;
        if subresource_kind.is_none() {
            to_stored(&mut object, seen.kind, seen.version);
            in_version(&mut object, self.attributes.kind, self.attributes.version);
        }
        Ok(object)
    }
}

fn patched(ty: &str, made: &Val<'_>, object: &Value, schema: Schema<'_>) -> Result<Value, String> {
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
            apply::validate(schema, &made, apply::Duplicates::Rejected)
                .map_err(|wrong| format!("error applying patch: {wrong}"))?;
            apply::merge(schema, &mut object, &made);
            Ok(object)
        }
    }
}

fn denial_status(attributes: &Attributes<'_>, object: &Value, policy: &str, binding: &str, cause: &str) -> Status {
    let message = format!("policy '{policy}' with binding '{binding}' denied request: {cause}");
    let mut status = attributes.forbidden(object, &message);
    status.reason = Reason::Invalid;
    status.code = status.reason.code();
    if let Some(details) = &mut status.details {
        details.causes.push(Cause { reason: String::new(), message, field: String::new() });
    }
    status
}
