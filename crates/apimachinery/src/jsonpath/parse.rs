//! Parser of paths and templates.

use super::{Node, Operator, ParseError, Segment, Slice};
use crate::{Str, Value, go};

/// Maximum nesting depth of filters and unions.
const DEPTH_MAX: usize = 8;

/// Parses text with actions in braces.
pub(super) fn template(text: &str) -> Result<Vec<Node>, ParseError> {
    let mut nodes = Vec::new();
    let mut rest = text;
    while let Some((before, content)) = rest.split_once('{') {
        if !before.is_empty() {
            nodes.push(Node::Text(Value::from(before)));
        }
        let (steps, after) = action(content, 0)?;
        nodes.push(Node::Action(steps));
        rest = after;
    }
    if !rest.is_empty() {
        nodes.push(Node::Text(Value::from(rest)));
    }
    Ok(nodes)
}

/// Parses the steps up to the closing brace. Returns the text after the brace.
fn action(mut rest: &str, depth: usize) -> Result<(Vec<Segment>, &str), ParseError> {
    if depth > DEPTH_MAX {
        return Err(ParseError::TooLong);
    }
    let mut steps = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((steps, after));
        } else if let Some(filter) = rest.strip_prefix("[?(") {
            let (step, after) = filter_step(filter, depth)?;
            steps.push(step);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("..") {
            if steps.last() == Some(&Segment::Recursive) {
                return Err(ParseError::Recursive);
            }
            steps.push(Segment::Recursive);
            rest = after;
            if rest.starts_with(is_word) {
                let (step, after) = field(rest);
                steps.push(step);
                rest = after;
            }
        } else {
            let first = rest.chars().next().ok_or(ParseError::UnclosedAction)?;
            rest = step(first, rest, depth, &mut steps)?;
        }
    }
}

/// Parses an expression inside an action, for example a side of a filter. As in upstream, a closing brace ends it.
fn expression(text: &str, depth: usize) -> Result<Vec<Segment>, ParseError> {
    action(&format!("{text}}}"), depth).map(|(steps, _)| steps)
}

fn step<'a>(first: char, text: &'a str, depth: usize, steps: &mut Vec<Segment>) -> Result<&'a str, ParseError> {
    let rest = &text[first.len_utf8()..];
    match first {
        '\r' | '\n' => Err(ParseError::UnclosedAction),
        ' ' | '@' | '$' => Ok(rest),
        '.' => {
            let (step, after) = field(rest);
            steps.push(step);
            Ok(after)
        }
        '[' => {
            let end = rest.find([']', '\n']).filter(|at| rest[*at..].starts_with(']'));
            let (content, after) = rest.split_at(end.ok_or(ParseError::Unterminated("array"))?);
            brackets(content, depth, steps)?;
            Ok(&after[1..])
        }
        '"' | '\'' => {
            let (literal, after) = quoted(first, text)?;
            steps.push(Segment::Text(Value::String(literal)));
            Ok(after)
        }
        _ if matches!(first, '+' | '-') || first.is_numeric() => {
            let end = rest.find(|c: char| c != '.' && !c.is_numeric()).unwrap_or(rest.len());
            let (number, after) = text.split_at(first.len_utf8() + end);
            let value = number.parse().map(Value::Int);
            let value = value.or_else(|_| number.parse().map(Value::Float));
            steps.push(Segment::Literal(value.map_err(|_| ParseError::Number(number.to_owned()))?));
            Ok(after)
        }
        _ if is_word(first) => {
            let (word, after) = text.split_at(text.find(is_terminator).unwrap_or(text.len()));
            steps.push(match word {
                "true" | "false" => Segment::Literal(Value::Bool(word == "true")),
                _ => Segment::Identifier(word.into()),
            });
            Ok(after)
        }
        _ => Err(ParseError::Character(first)),
    }
}

/// Parses a field name up to a character that cannot belong to one, unless that is escaped with a backslash.
fn field(text: &str) -> (Segment, &str) {
    let mut name = Str::default();
    let mut escaped = false;
    let mut end = text.len();
    for (at, c) in text.char_indices() {
        match c {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            _ if !escaped && is_terminator(c) => {
                end = at;
                break;
            }
            '\\' => {}
            _ => name.push(c),
        }
        escaped = false;
    }
    let step = if &text[..end] == "*" { Segment::Wildcard } else { Segment::Field(name) };
    (step, &text[end..])
}

