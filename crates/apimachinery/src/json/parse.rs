//! JSON parser: builds a tree in one pass, with the errors of Go's decoder.
//!
//! No published parser builds this tree without an intermediate tree or a visitor (which takes 50% longer), reports
//! duplicate keys with their path, and has the error messages that Kubernetes clients know.
//!
//! Entries and items of unfinished objects and lists are kept on two stacks. A finished container moves its part off
//! the top into a vector of exactly its size. A tree therefore has no spare capacity, and growing costs nothing.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::Error;
use crate::{Object, Path, Str, Value};

/// Maximum nesting depth of lists and objects.
const DEPTH_MAX: usize = 127;

pub(super) struct Parser<'a> {
    text: &'a str,
    at: usize,
    entries: Vec<(Str, Value)>,
    items: Vec<Value>,
    repeated: Vec<String>,
}

/// Receives the keys of a JSON text in text order.
pub(super) trait Visitor {
    /// Handles a key; `again` is true for a duplicate key. Returns whether to visit the key's value.
    fn enters(&mut self, path: &Path<'_>, again: bool) -> bool;
}

impl<'a> Parser<'a> {
    /// Visits the keys of the next value.
    pub(super) fn visit(&mut self, path: &Path<'_>, visitor: &mut dyn Visitor) -> Result<(), Error> {
        let (open, close) = match self.peek() {
            Some(b'{') => (b'{', b'}'),
            Some(b'[') => (b'[', b']'),
            _ => return self.value(path, 0).map(drop),
        };
        self.at += 1;
        let mut seen = BTreeSet::new();
        let mut index = 0;
        while self.peek().is_some_and(|next| next != close) {
            if open == b'[' {
                self.visit(&path.index(index), visitor)?;
                index += 1;
            } else {
                let key = self.string()?;
                let again = !seen.insert(key.clone());
                // Skip the colon.
                self.peek();
                self.at += 1;
                let inner = path.field(&key);
                if visitor.enters(&inner, again) {
                    self.visit(&inner, visitor)?;
                } else {
                    self.peek();
                    self.value(&inner, 0)?;
                }
            }
            if self.peek() == Some(b',') {
                self.at += 1;
            }
        }
        self.at += 1;
        Ok(())
    }

    pub(super) fn new(text: &'a str) -> Self {
        /// The number of open entries that suffices for most objects.
        const LIKELY: usize = 32;
        Self { text, at: 0, entries: Vec::with_capacity(LIKELY), items: Vec::new(), repeated: Vec::new() }
    }

    /// Returns the next value; [`None`] if only white space is left.
    pub(super) fn next(&mut self) -> Result<Option<Value>, Error> {
        match self.peek() {
            None => Ok(None),
            Some(_) => self.value(&Path::ROOT, 0).map(Some),
        }
    }

    /// Fails unless only white space is left; returns the paths of duplicate keys.
    pub(super) fn end(mut self) -> Result<Vec<String>, Error> {
        match self.peek() {
            None => Ok(self.repeated),
            Some(_) => Err(self.unexpected("after top-level value")),
        }
    }

    fn value(&mut self, path: &Path<'_>, depth: usize) -> Result<Value, Error> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::String),
            Some(b'{') => self.object(path, depth + 1),
            Some(b'[') => self.array(path, depth + 1),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn object(&mut self, path: &Path<'_>, depth: usize) -> Result<Value, Error> {
        self.enter(depth)?;
        let start = self.entries.len();
        let mut sorted = true;
        if self.peek() != Some(b'}') {
            loop {
                if self.peek() != Some(b'"') {
                    return Err(self.unexpected("looking for beginning of object key string"));
                }
                let key = self.string()?;
                if self.peek() != Some(b':') {
                    return Err(self.unexpected("after object key"));
                }
                self.at += 1;
                let value = self.value(&path.field(&key), depth)?;
                sorted &= self.entries.len() == start || self.entries[self.entries.len() - 1].0 < key;
                self.entries.push((key, value));
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b'}') => break,
                    _ => return Err(self.unexpected("after object key:value pair")),
                }
                self.peek();
            }
        }
        self.at += 1;
        if !sorted && let Some(entries) = take_sorted(&mut self.entries, start) {
            return Ok(Value::Object(Object::from_sorted(entries)));
        }
        let entries = take(&mut self.entries, start);
        if sorted {
            return Ok(Value::Object(Object::from_sorted(entries)));
        }
        let repeated = |key: &str| self.repeated.push(path.field(key).to_string());
        Ok(Value::Object(Object::from_entries(entries, repeated)))
    }

