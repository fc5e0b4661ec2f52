//! Compilation of one `x-kubernetes-validations` rule.

use std::sync::Arc;

use apimachinery::schema::structural::Structural;
use apimachinery::schema::{TypeId, Validation};
use cel::cost::limits;
use cel::schema::TypeSet;
use cel::types::SchemaType;
use cel::{Env, EnvSet, Program, Type};

/// The CEL environment of a schema's rules.
#[derive(Debug)]
pub struct Scope {
    env: Env,
    set: u16,
    sets: [TypeSet; 2],
}

/// The result of compiling a rule.
#[derive(Debug)]
pub struct CompiledRule {
    /// The rule as written in the schema.
    pub validation: Validation,
    /// The program, or the compilation error.
    pub rule: Result<Program, String>,
    /// Estimated maximum cost of one evaluation.
    pub cost: u64,
    /// Whether the rule is a transition rule.
    pub uses_old_self: bool,
    /// The compiled `messageExpression` with its estimated maximum cost, or its compilation error.
    pub message: Option<Result<(Program, u64), String>>,
}

impl Scope {
    /// Returns the scope of rules that are being created or changed.
    pub fn new(types: Arc<Structural>) -> Self {
        Self::of(EnvSet::default().new, types)
    }

    /// Returns the scope of rules that were accepted earlier.
    pub fn stored(types: Arc<Structural>) -> Self {
        Self::of(EnvSet::default().stored, types)
    }

    fn of(mut env: Env, types: Arc<Structural>) -> Self {
        let set = TypeSet::Structural(types);
        let number = env.add_types(set.clone());
        Self { env, set: number, sets: [cel::schema::builtin(), set] }
    }

    /// Compiles a rule for values of type `id`. `root`: `self` is the entire object.
    pub fn compile(&self, id: TypeId, root: bool, validation: &Validation) -> CompiledRule {
        let env = self.env.clone().with_object("self", self.set, id, root);
        let source = validation.rule.trim();
        let bool = |env: &Env| match env.compile(source) {
            Err(findings) => Err(format!("compilation failed: {findings}")),
            Ok(compiled) if *compiled.program.result_type() == Type::Bool => Ok(compiled),
            Ok(_) => Err("cel expression must evaluate to a bool".to_owned()),
        };
        let with_old = self.with_old_self(&env, id, root, validation.optional_old_self == Some(true));
        // A rule uses `oldSelf` if it compiles only with `oldSelf` declared.
        let (compiled, uses_old_self) = match bool(&env) {
            Ok(compiled) => (Ok(compiled), false),
            Err(_) => {
                let compiled = bool(&with_old);
                let uses = compiled.is_ok();
                (compiled, uses)
            }
        };
        let cost = compiled.as_ref().map_or(0, |compiled| compiled.estimate.max);
        let message = message(&self.with_old_self(&env, id, root, false), validation);
        let rule = compiled.map(|compiled| compiled.program);
        CompiledRule { validation: validation.clone(), rule, cost, uses_old_self, message }
    }

    fn with_old_self(&self, env: &Env, id: TypeId, root: bool, optional: bool) -> Env {
        if !optional {
            return env.clone().with_object("oldSelf", self.set, id, root);
        }
        let schema = SchemaType { set: self.set, id, root, name: Arc::from("object") };
        let ty = cel::schema::type_of(&self.sets, &schema).unwrap_or(Type::Dyn);
        env.clone().with_variable("oldSelf", Type::optional(ty))
    }
}

fn message(env: &Env, validation: &Validation) -> Option<Result<(Program, u64), String>> {
    let source = validation.message_expression.trim();
    if source.is_empty() {
        return None;
    }
    Some(match env.compile(source) {
        Err(findings) => Err(format!("messageExpression compilation failed: {findings}")),
        Ok(compiled) if *compiled.program.result_type() == Type::String => {
            Ok((compiled.program, compiled.estimate.max))
        }
        Ok(_) => Err("messageExpression must evaluate to a string".to_owned()),
    })
}

/// Runtime cost limit of one rule evaluation.
pub const COST_MAX: u64 = limits::PER_CALL;
