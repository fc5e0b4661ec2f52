//! Scalar style: the notation in which a string parses back as the same string.

use super::super::resolve::{Meaning, is_base60, resolve};

/// A YAML scalar style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    /// In single quotes.
    Single,
    /// In double quotes, with escapes.
    Double,
    /// After `|`, line by line.
    Literal,
}

/// The role of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScalarRole {
    /// A key, which must be on one line.
    Key,
    Value,
}

/// Chooses the style like Go's library: plain if possible, quoted if the text would parse as something else.
pub(super) fn style(text: &str, position: ScalarRole) -> Style {
    let traits = Traits::of(text);
    if text.contains('\n') {
        return if traits.literal && position == ScalarRole::Value { Style::Literal } else { Style::Double };
    }
    if resolve(text) != Meaning::Text || is_base60(text) {
        return Style::Double;
    }
    if traits.plain && !(traits.line_breaks && position == ScalarRole::Key) {
        Style::Plain
    } else if traits.single && !(traits.line_breaks && position == ScalarRole::Key) {
        Style::Single
    } else {
        Style::Double
    }
}

/// Appends one character of a string.
pub(super) fn put(out: &mut String, column: &mut usize, it: char, style: Style) {
    let before = out.len();
    match (style, it) {
        (Style::Single, '\'') => out.push_str("''"),
        (Style::Double, _) if !is_printable(it) || is_break(it) || matches!(it, '"' | '\\') => escape(out, it),
        _ => {
            out.push(it);
            *column += 1;
            return;
        }
    }
    *column += out.len() - before;
}

/// The styles that a string allows.
struct Traits {
    plain: bool,
    single: bool,
    literal: bool,
    line_breaks: bool,
}

impl Traits {
    fn of(text: &str) -> Self {
        let mut indicator = text.starts_with("---") || text.starts_with("...");
        let (mut special, mut line_breaks, mut break_space, mut space_break) = (false, false, false, false);
        let mut before = None;
        let mut rest = text.chars();
        while let Some(it) = rest.next() {
            let blank_follows = rest.clone().next().is_none_or(|next| matches!(next, ' ' | '\t') || is_break(next));
            indicator |= match (before, it) {
                (
                    None,
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`',
                ) => true,
                (None, '?' | ':' | '-') | (Some(_), ':') => blank_follows,
                (Some(previous), '#') => matches!(previous, ' ' | '\t') || is_break(previous),
                _ => false,
            };
            special |= !is_printable(it);
            line_breaks |= is_break(it);
            break_space |= it == ' ' && before.is_some_and(is_break);
            space_break |= is_break(it) && before == Some(' ');
            before = Some(it);
        }
        let edge = |it: Option<char>| it.is_some_and(|it| it == ' ' || is_break(it));
        let edges = edge(text.chars().next()) || edge(before);
        let unusual = space_break || special;
        Self {
            plain: !indicator && !edges && !break_space && !unusual && !line_breaks,
            single: !break_space && !unusual,
            literal: before != Some(' ') && !unusual,
            line_breaks,
        }
    }
}

/// Whether a character needs no escape. As in Go's library, tabs and characters beyond 16 bits do.
fn is_printable(it: char) -> bool {
    matches!(it, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && it != '\u{feff}'
}

fn is_break(it: char) -> bool {
    matches!(it, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn escape(out: &mut String, it: char) {
    use std::fmt::Write as _;
    out.push('\\');
    let short = match it {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' | '\\' => it,
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            let code = u32::from(it);
            let written = match code {
                0..=0xff => write!(out, "x{code:02X}"),
                0x100..=0xffff => write!(out, "u{code:04X}"),
                _ => write!(out, "U{code:08X}"),
            };
            return written.expect("writing to a String cannot fail");
        }
    };
    out.push(short);
}
