//! Splits a template into tokens.

use std::fmt;

use apimachinery::go;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The message of an invalid token; nothing follows.
    Error,
    Bool,
    /// Other punctuation, such as a comma.
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    End,
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelim,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    Dot,
    /// `if`, `range`, `nil`, …
    Keyword,
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub kind: Kind,
    /// The offset in the text.
    pub at: usize,
    pub line: usize,
    pub text: String,
}

const KEYWORDS: [&str; 11] =
    ["block", "break", "continue", "define", "else", "end", "if", "nil", "range", "template", "with"];

impl Token {
    pub(super) fn is_keyword(&self, word: &str) -> bool {
        self.kind == Kind::Keyword && self.text == word
    }
}

impl fmt::Display for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::End => out.write_str("EOF"),
            Kind::Error => out.write_str(&self.text),
            Kind::Keyword | Kind::Dot => write!(out, "<{}>", self.text),
            _ if self.text.len() > 10 => {
                let prefix: String = self.text.chars().take(10).collect();
                write!(out, "{}...", go::quote(&prefix))
            }
            _ => out.write_str(&go::quote(&self.text)),
        }
    }
}

/// Returns the tokens of a text. The last one is of kind `End` or `Error`.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { text, start: 0, at: 0, parens: 0, tokens: Vec::new() };
    let (kind, last) = match lexer.run() {
        Ok(()) => (Kind::End, "EOF".to_owned()),
        Err(message) => (Kind::Error, message),
    };
    let (at, line) = (lexer.start, lexer.line(lexer.start));
    lexer.tokens.push(Token { kind, at, line, text: last });
    lexer.tokens
}

struct Lexer<'t> {
    text: &'t str,
    /// The start of the current token.
    start: usize,
    at: usize,
    parens: usize,
    tokens: Vec<Token>,
}

