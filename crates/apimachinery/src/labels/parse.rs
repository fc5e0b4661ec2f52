//! Parser of the text form of label selectors: `app=web,tier in (front,back),!canary`.

use std::collections::BTreeSet;

use super::{Operator, Requirement, Selector};
use crate::field::{self, Error};
use crate::{Path, Str, names};

/// The text is not a valid label selector.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// A token that is not a requirement, a comma or the end.
    #[error("found '{found}', expected: {expected}")]
    Unexpected {
        found: String,
        /// The tokens that are valid here.
        expected: &'static str,
    },
    /// An incomplete or malformed requirement.
    #[error("unable to parse requirement: found '{found}'{expected}")]
    Requirement {
        found: String,
        /// The expected tokens, including the text that joins them to the message.
        expected: &'static str,
    },
    /// A requirement with an invalid key or value.
    #[error("unable to parse requirement: {}", field::aggregate(.0).unwrap_or_default())]
    Invalid(field::Errors),
}

pub(super) fn parse(text: &str) -> Result<Selector, ParseError> {
    let mut parser = Parser { lexer: Lexer { rest: text }, next: Token::End };
    parser.next = parser.lexer.next();
    let mut requirements = Vec::new();
    loop {
        match parser.next {
            Token::End => return Ok(Selector::new(requirements)),
            Token::Word(_) | Token::Not => requirements.push(parser.requirement()?),
            found => return Err(unexpected(found, "!, identifier, or 'end of string'")),
        }
        match parser.take() {
            Token::End => return Ok(Selector::new(requirements)),
            Token::Comma => {}
            found => return Err(unexpected(found, "',' or 'end of string'")),
        }
        if !matches!(parser.next, Token::Word(_) | Token::Not) {
            return Err(unexpected(parser.next, "identifier after ','"));
        }
    }
}

fn unexpected(found: Token<'_>, expected: &'static str) -> ParseError {
    ParseError::Unexpected { found: found.text().to_owned(), expected }
}

fn broken(found: Token<'_>, expected: &'static str) -> ParseError {
    ParseError::Requirement { found: found.text().to_owned(), expected }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    End,
    Open,
    Close,
    Comma,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    /// A key, a value, or one of the operators `in` and `notin`, depending on its position.
    Word(&'a str),
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::End => "",
            Self::Open => "(",
            Self::Close => ")",
            Self::Comma => ",",
            Self::Not => "!",
            Self::Equals => "=",
            Self::DoubleEquals => "==",
            Self::NotEquals => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::Word(word) => word,
        }
    }
}

struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Token<'a> {
        const SYMBOLS: [Token<'static>; 9] = [
            Token::DoubleEquals,
            Token::NotEquals,
            Token::Equals,
            Token::Not,
            Token::Open,
            Token::Close,
            Token::Comma,
            Token::Greater,
            Token::Less,
        ];
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        for symbol in SYMBOLS {
            if let Some(rest) = self.rest.strip_prefix(symbol.text()) {
                self.rest = rest;
                return symbol;
            }
        }
        let end = self.rest.find(['=', '!', '(', ')', ',', '>', '<', ' ', '\t', '\r', '\n', '\0']);
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        // A zero byte ends a word; at the start of a word it ends the text.
        self.rest = rest.strip_prefix('\0').unwrap_or(rest);
        if word.is_empty() { Token::End } else { Token::Word(word) }
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    next: Token<'a>,
}

impl<'a> Parser<'a> {
    fn take(&mut self) -> Token<'a> {
        let taken = self.next;
        if taken != Token::End {
            self.next = self.lexer.next();
        }
        taken
    }

    fn requirement(&mut self) -> Result<Requirement, ParseError> {
        let negated = self.next == Token::Not;
        if negated {
            self.take();
        }
        let key = match self.take() {
            Token::Word(key) => key,
            found => return Err(broken(found, ", expected: identifier")),
        };
        let wrong = names::qualified_name(key);
        if !wrong.is_empty() {
            return Err(ParseError::Invalid(vec![Error::invalid(&Path::ROOT, key, wrong.join("; "))]));
        }
        let (operator, values) = match self.next {
            _ if negated => (Operator::DoesNotExist, Vec::new()),
            Token::End | Token::Comma => (Operator::Exists, Vec::new()),
            _ => self.restriction()?,
        };
        Requirement::new(key, operator, values, &Path::ROOT).map_err(ParseError::Invalid)
    }

    fn restriction(&mut self) -> Result<(Operator, Vec<Str>), ParseError> {
        let operator = match self.take() {
            Token::Word("in") => Operator::In,
            Token::Word("notin") => Operator::NotIn,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::NotEquals => Operator::NotEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            found => return Err(broken(found, ", expected: in, notin, =, ==, !=, gt, lt")),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        Ok((operator, values))
    }

    fn value(&mut self) -> Result<Str, ParseError> {
        match self.next {
            Token::End | Token::Comma => Ok(Str::default()),
            Token::Word(value) => {
                self.take();
                Ok(value.into())
            }
            found => Err(broken(found, ", expected: identifier")),
        }
    }

    /// Parses values in parentheses, any of which may be empty.
    fn values(&mut self) -> Result<Vec<Str>, ParseError> {
        match self.take() {
            Token::Open => {}
            found => return Err(broken(found, " expected: '('")),
        }
        if !matches!(self.next, Token::Word(_) | Token::Comma | Token::Close) {
            return Err(broken(self.next, ", expected: ',', ')' or identifier"));
        }
        let mut values = BTreeSet::new();
        loop {
            match self.next {
                Token::Word(value) => {
                    self.take();
                    values.insert(Str::from(value));
                    if !matches!(self.next, Token::Comma | Token::Close) {
                        return Err(broken(self.next, ", expected: ',' or ')'"));
                    }
                }
                Token::Comma => {
                    self.take();
                    if values.is_empty() || matches!(self.next, Token::Comma | Token::Close) {
                        values.insert(Str::default());
                    }
                }
                Token::Close => {
                    self.take();
                    if values.is_empty() {
                        values.insert(Str::default());
                    }
                    return Ok(values.into_iter().collect());
                }
                found => return Err(broken(found, ", expected: ',', or identifier")),
            }
        }
    }
}
