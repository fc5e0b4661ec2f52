//! Evaluation of a program by recursion over a tree whose depth the parser has limited.

use std::sync::Arc;

use super::{Call, Callee, Failure, Meter, Op, OpId, Program, Variables};
use crate::cost::{LIST_BASE, MAP_BASE, STRUCT_BASE, call_cost};
use crate::library::{Args, TABLE};
use crate::value::{Entries, Key, PartialObject, Val};

pub(super) type Result<T> = std::result::Result<T, Failure>;

pub(super) fn run<'a>(program: &'a Program, variables: &dyn Variables<'a>, meter: &Meter<'_>) -> Result<Val<'a>> {
    let slots = vec![Ok(Val::Null); program.slots as usize];
    Run { program, variables, meter, slots }.eval(program.root)
}

pub(super) struct Run<'r, 'a> {
    pub program: &'a Program,
    pub variables: &'r dyn Variables<'a>,
    pub meter: &'r Meter<'r>,
    /// Accumulators can hold failures, which later values may absorb.
    pub slots: Vec<Result<Val<'a>>>,
}

impl<'a> Run<'_, 'a> {
    pub(super) fn eval(&mut self, id: OpId) -> Result<Val<'a>> {
        match &self.program.ops[id as usize] {
            Op::Const(value) => Ok(constant(value)),
            Op::Variable(name) => {
                self.meter.charge(1)?;
                self.variable(name)
            }
            Op::Local(slot) => {
                self.meter.charge(1)?;
                self.slots[*slot as usize].clone()
            }
            Op::Select { operand, field } => self.select(*operand, field),
            Op::Test { operand, field } => self.test(*operand, field),
            Op::OptionalSelect { operand, field } => self.optional_select(*operand, field),
            Op::And(a, b) => self.logic(*a, *b, false),
            Op::Or(a, b) => self.logic(*a, *b, true),
            Op::Conditional(condition, then, otherwise) => match self.eval(*condition)? {
                Val::Bool(true) => self.eval(*then),
                Val::Bool(false) => self.eval(*otherwise),
                _ => Err(Failure::no_overload()),
            },
            Op::NotStrictlyFalse(operand) => self.not_strictly_false(*operand),
            Op::OptionalOr { operand, other, unwrap } => self.optional_or(*operand, *other, *unwrap),
            Op::Unary { call, operand } => self.unary(*call, *operand),
            Op::Binary { call, operands: [a, b] } => self.binary(*call, *a, *b),
            Op::InConstant { operand, list } => self.in_constant(*operand, *list),
            Op::Call(call) => self.call(call),
            Op::List { items, optional } => self.list(items, optional),
            Op::Map(entries) => self.map(entries),
            Op::Struct { name, fields } => self.construct(name, fields),
            Op::Fold(fold) => self.fold(fold),
            Op::Bind { slot, init, result } => {
                let value = self.eval(*init);
                if let Err(failure) = &value
                    && !failure.absorbable()
                {
                    return value;
                }
                self.slots[*slot as usize] = value;
                self.eval(*result)
            }
        }
    }

    #[inline(never)]
    fn variable(&mut self, name: &str) -> Result<Val<'a>> {
        self.variables.variable(name).unwrap_or_else(|| Err(Failure::message(format!("no such attribute(s): {name}"))))
    }

    #[inline(never)]
    fn select(&mut self, operand: OpId, field: &str) -> Result<Val<'a>> {
        let value = self.eval(operand)?;
        self.meter.charge(1)?;
        if let Val::Optional(inner) = &value {
            return match inner {
                Some(inner) => Ok(self.field(inner, field)?.map_or(Val::Optional(None), Val::some)),
                None => Ok(Val::Optional(None)),
            };
        }
        self.field(&value, field)?.ok_or_else(|| Failure::message(format!("no such key: {field}")))
    }

    fn field(&self, value: &Val<'a>, field: &str) -> Result<Option<Val<'a>>> {
        self.meter.read(field.len())?;
        match value {
            Val::Map(map) => map.field(field).transpose(),
            Val::PartialObject(built) => {
                Ok(built.fields.iter().find(|(name, _)| **name == *field).map(|(_, value)| value.clone()))
            }
            Val::Optional(Some(inner)) => self.field(inner, field),
            Val::Optional(None) => Ok(None),
            _ => Err(Failure::no_overload()),
        }
    }

    #[inline(never)]
    fn test(&mut self, operand: OpId, field: &str) -> Result<Val<'a>> {
        let value = self.eval(operand)?;
        Ok(Val::Bool(self.field(&value, field)?.is_some()))
    }

    #[inline(never)]
    fn optional_select(&mut self, operand: OpId, field: &str) -> Result<Val<'a>> {
        let value = self.eval(operand)?;
        self.meter.charge(1)?;
        Ok(self.field(&value, field)?.map_or(Val::Optional(None), Val::some))
    }

    /// Evaluates `&&` and `||`: the deciding value on either side determines the result and absorbs a failure on the
    /// other.
    #[inline(never)]
    fn logic(&mut self, a: OpId, b: OpId, deciding: bool) -> Result<Val<'a>> {
        let left = self.eval(a);
        match &left {
            Ok(Val::Bool(value)) if *value == deciding => return left,
            Err(failure) if !failure.absorbable() => return left,
            _ => {}
        }
        match (left, self.eval(b)) {
            (_, right @ Ok(Val::Bool(_))) if matches!(&right, Ok(Val::Bool(value)) if *value == deciding) => right,
            (Ok(Val::Bool(_)), right @ Ok(Val::Bool(_))) => right,
            (_, Err(failure)) if !failure.absorbable() => Err(failure),
            (Err(failure), _) | (_, Err(failure)) => Err(failure),
            _ => Err(Failure::no_overload()),
        }
    }

    #[inline(never)]
    fn not_strictly_false(&mut self, operand: OpId) -> Result<Val<'a>> {
        let value = self.eval(operand);
        self.meter.charge(1)?;
        match value {
            Err(failure) if !failure.absorbable() => Err(failure),
            Ok(Val::Bool(false)) => Ok(Val::Bool(false)),
            _ => Ok(Val::Bool(true)),
        }
    }

    #[inline(never)]
    fn optional_or(&mut self, operand: OpId, other: OpId, unwrap: bool) -> Result<Val<'a>> {
        let value = self.eval(operand)?;
        self.meter.charge(1)?;
        match &value {
            Val::Optional(Some(inner)) if unwrap => Ok((**inner).clone()),
            Val::Optional(Some(_)) => Ok(value),
            Val::Optional(None) => self.eval(other),
            _ => Err(Failure::no_overload()),
        }
    }

    #[inline(never)]
    fn unary(&mut self, call: Callee, operand: OpId) -> Result<Val<'a>> {
        let value = self.eval(operand)?;
        self.meter.charge(1)?;
        (call.function)(Args { args: &[value], meter: self.meter, pattern: None })
    }

    #[inline(never)]
    fn binary(&mut self, call: Callee, a: OpId, b: OpId) -> Result<Val<'a>> {
        let args = [self.operand(a)?, self.operand(b)?];
        let cost = match &args {
            [Val::Int(_), Val::Int(_)] => 1,
            // Up to ten characters cost one unit in every rule for two strings.
            [Val::String(a), Val::String(b)] if !a.is_empty() && !b.is_empty() && a.len() + b.len() <= 10 => 1,
            args => call_cost(call.cost, args, None, self.meter)?,
        };
        self.meter.charge(cost)?;
        (call.function)(Args { args: &args, meter: self.meter, pattern: None })
    }

    /// Evaluates like [`Run::eval`], with a fast path for the most common operations on numbers.
    #[inline]
    fn operand(&mut self, id: OpId) -> Result<Val<'a>> {
        match &self.program.ops[id as usize] {
            Op::Const(Val::Int(int)) => Ok(Val::Int(*int)),
            Op::Local(slot) => {
                self.meter.charge(1)?;
                match &self.slots[*slot as usize] {
                    Ok(Val::Int(int)) => Ok(Val::Int(*int)),
                    other => other.clone(),
                }
            }
            _ => self.eval(id),
        }
    }

    #[inline(never)]
    fn in_constant(&mut self, operand: OpId, list: OpId) -> Result<Val<'a>> {
        let needle = self.eval(operand)?;
        let Val::List(list) = self.eval(list)? else { return Err(Failure::no_overload()) };
        for item in list.iter() {
            if item?.equals(&needle, self.meter)? {
                return Ok(Val::Bool(true));
            }
        }
        Ok(Val::Bool(false))
    }

    #[inline(never)]
    fn call(&mut self, call: &'a Call) -> Result<Val<'a>> {
        // Most calls have few arguments, which fit an array without allocation.
        let mut few = [Val::Null, Val::Null, Val::Null];
        let many: Vec<Val<'a>>;
        let args: &[Val<'a>] = if call.args.len() <= few.len() {
            for (slot, arg) in few.iter_mut().zip(&call.args) {
                *slot = self.eval(*arg)?;
            }
            &few[..call.args.len()]
        } else {
            many = call.args.iter().map(|arg| self.eval(*arg)).collect::<Result<_>>()?;
            &many
        };
        self.dispatch(call, args)
    }

    fn dispatch(&self, call: &'a Call, args: &[Val<'a>]) -> Result<Val<'a>> {
        for id in &call.overloads {
            let overload = TABLE.overload(*id);
            if overload.accepts(args) {
                self.meter.charge(call_cost(overload.cost, args, None, self.meter)?)?;
                self.meter.work(overload.steps(args))?;
                let result = (overload.call)(Args { args, meter: self.meter, pattern: call.pattern.as_ref() })?;
                self.meter.charge(call_cost(overload.cost, args, Some(&result), self.meter)?)?;
                return Ok(result);
            }
        }
        let types: Vec<_> = args.iter().map(|arg| arg.type_of().runtime_name().to_owned()).collect();
        Err(Failure::message(format!("no such overload: {}({})", call.name, types.join(", "))))
    }

    #[inline(never)]
    fn list(&mut self, items: &[OpId], optional: &[bool]) -> Result<Val<'a>> {
        let mut values = Vec::with_capacity(items.len());
        for (item, optional) in items.iter().zip(optional) {
            match (self.eval(*item)?, optional) {
                (value, false) => values.push(value),
                (Val::Optional(Some(inner)), true) => values.push((*inner).clone()),
                (Val::Optional(None), true) => {}
                (_, true) => return Err(Failure::no_overload()),
            }
        }
        self.meter.charge(LIST_BASE)?;
        self.meter.allocate(values.len() * size_of::<Val<'_>>())?;
        Ok(Val::list(values))
    }

    #[inline(never)]
    fn map(&mut self, entries: &[(OpId, OpId, bool)]) -> Result<Val<'a>> {
        let mut made = Entries::new();
        for (key, value, optional) in entries {
            let key = self.eval(*key)?;
            let value = match (self.eval(*value)?, optional) {
                (value, false) => value,
                (Val::Optional(Some(inner)), true) => (*inner).clone(),
                (Val::Optional(None), true) => continue,
                (_, true) => return Err(Failure::no_overload()),
            };
            let Some(name) = Key::of(&key) else {
                return Err(Failure::message(format!("unsupported key type: {}", key.type_of().runtime_name())));
            };
            if !made.insert(name, value) {
                return Err(Failure::message(format!("Failed with repeated key: {}", crate::library::shown(&key))));
            }
        }
        self.meter.charge(MAP_BASE)?;
        self.meter.allocate(made.len() * size_of::<(Key<'_>, Val<'_>)>())?;
        Ok(Val::map(made))
    }

    #[inline(never)]
    fn construct(&mut self, name: &Arc<str>, fields: &[(Arc<str>, OpId, bool)]) -> Result<Val<'a>> {
        let mut made = Vec::with_capacity(fields.len());
        for (field, value, optional) in fields {
            let value = match (self.eval(*value)?, optional) {
                (value, false) => value,
                (Val::Optional(Some(inner)), true) => (*inner).clone(),
                (Val::Optional(None), true) => continue,
                (_, true) => return Err(Failure::no_overload()),
            };
            made.push((field.clone(), value));
        }
        self.meter.charge(STRUCT_BASE)?;
        self.meter.allocate(made.len() * size_of::<(Arc<str>, Val<'_>)>())?;
        Ok(Val::PartialObject(Arc::new(PartialObject { name: name.clone(), fields: made })))
    }
}

/// Returns a constant; strings are borrowed, since reference counting across threads would cost more than the run.
fn constant<'a>(value: &'a Val<'static>) -> Val<'a> {
    match value {
        Val::String(text) => Val::str(text.as_str()),
        other => other.clone(),
    }
}
