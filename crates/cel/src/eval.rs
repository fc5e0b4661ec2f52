//! CEL evaluator: runs a compiled expression over the JSON tree within a budget.

mod compile;
mod fold;
mod meter;
mod run;

use apimachinery::Str;

use crate::cost::Cost;
use crate::library::{Function, OverloadId};
use crate::types::Type;
use crate::value::Val;

pub(crate) use compile::compile;
pub use meter::{Failure, Meter};

/// The variables of an evaluation.
pub trait Variables<'a> {
    /// Returns the value of a variable. Expensive values should be computed on first use.
    fn variable(&self, name: &str) -> Option<Result<Val<'a>, Failure>>;
}

/// A compiled expression. Compiled once, it can run any number of times on any thread.
#[derive(Debug)]
pub struct Program {
    ops: Box<[Op]>,
    root: OpId,
    slots: u16,
    result: Type,
}

/// The result of a completed run.
#[derive(Clone, Debug)]
pub struct Outcome<'a> {
    pub value: Val<'a>,
    pub cost: u64,
}

type OpId = u32;

/// One operation of a program. Operands are other operations.
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
    /// `x in [constants]`, a lookup for which upstream charges nothing.
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

/// The function and cost rule of an operator. All its overloads share one function, so none has to be selected.
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

/// The steps of macros. They are distinguished so that collecting does not copy the collected items, and so that
/// quantifiers only search for the deciding item.
#[derive(Debug)]
enum Step {
    /// `accu + [item]`, if there is no filter or the filter is true.
    Append { filter: Option<OpId>, item: OpId },
    /// `cel.@mapInsert(accu, …)`, if there is no filter or the filter is true.
    Insert { filter: Option<OpId>, args: Box<[OpId]> },
    /// `all` and `exists`: `accu && predicate` until one is false, or `accu || predicate` until one is true.
    Quantify { deciding: bool, predicate: OpId },
    /// `exists_one`: `predicate ? accu + 1 : accu`.
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
    /// Runs the program within the meter's budget.
    ///
    /// # Errors
    /// Evaluation errors, or an exhausted budget.
    pub fn run<'a>(&'a self, variables: &dyn Variables<'a>, meter: &Meter<'_>) -> Result<Val<'a>, Failure> {
        run::run(self, variables, meter)
    }

    /// Runs the program with Kubernetes' cost limit for one expression.
    ///
    /// # Errors
    /// Evaluation errors, or an exhausted budget.
    pub fn evaluate<'a>(&'a self, variables: &dyn Variables<'a>) -> Result<Outcome<'a>, Failure> {
        let meter = Meter::new(crate::cost::limits::PER_CALL);
        let value = self.run(variables, &meter)?;
        Ok(Outcome { value, cost: meter.cost() })
    }

    /// Returns the static type of the result.
    pub const fn result_type(&self) -> &Type {
        &self.result
    }
}

impl<'a> Variables<'a> for () {
    fn variable(&self, _: &str) -> Option<Result<Val<'a>, Failure>> {
        None
    }
}

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
