//! The grammar of Go's regular expressions: sequence, scope of flags, and repetition.

use super::class::{self, Class};
use super::{Code, Error, consumed, next};

/// Maximum repetition count, also for the product of nested repetitions.
const REPEAT_MAX: u32 = 1_000;

/// Parses a pattern from left to right.
pub(super) struct Parser<'a> {
    whole: &'a str,
    flags: Flags,
    /// The open groups; the first represents the entire pattern.
    groups: Vec<Group>,
}

/// The flags of `(?imsU)`.
#[derive(Clone, Copy, Default)]
struct Flags {
    fold: bool,
    multi_line: bool,
    dot_matches_newline: bool,
    lazy: bool,
}

/// A group that is not closed yet.
#[derive(Default)]
struct Group {
    /// The flags to restore after the group.
    outside: Flags,
    /// The previous alternatives of the group.
    alternatives: Node,
    has_alternatives: bool,
    current: Vec<Node>,
}

/// A part of the translation.
#[derive(Default)]
struct Node {
    text: String,
    kind: Kind,
    /// Maximum number of copies of its most repeated part.
    repeated: u32,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    /// A case-insensitive character.
    Folded,
    /// A repetition applies to it directly.
    Atom,
    /// Must be grouped before a repetition.
    #[default]
    Sequence,
}

impl<'a> Parser<'a> {
    pub(super) fn new(whole: &'a str) -> Self {
        Self { whole, flags: Flags::default(), groups: vec![Group::default()] }
    }

    pub(super) fn parse(mut self) -> Result<String, Error> {
        let mut rest = self.whole;
        // The start of the last repetition, if nothing follows it yet.
        let mut last_repeat = None;
        while let Some((first, after)) = next(rest) {
            let start = rest;
            let repetition = Repetition::read(rest)?;
            rest = match (first, repetition) {
                (_, Some((repetition, after))) => self.repeat(repetition, rest, after, last_repeat)?,
                ('(', _) if after.starts_with('?') => self.open_with_flags(rest)?,
                ('(', _) => {
                    self.open();
                    after
                }
                (')', _) => {
                    self.close()?;
                    after
                }
                ('|', _) => {
                    self.group().next_alternative();
                    after
                }
                ('^', _) => self.assertion(if self.flags.multi_line { "(?m:^)" } else { r"\A" }, after),
                ('$', _) => self.assertion(if self.flags.multi_line { "(?m:$)" } else { r"\z" }, after),
                ('.', _) => {
                    self.atom(if self.flags.dot_matches_newline { "(?s:.)" } else { "." }.to_owned());
                    after
                }
                ('[', _) => {
                    let (class, after) = Class::bracketed(rest)?;
                    self.atom(class.written(self.flags.fold));
                    after
                }
                ('\\', _) => self.backslash(rest)?,
                _ => {
                    self.literal(first.into());
                    after
                }
            };
            last_repeat = repetition.map(|_| start);
        }
        let last = self.groups.pop().filter(|_| self.groups.is_empty());
        let last = last.ok_or_else(|| Error::new(Code::MissingParen, self.whole))?;
        Ok(last.finish().text)
    }

    fn group(&mut self) -> &mut Group {
        self.groups.last_mut().expect("the first group is closed last")
    }

    fn open(&mut self) {
        let outside = self.flags;
        self.groups.push(Group { outside, ..Group::default() });
    }

    fn close(&mut self) -> Result<(), Error> {
        let closed = self.groups.pop().filter(|_| !self.groups.is_empty());
        let closed = closed.ok_or_else(|| Error::new(Code::UnexpectedParen, self.whole))?;
        self.flags = closed.outside;
        let node = closed.finish();
        let node = Node { text: format!("(?:{})", node.text), kind: Kind::Atom, ..node };
        self.group().current.push(node);
        Ok(())
    }

