//! CEL expressions in configuration files, compiled on load so that errors are reported immediately.

use apimachinery::{Path, Str, Value, field};
use cel::{Compiled, ExpressionContext, Failure, Type, Val};

#[derive(Debug)]
pub(crate) struct Expression {
    pub source: Str,
    compiled: Compiled,
}

/// The required result type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultType {
    Bool,
    /// Any type. The caller converts the result.
    Any,
}

impl Expression {
    /// Compiles an expression of `host`.
    pub(crate) fn compile(
        host: ExpressionContext,
        source: &str,
        gives: ResultType,
        path: &Path<'_>,
    ) -> Result<Self, field::Error> {
        let invalid = |detail: String| field::Error::invalid(path, source, detail);
        // The stored environment is used: a file may have been written for a newer server.
        let compiled =
            host.env_set().stored.compile(source).map_err(|wrong| invalid(format!("compilation failed: {wrong}")))?;
        if gives == ResultType::Bool && *compiled.program.result_type() != Type::Bool {
            return Err(invalid("must evaluate to bool".to_owned()));
        }
        Ok(Self { source: source.into(), compiled })
    }

    /// Evaluates the expression with one variable; `None` if the result is not a boolean.
    pub(crate) fn holds(
        &self,
        host: ExpressionContext,
        variable: &str,
        value: &Value,
    ) -> Result<Option<bool>, Failure> {
        self.evaluate(host, variable, value, |value| if let Val::Bool(holds) = value { Some(*holds) } else { None })
    }

    /// Evaluates the expression with one variable and converts the result with `take`.
    pub(crate) fn evaluate<T>(
        &self,
        host: ExpressionContext,
        variable: &str,
        value: &Value,
        take: impl FnOnce(&Val<'_>) -> T,
    ) -> Result<T, Failure> {
        let value = Val::json(value, host.schema(variable))?;
        let outcome = self.compiled.program.evaluate(&[(variable, value)])?;
        Ok(take(&outcome.value))
    }
}
