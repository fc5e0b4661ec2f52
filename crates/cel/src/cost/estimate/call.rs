//! Cost estimation of calls, by the rule of each candidate overload.

use super::{EntrySize, Estimate, Estimator, SizeEstimate, ValueOrigin};
use crate::ast::{Expr, ExprId, Literal};
use crate::check::Meaning;
use crate::cost::{Cost, LIST_BASE, REGEX_FACTOR, STRING_FACTOR, STRUCT_BASE};
use crate::library::format::REGEX_SIZE_MAX;
use crate::library::{OverloadId, TABLE};
use crate::types::Type;

/// The estimate of a call, and the size of its result if the rule determines it.
struct Charge {
    cost: Estimate,
    size: Option<SizeEstimate>,
}

impl Charge {
    const fn of(cost: Estimate) -> Self {
        Self { cost, size: None }
    }

    const fn sized(cost: Estimate, size: SizeEstimate) -> Self {
        Self { cost, size: Some(size) }
    }
}

impl Estimator<'_> {
    pub(super) fn call(&mut self, id: ExprId, function: &str, target: Option<ExprId>, args: &[ExprId]) -> Estimate {
        if function == "dyn" {
            let cost = self.cost(args[0]);
            let (size, entry) = (self.size(args[0]), self.entry(args[0]));
            self.nodes[id.index()].size = size;
            self.nodes[id.index()].entry = entry;
            return cost.plus(Estimate::fixed(1));
        }
        let costs: Vec<Estimate> = args.iter().map(|arg| self.cost(*arg)).collect();
        let target_cost = target.map_or(Estimate::ZERO, |target| self.cost(target));
        if function == "_?._" {
            return target_cost.plus(sum(&costs)).plus(Estimate::fixed(1));
        }
        let checked = self.checked;
        let Meaning::Overloads(overloads) = checked.meaning(id) else { return Estimate::ZERO };
        let all: Vec<ExprId> = target.into_iter().chain(args.iter().copied()).collect();
        let (mut cost, mut size) = (None::<Estimate>, None::<SizeEstimate>);
        for overload in overloads {
            let charge = self.charge(id, *overload, &all, &costs);
            cost = Some(cost.map_or(charge.cost, |cost| cost.union(charge.cost)));
            if let Some(one) = charge.size {
                size = Some(size.map_or(one, |size| size.union(one)));
            }
            if matches!(TABLE.overload(*overload).cost, Cost::IndexList | Cost::IndexMap) {
                size = self.index(id, all[0]);
            }
        }
        if size.is_some() {
            self.nodes[id.index()].size = size;
        }
        target_cost.plus(cost.unwrap_or(Estimate::ZERO))
    }

    /// Estimates an index or key access: the result has the schema and the size of the container's items.
    fn index(&mut self, id: ExprId, container: ExprId) -> Option<SizeEstimate> {
        let origin = self.origin(container);
        self.nodes[id.index()].origin = self.items(origin.as_ref());
        self.entry(container).map(|entry| entry.value)
    }

    /// Estimates a call. `all` has the receiver first; `costs` are those of the arguments without the receiver.
    fn charge(&mut self, id: ExprId, overload: OverloadId, all: &[ExprId], costs: &[Estimate]) -> Charge {
        let args = sum(costs);
        let rule = TABLE.overload(overload).cost;
        match rule {
            Cost::Logic => {
                return Charge::of(Estimate::between(costs[0].min, costs[0].plus(costs[1]).max));
            }
            Cost::Conditional => {
                let size = self.size_or_unknown(all[1]).union(self.size_or_unknown(all[2]));
                if let (Some(a), Some(b)) = (self.entry(all[1]), self.entry(all[2])) {
                    self.set_entry(id, union(a, b));
                }
                return Charge::sized(costs[0].plus(costs[1].union(costs[2])), size);
            }
            Cost::Concat | Cost::ConcatList => {
                if let (Some(a), Some(b)) = (self.entry(all[0]), self.entry(all[1])) {
                    self.set_entry(id, union(a, b));
                }
            }
            _ => {}
        }
        let charge = self.rule(rule, all);
        Charge { cost: charge.cost.plus(args), size: charge.size }
    }

    fn rule(&self, rule: Cost, all: &[ExprId]) -> Charge {
        let size = |at: usize| self.size_or_unknown(all[at]);
        let scan = |at: usize, factor: f64| size(at).scaled(factor);
        match rule {
            Cost::Fixed(cost) => Charge::of(Estimate::fixed(cost)),
            // Upstream intends to charge for reading but does not, because these are not methods.
            Cost::Scan | Cost::ScanTwice => Charge::of(Estimate::fixed(1)),
            Cost::ScanSame => Charge::sized(scan(0, STRING_FACTOR), size(0)),
            Cost::Traverse => Charge::of(self.traverse(all[0])),
            Cost::Replace => self.replace(all),
            Cost::Split => {
                let most = match all.get(2).map(|limit| self.checked.ast.expr(*limit)) {
                    Some(Expr::Literal(Literal::Int(limit))) => limit.cast_unsigned(),
                    _ => size(0).max,
                };
                Charge::sized(scan(0, 2.0 * STRING_FACTOR), SizeEstimate::between(0, most))
            }
            Cost::Join => self.join(all),
            Cost::Format => Charge::of(scan(0, STRING_FACTOR)),
            Cost::Quote => {
                let of = size(0);
                let result =
                    SizeEstimate::between(of.min.saturating_add(2), of.max.saturating_mul(2).saturating_add(2));
                Charge::sized(scan(0, STRING_FACTOR), result)
            }
            Cost::Affix => Charge::of(scan(1, STRING_FACTOR)),
            Cost::Contains => Charge::of(scan(0, STRING_FACTOR).times(scan(1, STRING_FACTOR))),
            Cost::Match => Charge::of(self.pattern(all)),
            Cost::Find => Charge::sized(self.pattern(all), SizeEstimate::between(0, size(0).max)),
            Cost::Compare | Cost::Equal => Charge::of(self.equal(all)),
            Cost::Concat => {
                let both = size(0).plus(size(1));
                Charge::sized(both.scaled(STRING_FACTOR), both)
            }
            Cost::ConcatList => Charge::sized(Estimate::fixed(1), size(0).plus(size(1))),
            Cost::InList => Charge::of(scan(1, 1.0)),
            Cost::StringToBytes => {
                let of = size(0);
                Charge::sized(scan(0, STRING_FACTOR), SizeEstimate::between(of.min, of.max.saturating_mul(4)))
            }
            Cost::BytesToString => {
                let of = size(0);
                Charge::sized(scan(0, STRING_FACTOR), SizeEstimate::between(of.min / 4, of.max))
            }
            Cost::ContainsIp | Cost::ContainsIpText | Cost::ContainsCidr | Cost::ContainsCidrText => {
                Charge::of(self.containment(rule, all))
            }
            Cost::Selector => Charge::of(selector(size(1))),
            Cost::Validate => Charge::of(scan(1, STRING_FACTOR).scaled(REGEX_SIZE_MAX as f64 * REGEX_FACTOR)),
            Cost::ListResult | Cost::ListFlatten | Cost::ListSquare(_) => self.list(rule, all),
            Cost::Product(factor) => Charge::of(size(0).times(size(1)).scaled(factor as f64).plus(Estimate::fixed(1))),
            Cost::Unit | Cost::IndexList | Cost::IndexMap | Cost::Logic | Cost::Conditional => {
                Charge::of(Estimate::fixed(1))
            }
        }
    }

    /// Estimates a traversal: one unit per item, and the length of a string times its factor.
    fn traverse(&self, list: ExprId) -> Estimate {
        let size = self.size_or_unknown(list);
        let Type::List(item) = self.checked.type_of(list) else { return size.scaled(STRING_FACTOR) };
        let mut each = Estimate::fixed(1);
        if matches!(**item, Type::String | Type::Bytes) {
            each = each.plus(self.item_size(list).scaled(STRING_FACTOR));
        }
        size.times(each)
    }

    fn item_size(&self, list: ExprId) -> SizeEstimate {
        match self.items(self.origin(list).as_ref()) {
            Some(origin @ ValueOrigin::Schema(_)) => self.origin_size(&origin),
            _ => SizeEstimate::UNKNOWN,
        }
    }

    fn join(&self, all: &[ExprId]) -> Charge {
        let count = self.size_or_unknown(all[0]);
        let mut size = count.times(self.item_size(all[0]));
        if let Some(separator) = all.get(1) {
            let between = SizeEstimate::between(count.min.saturating_sub(1), count.max.saturating_sub(1));
            size = size.plus(self.size_or_unknown(*separator).times(between));
        }
        Charge::sized(size.scaled(STRING_FACTOR), size)
    }

    fn replace(&self, all: &[ExprId]) -> Charge {
        let [of, old, new] = [all[0], all[1], all[2]].map(|id| self.size_or_unknown(id));
        let (mut count, mut retained) = (SizeEstimate::fixed(0), SizeEstimate::fixed(0));
        // The longest result: replacing the empty text inserts the new text around every character; otherwise the
        // shortest old text is replaced by the longest new one as often as it fits.
        if old.min == 0 {
            count.max = of.max.saturating_add(1);
            retained.max = of.max;
        } else if new.max <= old.min {
            retained.max = of.max;
        } else {
            count.max = of.max.div_ceil(old.min);
        }
        if old.max == 0 {
            count.min = of.min.saturating_add(1);
            retained.min = of.min;
        } else if old.max <= new.min {
            retained.min = of.min;
        } else {
            count.min = of.min.div_ceil(old.max);
        }
        Charge::sized(of.scaled(2.0 * STRING_FACTOR), count.times(new).plus(retained))
    }

    /// Estimates a match; even an empty string is matched against the pattern.
    fn pattern(&self, all: &[ExprId]) -> Estimate {
        let text = self.size_or_unknown(all[0]).plus(SizeEstimate::fixed(1)).scaled(STRING_FACTOR);
        text.times(self.size_or_unknown(all[1]).scaled(REGEX_FACTOR))
    }

    fn equal(&self, all: &[ExprId]) -> Estimate {
        if let (Type::Opaque(a), Type::Opaque(b)) = (self.checked.type_of(all[0]), self.checked.type_of(all[1]))
            && a == b
        {
            return Estimate::fixed(1);
        }
        let max = self.size_or_unknown(all[0]).max.min(self.size_or_unknown(all[1]).max);
        Estimate::between(u64::from(max > 0), max).scaled(STRING_FACTOR)
    }

    /// Estimates a containment check; addresses have 4 or 16 bytes regardless of their text.
    fn containment(&self, rule: Cost, all: &[ExprId]) -> Estimate {
        let address = SizeEstimate::between(4, 16);
        let mut cost = address.plus(address).scaled(STRING_FACTOR);
        if matches!(rule, Cost::ContainsCidr | Cost::ContainsCidrText) {
            cost = cost.plus(address.scaled(STRING_FACTOR)).plus(Estimate::fixed(1));
        }
        if matches!(rule, Cost::ContainsIpText | Cost::ContainsCidrText) {
            cost = cost.plus(self.size_or_unknown(all[1]).scaled(STRING_FACTOR));
        }
        cost
    }

    fn list(&self, rule: Cost, all: &[ExprId]) -> Charge {
        let literal = |at: usize| match all.get(at).map(|id| self.checked.ast.expr(*id)) {
            Some(Expr::Literal(Literal::Int(int))) => u64::try_from(*int).ok(),
            _ => None,
        };
        let base = Estimate::fixed(1 + LIST_BASE);
        match rule {
            Cost::ListSquare(at) => {
                let of = self.size_or_unknown(all[at]);
                let text = matches!(self.checked.type_of(all[at]), Type::List(item) if matches!(**item, Type::String | Type::Bytes));
                let factor = if text { 2.0 + STRING_FACTOR } else { 2.0 };
                Charge::sized(of.times(of).scaled(factor).plus(base), of)
            }
            Cost::ListFlatten => {
                let of = self.size_or_unknown(all[0]);
                let depth = if all.len() > 1 { literal(1).unwrap_or(u64::MAX) } else { 1 };
                Charge::of(of.times(SizeEstimate::fixed(depth)).scaled(1.0).plus(base))
            }
            _ => {
                let of = match (all.len(), literal(1), literal(2)) {
                    (3, Some(start), Some(end)) => SizeEstimate::fixed(end.saturating_sub(start)),
                    _ if matches!(self.checked.type_of(all[0]), Type::Int) => {
                        literal(0).map_or(SizeEstimate::UNKNOWN, SizeEstimate::fixed)
                    }
                    _ => self.size_or_unknown(all[0]),
                };
                Charge::sized(of.scaled(1.0).plus(base), of)
            }
        }
    }
}

/// Estimates the parsing of a selector. Each of its requirements, at least two characters long, becomes a struct and a
/// list.
pub(crate) fn selector(length: SizeEstimate) -> Estimate {
    let requirements = length.scaled(0.5).scaled((LIST_BASE + STRUCT_BASE) as f64);
    Estimate::fixed(LIST_BASE).plus(length.scaled(STRING_FACTOR)).plus(requirements)
}

fn sum(costs: &[Estimate]) -> Estimate {
    costs.iter().fold(Estimate::ZERO, |total, cost| total.plus(*cost))
}

fn union(a: EntrySize, b: EntrySize) -> EntrySize {
    EntrySize { list: a.list, key: a.key.union(b.key), value: a.value.union(b.value) }
}
