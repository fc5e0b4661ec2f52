//! CEL macros: each expands to a presence test or a comprehension, in the form that the cost rules expect.

use apimachinery::Str;

use crate::ast::{ACCUMULATOR, Ast, Expr, ExprId, Fold, Literal};
use crate::error::{Finding, Findings};
use crate::parser::Syntax;

type ExpansionResult = Result<ExprId, Findings>;

/// Expands a macro call; [`None`] for an ordinary call.
pub(crate) fn expand(
    ast: &mut Ast,
    syntax: Syntax,
    offset: u32,
    function: &str,
    target: Option<ExprId>,
    args: &[ExprId],
) -> Option<ExpansionResult> {
    let mut build = Build { ast, offset };
    let Some(target) = target else {
        return match (function, args) {
            ("has", [arg]) => Some(build.has(*arg)),
            _ => None,
        };
    };
    let expanded = match (function, args) {
        ("all", [x, p]) => build.quantify(target, &[*x], *p, Quantifier::All),
        ("exists", [x, p]) => build.quantify(target, &[*x], *p, Quantifier::Exists),
        ("exists_one" | "existsOne", [x, p]) => build.quantify(target, &[*x], *p, Quantifier::One),
        ("map", [x, f]) => build.collect(target, &[*x], None, *f),
        ("map", [x, p, f]) => build.collect(target, &[*x], Some(*p), *f),
        ("filter", [x, p]) => build.collect(target, &[*x], Some(*p), *x),
        ("optMap", [x, f]) if syntax.optional => build.opt_map(target, *x, *f, Lift::Wrap),
        ("optFlatMap", [x, f]) if syntax.optional => build.opt_map(target, *x, *f, Lift::Keep),
        ("sortBy", [x, key]) if syntax.sort_by => build.sort_by(target, *x, *key),
        ("greatest" | "least", [_, _, _, ..]) if syntax.math && is_ident(build.ast, target, "math") => {
            build.extreme(target, function, args)
        }
        ("bind", [x, value, f]) if syntax.bind && is_ident(build.ast, target, "cel") => build.bind(*x, *value, *f),
        (_, [i, v, ..]) if syntax.two_variables => {
            let variables = [*i, *v];
            match (function, &args[2..]) {
                ("all", [p]) => build.quantify(target, &variables, *p, Quantifier::All),
                ("exists", [p]) => build.quantify(target, &variables, *p, Quantifier::Exists),
                ("exists_one" | "existsOne", [p]) => build.quantify(target, &variables, *p, Quantifier::One),
                ("transformList", [f]) => build.collect(target, &variables, None, *f),
                ("transformList", [p, f]) => build.collect(target, &variables, Some(*p), *f),
                ("transformMap", [f]) => build.transform_map(target, &variables, None, *f, MapTransform::SameKey),
                ("transformMap", [p, f]) => {
                    build.transform_map(target, &variables, Some(*p), *f, MapTransform::SameKey)
                }
                ("transformMapEntry", [f]) => build.transform_map(target, &variables, None, *f, MapTransform::Entry),
                ("transformMapEntry", [p, f]) => {
                    build.transform_map(target, &variables, Some(*p), *f, MapTransform::Entry)
                }
                _ => return None,
            }
        }
        _ => return None,
    };
    Some(expanded)
}

#[derive(Clone, Copy)]
enum Quantifier {
    All,
    Exists,
    One,
}

#[derive(Clone, Copy)]
enum Lift {
    /// `optMap`: the result is wrapped into an optional.
    Wrap,
    /// `optFlatMap`: the result is already an optional.
    Keep,
}

#[derive(Clone, Copy)]
enum MapTransform {
    /// `transformMap`: the result is the value under the same key.
    SameKey,
    /// `transformMapEntry`: the result is a map whose entries are added.
    Entry,
}

/// Creates nodes with the source offset of the macro.
struct Build<'b> {
    ast: &'b mut Ast,
    offset: u32,
}

