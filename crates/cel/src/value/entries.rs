//! The entries of a map made while running: sorted by key, so that iteration is deterministic.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Text, Val};

/// Entries sorted by key, each key once.
#[derive(Clone, Debug, Default)]
pub struct Entries<'a> {
    entries: Vec<(Key<'a>, Val<'a>)>,
    /// What an index finds where there is no entry.
    otherwise: Option<Arc<Val<'a>>>,
}

/// The key of a map.
#[derive(Clone, Debug)]
pub enum Key<'a> {
    /// `true` or `false`
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A string.
    String(Text<'a>),
}

impl<'a> Key<'a> {
    /// The key that a value makes, if its type can be one.
    pub fn of(value: &Val<'a>) -> Option<Self> {
        match value {
            Val::Bool(bool) => Some(Self::Bool(*bool)),
            Val::Int(int) => Some(Self::Int(*int)),
            Val::Uint(uint) => Some(Self::Uint(*uint)),
            Val::String(text) => Some(Self::String(text.clone())),
            _ => None,
        }
    }

    /// The key to look a value up under: a double that is a whole number finds integers.
    pub fn lookup(value: &Val<'a>) -> Option<Self> {
        match value {
            Val::Double(double) if double.fract() == 0.0 && double.abs() < 1.8e19 => {
                let whole = *double as i128;
                i64::try_from(whole).map(Self::Int).or_else(|_| u64::try_from(whole).map(Self::Uint)).ok()
            }
            other => Self::of(other),
        }
    }

    /// A string key that lives elsewhere.
    pub const fn borrowed(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }

    /// The key as a value.
    pub fn to_val(&self) -> Val<'a> {
        match self {
            Self::Bool(bool) => Val::Bool(*bool),
            Self::Int(int) => Val::Int(*int),
            Self::Uint(uint) => Val::Uint(*uint),
            Self::String(text) => Val::String(text.clone()),
        }
    }

    /// Where kinds of keys stand among each other, and the worth of a number.
    const fn rank(&self) -> (u8, i128) {
        match self {
            Self::Bool(bool) => (0, *bool as i128),
            Self::Int(int) => (1, *int as i128),
            Self::Uint(uint) => (1, *uint as i128),
            Self::String(_) => (2, 0),
        }
    }

    /// Numbers compare by what they are worth, whatever their type.
    pub fn compare(&self, other: &Key<'_>) -> Ordering {
        match (self, other) {
            (Self::String(a), Key::String(b)) => a.as_str().cmp(b.as_str()),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl<'a> Entries<'a> {
    /// No entries.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), otherwise: None }
    }

    /// An index finds this value where there is no entry; nothing else takes it for one.
    pub fn with_otherwise(self, value: Val<'a>) -> Self {
        Self { otherwise: Some(Arc::new(value)), ..self }
    }

    /// What an index finds where there is no entry.
    pub fn otherwise(&self) -> Option<&Val<'a>> {
        self.otherwise.as_deref()
    }

    /// How many entries there are.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value under a key.
    pub fn get(&self, key: &Key<'_>) -> Option<&Val<'a>> {
        let at = self.entries.binary_search_by(|(have, _)| have.compare(key)).ok()?;
        Some(&self.entries[at].1)
    }

    /// Adds an entry; whether its key was new. One that was there keeps its value.
    pub fn insert(&mut self, key: Key<'a>, value: Val<'a>) -> bool {
        match self.entries.binary_search_by(|(have, _)| have.compare(&key)) {
            Ok(_) => false,
            Err(at) => {
                self.entries.insert(at, (key, value));
                true
            }
        }
    }

    /// The entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Key<'a>, &Val<'a>)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Key<'a>> {
        self.entries.iter().map(|(key, _)| key)
    }
}
