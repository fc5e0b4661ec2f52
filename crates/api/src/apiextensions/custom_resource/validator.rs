//! Evaluation of the `x-kubernetes-validations` rules of one version against an object.

use std::sync::Arc;

use apimachinery::field::{BadValue, Error};
use apimachinery::schema::structural::Structural;
use apimachinery::schema::{ListKind, NestedValidation, Rules, Shape, TypeId};
use apimachinery::{Errors, Path, Schema, Str, Value};
use cel::cost::limits;
use cel::{Failure, Meter, Val, Variables};

use super::field_path;
use super::rule::{COST_MAX, CompiledRule, Scope};

/// Maximum size of a message from `messageExpression`, in bytes.
const MESSAGE_MAX: usize = 5 * 1024;

/// All compiled rules of a schema.
#[derive(Debug)]
pub(super) struct Validator {
    types: Arc<Structural>,
    root: Node,
}

#[derive(Debug, Default)]
pub(super) struct Findings {
    pub errors: Errors,
    /// Violations in unchanged parts, which are tolerated (validation ratcheting).
    pub ratcheted: Errors,
}

/// The rules of one type and of the types below it. A subtree without rules has no node.
#[derive(Debug)]
struct Node {
    id: TypeId,
    rules: Box<[CompiledRule]>,
    fields: Box<[(Str, Node)]>,
    /// List items or map values.
    inner: Option<Box<Node>>,
}

impl Validator {
    /// Compiles the rules of a schema. Returns `None` if the schema has no rules.
    pub(super) fn new(types: &Arc<Structural>) -> Option<Self> {
        let scope = Scope::stored(Arc::clone(types));
        let root = Node::new(&scope, types.schema(), true, &[])?;
        Some(Self { types: Arc::clone(types), root })
    }

    /// Evaluates the rules against an object and, for transition rules, its old state.
    pub(super) fn validate(&self, object: &Value, old: Option<&Value>) -> Findings {
        let mut run = Run { types: &self.types, budget: limits::PER_OBJECT, findings: Findings::default() };
        // A stopped run has already recorded its error.
        let _ = run.node(&self.root, object, old, false, &Path::ROOT);
        run.findings
    }
}

impl Node {
    /// `also`: schemas from `allOf` of enclosing types that apply to these values.
    fn new(scope: &Scope, schema: Schema<'_>, root: bool, also: &[&NestedValidation]) -> Option<Self> {
        let rules = schema.ty().rules.as_deref();
        let mut nested_schemas: Vec<&NestedValidation> = also.to_vec();
        nested_schemas.extend(rules.into_iter().flat_map(all_of));
        let mut at = 0;
        while let Some(nested) = nested_schemas.get(at).copied() {
            nested_schemas.extend(all_of(&nested.rules));
            at += 1;
        }
        let about_items = || nested_schemas.iter().filter_map(|nested| nested.items.as_deref()).collect::<Vec<_>>();
        let (mut fields, mut inner) = (Vec::new(), None);
        match schema.shape() {
            Shape::Struct(shape) => {
                for field in &shape.fields {
                    let about: Vec<_> =
                        nested_schemas.iter().filter_map(|nested| property(nested, &field.name)).collect();
                    let node = Self::new(scope, schema.other(field.ty), false, &about);
                    fields.extend(node.map(|node| (field.name.clone(), node)));
                }
            }
            Shape::List(list) => inner = Self::new(scope, schema.other(list.item), false, &about_items()).map(Box::new),
            Shape::Map(map) => inner = Self::new(scope, schema.other(map.value), false, &[]).map(Box::new),
            _ => {}
        }
        let validations = rules
            .into_iter()
            .chain(nested_schemas.iter().map(|nested| &nested.rules))
            .flat_map(|rules| &rules.validations);
        let written = validations.filter(|validation| !validation.rule.trim().is_empty());
        let rules: Box<[_]> = written.map(|validation| scope.compile(schema.id(), root, validation)).collect();
        let useful = !rules.is_empty() || !fields.is_empty() || inner.is_some();
        useful.then(|| Self { id: schema.id(), rules, fields: fields.into(), inner })
    }
}

fn all_of(rules: &Rules) -> impl Iterator<Item = &NestedValidation> {
    rules.junctors.iter().flat_map(|junctors| &junctors.all_of)
}

