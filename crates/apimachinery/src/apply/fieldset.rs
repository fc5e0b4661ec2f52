//! Sets of field paths, for ownership and for changes.
//!
//! A set is a tree of sorted vectors, one per level, so every operation is a merge walk. Nodes are shared: an operation
//! passes on an unchanged subtree by incrementing a reference count. A node is never empty, and an entry is a member,
//! has members below it, or both. Equal sets therefore have the same representation.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::path::Element;

/// A set of field paths. It never contains the empty path, which denotes the entire object.
#[derive(Clone, Default)]
pub struct FieldSet {
    entries: Option<Arc<[Entry]>>,
}

/// One path element below a node, and the part of the set at and below that element.
#[derive(Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) element: Element,
    /// Whether the path that ends here is in the set.
    pub(super) member: bool,
    /// The rest of the longer paths.
    pub(super) below: FieldSet,
}

impl FieldSet {
    pub const EMPTY: Self = Self { entries: None };

    /// Returns the set with one path.
    pub fn of(path: impl IntoIterator<Item = Element, IntoIter: DoubleEndedIterator>) -> Self {
        let mut set = Self::default();
        for (depth, element) in path.into_iter().rev().enumerate() {
            set = Self::from_sorted(vec![Entry { element, member: depth == 0, below: set }]);
        }
        set
    }

    /// Returns the set of dotted paths of plain fields: `FieldSet::of_fields(&["status", "metadata.labels"])`.
    pub fn of_fields(paths: &[&str]) -> Self {
        let sets = paths.iter().map(|path| Self::of(path.split('.').map(Element::field)));
        sets.fold(Self::default(), |all, set| all.union(&set))
    }

