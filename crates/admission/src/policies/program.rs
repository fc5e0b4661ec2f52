//! Compiled policies, cached until the policy changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use apimachinery::Value;
use apimachinery::meta::Meta;
use cel::{Compiled, Env, ExpressionContext, Type};

use crate::View;
use crate::measure::Measurement;
use crate::pods::spec;

/// An expression: its source and its compilation result.
pub(crate) struct Expression {
    pub source: String,
    pub compiled: Result<Compiled, String>,
}

/// A validation, mutation or audit annotation of a policy.
pub(crate) struct Rule {
    /// The entry in the policy object.
    pub entry: Value,
    pub main: Expression,
    /// The `messageExpression`.
    pub message: Option<Expression>,
}

/// A compiled policy.
pub(crate) struct Program {
    /// The policy's variables by name, used as `variables.x`.
    pub variables: Vec<(String, Expression)>,
    pub conditions: Vec<(String, Expression)>,
    pub rules: Vec<Rule>,
    pub annotations: Vec<Rule>,
}

/// Compiled policies by UID; at most one per existing policy.
#[derive(Default)]
pub(crate) struct Programs(Mutex<BTreeMap<String, (String, Arc<Program>)>>);

impl Programs {
    /// Returns the compiled policy; compiles it if it has changed.
    pub(crate) fn of(&self, policy: &Value, host: ExpressionContext, view: &dyn View) -> Arc<Program> {
        let meta = Meta::of(policy);
        let mut programs = self.0.lock().expect("compiling does not panic");
        if let Some((version, program)) = programs.get(meta.uid())
            && version == meta.resource_version()
        {
            return program.clone();
        }
        let began = view.reading();
        let program = Arc::new(Program::compile(policy, host));
        view.measured(Measurement::Compilation(view.reading().saturating_sub(began)));
        programs.insert(meta.uid().to_owned(), (meta.resource_version().to_owned(), program.clone()));
        program
    }

    /// Drops the programs of deleted policies.
    pub(crate) fn keep<'a>(&self, policies: impl Iterator<Item = &'a Value>) {
        let ids: Vec<&str> = policies.map(|policy| Meta::of(policy).uid()).collect();
        let mut programs = self.0.lock().expect("compiling does not panic");
        if programs.len() > ids.len() {
            programs.retain(|id, _| ids.contains(&id.as_str()));
        }
    }
}

impl Program {
    fn compile(policy: &Value, host: ExpressionContext) -> Self {
        // Stored expressions are compiled in the `stored` environment: a newer server may have accepted them.
        let plain = host.env_set().stored;
        let spec = spec(policy);
        let conditions = spec.list_at(&["matchConditions"]).iter();
        let conditions = conditions
            .map(|one| (one.text_at(&["name"]).to_owned(), Expression::compile(&plain, one.text_at(&["expression"]))))
            .collect();
        let mut env = plain;
        let mut variables = Vec::new();
        for variable in spec.list_at(&["variables"]) {
            let name = format!("variables.{}", variable.text_at(&["name"]));
            let expression = Expression::compile(&env, variable.text_at(&["expression"]));
            let ty = expression.compiled.as_ref().map_or(Type::Dyn, |compiled| compiled.program.result_type().clone());
            env = env.with_variable(&name, ty);
            variables.push((name, expression));
        }
        let rule = |entry: &Value| Rule::compile(&env, entry);
        let rules = spec.list_at(&["validations"]).iter().chain(spec.list_at(&["mutations"])).map(rule).collect();
        let annotations = spec.list_at(&["auditAnnotations"]).iter().map(rule).collect();
        Self { variables, conditions, rules, annotations }
    }
}

impl Rule {
    fn compile(env: &Env, entry: &Value) -> Self {
        let places: [&[&str]; 4] = [
            &["expression"],
            &["valueExpression"],
            &["applyConfiguration", "expression"],
            &["jsonPatch", "expression"],
        ];
        let source = places.iter().find_map(|path| entry.str_at(path)).unwrap_or_default();
        let message = entry.text_at(&["messageExpression"]);
        Self {
            entry: entry.clone(),
            main: Expression::compile(env, source),
            message: (!message.is_empty()).then(|| Expression::compile(env, message)),
        }
    }
}

impl Expression {
    /// Compiles an expression in an environment.
    pub(crate) fn compile(env: &Env, source: &str) -> Self {
        let compiled = env.compile(source).map_err(|wrong| format!("compilation error: compilation failed: {wrong}"));
        Self { source: source.to_owned(), compiled }
    }
}
