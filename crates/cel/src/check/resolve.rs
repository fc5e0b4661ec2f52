//! Overload resolution: the functions that a call may refer to.

use apimachinery::Str;

use super::{Checker, Meaning};
use crate::ast::{Expr, ExprId, Literal};
use crate::library::{OverloadId, TABLE};
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn call(&mut self, id: ExprId, function: &str, target: Option<ExprId>, args: &[ExprId]) -> Type {
        if function == "_?._" {
            return self.optional_select(id, args);
        }
        let Some(target) = target else {
            let name = function.strip_prefix('.').unwrap_or(function);
            let types: Vec<_> = args.iter().map(|arg| self.check(*arg)).collect();
            return self.resolve(id, name, false, &types);
        };
        // `math.ceil(x)` is a method call on a variable `math`, unless there is such a function.
        if let Some(prefix) = self.qualified_name(target) {
            let full = format!("{prefix}.{function}");
            if self.env.overloads(&full).next().is_some() {
                self.ast
                    .replace(id, Expr::Call { function: Str::from(full.as_str()), target: None, args: args.into() });
                let types: Vec<_> = args.iter().map(|arg| self.check(*arg)).collect();
                return self.resolve(id, &full, false, &types);
            }
        }
        let mut types = vec![self.check(target)];
        types.extend(args.iter().map(|arg| self.check(*arg)));
        self.resolve(id, function, true, &types)
    }

    /// Checks `operand.?field`.
    fn optional_select(&mut self, id: ExprId, args: &[ExprId]) -> Type {
        let of = self.check(args[0]);
        self.check(args[1]);
        let Expr::Literal(Literal::String(field)) = self.ast.expr(args[1]).clone() else { return Type::Error };
        match self.field(id, &of, &field) {
            Type::Error => Type::Error,
            already @ Type::Optional(_) => already,
            ty => Type::optional(ty),
        }
    }

    /// Keeps every matching overload: with dynamic arguments there can be several.
    fn resolve(&mut self, id: ExprId, function: &str, receiver: bool, args: &[Type]) -> Type {
        let overloads: Vec<OverloadId> = self.env.overloads(function).collect();
        if overloads.is_empty() {
            return self.undeclared(id, function);
        }
        let mut fitting = Vec::new();
        let mut result: Option<Type> = None;
        for overload_id in overloads {
            let overload = TABLE.overload(overload_id);
            if overload.receiver != receiver || overload.params.len() != args.len() {
                continue;
            }
            let instance = self.unifier.instantiate(&overload.params, &overload.result);
            if !self.unifier.all_assignable(args, &instance.0) {
                continue;
            }
            fitting.push(overload_id);
            let ty = self.unifier.resolve(&instance.1);
            result = Some(match result {
                None => ty,
                Some(before) if before.is_dyn() || self.unifier.equivalent(&before, &ty) => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(ty) = result else { return self.no_overload(id, function, receiver, args) };
        self.meanings[id.index()] = Meaning::Overloads(fitting.into());
        ty
    }

    fn no_overload(&mut self, id: ExprId, function: &str, receiver: bool, args: &[Type]) -> Type {
        let mut arg_types: Vec<_> = args.iter().map(|ty| self.unifier.substitute(ty).to_string()).collect();
        let target = if receiver { format!("{}.", arg_types.remove(0)) } else { String::new() };
        let applied = format!("{target}({})", arg_types.join(", "));
        self.error(id, format!("found no matching overload for '{function}' applied to '{applied}'"))
    }
}