    /// Builds a node. The entries must be sorted, and each must be a member or have members below it.
    pub(super) fn from_sorted(entries: Vec<Entry>) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.element < b.element), "entries are sorted and distinct");
        debug_assert!(entries.iter().all(|entry| entry.member || !entry.below.is_empty()), "no entry is empty");
        Self { entries: (!entries.is_empty()).then(|| entries.into()) }
    }

    /// Returns the entries of this node, sorted by element.
    pub(super) fn entries(&self) -> &[Entry] {
        self.entries.as_deref().unwrap_or_default()
    }

    pub(super) fn entry(&self, element: &Element) -> Option<&Entry> {
        self.find(|have| have.cmp(element))
    }

    /// Finds by binary search the entry whose element `order` reports as equal.
    pub(super) fn find(&self, order: impl Fn(&Element) -> Ordering) -> Option<&Entry> {
        let entries = self.entries();
        entries.binary_search_by(|entry| order(&entry.element)).ok().map(|at| &entries[at])
    }

    /// Whether both sets are one node in memory. `true` implies equality; `false` does not imply a difference.
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        match (&self.entries, &other.entries) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.entries.is_none()
    }

    /// Returns the number of paths in the set.
    pub fn len(&self) -> usize {
        self.entries().iter().map(|entry| usize::from(entry.member) + entry.below.len()).sum()
    }

    pub fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.entry(last).is_some_and(|entry| entry.member),
            [first, rest @ ..] => self.entry(first).is_some_and(|entry| entry.below.has(rest)),
        }
    }

    /// Returns the paths that are in either set.
    pub fn union(&self, other: &Self) -> Self {
        if other.is_empty() || self.is_shared_with(other) {
            return self.clone();
        }
        if self.is_empty() {
            return other.clone();
        }
        let (mut a, mut b) = (self.entries().iter().peekable(), other.entries().iter().peekable());
        let mut out = Vec::with_capacity(a.len().max(b.len()));
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            let entry = match x.element.cmp(&y.element) {
                Ordering::Less => a.next().expect("peeked").clone(),
                Ordering::Greater => b.next().expect("peeked").clone(),
                Ordering::Equal => {
                    let (x, y) = (a.next().expect("peeked"), b.next().expect("peeked"));
                    let (member, below) = (x.member || y.member, x.below.union(&y.below));
                    Entry { element: x.element.clone(), member, below }
                }
            };
            out.push(entry);
        }
        out.extend(a.chain(b).cloned());
        Self::from_sorted(out)
    }

    /// Returns the paths that are in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |_| None, |a, b| (a.member && b.member, a.below.intersection(&b.below)))
    }

    /// Returns the paths of this set that are not in `other`. Removing a path keeps its descendants and ancestors.
    pub fn difference(&self, other: &Self) -> Self {
        let unmatched = |entry: &Entry| Some((entry.member, entry.below.clone()));
        self.combine(other, unmatched, |a, b| (a.member && !b.member, a.below.difference(&b.below)))
    }

    /// Returns the paths of this set that are neither in `other` nor below a member of `other`.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let unmatched = |entry: &Entry| Some((entry.member, entry.below.clone()));
        self.combine(other, unmatched, |a, b| {
            if b.member { (false, Self::default()) } else { (a.member, a.below.recursive_difference(&b.below)) }
        })
    }

    /// Returns the paths of this set that are not a prefix of another path of the set.
    pub fn leaves(&self) -> Self {
        let entries = self.entries().iter().map(|entry| Entry {
            element: entry.element.clone(),
            member: entry.member && entry.below.is_empty(),
            below: entry.below.leaves(),
        });
        Self::from_sorted(entries.collect())
    }

    /// Calls `each` with every path; at each node the members come first, then the paths below them.
    pub fn for_each(&self, mut each: impl FnMut(&[&Element])) {
        fn walk<'a>(set: &'a FieldSet, path: &mut Vec<&'a Element>, each: &mut dyn FnMut(&[&Element])) {
            for entry in set.entries().iter().filter(|entry| entry.member) {
                path.push(&entry.element);
                each(path);
                path.pop();
            }
            for entry in set.entries() {
                path.push(&entry.element);
                walk(&entry.below, path, each);
                path.pop();
            }
        }
        walk(self, &mut Vec::new(), &mut each);
    }

    /// Replaces each entry that has children with the result of `change`; [`None`] keeps the entry.
    pub(super) fn map_below(&self, change: impl Fn(&Entry) -> Option<(bool, Self)>) -> Self {
        let unmatched = |entry: &Entry| {
            let changed = if entry.below.is_empty() { None } else { change(entry) };
            Some(changed.unwrap_or_else(|| (entry.member, entry.below.clone())))
        };
        self.combine(&Self::EMPTY, unmatched, |entry, _| (entry.member, entry.below.clone()))
    }

    /// Walks both sets. Entries that only this set has are passed to `unmatched`, entries that both have to `matched`.
    /// Both return whether the path is a member and the set below it. Unchanged nodes are shared.
    fn combine(
        &self,
        other: &Self,
        unmatched: impl Fn(&Entry) -> Option<(bool, Self)>,
        matched: impl Fn(&Entry, &Entry) -> (bool, Self),
    ) -> Self {
        let mut others = other.entries().iter().peekable();
        let mut out: Option<Vec<Entry>> = None;
        for (at, entry) in self.entries().iter().enumerate() {
            while others.next_if(|other| other.element < entry.element).is_some() {}
            let combined = match others.next_if(|other| other.element == entry.element) {
                Some(other) => Some(matched(entry, other)),
                None => unmatched(entry),
            };
            let combined = combined.filter(|(member, below)| *member || !below.is_empty());
            let same =
                combined.as_ref().is_some_and(|(m, below)| *m == entry.member && below.is_shared_with(&entry.below));
            if !same && out.is_none() {
                let mut copied = Vec::with_capacity(self.entries().len());
                copied.extend_from_slice(&self.entries()[..at]);
                out = Some(copied);
            }
            if let (Some(out), Some((member, below))) = (&mut out, combined) {
                out.push(Entry { element: entry.element.clone(), member, below });
            }
        }
        out.map_or_else(|| self.clone(), Self::from_sorted)
    }
}

impl PartialEq for FieldSet {
    fn eq(&self, other: &Self) -> bool {
        self.is_shared_with(other) || self.entries() == other.entries()
    }
}

