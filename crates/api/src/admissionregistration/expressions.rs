//! CEL expressions of policies and webhooks: compilation in their environment, and result type checks.

use std::collections::BTreeSet;

use apimachinery::{At, Errors, Value};
use cel::{EnvSet, ExpressionContext, Type};

/// Optional variables and types available to an expression, in addition to the objects and the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uses {
    /// `params`
    pub params: bool,
    /// `authorizer`
    pub authorizer: bool,
    /// `Object{…}` and `JSONPatch{…}`
    pub mutation: bool,
}

/// The CEL environment of one object's expressions, and the expressions that the stored object already had.
pub(super) struct Expressions<'a> {
    uses: Uses,
    variables: Vec<(String, Type)>,
    stored: BTreeSet<&'a str>,
}

impl<'a> Expressions<'a> {
    /// `stored` are the expressions of the old object: they are compiled with the less restrictive stored environment.
    pub(super) fn new(uses: Uses, stored: BTreeSet<&'a str>) -> Self {
        Self { uses, variables: Vec::new(), stored }
    }

    /// Returns a copy with other optional variables.
    pub(super) fn with(&self, uses: Uses) -> Self {
        Self { uses, variables: self.variables.clone(), stored: self.stored.clone() }
    }

    /// Compiles `source` and reports an error at `at` if compilation fails or the type is not in `expected`. The value
    /// at `at` equals `source` except for surrounding whitespace.
    pub(super) fn check(&self, source: &str, expected: &[Type], at: &At<'_>, errors: &mut Errors) {
        match self.compile(source) {
            Err(detail) => errors.push(at.invalid(detail)),
            Ok(found) if expected.contains(&found) => {}
            Ok(found) => {
                let names: Vec<_> = expected.iter().map(type_name).collect();
                let expected = match names.as_slice() {
                    [one] => one.clone(),
                    several => format!("one of [{}]", several.join(" ")),
                };
                errors.push(at.invalid(format!("must evaluate to {expected} but got {}", type_name(&found))));
            }
        }
    }

    /// Compiles the expression of a variable and makes the variable available to later expressions.
    pub(super) fn add_variable(&mut self, name: &str, source: &str, at: &At<'_>, errors: &mut Errors) {
        match self.compile(source) {
            Err(detail) => errors.push(at.invalid(detail)),
            Ok(ty) => self.variables.push((format!("variables.{name}"), ty)),
        }
    }

    fn compile(&self, source: &str) -> Result<Type, String> {
        let set = self.env_set();
        let env = if self.stored.contains(source) { set.stored } else { set.new };
        match env.compile(source) {
            Ok(compiled) => Ok(compiled.program.result_type().clone()),
            Err(findings) => Err(format!("compilation failed: {findings}")),
        }
    }

    fn env_set(&self) -> EnvSet {
        EnvSet::default().map(|mut env| {
            env = env.with_variable("object", Type::Dyn).with_variable("oldObject", Type::Dyn);
            for variable in ["namespaceObject", "request"] {
                if let Some(schema) = ExpressionContext::MatchConditions.schema(variable) {
                    let set = env.add_types(cel::schema::TypeSet::Static(schema.types()));
                    env = env.with_object(variable, set, schema.id(), false);
                }
            }
            if self.uses.params {
                env = env.with_variable("params", Type::Dyn);
            }
            if self.uses.authorizer {
                let checks = Type::Opaque("kubernetes.authorization.ResourceCheck");
                env = env
                    .with_variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"))
                    .with_variable("authorizer.requestResource", checks);
            }
            if self.uses.mutation {
                env = env.with_mutation();
            }
            self.variables.iter().fold(env, |env, (name, ty)| env.with_variable(name, ty.clone()))
        })
    }
}

/// Collects the string `field` of every item of a list.
pub(super) fn of_items<'a>(list: Option<&'a Value>, field: &str) -> BTreeSet<&'a str> {
    let items = list.and_then(Value::as_array).unwrap_or_default();
    items.iter().filter_map(|item| item.str_at(&[field])).collect()
}

/// Returns upstream's name of a type.
fn type_name(ty: &Type) -> String {
    match ty {
        Type::Null => "null_type".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::Path;

    use super::*;

    fn check(source: &str, expect: &[&str]) {
        let uses = Uses { params: false, authorizer: true, mutation: false };
        let expressions = Expressions::new(uses, BTreeSet::new());
        let value = Value::from(source);
        let mut errors = Errors::new();
        expressions.check(source, &[Type::Bool], &At::new(&value, Path::of("e")), &mut errors);
        let messages: Vec<_> = errors.iter().map(|error| error.detail.lines().next().unwrap_or_default()).collect();
        assert_eq!(messages, expect, "{source}");
    }

    #[test]
    fn expression_type_and_variables_are_checked() {
        check("request.operation == 'CREATE' && authorizer.group('').resource('pods').check('get').allowed()", &[]);
        check("object.spec.replicas <= 5", &[]);
        check("'a'", &["must evaluate to bool but got string"]);
        check("object.spec.paused", &["must evaluate to bool but got dyn"]);
        check(
            "params.x == 1",
            &["compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')"],
        );
    }

    #[test]
    fn variables_are_visible_to_later_expressions() {
        let uses = Uses { params: true, authorizer: true, mutation: false };
        let mut expressions = Expressions::new(uses, BTreeSet::new());
        let value = Value::from("x");
        let at = At::new(&value, Path::of("e"));
        let mut errors = Errors::new();
        expressions.add_variable("many", "params.count > 3", &at, &mut errors);
        expressions.check("variables.many && true", &[Type::Bool], &at, &mut errors);
        assert_eq!(errors, []);
        expressions.check("variables.few", &[Type::Bool], &at, &mut errors);
        assert_eq!(errors.len(), 1);
    }
}
