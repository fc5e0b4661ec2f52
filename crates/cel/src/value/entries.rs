//! Entries of a map created at runtime, sorted by key so that iteration is deterministic.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Text, Val};

/// Entries sorted by key, keys unique.
#[derive(Clone, Debug, Default)]
pub struct Entries<'a> {
    entries: Vec<(Key<'a>, Val<'a>)>,
    /// The result of an index access for an absent key.
    otherwise: Option<Arc<Val<'a>>>,
}

/// The key of a map.
#[derive(Clone, Debug)]
pub enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Text<'a>),
}

impl<'a> Key<'a> {
    /// Converts a value to a key; [`None`] if its type cannot be a key.
    pub fn of(value: &Val<'a>) -> Option<Self> {
        match value {
            Val::Bool(bool) => Some(Self::Bool(*bool)),
            Val::Int(int) => Some(Self::Int(*int)),
            Val::Uint(uint) => Some(Self::Uint(*uint)),
            Val::String(text) => Some(Self::String(text.clone())),
            _ => None,
        }
    }

    /// Converts a value to a lookup key: a whole double finds integers.
    pub fn lookup(value: &Val<'a>) -> Option<Self> {
        match value {
            Val::Double(double) if double.fract() == 0.0 && double.abs() < 1.8e19 => {
                let whole = *double as i128;
                i64::try_from(whole).map(Self::Int).or_else(|_| u64::try_from(whole).map(Self::Uint)).ok()
            }
            other => Self::of(other),
        }
    }

    /// Creates a borrowed string key.
    pub const fn borrowed(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }

    pub fn to_val(&self) -> Val<'a> {
        match self {
            Self::Bool(bool) => Val::Bool(*bool),
            Self::Int(int) => Val::Int(*int),
            Self::Uint(uint) => Val::Uint(*uint),
            Self::String(text) => Val::String(text.clone()),
        }
    }

    /// Returns the sort position of the key's kind, and the value of a number.
    const fn rank(&self) -> (u8, i128) {
        match self {
            Self::Bool(bool) => (0, *bool as i128),
            Self::Int(int) => (1, *int as i128),
            Self::Uint(uint) => (1, *uint as i128),
            Self::String(_) => (2, 0),
        }
    }

    /// Compares keys; numbers compare by value, regardless of their type.
    pub fn compare(&self, other: &Key<'_>) -> Ordering {
        match (self, other) {
            (Self::String(a), Key::String(b)) => a.as_str().cmp(b.as_str()),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl<'a> Entries<'a> {
    pub const fn new() -> Self {
        Self { entries: Vec::new(), otherwise: None }
    }

    /// Sets the result of an index access for an absent key; no other operation sees it.
    pub fn with_otherwise(self, value: Val<'a>) -> Self {
        Self { otherwise: Some(Arc::new(value)), ..self }
    }

    /// Returns the result of an index access for an absent key.
    pub fn otherwise(&self) -> Option<&Val<'a>> {
        self.otherwise.as_deref()
    }

    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, key: &Key<'_>) -> Option<&Val<'a>> {
        let at = self.entries.binary_search_by(|(have, _)| have.compare(key)).ok()?;
        Some(&self.entries[at].1)
    }

    /// Adds an entry. Returns false, without a change, if the key already exists.
    pub fn insert(&mut self, key: Key<'a>, value: Val<'a>) -> bool {
        match self.entries.binary_search_by(|(have, _)| have.compare(&key)) {
            Ok(_) => false,
            Err(at) => {
                self.entries.insert(at, (key, value));
                true
            }
        }
    }

    /// Returns the entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Key<'a>, &Val<'a>)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// Returns the keys in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Key<'a>> {
        self.entries.iter().map(|(key, _)| key)
    }
}
