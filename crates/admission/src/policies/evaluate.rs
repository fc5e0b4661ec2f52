//! Evaluates a policy's CEL expressions for a request.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use api_registry::conversion::from_stored;
use apimachinery::Value;
use cel::cost::limits::{OUT_OF_BUDGET, PER_CALL, PER_OBJECT};
use cel::{Authorizer, ExpressionContext, Failure, Meter, Val, Variables};

use super::program::{Expression, Program};
use crate::{Attributes, VersionedKind};

/// The inputs of expressions, in the version that the policy matches.
pub(crate) struct ExpressionInputs {
    pub object: Value,
    pub old: Value,
    pub request: Value,
    pub namespace: Value,
    pub params: Value,
}

impl ExpressionInputs {
    /// Collects the inputs of a request.
    pub(crate) fn of(
        attributes: &Attributes<'_>,
        object: &Value,
        namespace: Option<&Value>,
        params: Option<Value>,
        seen: VersionedKind<'_>,
    ) -> Self {
        Self {
            object: convert_object(attributes, object, seen),
            old: attributes.old.map(|old| convert_object(attributes, old, seen)).unwrap_or_default(),
            request: request(attributes, seen),
            // `namespaceObject` is null for cluster-scoped objects and for Namespaces themselves.
            namespace: namespace.filter(|_| !attributes.namespace.is_empty()).cloned().unwrap_or_default(),
            params: params.unwrap_or_default(),
        }
    }
}

fn convert_object(attributes: &Attributes<'_>, object: &Value, seen: VersionedKind<'_>) -> Value {
    let mut object = object.clone();
    if !object.is_null() && attributes.subresource_kind().is_none() {
        from_stored(&mut object, seen.kind, seen.version);
    }
    object
}

/// Returns the AdmissionRequest without its objects. CONNECT has no options.
fn request(attributes: &Attributes<'_>, seen: VersionedKind<'_>) -> Value {
    let mut request = attributes.admission_request(seen, attributes.uid);
    if let (Value::Object(fields), true) = (&mut request, attributes.options.is_null()) {
        fields.remove("options");
    }
    request
}

/// The variables of one evaluation. The policy's own variables are evaluated lazily and cached.
pub(crate) struct Scope<'a> {
    given: Vec<(&'static str, Val<'a>)>,
    variables: &'a [(String, Expression)],
    known: RefCell<BTreeMap<&'a str, Result<Val<'a>, Failure>>>,
    budget: Cell<u64>,
}

impl<'a> Scope<'a> {
    /// Creates the variables of a program for a request.
    pub(crate) fn new(
        program: &'a Program,
        given: &'a ExpressionInputs,
        attributes: &Attributes<'_>,
        authorizer: &Arc<dyn Authorizer>,
        host: ExpressionContext,
    ) -> Result<Self, Failure> {
        let about = Val::resource_check(authorizer.clone(), |check| {
            check.group = attributes.kind.group.as_str().into();
            check.resource = attributes.kind.plural.as_str().into();
            check.subresource = attributes.subresource.into();
            check.namespace = attributes.namespace.into();
            check.name = attributes.name.into();
        });
        let given = vec![
            ("object", Val::json(&given.object, None)?),
            ("oldObject", Val::json(&given.old, None)?),
            ("request", Val::json(&given.request, host.schema("request"))?),
            ("namespaceObject", Val::json(&given.namespace, host.schema("namespaceObject"))?),
            ("params", Val::json(&given.params, None)?),
            ("authorizer", Val::authorizer(authorizer.clone())),
            ("authorizer.requestResource", about),
        ];
        let (known, budget) = (RefCell::default(), Cell::new(PER_OBJECT));
        Ok(Self { given, variables: &program.variables, known, budget })
    }

    /// Sets another cost budget for all expressions together.
    pub(crate) fn with_budget(self, budget: u64) -> Self {
        self.budget.set(budget);
        self
    }

    /// Returns the value of an expression, or an error message.
    pub(crate) fn run(&self, expression: &'a Expression) -> Result<Val<'a>, String> {
        let compiled = expression.compiled.as_ref().map_err(Clone::clone)?;
        self.meter(|meter| compiled.program.run(self, meter)).map_err(|failure| match failure {
            Failure::Cost if self.budget.get() == 0 => OUT_OF_BUDGET.to_owned(),
            failure => format!("expression '{}' resulted in error: {failure}", expression.source),
        })
    }

    /// Runs a closure within the cost limit of one expression, and subtracts its cost from the budget of all
    /// expressions.
    fn meter<T>(&self, run: impl FnOnce(&Meter<'_>) -> T) -> T {
        let meter = Meter::new(PER_CALL.min(self.budget.get()));
        let outcome = run(&meter);
        self.budget.set(self.budget.get().saturating_sub(meter.cost()));
        outcome
    }
}

impl<'a> Variables<'a> for Scope<'a> {
    fn variable(&self, name: &str) -> Option<Result<Val<'a>, Failure>> {
        if let Some((_, value)) = self.given.iter().find(|(have, _)| *have == name) {
            return Some(Ok(value.clone()));
        }
        let (name, expression) = self.variables.iter().find(|(have, _)| have == name)?;
        if let Some(known) = self.known.borrow().get(name.as_str()) {
            return Some(known.clone());
        }
        let made = match &expression.compiled {
            Ok(compiled) => self.meter(|meter| compiled.program.run(self, meter)),
            Err(wrong) => Err(Failure::message(wrong.clone())),
        };
        let short = name.strip_prefix("variables.").unwrap_or(name);
        let made = made.map_err(|failure| match failure {
            Failure::Message(message) => {
                Failure::message(format!("composited variable \"{short}\" fails to evaluate: {message}"))
            }
            other => other,
        });
        self.known.borrow_mut().insert(name, made.clone());
        Some(made)
    }
}

/// Whether all match conditions are true. A false condition takes precedence over errors of other conditions.
pub(crate) fn conditions_hold<'a>(program: &'a Program, scope: &Scope<'a>) -> Result<bool, String> {
    let mut wrong = Vec::new();
    for (name, condition) in &program.conditions {
        match scope.run(condition) {
            Ok(Val::Bool(true)) => {}
            Ok(Val::Bool(false)) => return Ok(false),
            Ok(_) => wrong.push(format!("match condition {name:?} is not a boolean")),
            Err(error) => wrong.push(error),
        }
    }
    match wrong.as_slice() {
        [] => Ok(true),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}