fn brackets(content: &str, depth: usize, steps: &mut Vec<Segment>) -> Result<(), ParseError> {
    if content.contains(',') {
        if depth >= DEPTH_MAX {
            return Err(ParseError::TooLong);
        }
        let mut paths = Vec::new();
        for one in content.split(',') {
            paths.push(expression(&format!("[{}]", one.trim_matches(' ')), depth + 1)?);
        }
        steps.push(Segment::Union(paths));
        return Ok(());
    }
    let key = content.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    match key.filter(|key| !key.contains('\'')) {
        Some(key) => steps.extend(expression(&format!(".{key}"), depth + 1)?),
        None => steps.push(Segment::Slice(slice(content)?)),
    }
    Ok(())
}

fn slice(text: &str) -> Result<Slice, ParseError> {
    let invalid = || ParseError::Index(text.to_owned());
    let text = if text == "*" { ":" } else { text };
    let parts: Vec<_> = text.split(':').collect();
    let number = |part: &str| match part {
        "" => Ok(None),
        "-" => Err(ParseError::IndexNumber(part.to_owned())),
        _ if !part.strip_prefix('-').unwrap_or(part).bytes().all(|byte| byte.is_ascii_digit()) => Err(invalid()),
        _ => part.parse::<i64>().map(Some).map_err(|_| ParseError::IndexNumber(part.to_owned())),
    };
    match parts.as_slice() {
        [index] => {
            let start = number(index)?.unwrap_or(0);
            Ok(Slice { start, end: Some(start.saturating_add(1)), single: true, step: 1 })
        }
        [start, end] => Ok(Slice { start: number(start)?.unwrap_or(0), end: number(end)?, single: false, step: 1 }),
        [start, end, step] => Ok(Slice {
            start: number(start)?.unwrap_or(0),
            end: number(end)?,
            single: false,
            step: number(step)?.unwrap_or(1),
        }),
        _ => Err(invalid()),
    }
}

/// Parses the text after `[?(`: a comparison or a path, then `)]`. The first quoted text may contain parentheses.
fn filter_step(text: &str, depth: usize) -> Result<(Segment, &str), ParseError> {
    let mut quote = None;
    let mut closed = false;
    let mut before = ' ';
    let mut end = None;
    for (at, c) in text.char_indices() {
        match (c, quote) {
            ('\n', _) => break,
            ('"' | '\'', None) => quote = Some(c),
            (_, Some(open)) if c == open && before != '\\' => closed = true,
            (')', _) if quote.is_some() == closed => {
                end = Some(at);
                break;
            }
            _ => {}
        }
        before = c;
    }
    let (content, after) = text.split_at(end.ok_or(ParseError::Unterminated("filter"))?);
    let after = after.strip_prefix(")]").ok_or(ParseError::UnclosedArray)?;
    let is_operator = |c: char| "!<>=".contains(c);
    let compared = content.find(is_operator).filter(|at| *at > 0).map(|at| content.split_at(at));
    let compared = compared.and_then(|(left, right)| {
        let length = right.find(|c| !is_operator(c))?;
        Some((left, right.split_at(length)))
    });
    let Some((left, (operator, right))) = compared else {
        return Ok((Segment::Exists(expression(content, depth + 1)?), after));
    };
    let operator = match operator {
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        ">=" => Operator::GreaterOrEqual,
        ">" => Operator::Greater,
        other => Operator::Unknown(other.into()),
    };
    Ok((Segment::Filter { left: expression(left, depth + 1)?, operator, right: expression(right, depth + 1)? }, after))
}

/// Parses quoted text up to the next quote that does not follow a backslash.
fn quoted(quote: char, text: &str) -> Result<(Str, &str), ParseError> {
    let inner = &text[1..];
    let line = inner.find('\n').unwrap_or(inner.len());
    let closing = inner[..line].match_indices(quote).map(|(at, _)| at);
    let end = closing.into_iter().find(|at| *at == 0 || inner.as_bytes()[at - 1] != b'\\');
    let end = end.ok_or(ParseError::Unterminated("quoted string"))?;
    let whole = &text[..end + 2];
    let content = go::unquote(&inner[..end], quote).ok_or_else(|| ParseError::Unquote(whole.to_owned()))?;
    Ok((content.into(), &inner[end + 1..]))
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}
