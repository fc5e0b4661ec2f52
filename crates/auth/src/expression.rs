//! Expressions in the server's configuration: compiled when it is read, so that a wrong one is told at once.

use cel::{Compiled, Failure, Host, Type, Val};
use machinery::{Path, Str, Value, field};

/// A compiled expression and its text.
#[derive(Debug)]
pub(crate) struct Expression {
    /// As it was written.
    pub source: Str,
    compiled: Compiled,
}

/// What an expression must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    /// True or false.
    Bool,
    /// Whatever whoever uses it makes of it.
    Anything,
}

impl Expression {
    /// Compiles an expression of `host`.
    pub fn compile(host: Host, source: &str, gives: Gives, path: &Path<'_>) -> Result<Self, field::Error> {
        let invalid = |detail: String| field::Error::invalid(path, source, detail);
        // What stands in a file was there before: a newer server's functions may be used.
        let compiled =
            host.env_set().stored.compile(source).map_err(|wrong| invalid(format!("compilation failed: {wrong}")))?;
        if gives == Gives::Bool && *compiled.program.result_type() != Type::Bool {
            return Err(invalid("must evaluate to bool".to_owned()));
        }
        Ok(Self { source: source.into(), compiled })
    }

    /// Whether it holds with one variable; `None` if it gives something else than true or false.
    pub fn holds(&self, host: Host, variable: &str, value: &Value) -> Result<Option<bool>, Failure> {
        self.evaluate(host, variable, value, |value| if let Val::Bool(holds) = value { Some(*holds) } else { None })
    }

    /// Evaluates it with one variable, and gives what `take` makes of the value.
    pub fn evaluate<T>(
        &self,
        host: Host,
        variable: &str,
        value: &Value,
        take: impl FnOnce(&Val<'_>) -> T,
    ) -> Result<T, Failure> {
        let value = Val::json(value, host.schema(variable))?;
        let outcome = self.compiled.program.evaluate(&[(variable, value)])?;
        Ok(take(&outcome.value))
    }
}
