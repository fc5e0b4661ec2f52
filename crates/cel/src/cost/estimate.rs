//! Cost estimation: the worst-case cost of an expression, from its structure and the size limits of its variables.

mod call;
mod range;

use apimachinery::Str;

use super::{LIST_BASE, MAP_BASE, STRUCT_BASE};
use crate::ast::{ACCUMULATOR, Expr, ExprId, Fold, Literal};
use crate::check::{CheckedExpr, Meaning};
use crate::env::Env;
use crate::schema::{self, elements_max};
use crate::types::{SchemaType, Type};

pub use range::{Estimate, SizeEstimate};

pub(crate) use call::selector;

/// Estimates the cost of a checked expression.
pub fn estimate(env: &Env, checked: &CheckedExpr) -> Estimate {
    let count = checked.ast.len();
    let nodes = vec![Node::default(); count];
    let mut estimator = Estimator { env, checked, nodes, locals: Vec::new() };
    estimator.cost(checked.ast.root())
}

/// The estimates of a visited node.
#[derive(Clone, Debug, Default)]
struct Node {
    cost: Option<Estimate>,
    size: Option<SizeEstimate>,
    entry: Option<EntrySize>,
    origin: Option<ValueOrigin>,
}

/// The origin of a value in a variable's schema.
#[derive(Clone, Debug)]
enum ValueOrigin {
    Schema(SchemaType),
    /// A map key: no schema limits its length, and upstream counts it as zero.
    Key,
}

/// The sizes of keys and values of a container.
#[derive(Clone, Copy, Debug)]
struct EntrySize {
    list: bool,
    key: SizeEstimate,
    value: SizeEstimate,
}

#[derive(Clone, Debug)]
struct Local {
    name: Str,
    origin: Option<ValueOrigin>,
    size: Option<SizeEstimate>,
    entry: Option<EntrySize>,
}

struct Estimator<'e> {
    env: &'e Env,
    checked: &'e CheckedExpr,
    nodes: Vec<Node>,
    locals: Vec<Local>,
}

