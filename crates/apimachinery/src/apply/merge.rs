//! Merging an applied configuration into the live object.

use super::typed::{Atom, Fields, Index, Items, Node, filled_list, filled_map, order_keys, same};
use crate::{Object, Schema, Str, Value};

/// Merges `config` into `live`: leaves are replaced, containers are merged, nothing is removed. In lists of keyed items
/// the items that both sides have take the order of `config`. Both values must have passed
/// [`validate`](super::validate::validate), `config` without duplicates.
pub fn merge(schema: Schema<'_>, live: &mut Value, config: &Value) {
    node(Node::root(schema), live, config);
}

fn node(node: Node<'_>, live: &mut Value, config: &Value) {
    // `null` takes the kind of the other side.
    let atom = if config.is_null() { node.atom(live) } else { node.atom(config) };
    match atom {
        Atom::Map(fields) if !fields.atomic => match filled_map(Some(config)) {
            Some(config) => map(fields, live, config),
            None if filled_map(Some(live)).is_some() => {}
            None => replace(live, config),
        },
        Atom::List(list) if !list.is_atomic() => match filled_list(Some(config)) {
            Some(config) => items(list, live, config),
            None if filled_list(Some(live)).is_some() => {}
            None => replace(live, config),
        },
        _ => replace(live, config),
    }
}

fn replace(live: &mut Value, config: &Value) {
    if live != config {
        live.clone_from(config);
    }
}

fn map(fields: Fields<'_>, live: &mut Value, config: &Object) {
    let Value::Object(object) = live else {
        *live = Value::Object(config.clone());
        return;
    };
    if config.keys().all(|key| object.contains_key(key)) {
        for (key, value) in config.iter() {
            let live = object.get_mut(key).expect("every key was found");
            if live != value {
                node(fields.child_or_deduced(key).node, live, value);
            }
        }
        return;
    }
    let mut desired = config.iter().peekable();
    let mut merged: Vec<(Str, Value)> = Vec::with_capacity(object.len() + config.len());
    for (key, mut value) in std::mem::take(object) {
        while let Some((key, value)) = desired.next_if(|(desired, _)| *desired < key.as_str()) {
            merged.push((key.into(), value.clone()));
        }
        if let Some((_, config)) = desired.next_if(|(desired, _)| *desired == key.as_str()) {
            node(fields.child_or_deduced(&key).node, &mut value, config);
        }
        merged.push((key, value));
    }
    merged.extend(desired.map(|(key, value)| (key.into(), value.clone())));
    *object = Object::from_entries(merged, |_| {});
}

fn items(list: Items<'_>, live: &mut Value, config: &[Value]) {
    let existing = match live {
        Value::Array(items) => std::mem::take(items),
        _ => Vec::new(),
    };
    let plan = match (list.index(&existing), list.index(config)) {
        (Ok(have), Ok(want)) => plan(&pair(&have, existing.len(), &want, config.len()), config.len()),
        // Unreachable: both sides were validated.
        _ => Vec::new(),
    };
    let mut existing: Vec<Option<Value>> = existing.into_iter().map(Some).collect();
    let mut take = |at: usize| existing[at].take().unwrap_or_default();
    let merged = plan.into_iter().map(|source| match source {
        Source::Live(at) => take(at),
        Source::Config(at) => config[at].clone(),
        Source::Both(have, want) => {
            let mut value = take(have);
            if !same(&value, &config[want]) {
                node(list.item, &mut value, &config[want]);
            }
            value
        }
    });
    *live = Value::Array(merged.collect());
}

/// The origin of an item of the merged list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Live(usize),
    Config(usize),
    Both(usize, usize),
}

/// The items with equal keys in the live and the applied list.
struct Pairs {
    /// For each live item, the index of the applied item.
    applied: Vec<Option<usize>>,
    /// For each applied item, the index of the live item; [`None`] if there is none, or several, which are not merged.
    live: Vec<Option<usize>>,
    /// For each applied item, whether any live item has its key.
    shared: Vec<bool>,
}

fn pair(have: &Index<'_>, have_len: usize, want: &Index<'_>, want_len: usize) -> Pairs {
    let mut pairs = Pairs { applied: vec![None; have_len], live: vec![None; want_len], shared: vec![false; want_len] };
    let have_order = have.sorted();
    let mut groups = have_order.chunk_by(|a, b| have.order(*a, *b).is_eq()).peekable();
    for at in want.sorted() {
        let key = want.key(at);
        while groups.next_if(|group| order_keys(have.key(group[0]), key).is_lt()).is_some() {}
        let Some(group) = groups.next_if(|group| order_keys(have.key(group[0]), key).is_eq()) else { continue };
        pairs.shared[at] = true;
        pairs.live[at] = if let [one] = group { Some(*one) } else { None };
        for live in group {
            pairs.applied[*live] = Some(at);
        }
    }
    pairs
}

/// Returns the order of the merged list. Live items keep their positions, except that the items of both lists follow
/// the order of the applied list. New items are placed at their position among these.
fn plan(pairs: &Pairs, want_len: usize) -> Vec<Source> {
    let have_len = pairs.applied.len();
    let mut plan = Vec::with_capacity(have_len.max(want_len));
    let mut shared = (0..want_len).filter(|at| pairs.shared[*at]);
    let mut next_shared = shared.next();
    let mut merged = vec![false; want_len];
    let source = |want: usize| pairs.live[want].map_or(Source::Config(want), |have| Source::Both(have, want));
    let (mut have, mut want) = (0, 0);
    while have < have_len || want < want_len {
        if have < have_len && want < want_len {
            if pairs.applied[have] == Some(want) {
                merged[want] = true;
                plan.push(source(want));
                (have, want) = (have + 1, want + 1);
                next_shared = shared.next();
                continue;
            }
            if pairs.applied[have].is_some() && next_shared.is_some() && next_shared != pairs.applied[have] {
                have += 1;
                continue;
            }
        }
        if have < have_len {
            match pairs.applied[have] {
                None => {
                    plan.push(Source::Live(have));
                    have += 1;
                    continue;
                }
                Some(at) if merged[at] => have += 1,
                Some(_) => {}
            }
        }
        if want < want_len {
            merged[want] = true;
            plan.push(source(want));
            if next_shared == Some(want) {
                next_shared = shared.next();
            }
            want += 1;
        }
    }
    plan
}