    fn array(&mut self, path: &Path<'_>, depth: usize) -> Result<Value, Error> {
        self.enter(depth)?;
        let start = self.items.len();
        if self.peek() != Some(b']') {
            loop {
                let item = self.value(&path.index(self.items.len() - start), depth)?;
                self.items.push(item);
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b']') => break,
                    _ => return Err(self.unexpected("after array element")),
                }
            }
        }
        self.at += 1;
        Ok(Value::Array(take(&mut self.items, start)))
    }

    fn enter(&mut self, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(Error::Depth);
        }
        self.at += 1;
        Ok(())
    }

    fn literal(&mut self, word: &str, value: Value) -> Result<Value, Error> {
        for expected in word.bytes() {
            if self.here() != Some(expected) {
                let position = format!("in literal {word} (expecting '{}')", expected as char);
                return Err(self.unexpected(&position));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, Error> {
        let start = self.at;
        if self.here() == Some(b'-') {
            self.at += 1;
        }
        match self.here() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        let mut whole = true;
        if self.here() == Some(b'.') {
            whole = false;
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if matches!(self.here(), Some(b'e' | b'E')) {
            whole = false;
            self.at += 1;
            if matches!(self.here(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        let text = &self.text[start..self.at];
        if whole && let Ok(int) = text.parse() {
            return Ok(Value::Int(int));
        }
        let float: f64 = text.parse().expect("every JSON number is a valid float");
        if float.is_finite() { Ok(Value::Float(float)) } else { Err(Error::Range(text.to_owned())) }
    }

    fn some_digits(&mut self, position: &str) -> Result<(), Error> {
        if !matches!(self.here(), Some(b'0'..=b'9')) {
            return Err(self.unexpected(position));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while matches!(self.here(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn string(&mut self) -> Result<Str, Error> {
        self.at += 1;
        let start = self.at;
        self.plain();
        if self.here() == Some(b'"') {
            let text = &self.text[start..self.at];
            self.at += 1;
            return Ok(Str::new(text));
        }
        let mut text = String::from(&self.text[start..self.at]);
        loop {
            match self.here() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text.into());
                }
                Some(b'\\') => {
                    self.at += 1;
                    let char = self.escape()?;
                    text.push(char);
                }
                _ => return Err(self.unexpected("in string literal")),
            }
            let start = self.at;
            self.plain();
            text.push_str(&self.text[start..self.at]);
        }
    }

    /// Skips the unescaped characters of a string.
    fn plain(&mut self) {
        let bytes = self.text.as_bytes();
        while let Some(eight) = bytes[self.at..].first_chunk() {
            let found = special(u64::from_le_bytes(*eight));
            if found != 0 {
                self.at += found.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
        while self.here().is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1f)) {
            self.at += 1;
        }
    }

    fn escape(&mut self) -> Result<char, Error> {
        let char = match self.here() {
            Some(plain @ (b'"' | b'\\' | b'/')) => plain as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.at += 1;
        Ok(char)
    }

    /// Parses the digits after `\u`. A lone surrogate becomes U+FFFD, as in Go.
    fn unicode(&mut self) -> Result<char, Error> {
        let first = self.hex()?;
        if let Some(char) = char::from_u32(first) {
            return Ok(char);
        }
        let is_pair = first < 0xDC00 && self.text.as_bytes()[self.at..].starts_with(b"\\u");
        if !is_pair {
            return Ok(char::REPLACEMENT_CHARACTER);
        }
        let back = self.at;
        self.at += 2;
        let second = self.hex()?;
        if (0xDC00..0xE000).contains(&second) {
            let char = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            return Ok(char::from_u32(char).expect("a surrogate pair is a character"));
        }
        self.at = back;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex(&mut self) -> Result<u32, Error> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.here().and_then(|byte| (byte as char).to_digit(16));
            value = value * 16 + digit.ok_or_else(|| self.unexpected("in \\u hexadecimal character escape"))?;
            self.at += 1;
        }
        Ok(value)
    }

    /// Skips white space and returns the next byte without consuming it.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.here() {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other,
            }
        }
    }

    fn here(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[cold]
    fn unexpected(&self, position: &str) -> Error {
        match self.text[self.at..].chars().next() {
            None => Error::End,
            Some(char) => Error::Character { char, position: position.to_owned(), offset: self.at },
        }
    }
}

/// Removes and returns the elements of a stack from index `start` on.
fn take<T>(stack: &mut Vec<T>, start: usize) -> Vec<T> {
    let mut top = stack.split_off(start);
    if start == 0 {
        // The entire stack was moved, including its spare capacity.
        top.shrink_to_fit();
    }
    top
}

/// Removes the entries of a stack from index `start` on and returns them sorted by key. Returns [`None`], and leaves
/// the stack unchanged, if a key is repeated or there are many entries.
///
/// Stored objects are in Go's field order, so nearly every object takes this path. Sorting numbers and moving each
/// entry once is faster than sorting the entries.
fn take_sorted(stack: &mut Vec<(Str, Value)>, start: usize) -> Option<Vec<(Str, Value)>> {
    const FEW: usize = 48;
    let entries = &mut stack[start..];
    let mut order = [(0_u64, 0_u8); FEW];
    let order = order.get_mut(..entries.len())?;
    for (at, (key, _)) in entries.iter().enumerate() {
        let head = first_bytes(key);
        let mut to = at;
        while to > 0 {
            let before = order[to - 1];
            let have = || entries[usize::from(before.1)].0.as_str();
            match before.0.cmp(&head).then_with(|| have().cmp(key)) {
                Ordering::Less => break,
                Ordering::Equal => return None,
                Ordering::Greater => order[to] = before,
            }
            to -= 1;
        }
        order[to] = (head, at as u8);
    }
    let sorted = order.iter().map(|(_, at)| std::mem::take(&mut entries[usize::from(*at)])).collect();
    stack.truncate(start);
    Some(sorted)
}

/// Returns the first eight bytes of a key as a number with the same sort order.
fn first_bytes(key: &str) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(bytes.len());
    bytes[..len].copy_from_slice(&key.as_bytes()[..len]);
    u64::from_be_bytes(bytes)
}

/// Marks the first of eight bytes that is a quote, a backslash or a control character by its highest bit. Higher marks
/// are meaningless: a borrow may have carried into them.
pub(super) const fn special(eight: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    const fn zero(bytes: u64) -> u64 {
        bytes.wrapping_sub(ONES) & !bytes
    }
    let quote = zero(eight ^ (ONES * b'"' as u64));
    let backslash = zero(eight ^ (ONES * b'\\' as u64));
    let control = eight.wrapping_sub(ONES * 0x20) & !eight;
    (quote | backslash | control) & HIGHS
}
