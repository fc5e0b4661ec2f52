//! Compiler from a checked tree to a program: resolves names to slots, folds constants, compiles patterns.

use std::sync::Arc;

use apimachinery::Str;

use super::{Call, Callee, FoldOp, Meter, Op, OpId, Program, Step};
use crate::ast::{Expr, ExprId, Fold, Literal};
use crate::check::{CheckedExpr, Meaning};
use crate::library::operators::operator;
use crate::library::{Args, OverloadId, TABLE, compile_regex, is_pattern_argument};
use crate::value::{Entries, Key, Val};

pub(crate) fn compile(checked: &CheckedExpr) -> Program {
    let mut compiler = Compiler { checked, ops: Vec::new(), scope: Vec::new(), slots: 0, next: 0 };
    let root = compiler.expr(checked.ast.root());
    let result = checked.type_of(checked.ast.root()).clone();
    Program { ops: compiler.ops.into(), root, slots: compiler.slots, result }
}

struct Compiler<'c> {
    checked: &'c CheckedExpr,
    ops: Vec<Op>,
    scope: Vec<(Str, u16)>,
    slots: u16,
    next: u16,
}

impl Compiler<'_> {
    fn expr(&mut self, id: ExprId) -> OpId {
        let checked = self.checked;
        match checked.meaning(id) {
            Meaning::Variable(name) => return self.add(Op::Variable(name.clone())),
            Meaning::Type(ty) => return self.add(Op::Const(Val::Type(Arc::new(ty.clone())))),
            _ => {}
        }
        match checked.ast.expr(id) {
            Expr::Literal(literal) => self.add(Op::Const(constant(literal))),
            Expr::Ident(name) => {
                let slot = self.scope.iter().rev().find(|(have, _)| have == name).map(|(_, slot)| *slot);
                self.add(slot.map_or_else(|| Op::Variable(name.clone()), Op::Local))
            }
            Expr::Select { operand, field, test } => {
                let operand = self.expr(*operand);
                let field = self.property(id, field);
                self.add(if *test { Op::Test { operand, field } } else { Op::Select { operand, field } })
            }
            Expr::Call { function, target, args } => self.call(id, function, *target, args),
            Expr::List { items, optional } => {
                let items: Box<[OpId]> = items.iter().map(|item| self.expr(*item)).collect();
                self.list(items, optional.clone())
            }
            Expr::Map(entries) => {
                let entries =
                    entries.iter().map(|entry| (self.expr(entry.key), self.expr(entry.value), entry.optional));
                let entries = entries.collect();
                self.map(entries)
            }
            Expr::Struct { name, fields } => {
                let fields =
                    fields.iter().map(|field| (Arc::from(field.name.as_str()), self.expr(field.value), field.optional));
                let fields = fields.collect();
                self.add(Op::Struct { name: Arc::from(name.as_str()), fields })
            }
            Expr::Fold(fold) => self.fold(fold),
        }
    }

    fn add(&mut self, op: Op) -> OpId {
        self.ops.push(op);
        OpId::try_from(self.ops.len() - 1).expect("the source length bounds the program")
    }

    fn property(&self, id: ExprId, field: &Str) -> Str {
        match self.checked.meaning(id) {
            Meaning::Property(property) => property.clone(),
            _ => field.clone(),
        }
    }

    fn call(&mut self, id: ExprId, function: &str, target: Option<ExprId>, args: &[ExprId]) -> OpId {
        let ids: Vec<ExprId> = target.into_iter().chain(args.iter().copied()).collect();
        if function == "_?._" {
            let operand = self.expr(args[0]);
            let Expr::Literal(Literal::String(field)) = self.checked.ast.expr(args[1]) else {
                unreachable!("the parser makes the field a literal");
            };
            let field = self.property(id, field);
            return self.add(Op::OptionalSelect { operand, field });
        }
        let ops: Box<[OpId]> = ids.iter().map(|id| self.expr(*id)).collect();
        let op = match (function, &*ops) {
            ("_&&_", [a, b]) => Op::And(*a, *b),
            ("_||_", [a, b]) => Op::Or(*a, *b),
            ("_?_:_", [condition, then, otherwise]) => Op::Conditional(*condition, *then, *otherwise),
            ("@not_strictly_false", [operand]) => Op::NotStrictlyFalse(*operand),
            ("or", [operand, other]) if target.is_some() => {
                Op::OptionalOr { operand: *operand, other: *other, unwrap: false }
            }
            ("orValue", [operand, other]) if target.is_some() => {
                Op::OptionalOr { operand: *operand, other: *other, unwrap: true }
            }
            ("@in", [operand, list]) if matches!(self.ops[*list as usize], Op::Const(Val::List(_))) => {
                Op::InConstant { operand: *operand, list: *list }
            }
            (name, ops) => match (operator(name), ops) {
                (Some((function, cost)), [a, b]) => Op::Binary { call: Callee { function, cost }, operands: [*a, *b] },
                (Some((function, cost)), [operand]) => Op::Unary { call: Callee { function, cost }, operand: *operand },
                _ => self.function(id, name, ops),
            },
        };
        self.add(op)
    }

    fn function(&self, id: ExprId, name: &str, args: &[OpId]) -> Op {
        let overloads: Box<[OverloadId]> = match self.checked.meaning(id) {
            Meaning::Overloads(overloads) => overloads.clone(),
            _ => Box::default(),
        };
        if let Some(folded) = self.folded(name, &overloads, args) {
            return Op::Const(folded);
        }
        let constant = args.get(1).and_then(|arg| match &self.ops[*arg as usize] {
            Op::Const(value) => value.as_str(),
            _ => None,
        });
        // An invalid pattern fails with its error when it is used.
        let pattern = constant.filter(|_| is_pattern_argument(name)).and_then(|text| compile_regex(text).ok());
        Op::Call(Box::new(Call { name: Str::from(name), overloads, args: args.into(), pattern }))
    }

    /// Folds conversions of constants, as upstream does; a failing conversion fails at runtime.
    fn folded(&self, name: &str, overloads: &[OverloadId], args: &[OpId]) -> Option<Val<'static>> {
        const CONVERSIONS: [&str; 9] =
            ["bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint", "dyn"];
        let ([arg], [overload]) = (args, overloads) else { return None };
        let Op::Const(value) = &self.ops[*arg as usize] else { return None };
        if !CONVERSIONS.contains(&name) {
            return None;
        }
        let meter = Meter::new(u64::MAX);
        let args = Args { args: std::slice::from_ref(value), meter: &meter, pattern: None };
        (TABLE.overload(*overload).call)(args).ok()
    }

    /// Folds a list of constants to a constant.
    fn list(&mut self, items: Box<[OpId]>, optional: Box<[bool]>) -> OpId {
        let constants: Option<Vec<Val<'static>>> = items
            .iter()
            .zip(&optional)
            .map(|(item, optional)| match &self.ops[*item as usize] {
                Op::Const(value) if !optional => Some(value.clone()),
                _ => None,
            })
            .collect();
        self.add(constants.map_or_else(|| Op::List { items, optional }, |items| Op::Const(Val::list(items))))
    }

    /// Folds a map of constants to a constant, unless its construction fails.
    fn map(&mut self, entries: Box<[(OpId, OpId, bool)]>) -> OpId {
        let mut constants = Entries::new();
        for (key, value, optional) in &entries {
            let made = match (&self.ops[*key as usize], &self.ops[*value as usize], optional) {
                (Op::Const(key), Op::Const(value), false) => Key::of(key).map(|key| (key, value.clone())),
                _ => None,
            };
            if !made.is_some_and(|(key, value)| constants.insert(key, value)) {
                return self.add(Op::Map(entries));
            }
        }
        self.add(Op::Const(Val::map(constants)))
    }

    fn fold(&mut self, fold: &Fold) -> OpId {
        let (depth, next) = (self.scope.len(), self.next);
        let init = self.expr(fold.init);
        if &*fold.var == "#unused" {
            let slot = self.slot(&fold.accu);
            let result = self.expr(fold.result);
            self.leave(depth, next);
            return self.add(Op::Bind { slot, init, result });
        }
        let range = self.expr(fold.range);
        let accu = self.slot(&fold.accu);
        let var = self.slot(&fold.var);
        let var2 = fold.var2.as_ref().map(|name| self.slot(name));
        let cond = self.expr(fold.cond);
        let step = self.step(fold);
        self.scope.truncate(depth + 1);
        let result = self.expr(fold.result);
        self.leave(depth, next);
        self.add(Op::Fold(Box::new(FoldOp { range, var, var2, accu, init, cond, step, result })))
    }

    fn slot(&mut self, name: &Str) -> u16 {
        let slot = self.next;
        self.scope.push((name.clone(), slot));
        self.next += 1;
        self.slots = self.slots.max(self.next);
        slot
    }

    fn leave(&mut self, depth: usize, next: u16) {
        self.scope.truncate(depth);
        self.next = next;
    }

    fn step(&mut self, fold: &Fold) -> Step {
        let ast = &self.checked.ast;
        if let Some((deciding, predicate)) = self.quantifier(fold) {
            return Step::Quantify { deciding, predicate: self.expr(predicate) };
        }
        if let Some(predicate) = self.counter(fold) {
            return Step::Count { predicate: self.expr(predicate) };
        }
        let (filter, longer) = match ast.expr(fold.step) {
            Expr::Call { function, args, .. } if function == "_?_:_" && self.is_accu(fold, args[2]) => {
                (Some(args[0]), args[1])
            }
            _ => (None, fold.step),
        };
        match ast.expr(longer) {
            Expr::Call { function, args, .. } if function == "_+_" && self.is_accu(fold, args[0]) => {
                if let Expr::List { items, .. } = ast.expr(args[1])
                    && let [item] = **items
                {
                    let filter = filter.map(|filter| self.expr(filter));
                    return Step::Append { filter, item: self.expr(item) };
                }
            }
            Expr::Call { function, args, .. } if function == "cel.@mapInsert" && self.is_accu(fold, args[0]) => {
                let filter = filter.map(|filter| self.expr(filter));
                return Step::Insert { filter, args: args[1..].iter().map(|arg| self.expr(*arg)).collect() };
            }
            _ => {}
        }
        Step::Any(self.expr(fold.step))
    }

    /// Returns the predicate of `all` or `exists`, and the value that decides the result.
    fn quantifier(&self, fold: &Fold) -> Option<(bool, ExprId)> {
        let called = |id: ExprId, name: &str| match self.checked.ast.expr(id) {
            Expr::Call { function, args, .. } if function == name => Some(&**args),
            _ => None,
        };
        let goes_on = called(fold.cond, "@not_strictly_false")?.first()?;
        let (deciding, accu, step) = match called(*goes_on, "!_") {
            Some(negated) => (true, *negated.first()?, called(fold.step, "_||_")?),
            None => (false, *goes_on, called(fold.step, "_&&_")?),
        };
        let [left, predicate] = *step else { return None };
        (self.is_accu(fold, accu) && self.is_accu(fold, left)).then_some((deciding, predicate))
    }

    /// Returns the predicate of `exists_one`.
    fn counter(&self, fold: &Fold) -> Option<ExprId> {
        let ast = &self.checked.ast;
        let Expr::Literal(Literal::Bool(true)) = ast.expr(fold.cond) else { return None };
        let Expr::Call { function, args, .. } = ast.expr(fold.step) else { return None };
        let [predicate, more, same] = **args else { return None };
        let Expr::Call { function: add, args, .. } = ast.expr(more) else { return None };
        let [accu, one] = **args else { return None };
        let counts = function == "_?_:_"
            && add == "_+_"
            && self.is_accu(fold, same)
            && self.is_accu(fold, accu)
            && matches!(ast.expr(one), Expr::Literal(Literal::Int(1)))
            && matches!(ast.expr(fold.init), Expr::Literal(Literal::Int(0)));
        counts.then_some(predicate)
    }

    fn is_accu(&self, fold: &Fold, id: ExprId) -> bool {
        matches!(self.checked.ast.expr(id), Expr::Ident(name) if *name == fold.accu)
    }
}

fn constant(literal: &Literal) -> Val<'static> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(bool) => Val::Bool(*bool),
        Literal::Int(int) => Val::Int(*int),
        Literal::Uint(uint) => Val::Uint(*uint),
        Literal::Double(double) => Val::Double(*double),
        Literal::String(text) => Val::text(text),
        Literal::Bytes(bytes) => Val::Bytes(Arc::from(&**bytes)),
    }
}