    /// Parses `(?P<name>`, `(?<name>`, `(?flags)` and `(?flags:`.
    fn open_with_flags(&mut self, text: &'a str) -> Result<&'a str, Error> {
        let name_at = if text.len() > 4 && text[2..].starts_with("P<") {
            Some(4)
        } else {
            (text.len() > 3 && text[2..].starts_with('<')).then_some(3)
        };
        if let Some(at) = name_at {
            let end = text.find('>').ok_or_else(|| Error::new(Code::InvalidNamedCapture, text))?;
            let name = &text[at..end];
            let valid = !name.is_empty() && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
            if !valid {
                return Err(Error::new(Code::InvalidNamedCapture, &text[..=end]));
            }
            self.open();
            return Ok(&text[end + 1..]);
        }
        let (mut flags, mut on, mut seen) = (self.flags, true, false);
        let mut rest = &text[2..];
        while let Some((letter, after)) = next(rest) {
            rest = after;
            match letter {
                'i' => flags.fold = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_matches_newline = on,
                'U' => flags.lazy = on,
                '-' if on => {
                    (on, seen) = (false, false);
                    continue;
                }
                ':' | ')' if on || seen => {
                    if letter == ':' {
                        self.open();
                    }
                    self.flags = flags;
                    return Ok(rest);
                }
                _ => break,
            }
            seen = true;
        }
        Err(Error::new(Code::InvalidPerlOp, consumed(text, rest)))
    }

    fn backslash(&mut self, text: &'a str) -> Result<&'a str, Error> {
        let after = text.get(2..).unwrap_or_default();
        match text.as_bytes().get(1) {
            Some(b'A') => return Ok(self.assertion(r"\A", after)),
            Some(b'z') => return Ok(self.assertion(r"\z", after)),
            Some(b'b') => return Ok(self.assertion(r"(?-u:\b)", after)),
            Some(b'B') => return Ok(self.assertion(r"(?-u:\B)", after)),
            Some(b'C') => return Err(Error::new(Code::InvalidEscape, &text[..2])),
            Some(b'Q') => {
                let (quoted, rest) = after.split_once(r"\E").unwrap_or((after, ""));
                quoted.chars().for_each(|character| self.literal(character.into()));
                return Ok(rest);
            }
            _ => {}
        }
        if let Some((class, rest)) = Class::escaped(text)? {
            self.atom(class.written(self.flags.fold));
            return Ok(rest);
        }
        let (character, rest) = class::escape(text)?;
        self.literal(character);
        Ok(rest)
    }

    fn literal(&mut self, character: u32) {
        let Some(character) = char::from_u32(character) else {
            return self.atom(class::nothing());
        };
        let has_case = !character.is_ascii() || character.is_ascii_alphabetic();
        let kind = if self.flags.fold && has_case { Kind::Folded } else { Kind::Atom };
        let text = regex::escape(character.encode_utf8(&mut [0; 4]));
        self.group().current.push(Node { text, kind, repeated: 1 });
    }

    fn atom(&mut self, text: String) {
        self.group().current.push(Node { text, kind: Kind::Atom, repeated: 1 });
    }

    fn assertion(&mut self, text: &str, after: &'a str) -> &'a str {
        self.group().current.push(Node { text: text.to_owned(), kind: Kind::Sequence, repeated: 1 });
        after
    }

    fn repeat(
        &mut self,
        repetition: Repetition,
        before: &str,
        after: &'a str,
        last_repeat: Option<&str>,
    ) -> Result<&'a str, Error> {
        let question = after.strip_prefix('?');
        let (rest, lazy) = question.map_or((after, self.flags.lazy), |rest| (rest, !self.flags.lazy));
        if let Some(last) = last_repeat {
            return Err(Error::new(Code::InvalidRepeatOp, consumed(last, rest)));
        }
        let Some(node) = self.group().current.last_mut() else {
            return Err(Error::new(Code::MissingRepeatArgument, consumed(before, rest)));
        };
        let times = repetition.times().map(|times| times.saturating_mul(node.repeated));
        if repetition.is_checked() && times.is_some_and(|times| times > REPEAT_MAX) {
            return Err(Error::new(Code::InvalidRepeatSize, consumed(before, rest)));
        }
        let text = match node.kind {
            Kind::Folded => format!("(?i:{})", node.text),
            Kind::Atom => std::mem::take(&mut node.text),
            Kind::Sequence => format!("(?:{})", node.text),
        };
        node.text = format!("{text}{}{}", repetition.written(), if lazy { "?" } else { "" });
        node.kind = Kind::Sequence;
        node.repeated = times.unwrap_or(node.repeated);
        Ok(rest)
    }
}

impl Group {
    fn next_alternative(&mut self) {
        let node = concatenated(std::mem::take(&mut self.current));
        if self.has_alternatives {
            self.alternatives.text.push('|');
        }
        self.alternatives.text.push_str(&node.text);
        self.alternatives.repeated = self.alternatives.repeated.max(node.repeated);
        self.has_alternatives = true;
    }

    /// Returns all alternatives, not grouped.
    fn finish(mut self) -> Node {
        self.next_alternative();
        self.alternatives
    }
}

/// Concatenates nodes; adjacent case-insensitive characters share a group.
fn concatenated(nodes: Vec<Node>) -> Node {
    let mut all = Node { repeated: 1, ..Node::default() };
    let mut folding = false;
    for node in nodes {
        let folded = node.kind == Kind::Folded;
        match (folding, folded) {
            (false, true) => all.text.push_str("(?i:"),
            (true, false) => all.text.push(')'),
            _ => {}
        }
        folding = folded;
        all.text.push_str(&node.text);
        all.repeated = all.repeated.max(node.repeated);
    }
    if folding {
        all.text.push(')');
    }
    all
}

#[derive(Clone, Copy)]
enum Repetition {
    Star,
    Plus,
    Question,
    Counted { least: u32, most: Option<u32> },
}

impl Repetition {
    /// Parses a repetition. A brace that starts none is a literal.
    fn read(text: &str) -> Result<Option<(Self, &str)>, Error> {
        let Some((first, after)) = next(text) else { return Ok(None) };
        Ok(match first {
            '*' => Some((Self::Star, after)),
            '+' => Some((Self::Plus, after)),
            '?' => Some((Self::Question, after)),
            '{' => match counted(after) {
                None => None,
                Some((Some(repetition), rest)) => Some((repetition, rest)),
                Some((None, rest)) => return Err(Error::new(Code::InvalidRepeatSize, consumed(text, rest))),
            },
            _ => None,
        })
    }

    /// Returns the number of copies that a counted repetition may need; [`None`] for other repetitions.
    const fn times(self) -> Option<u32> {
        match self {
            Self::Counted { least, most: None } if least > 0 => Some(least),
            Self::Counted { most: Some(most), .. } => Some(most),
            _ => None,
        }
    }

    const fn is_checked(self) -> bool {
        matches!(self, Self::Counted { least: 2.., .. } | Self::Counted { most: Some(2..), .. })
    }

    fn written(self) -> String {
        match self {
            Self::Star => "*".to_owned(),
            Self::Plus => "+".to_owned(),
            Self::Question => "?".to_owned(),
            Self::Counted { least, most: None } => format!("{{{least},}}"),
            Self::Counted { least, most: Some(most) } if least == most => format!("{{{least}}}"),
            Self::Counted { least, most: Some(most) } => format!("{{{least},{most}}}"),
        }
    }
}

/// Parses the text after a brace: a repetition, an invalid one ([`None`] inside) with counts that are too large or in
/// the wrong order, or something else.
fn counted(text: &str) -> Option<(Option<Repetition>, &str)> {
    let (least, rest) = number(text)?;
    let (most, rest) = match rest.strip_prefix(',') {
        None => (Some(least), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => {
            let (most, rest) = number(rest)?;
            (Some(most), rest)
        }
    };
    let rest = rest.strip_prefix('}')?;
    let valid = least <= REPEAT_MAX && most.is_none_or(|most| most <= REPEAT_MAX && least <= most);
    Some((valid.then_some(Repetition::Counted { least, most }), rest))
}

/// Parses digits without a leading zero.
fn number(text: &str) -> Option<(u32, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    if number.is_empty() || (number.len() > 1 && number.starts_with('0')) {
        return None;
    }
    // A number with more digits is too large in any case.
    Some((number.parse().unwrap_or(u32::MAX), rest))
}
