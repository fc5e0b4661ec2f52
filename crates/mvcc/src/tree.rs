//! Persistent B+ tree: a sorted set whose clones share nodes. A write copies only the path that a clone holds.
//!
//! ```text
//!            Inner [ first,weight,node | first,weight,node | … ]
//!                         │                    │
//!                  Leaf [a b c …]       Leaf [f g h …]
//! ```
//!
//! Each child of an inner node has its exact first item. A stale separator would keep the large value of a removed item
//! in memory. Each child also has the weight of all items below it, so counting a range costs two descents.

use std::cmp::Ordering;
use std::sync::Arc;

/// Maximum number of items per node: 64 pointers are eight cache lines to search and to copy.
const NODE_MAX: usize = 64;
/// A smaller node is merged with its neighbour if both fit.
const NODE_MIN: usize = NODE_MAX / 4;

/// An item of a [`Tree`].
pub(crate) trait Item: Clone {
    /// The total order of the tree; equal items replace each other.
    fn order(&self, other: &Self) -> Ordering;
    /// Returns the weight of the item in its subtree.
    fn weight(&self) -> usize {
        1
    }
}

/// A persistent sorted set of items.
#[derive(Clone, Debug)]
pub(crate) struct Tree<T> {
    root: Arc<Node<T>>,
    len: usize,
}

#[derive(Clone, Debug)]
enum Node<T> {
    Leaf(Vec<T>),
    Inner(Vec<Child<T>>),
}

#[derive(Clone, Debug)]
struct Child<T> {
    first: T,
    weight: usize,
    node: Arc<Node<T>>,
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf(Vec::new())), len: 0 }
    }
}

impl<T: Item> Tree<T> {
    /// Returns the number of items, regardless of their weight.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item and returns the equal one that it replaced.
    pub(crate) fn insert(&mut self, item: T) -> Option<T> {
        let root = Arc::make_mut(&mut self.root);
        let (replaced, split) = root.insert(item);
        if let Some(right) = split {
            let left = Child::new(std::mem::replace(root, Node::Leaf(Vec::new())));
            *root = Node::Inner(vec![left, right]);
        }
        self.len += usize::from(replaced.is_none());
        replaced
    }

    /// Removes the item for which `probe` returns `Equal`. `probe` returns the order of its argument relative to the
    /// item to remove.
    pub(crate) fn remove(&mut self, probe: impl Fn(&T) -> Ordering) -> Option<T> {
        self.find(&probe)?;
        let root = Arc::make_mut(&mut self.root);
        let removed = root.remove(&probe);
        if let Node::Inner(children) = root
            && children.len() == 1
            && let Some(only) = children.pop()
        {
            *root = Arc::unwrap_or_clone(only.node);
        }
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// Returns the item for which `probe` returns `Equal`.
    pub(crate) fn find(&self, probe: impl Fn(&T) -> Ordering) -> Option<&T> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(items) => return items.binary_search_by(&probe).ok().map(|at| &items[at]),
                Node::Inner(children) => {
                    let at = children.partition_point(|child| probe(&child.first) != Ordering::Greater);
                    node = &children[at.checked_sub(1)?].node;
                }
            }
        }
    }

    /// Returns the greatest item for which `before` holds, which must be true for a prefix of the order.
    pub(crate) fn last_before(&self, before: impl Fn(&T) -> bool) -> Option<&T> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(items) => return items[..items.partition_point(&before)].last(),
                Node::Inner(children) => {
                    let at = children.partition_point(|child| before(&child.first));
                    node = &children[at.checked_sub(1)?].node;
                }
            }
        }
    }

    /// Returns the weight of all items for which `before` holds, which must be true for a prefix of the order.
    pub(crate) fn weight_before(&self, before: impl Fn(&T) -> bool) -> usize {
        let mut node = &*self.root;
        let mut weight = 0;
        loop {
            match node {
                Node::Leaf(items) => {
                    let at = items.partition_point(&before);
                    return weight + items[..at].iter().map(Item::weight).sum::<usize>();
                }
                Node::Inner(children) => {
                    let Some(at) = children.partition_point(|child| before(&child.first)).checked_sub(1) else {
                        return weight;
                    };
                    weight += children[..at].iter().map(|child| child.weight).sum::<usize>();
                    node = &children[at].node;
                }
            }
        }
    }

    /// Iterates over all items in order.
    pub(crate) fn iter(&self) -> Iter<'_, T> {
        self.iter_from(|_| false)
    }

    /// Iterates from the first item for which `before` does not hold, which must be true for a prefix of the order.
    pub(crate) fn iter_from(&self, before: impl Fn(&T) -> bool) -> Iter<'_, T> {
        let mut inner = Vec::new();
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(items) => return Iter { inner, leaf: items[items.partition_point(&before)..].iter() },
                Node::Inner(children) => {
                    let at = children.partition_point(|child| before(&child.first)).saturating_sub(1);
                    inner.push(children[at + 1..].iter());
                    node = &children[at].node;
                }
            }
        }
    }
}