impl Estimator<'_> {
    /// Returns the cost of a node. A node that a macro uses twice has the same scope both times, so it is estimated
    /// once.
    fn cost(&mut self, id: ExprId) -> Estimate {
        if let Some(cost) = self.nodes[id.index()].cost {
            return cost;
        }
        let checked = self.checked;
        let cost = match checked.meaning(id) {
            Meaning::Variable(name) => {
                self.nodes[id.index()].origin =
                    self.env.variable(name).and_then(|variable| variable.schema.clone()).map(ValueOrigin::Schema);
                Estimate::fixed(1)
            }
            Meaning::Type(_) => Estimate::fixed(1),
            _ => match checked.ast.expr(id) {
                Expr::Literal(_) => Estimate::ZERO,
                Expr::Ident(name) => {
                    self.nodes[id.index()].origin = self.local(name).and_then(|local| local.origin.clone());
                    Estimate::fixed(1)
                }
                Expr::Select { operand, field, test } => self.select(id, *operand, field, *test),
                Expr::Call { function, target, args } => self.call(id, function, *target, args),
                Expr::List { items, .. } => {
                    let (cost, size) = self.all(items.iter());
                    self.set_entry(id, EntrySize { list: true, key: SizeEstimate::fixed(1), value: size });
                    cost.plus(Estimate::fixed(LIST_BASE))
                }
                Expr::Map(entries) => {
                    let (keys, key) = self.all(entries.iter().map(|entry| &entry.key));
                    let (values, value) = self.all(entries.iter().map(|entry| &entry.value));
                    self.set_entry(id, EntrySize { list: false, key, value });
                    keys.plus(values).plus(Estimate::fixed(MAP_BASE))
                }
                Expr::Struct { fields, .. } => {
                    let (cost, _) = self.all(fields.iter().map(|field| &field.value));
                    cost.plus(Estimate::fixed(STRUCT_BASE))
                }
                Expr::Fold(fold) if is_bind(fold) => self.bind(id, fold),
                Expr::Fold(fold) => self.fold(id, fold),
            },
        };
        self.nodes[id.index()].cost = Some(cost);
        cost
    }

    /// Returns the sum of the costs, and a size range that covers all sizes.
    fn all<'i>(&mut self, ids: impl Iterator<Item = &'i ExprId>) -> (Estimate, SizeEstimate) {
        let (mut cost, mut size) = (Estimate::ZERO, None::<SizeEstimate>);
        for id in ids {
            cost = cost.plus(self.cost(*id));
            let one = self.size_or_unknown(*id);
            size = Some(size.map_or(one, |size| size.union(one)));
        }
        (cost, size.unwrap_or(SizeEstimate::fixed(0)))
    }

    fn select(&mut self, id: ExprId, operand: ExprId, field: &str, test: bool) -> Estimate {
        let cost = self.cost(operand);
        if test {
            return cost;
        }
        if let Some(ValueOrigin::Schema(of)) = self.nodes[operand.index()].origin.clone() {
            self.nodes[id.index()].origin = self.child(&of, field).map(ValueOrigin::Schema);
        }
        match self.checked.type_of(operand) {
            Type::Map(..) | Type::Schema(_) | Type::PartialObject(_) => cost.plus(Estimate::fixed(1)),
            _ => cost,
        }
    }

    /// Returns the schema of a field or, if `of` is a map, of its values.
    fn child(&self, of: &SchemaType, field: &str) -> Option<SchemaType> {
        let types = self.env.sets()[of.set as usize].types();
        let schema = types.schema(of.id);
        if let apimachinery::schema::Shape::Map(map) = schema.shape() {
            return Some(SchemaType { id: map.value, root: false, ..of.clone() });
        }
        let (field, _) = schema.field(&schema::unescape(field)?)?;
        Some(SchemaType { id: field.ty, root: false, ..of.clone() })
    }

    /// Returns the schema of the items of a list or the values of a map.
    fn items(&self, origin: Option<&ValueOrigin>) -> Option<ValueOrigin> {
        let Some(ValueOrigin::Schema(of)) = origin else { return None };
        let id = match self.env.sets()[of.set as usize].types().schema(of.id).shape() {
            apimachinery::schema::Shape::List(list) => list.item,
            apimachinery::schema::Shape::Map(map) => map.value,
            _ => return None,
        };
        Some(ValueOrigin::Schema(SchemaType { id, root: false, ..of.clone() }))
    }

    fn fold(&mut self, id: ExprId, fold: &Fold) -> Estimate {
        let mut sum = self.cost(fold.range).plus(self.cost(fold.init));
        let depth = self.locals.len();
        let init_size = self.size(fold.init);
        let init_entry = self.entry(fold.init);
        let accu = self.origin(fold.init);
        self.locals.push(Local { name: fold.accu.clone(), origin: accu, size: init_size, entry: init_entry });
        self.push_variables(fold);
        let cond = self.cost(fold.cond);
        let step = self.cost(fold.step);
        self.locals.truncate(depth + 1);
        sum = sum.plus(self.cost(fold.result));
        self.locals.truncate(depth);
        let count = self.size_or_unknown(fold.range);
        sum = sum.plus(count.times(step.plus(cond)));
        match self.checked.ast.expr(fold.init) {
            Expr::Literal(_) => self.nodes[id.index()].size = init_size,
            Expr::List { .. } | Expr::Map(_) => {
                self.nodes[id.index()].size = Some(count);
                let entry = self.entry(fold.step);
                self.nodes[id.index()].entry = entry;
            }
            _ => {}
        }
        sum
    }

    fn push_variables(&mut self, fold: &Fold) {
        let entry = self.entry(fold.range);
        let list = entry.map_or_else(|| matches!(self.checked.type_of(fold.range), Type::List(_)), |entry| entry.list);
        let origin = self.origin(fold.range);
        let keys = if origin.is_some() && !list { Some(ValueOrigin::Key) } else { None };
        let values = self.items(origin.as_ref());
        let local = |name: &Str, origin, size| Local { name: name.clone(), origin, size, entry: None };
        let (key_size, value_size) = (entry.map(|entry| entry.key), entry.map(|entry| entry.value));
        match &fold.var2 {
            Some(name) => {
                self.locals.push(local(&fold.var, keys, key_size));
                self.locals.push(local(name, values, value_size));
            }
            None if list => self.locals.push(local(&fold.var, values, value_size)),
            None => self.locals.push(local(&fold.var, keys, key_size)),
        }
    }

    fn bind(&mut self, id: ExprId, fold: &Fold) -> Estimate {
        let mut sum = self.cost(fold.range).plus(self.cost(fold.init));
        let (origin, size, entry) = (self.origin(fold.init), self.size(fold.init), self.entry(fold.init));
        self.locals.push(Local { name: fold.accu.clone(), origin, size, entry });
        sum = sum.plus(self.cost(fold.result));
        let (size, entry) = (self.size(fold.result), self.entry(fold.result));
        self.locals.pop();
        self.nodes[id.index()].size = size;
        self.nodes[id.index()].entry = entry;
        sum
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn ident_local(&self, id: ExprId) -> Option<&Local> {
        match self.checked.ast.expr(id) {
            Expr::Ident(name) => self.local(name),
            _ => None,
        }
    }

    fn origin(&self, id: ExprId) -> Option<ValueOrigin> {
        match self.ident_local(id) {
            Some(local) => local.origin.clone(),
            None => self.nodes[id.index()].origin.clone(),
        }
    }

    fn set_entry(&mut self, id: ExprId, entry: EntrySize) {
        self.nodes[id.index()].entry = Some(entry);
    }

    fn entry(&self, id: ExprId) -> Option<EntrySize> {
        self.nodes[id.index()].entry.or_else(|| self.ident_local(id).and_then(|local| local.entry))
    }

    fn size_or_unknown(&self, id: ExprId) -> SizeEstimate {
        self.size(id).unwrap_or(SizeEstimate::UNKNOWN)
    }

    /// Returns the size of a node: computed from its parts, declared by the schema, or given by its type.
    fn size(&self, id: ExprId) -> Option<SizeEstimate> {
        if let Some(size) = self.nodes[id.index()].size {
            return Some(size);
        }
        match self.checked.ast.expr(id) {
            Expr::Literal(Literal::String(text)) => return Some(SizeEstimate::fixed(text.chars().count() as u64)),
            Expr::Literal(Literal::Bytes(bytes)) => return Some(SizeEstimate::fixed(bytes.len() as u64)),
            Expr::Literal(_) => return Some(SizeEstimate::fixed(1)),
            Expr::List { items, .. } => return Some(SizeEstimate::fixed(items.len() as u64)),
            Expr::Map(entries) => return Some(SizeEstimate::fixed(entries.len() as u64)),
            _ => {}
        }
        let is_accumulator = matches!(self.checked.ast.expr(id), Expr::Ident(name) if name == ACCUMULATOR);
        if !is_accumulator && let Some(origin) = self.origin(id) {
            return Some(self.origin_size(&origin));
        }
        if is_scalar(self.checked.type_of(id)) {
            return Some(SizeEstimate::fixed(1));
        }
        self.ident_local(id).and_then(|local| local.size)
    }

    fn origin_size(&self, origin: &ValueOrigin) -> SizeEstimate {
        match origin {
            ValueOrigin::Key => SizeEstimate::fixed(0),
            ValueOrigin::Schema(of) => {
                let schema = self.env.sets()[of.set as usize].types().schema(of.id);
                SizeEstimate::between(0, elements_max(schema))
            }
        }
    }
}

/// Whether the comprehension is a `cel.bind`: a fold over an empty range with a named accumulator.
fn is_bind(fold: &Fold) -> bool {
    fold.accu != ACCUMULATOR && fold.var == "#unused"
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}
