//! Runs a compiled expression over the JSON tree, within a budget.

mod compile;
mod fold;
mod meter;
mod run;

use machinery::Str;

use crate::cost::Cost;
use crate::library::{Function, OverloadId};
use crate::types::Type;
use crate::value::Val;

pub(crate) use compile::compile;
pub use meter::{Failure, Meter};

/// What an expression is given: the values of its variables.
pub trait Variables<'a> {
    /// The value of a variable. One that is costly to make should be made when it is first asked for.
    fn variable(&self, name: &str) -> Option<Result<Val<'a>, Failure>>;
}

/// A compiled expression. Compile once, run as often as needed, from any thread.
#[derive(Debug)]
pub struct Program {
    ops: Box<[Op]>,
    root: OpId,
    slots: u16,
    result: Type,
}

/// The outcome of a run that ended, and what it cost.
#[derive(Clone, Debug)]
pub struct Outcome<'a> {
    /// The value.
    pub value: Val<'a>,
    /// What it cost.
    pub cost: u64,
}

type OpId = u32;

/// One step of a program. Operands are other steps.
#[derive(Debug)]
enum Op {
    Const(Val<'static>),
    Variable(Str),
    Local(u16),
    Select {
        operand: OpId,
        field: Str,
    },
    Test {
        operand: OpId,
        field: Str,
    },
    OptionalSelect {
        operand: OpId,
        field: Str,
    },
    And(OpId, OpId),
    Or(OpId, OpId),
    Conditional(OpId, OpId, OpId),
    NotStrictlyFalse(OpId),
    OptionalOr {
        operand: OpId,
        other: OpId,
        unwrap: bool,
    },
    Unary {
        call: Callee,
        operand: OpId,
    },
    Binary {
        call: Callee,
        operands: [OpId; 2],
    },
    /// `x in [constants]`, which upstream looks up for nothing.
    InConstant {
        operand: OpId,
        list: OpId,
    },
    Call(Box<Call>),
    List {
        items: Box<[OpId]>,
        optional: Box<[bool]>,
    },
    Map(Box<[(OpId, OpId, bool)]>),
    Struct {
        name: std::sync::Arc<str>,
        fields: Box<[(std::sync::Arc<str>, OpId, bool)]>,
    },
    Fold(Box<FoldOp>),
    Bind {
        slot: u16,
        init: OpId,
        result: OpId,
    },
}

/// The function of an operator, all of whose overloads are one function.
#[derive(Clone, Copy)]
struct Callee {
    function: Function,
    cost: Cost,
}

#[derive(Debug)]
struct Call {
    name: Str,
    overloads: Box<[OverloadId]>,
    args: Box<[OpId]>,
    pattern: Option<regex::Regex>,
}

#[derive(Debug)]
struct FoldOp {
    range: OpId,
    var: u16,
    var2: Option<u16>,
    accu: u16,
    init: OpId,
    cond: OpId,
    step: Step,
    result: OpId,
}

/// The steps that macros make, told apart so that collecting does not copy what was collected before, and so that looking for one
/// item that decides does nothing else.
#[derive(Debug)]
enum Step {
    /// `accu + [item]`, if there is no filter or it holds.
    Append { filter: Option<OpId>, item: OpId },
    /// `cel.@mapInsert(accu, …)`, if there is no filter or it holds.
    Insert { filter: Option<OpId>, args: Box<[OpId]> },
    /// `accu && predicate` until one is false, or `accu || predicate` until one is true: `all` and `exists`.
    Quantify { deciding: bool, predicate: OpId },
    /// `predicate ? accu + 1 : accu`: `exists_one`.
    Count { predicate: OpId },
    /// Any other expression.
    Any(OpId),
}

impl std::fmt::Debug for Callee {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}", self.cost)
    }
}

impl Program {
    /// Runs it within the meter's budget.
    ///
    /// # Errors
    /// What went wrong while it ran, or that the budget is used up.
    pub fn run<'a>(&'a self, variables: &dyn Variables<'a>, meter: &Meter<'_>) -> Result<Val<'a>, Failure> {
        run::run(self, variables, meter)
    }

    /// Runs it with what one expression may cost in Kubernetes.
    ///
    /// # Errors
    /// What went wrong while it ran, or that the budget is used up.
    pub fn evaluate<'a>(&'a self, variables: &dyn Variables<'a>) -> Result<Outcome<'a>, Failure> {
        let meter = Meter::new(crate::cost::limits::PER_CALL);
        let value = self.run(variables, &meter)?;
        Ok(Outcome { value, cost: meter.cost() })
    }

    /// The type of its value as the checker knows it.
    pub const fn result_type(&self) -> &Type {
        &self.result
    }
}

/// No variables.
impl<'a> Variables<'a> for () {
    fn variable(&self, _: &str) -> Option<Result<Val<'a>, Failure>> {
        None
    }
}

/// A few variables by name.
impl<'a, const N: usize> Variables<'a> for [(&str, Val<'a>); N] {
    fn variable(&self, name: &str) -> Option<Result<Val<'a>, Failure>> {
        self.as_slice().variable(name)
    }
}

impl<'a> Variables<'a> for [(&str, Val<'a>)] {
    fn variable(&self, name: &str) -> Option<Result<Val<'a>, Failure>> {
        self.iter().find(|(have, _)| *have == name).map(|(_, value)| Ok(value.clone()))
    }
}