impl Eq for FieldSet {}

/// One path per line, as printed in messages.
impl fmt::Display for FieldSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        self.for_each(|path| lines.push(path.iter().map(ToString::to_string).collect::<String>()));
        out.write_str(&lines.join("\n"))
    }
}

impl fmt::Debug for FieldSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.to_json())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Returns a path of one-letter fields: `"ab"` is `.a.b`.
    fn path(text: &str) -> Vec<Element> {
        text.chars().map(|c| Element::field(c.to_string())).collect()
    }

    fn set(paths: &[&str]) -> FieldSet {
        paths.iter().map(|text| FieldSet::of(path(text))).fold(FieldSet::default(), |all, one| all.union(&one))
    }

    fn paths(set: &FieldSet) -> BTreeSet<String> {
        let mut out = BTreeSet::new();
        set.for_each(|path| {
            out.insert(path.iter().map(|e| e.to_string().replace('.', "")).collect());
        });
        out
    }

    fn some_paths() -> impl Strategy<Value = BTreeSet<String>> {
        prop::collection::btree_set("[abc]{1,4}", 0..12)
    }

    fn built(paths: &BTreeSet<String>) -> FieldSet {
        set(&paths.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn parent_and_its_children_are_in_a_set_independently() {
        let both = set(&["a", "ab"]);
        assert_eq!(both.difference(&set(&["ab"])), set(&["a"]));
        assert_eq!(both.difference(&set(&["a"])), set(&["ab"]));
        assert_eq!(both.recursive_difference(&set(&["a"])), set(&[]));
        assert_eq!(both.leaves(), set(&["ab"]));
        assert!(both.has(&path("a")) && both.has(&path("ab")) && !both.has(&path("b")) && !both.has(&[]));
    }

    #[test]
    fn members_of_a_level_come_before_their_descendants() {
        assert_eq!(set(&["ab", "a", "c", "b"]).to_string(), ".a\n.b\n.c\n.a.b");
    }

    #[test]
    fn unchanged_subtrees_are_shared() {
        let all = set(&["ab", "ac", "b"]);
        assert!(all.difference(&set(&["x", "axe"])).is_shared_with(&all));
        let less = all.difference(&set(&["b"]));
        assert!(less.entries()[0].below.is_shared_with(&all.entries()[0].below));
    }

    proptest! {
        #[test]
        fn operations_agree_with_plain_sets(a in some_paths(), b in some_paths()) {
            let (x, y) = (built(&a), built(&b));
            prop_assert_eq!(paths(&x.union(&y)), a.union(&b).cloned().collect());
            prop_assert_eq!(paths(&x.intersection(&y)), a.intersection(&b).cloned().collect());
            prop_assert_eq!(paths(&x.difference(&y)), a.difference(&b).cloned().collect());
            let apart = a.iter().filter(|p| !b.iter().any(|q| p.starts_with(q.as_str()))).cloned().collect();
            prop_assert_eq!(paths(&x.recursive_difference(&y)), apart);
            let leaves = a.iter().filter(|p| !a.iter().any(|q| q != *p && q.starts_with(p.as_str()))).cloned().collect();
            prop_assert_eq!(paths(&x.leaves()), leaves);
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x == y, a == b);
            for p in a.iter().chain(&b) {
                prop_assert_eq!(x.has(&path(p)), a.contains(p));
            }
        }

        #[test]
        fn equal_sets_have_the_same_representation(a in some_paths(), b in some_paths()) {
            let (x, y) = (built(&a), built(&b));
            prop_assert_eq!(x.union(&y), y.union(&x));
            prop_assert_eq!(x.union(&x), x.clone());
            prop_assert_eq!(x.intersection(&y), y.intersection(&x));
            prop_assert_eq!(x.difference(&y).union(&x.intersection(&y)), x.clone());
            prop_assert!(x.difference(&x).is_empty());
            prop_assert_eq!(x.difference(&y), x.difference(&x.intersection(&y)));
        }
    }
}
