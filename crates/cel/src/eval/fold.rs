//! Evaluation of comprehensions over lists and maps.

use std::sync::Arc;

use super::run::{Result, Run};
use super::{Failure, FoldOp, OpId, Step};
use crate::cost::LIST_BASE;
use crate::library::operators;
use crate::value::{List, Map, Val};

impl<'a> Run<'_, 'a> {
    #[inline(never)]
    pub(super) fn fold(&mut self, fold: &'a FoldOp) -> Result<Val<'a>> {
        let range = self.eval(fold.range)?;
        self.slots[fold.accu as usize] = self.eval(fold.init);
        match range {
            Val::List(list) => self.over_list(fold, &list)?,
            Val::Map(map) => self.over_map(fold, &map)?,
            _ => return Err(Failure::no_overload()),
        }
        self.eval(fold.result)
    }

    fn over_list(&mut self, fold: &'a FoldOp, list: &List<'a>) -> Result<()> {
        for (at, item) in list.iter().enumerate() {
            match fold.var2 {
                Some(second) => {
                    self.slots[fold.var as usize] = Ok(Val::Int(at as i64));
                    self.slots[second as usize] = item;
                }
                None => self.slots[fold.var as usize] = item,
            }
            if !self.iterate(fold)? {
                break;
            }
        }
        Ok(())
    }

    fn over_map(&mut self, fold: &'a FoldOp, map: &Map<'a>) -> Result<()> {
        for key in map.keys() {
            if let Some(second) = fold.var2 {
                self.slots[second as usize] = map.get(&key).unwrap_or(Ok(Val::Null));
            }
            self.slots[fold.var as usize] = Ok(key);
            if !self.iterate(fold)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs one iteration; returns whether to continue.
    fn iterate(&mut self, fold: &'a FoldOp) -> Result<bool> {
        self.meter.iterate()?;
        if let Step::Quantify { deciding, predicate } = &fold.step {
            return self.quantify(fold.accu, *deciding, *predicate);
        }
        if let Step::Count { predicate } = &fold.step {
            return self.count(fold.accu, *predicate);
        }
        if !matches!(self.eval(fold.cond)?, Val::Bool(true)) {
            return Ok(false);
        }
        let next = match &fold.step {
            Step::Any(step) => self.eval(*step),
            Step::Quantify { .. } | Step::Count { .. } => unreachable!("done above"),
            Step::Append { filter, item } => self.append(fold.accu, *filter, *item),
            Step::Insert { filter, args } => self.insert(fold.accu, *filter, args),
        };
        match next {
            Err(failure) if !failure.absorbable() => Err(failure),
            // Only logical operators absorb failures; collecting and counting fail immediately.
            Err(failure) if !matches!(fold.step, Step::Any(_)) => Err(failure),
            next => {
                self.slots[fold.accu as usize] = next;
                Ok(true)
            }
        }
    }

    /// Evaluates one item of `all` or `exists`; returns whether to continue. The cost is that of the expanded macro:
    /// the accumulator, the test whether it decides, and the accumulator again next to the predicate.
    fn quantify(&mut self, accu: u16, deciding: bool, predicate: OpId) -> Result<bool> {
        let accu = accu as usize;
        let decided = match &self.slots[accu] {
            Ok(Val::Bool(value)) => Some(*value == deciding),
            _ => None,
        };
        // `exists` negates the accumulator before the test, for one more unit. A failure is not negated.
        self.meter.charge(if deciding && decided.is_some() { 3 } else { 2 })?;
        if decided == Some(true) {
            return Ok(false);
        }
        self.meter.charge(1)?;
        match self.eval(predicate) {
            Ok(Val::Bool(value)) if value == deciding => self.slots[accu] = Ok(Val::Bool(value)),
            Err(failure) if !failure.absorbable() => return Err(failure),
            // Only the first failure is stored, because it is the one that is reported.
            Ok(Val::Bool(_)) => {}
            failed if decided.is_some() => self.slots[accu] = Err(failed.err().unwrap_or_else(Failure::no_overload)),
            _ => {}
        }
        Ok(true)
    }

    /// Evaluates one item of `exists_one`. A failure stays in the accumulator regardless of later items.
    fn count(&mut self, accu: u16, predicate: OpId) -> Result<bool> {
        let holds = self.eval(predicate);
        let counted = match &holds {
            Ok(Val::Bool(holds)) => *holds,
            Err(failure) if !failure.absorbable() => return holds.map(|_| false),
            _ => {
                self.slots[accu as usize] = Err(holds.err().unwrap_or_else(Failure::no_overload));
                return Ok(true);
            }
        };
        self.meter.charge(1)?;
        if counted && let Ok(Val::Int(count)) = &mut self.slots[accu as usize] {
            self.meter.charge(1)?;
            *count += 1;
        }
        Ok(true)
    }

    fn passes(&mut self, filter: Option<OpId>) -> Result<bool> {
        match filter.map(|filter| self.eval(filter)) {
            None | Some(Ok(Val::Bool(true))) => Ok(true),
            Some(Ok(Val::Bool(false))) => Ok(false),
            Some(Err(failure)) => Err(failure),
            Some(Ok(_)) => Err(Failure::no_overload()),
        }
    }

    /// Appends `accu + [item]` in place: the accumulator is moved out of its slot, so that there is no other reference
    /// to it.
    fn append(&mut self, accu: u16, filter: Option<OpId>, item: OpId) -> Result<Val<'a>> {
        self.meter.charge(1)?;
        self.meter.work(1)?;
        if !self.passes(filter)? {
            return self.take(accu);
        }
        let item = self.eval(item)?;
        self.meter.charge(LIST_BASE + 1)?;
        self.meter.allocate(size_of::<Val<'_>>())?;
        match self.take(accu)? {
            Val::List(List::Owned(mut items)) => {
                Arc::make_mut(&mut items).push(item);
                Ok(Val::List(List::Owned(items)))
            }
            _ => Err(Failure::no_overload()),
        }
    }

    fn insert(&mut self, accu: u16, filter: Option<OpId>, args: &[OpId]) -> Result<Val<'a>> {
        self.meter.charge(1)?;
        self.meter.work(1)?;
        if !self.passes(filter)? {
            return self.take(accu);
        }
        let more = args.iter().map(|arg| self.eval(*arg)).collect::<Result<Vec<_>>>()?;
        self.meter.charge(1)?;
        self.meter.allocate(2 * size_of::<Val<'_>>())?;
        match self.take(accu)? {
            Val::Map(Map::Owned(mut entries)) => {
                operators::insert(Arc::make_mut(&mut entries), &more)?;
                Ok(Val::Map(Map::Owned(entries)))
            }
            _ => Err(Failure::no_overload()),
        }
    }

    fn take(&mut self, slot: u16) -> Result<Val<'a>> {
        std::mem::replace(&mut self.slots[slot as usize], Ok(Val::Null))
    }
}
