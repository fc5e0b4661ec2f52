//! A rule of `x-kubernetes-validations`, compiled.

use std::sync::Arc;

use cel::cost::limits;
use cel::schema::TypeSet;
use cel::types::SchemaType;
use cel::{Env, EnvSet, Program, Type};
use machinery::schema::structural::Structural;
use machinery::schema::{TypeId, Validation};

/// Where rules of a schema stand: what they may use.
#[derive(Debug)]
pub struct Scope {
    env: Env,
    set: u16,
    sets: [TypeSet; 2],
}

/// A rule that is ready to run, or why it is not.
#[derive(Debug)]
pub struct Compiled {
    /// As it was written.
    pub validation: Validation,
    /// The rule, or what is wrong with it.
    pub rule: Result<Program, String>,
    /// What it can cost at worst.
    pub cost: u64,
    /// Whether it compares with what was there before.
    pub uses_old_self: bool,
    /// The expression that gives the message and its cost, or what is wrong with it.
    pub message: Option<Result<(Program, u64), String>>,
}

impl Scope {
    /// The scope of rules that are being written.
    pub fn new(types: Arc<Structural>) -> Self {
        Self::of(EnvSet::default().new, types)
    }

    /// The scope of rules that were accepted before.
    pub fn stored(types: Arc<Structural>) -> Self {
        Self::of(EnvSet::default().stored, types)
    }

    fn of(mut env: Env, types: Arc<Structural>) -> Self {
        let set = TypeSet::Structural(types);
        let number = env.add_types(set.clone());
        Self { env, set: number, sets: [cel::schema::builtin(), set] }
    }

    /// Compiles a rule about values of one of the types. `root`: whole objects.
    pub fn compile(&self, id: TypeId, root: bool, validation: &Validation) -> Compiled {
        let env = self.env.clone().with_object("self", self.set, id, root);
        let source = validation.rule.trim();
        let bool = |env: &Env| match env.compile(source) {
            Err(findings) => Err(format!("compilation failed: {findings}")),
            Ok(compiled) if *compiled.program.result_type() == Type::Bool => Ok(compiled),
            Ok(_) => Err("cel expression must evaluate to a bool".to_owned()),
        };
        let with_old = self.with_old_self(&env, id, root, validation.optional_old_self == Some(true));
        // A rule uses what it cannot be compiled without.
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
        Compiled { validation: validation.clone(), rule, cost, uses_old_self, message }
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

/// What one rule may cost while it runs.
pub const COST_MAX: u64 = limits::PER_CALL;