impl<'t> Lexer<'t> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(open) = self.rest().find("{{") {
            let inside = &self.rest()[open + 2..];
            let trims = starts_trim(inside);
            let before = &self.rest()[..open];
            let end = if trims { before.trim_end_matches(is_space).len() } else { open };
            self.at += end;
            if end > 0 {
                self.push(Kind::Text);
            }
            self.at += open - end;
            self.start = self.at;
            self.at += 2;
            let marker = if trims { 2 } else { 0 };
            if self.rest()[marker..].starts_with("/*") {
                self.at += marker;
                self.start = self.at;
                self.comment()?;
            } else {
                self.push(Kind::LeftDelim);
                self.at += marker;
                self.start = self.at;
                self.parens = 0;
                while !self.inside_action()? {}
            }
        }
        self.at = self.text.len();
        if self.at > self.start {
            self.push(Kind::Text);
        }
        Ok(())
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn line(&self, at: usize) -> usize {
        1 + self.text[..at].matches('\n').count()
    }

    fn push(&mut self, kind: Kind) {
        let text = self.text[self.start..self.at].to_owned();
        self.tokens.push(Token { kind, at: self.start, line: self.line(self.start), text });
        self.start = self.at;
    }

    fn comment(&mut self) -> Result<(), String> {
        let end = self.rest()[2..].find("*/").ok_or("unclosed comment")?;
        self.at += 2 + end + 2;
        match self.right_delim() {
            None => Err("comment ends before closing delimiter".to_owned()),
            Some(trims) => {
                self.skip_right_delim(trims);
                self.start = self.at;
                Ok(())
            }
        }
    }

    /// Returns whether the right delimiter here has a trim marker; [`None`] if there is none.
    fn right_delim(&self) -> Option<bool> {
        let rest = self.rest();
        let trims = rest.starts_with(is_space) && rest[1..].starts_with("-}}");
        (trims || rest.starts_with("}}")).then_some(trims)
    }

    /// Skips a right delimiter and the white space that it trims.
    fn skip_right_delim(&mut self, trims: bool) {
        self.at += if trims { 4 } else { 2 };
        if trims {
            self.at += self.rest().len() - self.rest().trim_start_matches(is_space).len();
        }
    }

    /// Reads one token; returns whether it ends the action.
    fn inside_action(&mut self) -> Result<bool, String> {
        if let Some(trims) = self.right_delim() {
            if self.parens > 0 {
                return Err("unclosed left paren".to_owned());
            }
            self.start = self.at + if trims { 2 } else { 0 };
            self.at = self.start + 2;
            self.push(Kind::RightDelim);
            self.at -= if trims { 4 } else { 2 };
            self.skip_right_delim(trims);
            self.start = self.at;
            return Ok(true);
        }
        let Some(c) = self.rest().chars().next() else { return Err("unclosed action".to_owned()) };
        if is_space(c) {
            self.space();
            return Ok(false);
        }
        self.at += c.len_utf8();
        let kind = match c {
            '=' => Kind::Assign,
            ':' if self.rest().starts_with('=') => {
                self.at += 1;
                Kind::Declare
            }
            ':' => return Err("expected :=".to_owned()),
            '|' => Kind::Pipe,
            '"' => self.quoted('"', "unterminated quoted string", Kind::String)?,
            '\'' => self.quoted('\'', "unterminated character constant", Kind::CharConstant)?,
            '`' => {
                self.at += 1 + self.rest().find('`').ok_or("unterminated raw quoted string")?;
                Kind::RawString
            }
            '$' => self.word(Kind::Variable)?,
            '.' if !self.rest().is_empty() && !self.rest().starts_with(|c: char| c.is_ascii_digit()) => {
                self.word(Kind::Field)?
            }
            '.' | '+' | '-' | '0'..='9' => self.number(c)?,
            _ if is_word(c) => self.identifier()?,
            '(' => {
                self.parens += 1;
                Kind::LeftParen
            }
            ')' => {
                self.parens = self.parens.checked_sub(1).ok_or("unexpected right paren")?;
                Kind::RightParen
            }
            ' '..='~' => Kind::Char,
            _ => return Err(format!("unrecognized character in action: {}", unicode(c))),
        };
        self.push(kind);
        Ok(false)
    }

    /// Reads white space, but not the one that belongs to a trim marker.
    fn space(&mut self) {
        while self.rest().starts_with(is_space) && self.right_delim().is_none() {
            self.at += 1;
        }
        self.push(Kind::Space);
    }

    fn quoted(&mut self, quote: char, error: &str, kind: Kind) -> Result<Kind, String> {
        loop {
            let c = self.rest().chars().next().filter(|c| *c != '\n').ok_or(error)?;
            self.at += c.len_utf8();
            if c == quote {
                return Ok(kind);
            }
            if c == '\\' {
                let escaped = self.rest().chars().next().filter(|c| *c != '\n').ok_or(error)?;
                self.at += escaped.len_utf8();
            }
        }
    }

    /// Reads the name of a field or variable after its first character.
    fn word(&mut self, kind: Kind) -> Result<Kind, String> {
        if self.at_terminator() {
            return Ok(if kind == Kind::Field { Kind::Dot } else { kind });
        }
        self.skip_word()?;
        Ok(kind)
    }

    fn identifier(&mut self) -> Result<Kind, String> {
        self.skip_word()?;
        Ok(match &self.text[self.start..self.at] {
            word if KEYWORDS.contains(&word) => Kind::Keyword,
            "true" | "false" => Kind::Bool,
            _ => Kind::Identifier,
        })
    }

    fn skip_word(&mut self) -> Result<(), String> {
        self.at += self.rest().find(|c| !is_word(c)).unwrap_or(self.rest().len());
        match self.rest().chars().next() {
            Some(c) if !self.at_terminator() => Err(format!("bad character {}", unicode(c))),
            _ => Ok(()),
        }
    }

    fn at_terminator(&self) -> bool {
        let rest = self.rest();
        rest.is_empty()
            || rest.starts_with([' ', '\t', '\r', '\n', '.', ',', '|', ':', ')', '('])
            || rest.starts_with("}}")
    }

    fn number(&mut self, first: char) -> Result<Kind, String> {
        self.at -= first.len_utf8();
        if !self.scan_number() {
            return Err(format!("bad number syntax: {}", go::quote(&self.text[self.start..self.at])));
        }
        if !self.rest().starts_with(['+', '-']) {
            return Ok(Kind::Number);
        }
        if !self.scan_number() || !self.text[..self.at].ends_with('i') {
            return Err(format!("bad number syntax: {}", go::quote(&self.text[self.start..self.at])));
        }
        Ok(Kind::Complex)
    }

    fn scan_number(&mut self) -> bool {
        self.accept("+-");
        let mut digits = "0123456789_";
        if self.accept("0") {
            if self.accept("xX") {
                digits = "0123456789abcdefABCDEF_";
            } else if self.accept("oO") {
                digits = "01234567_";
            } else if self.accept("bB") {
                digits = "01_";
            }
        }
        while self.accept(digits) {}
        if self.accept(".") {
            while self.accept(digits) {}
        }
        let exponent = match digits.len() {
            11 => "eE",
            23 => "pP",
            _ => "",
        };
        if self.accept(exponent) {
            self.accept("+-");
            while self.accept("0123456789_") {}
        }
        self.accept("i");
        match self.rest().chars().next().filter(|c| is_word(*c)) {
            Some(c) => {
                self.at += c.len_utf8();
                false
            }
            None => true,
        }
    }

    fn accept(&mut self, valid: &str) -> bool {
        let found = self.rest().chars().next().is_some_and(|c| valid.contains(c));
        self.at += usize::from(found);
        found
    }
}

/// Whether an action starts with a trim marker.
fn starts_trim(inside: &str) -> bool {
    inside.strip_prefix('-').is_some_and(|rest| rest.starts_with(is_space))
}

const fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Formats a character like Go's `%#U`.
fn unicode(c: char) -> String {
    let code = u32::from(c);
    if go::is_printable(c) { format!("U+{code:04X} '{c}'") } else { format!("U+{code:04X}") }
}