fn property<'a>(nested: &'a NestedValidation, name: &str) -> Option<&'a NestedValidation> {
    nested.properties.iter().find(|(have, _)| have == name).map(|(_, property)| property)
}

/// The evaluation of the object was aborted.
struct CostLimitError;

struct Run<'a> {
    types: &'a Structural,
    budget: u64,
    findings: Findings,
}

impl<'a> Run<'a> {
    /// `unchanged`: whether an enclosing value is unchanged by this write.
    fn node(
        &mut self,
        node: &'a Node,
        value: &'a Value,
        old: Option<&'a Value>,
        unchanged: bool,
        path: &Path,
    ) -> Result<(), CostLimitError> {
        if value.is_null() {
            return Ok(());
        }
        let unchanged = unchanged || old == Some(value);
        let schema = self.types.types().schema(node.id);
        for rule in &node.rules {
            self.rule(rule, schema, value, old, unchanged, path)?;
        }
        match value {
            Value::Array(items) => {
                let Some(inner) = &node.inner else { return Ok(()) };
                for (at, item) in items.iter().enumerate() {
                    let before = old.and_then(|old| correlated(schema, item, old));
                    self.node(inner, item, before, unchanged, &path.index(at))?;
                }
            }
            Value::Object(object) => {
                for (key, value) in object.iter() {
                    let before = old.and_then(|old| old.get(key));
                    if let Some(inner) = &node.inner {
                        self.node(inner, value, before, unchanged, &path.key(key))?;
                    } else if let Some((_, field)) = node.fields.iter().find(|(name, _)| name == key) {
                        self.node(field, value, before, unchanged, &path.field(key))?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rule(
        &mut self,
        compiled: &'a CompiledRule,
        schema: Schema<'a>,
        value: &'a Value,
        old: Option<&'a Value>,
        unchanged: bool,
        path: &Path,
    ) -> Result<(), CostLimitError> {
        let validation = &compiled.validation;
        let kind = type_name(schema);
        let program = match &compiled.rule {
            Ok(program) => program,
            Err(cause) => {
                self.push(Error::invalid(path, kind, format!("rule compile error: {cause}")));
                return Ok(());
            }
        };
        let optional = validation.optional_old_self == Some(true);
        if compiled.uses_old_self && old.is_none() && !optional {
            return Ok(());
        }
        let rule_message =
            if validation.message.is_empty() { validation.rule.trim() } else { validation.message.trim() };
        let meter = Meter::new(COST_MAX);
        let outcome = variables(schema, value, old, optional)
            .and_then(|given| program.run(&given, &meter).map(|value| value.as_bool()));
        self.spend(meter.cost(), kind, path, limits::OUT_OF_BUDGET)?;
        match outcome {
            Ok(Some(true)) => return Ok(()),
            Ok(_) => {}
            Err(Failure::Message(cause)) if cause.starts_with("no such overload") => {
                let detail = format!(
                    "'{cause}': call arguments did not match a supported operator, function or macro signature for rule: \
                     {rule_message}"
                );
                self.push(Error::invalid(path, kind, detail));
                return Ok(());
            }
            Err(Failure::Message(cause)) => {
                self.push(Error::invalid(path, kind, format!("{cause} evaluating rule: {rule_message}")));
                return Ok(());
            }
            Err(failure) => {
                let detail = format!(
                    "'{failure}': no further validation rules will be run due to call cost exceeds limit for rule: \
                     {rule_message}"
                );
                self.push(Error::invalid(path, kind, detail));
                return Err(CostLimitError);
            }
        }
        let at = error_path(compiled, schema, path);
        let path = Path::of(&at);
        let detail = match self.message(compiled, schema, value, old, kind, &path)? {
            Some(message) => message,
            None if validation.message.is_empty() => format!("failed rule: {rule_message}"),
            None => rule_message.to_owned(),
        };
        let error = failed(compiled, value, kind, &path, detail);
        if unchanged && !compiled.uses_old_self {
            self.findings.ratcheted.push(error);
        } else {
            self.push(error);
        }
        Ok(())
    }

    /// Evaluates `messageExpression`. Returns `None` if there is none or its result is unusable; fails if the cost
    /// budget is exceeded.
    fn message(
        &mut self,
        compiled: &'a CompiledRule,
        schema: Schema<'a>,
        value: &'a Value,
        old: Option<&'a Value>,
        kind: &str,
        path: &Path,
    ) -> Result<Option<String>, CostLimitError> {
        let Some(Ok((program, _))) = &compiled.message else { return Ok(None) };
        let meter = Meter::new(COST_MAX);
        let outcome = variables(schema, value, old, false)
            .and_then(|given| program.run(&given, &meter).map(|value| value.as_str().map(str::to_owned)));
        let budget_message = "messageExpression evaluation failed due to running out of cost budget, no further validation rules \
                     will be run";
        self.spend(meter.cost(), kind, path, budget_message)?;
        match outcome {
            Ok(text) => Ok(text
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty() && text.len() <= MESSAGE_MAX && !text.contains('\n'))),
            Err(Failure::Message(_)) => Ok(None),
            Err(_) => {
                let detail = format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                    apimachinery::go::quote(&compiled.validation.message_expression)
                );
                self.push(Error::invalid(path, kind, detail));
                Err(CostLimitError)
            }
        }
    }

    fn spend(&mut self, cost: u64, kind: &str, path: &Path, budget_message: &str) -> Result<(), CostLimitError> {
        match self.budget.checked_sub(cost) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => {
                self.push(Error::invalid(path, kind, budget_message));
                Err(CostLimitError)
            }
        }
    }

    fn push(&mut self, error: Error) {
        self.findings.errors.push(error);
    }
}

/// The variables of a rule evaluation.
struct RuleVariables<'a> {
    now: Val<'a>,
    before: Option<Val<'a>>,
}

impl<'a> Variables<'a> for RuleVariables<'a> {
    fn variable(&self, name: &str) -> Option<Result<Val<'a>, Failure>> {
        match name {
            "self" => Some(Ok(self.now.clone())),
            "oldSelf" => self.before.clone().map(Ok),
            _ => None,
        }
    }
}