impl Build<'_> {
    fn has(&mut self, arg: ExprId) -> ExpansionResult {
        match self.ast.expr(arg).clone() {
            Expr::Select { operand, field, test: false } => self.add(Expr::Select { operand, field, test: true }),
            _ => Err(self.error(arg, "invalid argument to has() macro")),
        }
    }

    fn quantify(&mut self, range: ExprId, variables: &[ExprId], predicate: ExprId, how: Quantifier) -> ExpansionResult {
        let variables = self.variables(variables)?;
        let accu = self.ident(ACCUMULATOR)?;
        let (init, cond, step) = match how {
            Quantifier::All => {
                let cond = self.call("@not_strictly_false", &[accu])?;
                (Literal::Bool(true), cond, self.call("_&&_", &[accu, predicate])?)
            }
            Quantifier::Exists => {
                let none_yet = self.call("!_", &[accu])?;
                let cond = self.call("@not_strictly_false", &[none_yet])?;
                (Literal::Bool(false), cond, self.call("_||_", &[accu, predicate])?)
            }
            Quantifier::One => {
                let one = self.literal(Literal::Int(1))?;
                let more = self.call("_+_", &[accu, one])?;
                let step = self.call("_?_:_", &[predicate, more, accu])?;
                (Literal::Int(0), self.literal(Literal::Bool(true))?, step)
            }
        };
        let result = match how {
            Quantifier::All | Quantifier::Exists => self.ident(ACCUMULATOR)?,
            Quantifier::One => {
                let count = self.ident(ACCUMULATOR)?;
                let one = self.literal(Literal::Int(1))?;
                self.call("_==_", &[count, one])?
            }
        };
        let init = self.literal(init)?;
        self.fold(range, variables, init, cond, step, result)
    }

    fn collect(&mut self, range: ExprId, vars: &[ExprId], filter: Option<ExprId>, item: ExprId) -> ExpansionResult {
        let variables = self.variables(vars)?;
        let accu = self.ident(ACCUMULATOR)?;
        let item = self.add(Expr::List { items: [item].into(), optional: [false].into() })?;
        let longer = self.call("_+_", &[accu, item])?;
        let init = self.add(Expr::List { items: [].into(), optional: [].into() })?;
        self.gather(range, variables, init, filter, longer)
    }

    fn transform_map(
        &mut self,
        range: ExprId,
        vars: &[ExprId],
        filter: Option<ExprId>,
        value: ExprId,
        keyed: MapTransform,
    ) -> ExpansionResult {
        let variables = self.variables(vars)?;
        let accu = self.ident(ACCUMULATOR)?;
        let larger = match keyed {
            MapTransform::SameKey => {
                let key = self.ident(&variables.0)?;
                self.call("cel.@mapInsert", &[accu, key, value])?
            }
            MapTransform::Entry => self.call("cel.@mapInsert", &[accu, value])?,
        };
        let init = self.add(Expr::Map([].into()))?;
        self.gather(range, variables, init, filter, larger)
    }

    /// Builds a comprehension with the step `filter ? longer : accu`, or `longer` without a filter.
    fn gather(
        &mut self,
        range: ExprId,
        variables: (Str, Option<Str>),
        init: ExprId,
        filter: Option<ExprId>,
        longer: ExprId,
    ) -> ExpansionResult {
        let step = match filter {
            Some(filter) => {
                let accu = self.ident(ACCUMULATOR)?;
                self.call("_?_:_", &[filter, longer, accu])?
            }
            None => longer,
        };
        let cond = self.literal(Literal::Bool(true))?;
        let result = self.ident(ACCUMULATOR)?;
        self.fold(range, variables, init, cond, step, result)
    }

    /// Builds `target.hasValue() ? optional.of(bind(x, target.value(), f)) : optional.none()`.
    fn opt_map(&mut self, target: ExprId, x: ExprId, f: ExprId, lift: Lift) -> ExpansionResult {
        let test = self.method("hasValue", target)?;
        let value = self.method("value", target)?;
        let bound = self.bind(x, value, f)?;
        let some = match lift {
            Lift::Wrap => self.call("optional.of", &[bound])?,
            Lift::Keep => bound,
        };
        let none = self.call("optional.none", &[])?;
        self.call("_?_:_", &[test, some, none])
    }

    /// Builds a comprehension over an empty range whose accumulator is the variable.
    fn bind(&mut self, x: ExprId, value: ExprId, f: ExprId) -> ExpansionResult {
        let accu = self.variable(x)?;
        let range = self.add(Expr::List { items: [].into(), optional: [].into() })?;
        let cond = self.literal(Literal::Bool(false))?;
        let step = self.ident(&accu)?;
        let var = Str::from("#unused");
        self.add(Expr::Fold(Box::new(Fold { range, var, var2: None, accu, init: value, cond, step, result: f })))
    }

    /// Builds `bind(list, list.@sortByAssociatedKeys(list.map(x, key)))`.
    fn sort_by(&mut self, list: ExprId, x: ExprId, key: ExprId) -> ExpansionResult {
        let name = self.ident("@__sortBy_input__")?;
        let keys = self.collect(name, &[x], None, key)?;
        let sorted = self.add(Expr::Call {
            function: Str::from("@sortByAssociatedKeys"),
            target: Some(name),
            args: [keys].into(),
        })?;
        self.bind(name, list, sorted)
    }

    /// Builds `math.greatest` or `math.least`; more than two arguments become one list.
    fn extreme(&mut self, target: ExprId, function: &str, args: &[ExprId]) -> ExpansionResult {
        let optional = vec![false; args.len()].into();
        let list = self.add(Expr::List { items: args.into(), optional })?;
        self.add(Expr::Call { function: Str::from(function), target: Some(target), args: [list].into() })
    }

    fn fold(
        &mut self,
        range: ExprId,
        (var, var2): (Str, Option<Str>),
        init: ExprId,
        cond: ExprId,
        step: ExprId,
        result: ExprId,
    ) -> ExpansionResult {
        let accu = Str::from(ACCUMULATOR);
        self.add(Expr::Fold(Box::new(Fold { range, var, var2, accu, init, cond, step, result })))
    }

    fn variables(&self, vars: &[ExprId]) -> Result<(Str, Option<Str>), Findings> {
        let first = self.variable(vars[0])?;
        let Some(second) = vars.get(1) else { return Ok((first, None)) };
        let name = self.variable(*second)?;
        if name == first {
            return Err(self.error(*second, &format!("duplicate variable name: {name}")));
        }
        Ok((first, Some(name)))
    }

    fn variable(&self, id: ExprId) -> Result<Str, Findings> {
        match self.ast.expr(id) {
            Expr::Ident(name) if !name.starts_with('.') => Ok(name.clone()),
            _ => Err(self.error(id, "argument must be a simple name")),
        }
    }

    fn method(&mut self, function: &str, target: ExprId) -> ExpansionResult {
        self.add(Expr::Call { function: Str::from(function), target: Some(target), args: [].into() })
    }

    fn call(&mut self, function: &str, args: &[ExprId]) -> ExpansionResult {
        self.add(Expr::Call { function: Str::from(function), target: None, args: args.into() })
    }

    fn ident(&mut self, name: &str) -> ExpansionResult {
        self.add(Expr::Ident(Str::from(name)))
    }

    fn literal(&mut self, literal: Literal) -> ExpansionResult {
        self.add(Expr::Literal(literal))
    }

    fn add(&mut self, expr: Expr) -> ExpansionResult {
        self.ast.add(self.offset, expr)
    }

    fn error(&self, at: ExprId, message: &str) -> Findings {
        Findings::one(self.ast.source(), Finding { offset: self.ast.offset(at), message: message.to_owned() })
    }
}

fn is_ident(ast: &Ast, id: ExprId, name: &str) -> bool {
    matches!(ast.expr(id), Expr::Ident(have) if have == name)
}