/// Iterator over the items of a [`Tree`] in order.
pub(crate) struct Iter<'a, T> {
    inner: Vec<std::slice::Iter<'a, Child<T>>>,
    leaf: std::slice::Iter<'a, T>,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(item) = self.leaf.next() {
                return Some(item);
            }
            let Some(child) = self.inner.last_mut()?.next() else {
                self.inner.pop();
                continue;
            };
            let mut node = &*child.node;
            while let Node::Inner(children) = node {
                let mut rest = children.iter();
                node = &rest.next().expect("an inner node has children").node;
                self.inner.push(rest);
            }
            if let Node::Leaf(items) = node {
                self.leaf = items.iter();
            }
        }
    }
}

impl<T: Item> Child<T> {
    fn new(node: Node<T>) -> Self {
        Self { first: node.first().clone(), weight: node.weight(), node: Arc::new(node) }
    }
}

impl<T: Item> Node<T> {
    fn len(&self) -> usize {
        match self {
            Node::Leaf(items) => items.len(),
            Node::Inner(children) => children.len(),
        }
    }

    fn first(&self) -> &T {
        match self {
            Node::Leaf(items) => items.first().expect("a child is never empty"),
            Node::Inner(children) => &children.first().expect("a child is never empty").first,
        }
    }

    fn weight(&self) -> usize {
        match self {
            Node::Leaf(items) => items.iter().map(Item::weight).sum(),
            Node::Inner(children) => children.iter().map(|child| child.weight).sum(),
        }
    }

    fn insert(&mut self, item: T) -> (Option<T>, Option<Child<T>>) {
        match self {
            Node::Leaf(items) => {
                let at = match items.binary_search_by(|other| other.order(&item)) {
                    Ok(at) => return (Some(std::mem::replace(&mut items[at], item)), None),
                    Err(at) => at,
                };
                items.insert(at, item);
                let appended = at + 1 == items.len();
                (None, split(items, appended).map(|right| Child::new(Node::Leaf(right))))
            }
            Node::Inner(children) => {
                let at =
                    children.partition_point(|child| child.first.order(&item) != Ordering::Greater).saturating_sub(1);
                let child = &mut children[at];
                child.weight += item.weight();
                let (replaced, right) = child.change(|node| node.insert(item));
                child.weight -=
                    replaced.as_ref().map_or(0, Item::weight) + right.as_ref().map_or(0, |right| right.weight);
                let Some(right) = right else { return (replaced, None) };
                children.insert(at + 1, right);
                let appended = at + 2 == children.len();
                (replaced, split(children, appended).map(|right| Child::new(Node::Inner(right))))
            }
        }
    }

    fn remove(&mut self, probe: &impl Fn(&T) -> Ordering) -> Option<T> {
        match self {
            Node::Leaf(items) => items.binary_search_by(probe).ok().map(|at| items.remove(at)),
            Node::Inner(children) => {
                let at = children.partition_point(|child| probe(&child.first) != Ordering::Greater).checked_sub(1)?;
                let removed = children[at].change(|node| node.remove(probe));
                children[at].weight -= removed.as_ref().map_or(0, Item::weight);
                rebalance(children, at);
                removed
            }
        }
    }
}

impl<T: Item> Child<T> {
    /// Changes the subtree and updates `first`. The caller adds the difference to `weight`, because computing the sum
    /// would read every item. An empty subtree is left for [`rebalance`] to drop.
    fn change<R>(&mut self, change: impl FnOnce(&mut Node<T>) -> R) -> R {
        let node = Arc::make_mut(&mut self.node);
        let result = change(node);
        if node.len() > 0 {
            self.first = node.first().clone();
        }
        result
    }
}

/// Splits a full node. A node that grew at its end keeps all but the last entry, because ascending keys and revisions
/// would otherwise leave half-full nodes.
fn split<E>(entries: &mut Vec<E>, appended: bool) -> Option<Vec<E>> {
    if entries.len() <= NODE_MAX {
        return None;
    }
    let at = if appended { entries.len() - 1 } else { entries.len() / 2 };
    let right = entries.split_off(at);
    entries.shrink_to_fit();
    Some(right)
}

fn rebalance<T: Item>(children: &mut Vec<Child<T>>, at: usize) {
    let len = children[at].node.len();
    if len == 0 {
        children.remove(at);
        return;
    }
    if len >= NODE_MIN || children.len() == 1 {
        return;
    }
    let left = if at + 1 < children.len() { at } else { at - 1 };
    if children[left].node.len() + children[left + 1].node.len() > NODE_MAX {
        return;
    }
    let right = children.remove(left + 1);
    children[left].weight += right.weight;
    children[left].change(|node| match (node, Arc::unwrap_or_clone(right.node)) {
        (Node::Leaf(items), Node::Leaf(more)) => items.extend(more),
        (Node::Inner(children), Node::Inner(more)) => children.extend(more),
        _ => unreachable!("all leaves are at the same depth"),
    });
}

#[cfg(test)]
mod tests;