fn variables<'a>(
    schema: Schema<'a>,
    value: &'a Value,
    old: Option<&'a Value>,
    optional: bool,
) -> Result<RuleVariables<'a>, Failure> {
    let now = Val::json(value, Some(schema))?;
    let before = old.filter(|old| !old.is_null()).map(|old| Val::json(old, Some(schema))).transpose()?;
    let before = match (before, optional) {
        (Some(before), true) => Some(before.some()),
        (None, true) => Some(Val::Optional(None)),
        (before, false) => before,
    };
    Ok(RuleVariables { now, before })
}

/// Returns the old item with the same map keys, for lists of type map.
fn correlated<'v>(schema: Schema<'_>, item: &Value, old: &'v Value) -> Option<&'v Value> {
    let Shape::List(list) = schema.shape() else { return None };
    let ListKind::Map(keys) = &list.kind else { return None };
    let same = |other: &&Value| keys.iter().all(|key| other.get(key) == item.get(key));
    old.as_array()?.iter().find(same)
}

/// Returns the field path that the error refers to.
fn error_path(compiled: &CompiledRule, schema: Schema<'_>, path: &Path) -> String {
    let below = &compiled.validation.field_path;
    let mut at = path.to_string();
    if below.is_empty() {
        return at;
    }
    let printed = field_path::normalize(below, schema);
    if !at.is_empty() && !printed.is_empty() {
        at.push('.');
    }
    at + &printed
}

fn failed(compiled: &CompiledRule, value: &Value, kind: &str, path: &Path, detail: String) -> Error {
    let bad_value = if matches!(kind, "object" | "array") { BadValue::Omitted } else { BadValue::from(value) };
    match compiled.validation.reason.as_deref() {
        Some("FieldValueForbidden") => Error::forbidden(path, detail),
        Some("FieldValueRequired") => Error::required(path, detail),
        Some("FieldValueDuplicate") => Error::duplicate(path, bad_value),
        _ => Error::invalid(path, bad_value, detail),
    }
}

/// Returns the OpenAPI type name.
fn type_name(schema: Schema<'_>) -> &'static str {
    match schema.shape() {
        Shape::Bool => "boolean",
        Shape::Int32 | Shape::Int64 => "integer",
        Shape::Double => "number",
        Shape::String => "string",
        Shape::List(_) => "array",
        Shape::Map(_) | Shape::Struct(_) => "object",
        _ => "",
    }
}
