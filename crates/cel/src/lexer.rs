//! CEL lexer: names, numbers, strings and punctuation, with source offsets.

use crate::error::Finding;

/// A token and its source range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token<'s> {
    pub kind: Kind,
    /// The text, including quotes and prefixes.
    pub text: &'s str,
    /// The source offset in bytes.
    pub offset: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name, including `true`, `false`, `null` and `in`, which the parser distinguishes.
    Ident,
    /// `1`, `0xff`
    Int,
    /// `1u`
    Uint,
    /// `1.0`, `1e3`
    Double,
    /// `'a'` in any of its forms.
    String,
    /// `b'a'` in any of its forms.
    Bytes,
    /// An operator, a bracket or other punctuation.
    Sign,
    /// The end of the source.
    End,
}

#[derive(Clone, Debug)]
pub struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

/// Longest first, so that `<=` is not split into `<` and `=`.
const SIGNS: [&str; 23] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "+", "-", "*", "/",
    "%",
];

/// Names with a fixed meaning.
const KEYWORDS: [&str; 4] = ["true", "false", "null", "in"];
/// Names reserved for future use by the language.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether a name is a keyword or reserved, so that it cannot be an identifier.
pub fn is_word(name: &str) -> bool {
    KEYWORDS.contains(&name) || RESERVED.contains(&name)
}

impl<'s> Lexer<'s> {
    pub const fn new(source: &'s str) -> Self {
        Self { source, at: 0 }
    }

    /// Returns the next token; at the end [`Kind::End`], repeatedly.
    ///
    /// # Errors
    /// Text that is not a token. It is skipped: the next call continues after it.
    pub fn next_token(&mut self) -> Result<Token<'s>, Finding> {
        self.skip_blanks();
        let rest = &self.source[self.at..];
        let Some(first) = rest.chars().next() else { return Ok(self.take(Kind::End, 0)) };
        if let Some((prefix, raw, bytes)) = string_prefix(rest) {
            return self.string(prefix, raw, bytes);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            return Ok(self.take(Kind::Ident, length));
        }
        if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            return Ok(self.number(rest));
        }
        if first == '!' && !rest.starts_with("!=") {
            return Ok(self.take(Kind::Sign, 1));
        }
        match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => Ok(self.take(Kind::Sign, sign.len())),
            None => Err(self.unrecognized(rest)),
        }
    }

    fn take(&mut self, kind: Kind, length: usize) -> Token<'s> {
        let text = &self.source[self.at..self.at + length];
        let offset = u32::try_from(self.at).expect("the source is limited in length");
        self.at += length;
        Token { kind, text, offset }
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = &self.source[self.at..];
            let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']).len();
            self.at += blanks;
            if !self.source[self.at..].starts_with("//") {
                return;
            }
            let rest = &self.source[self.at..];
            self.at += rest.find('\n').unwrap_or(rest.len());
        }
    }

    /// Reads `12`, `0x1f`, `1.5`, `.5`, `1e-3`, integers also with `u`.
    fn number(&mut self, rest: &'s str) -> Token<'s> {
        let bytes = rest.as_bytes();
        let digits = |from: usize| from + bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        if rest.starts_with("0x") && bytes.get(2).is_some_and(u8::is_ascii_hexdigit) {
            let end = 2 + bytes[2..].iter().take_while(|b| b.is_ascii_hexdigit()).count();
            return self.integer(bytes, end);
        }
        let mut end = digits(0);
        let mut double = false;
        if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
            end = digits(end + 1);
            double = true;
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            if bytes.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
                end = digits(end + 1 + sign);
                double = true;
            }
        }
        if double { self.take(Kind::Double, end) } else { self.integer(bytes, end) }
    }

    fn integer(&mut self, bytes: &[u8], end: usize) -> Token<'s> {
        match bytes.get(end) {
            Some(b'u' | b'U') => self.take(Kind::Uint, end + 1),
            _ => self.take(Kind::Int, end),
        }
    }

    /// Reads a string such as `r'''…'''`; `prefix` is the length of the prefix letters in bytes.
    fn string(&mut self, prefix: usize, raw: bool, bytes: bool) -> Result<Token<'s>, Finding> {
        let kind = if bytes { Kind::Bytes } else { Kind::String };
        let rest = &self.source[self.at..];
        let body = &rest[prefix..];
        let quote = &body[..1];
        let triple = body.len() >= 3 && body[1..].starts_with(quote) && body[2..].starts_with(quote);
        let close = if triple { &body[..3] } else { quote };
        let mut at = prefix + close.len();
        loop {
            let tail = &rest[at..];
            if tail.starts_with(close) {
                return Ok(self.take(kind, at + close.len()));
            }
            match tail.chars().next() {
                Some('\\') if !raw => at += 1 + tail[1..].chars().next().map_or(0, char::len_utf8),
                Some('\n' | '\r') if !triple => return Err(self.unrecognized(&rest[..at])),
                Some(c) => at += c.len_utf8(),
                None => return Err(self.unrecognized(rest)),
            }
        }
    }

    /// Returns an error in the form of ANTLR, on which upstream's messages are based: it prints the text read before
    /// the failure and continues after it.
    fn unrecognized(&mut self, read: &str) -> Finding {
        let lexeme = match read.strip_prefix(['=', '&', '|']) {
            Some(after) => &read[..1 + after.chars().next().map_or(0, char::len_utf8)],
            None if read.starts_with(['\'', '"']) || read.len() > 1 && string_prefix(read).is_some() => read,
            None => &read[..read.chars().next().map_or(0, char::len_utf8)],
        };
        let offset = u32::try_from(self.at).expect("the source is limited in length");
        self.at += lexeme.len();
        let lexeme = lexeme.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
        Finding { offset, message: format!("Syntax error: token recognition error at: '{lexeme}'") }
    }
}

/// Returns the number of letters before the quote, and whether they make the string raw and bytes; [`None`] if this is
/// not a string.
fn string_prefix(rest: &str) -> Option<(usize, bool, bool)> {
    let quote = rest.bytes().take(3).position(|b| matches!(b, b'\'' | b'"'))?;
    match rest[..quote].to_ascii_lowercase().as_str() {
        "" => Some((0, false, false)),
        "r" => Some((1, true, false)),
        "b" => Some((1, false, true)),
        "br" | "rb" => Some((2, true, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expect: &str) {
        let mut lexer = Lexer::new(source);
        let mut tokens = Vec::new();
        loop {
            match lexer.next_token() {
                Ok(Token { kind: Kind::End, .. }) => break,
                Ok(token) => tokens.push(format!("{:?}:{}", token.kind, token.text)),
                Err(finding) => {
                    tokens.push(finding.message);
                    break;
                }
            }
        }
        assert_eq!(tokens.join(" "), expect, "tokens of {source:?}");
    }

    #[test]
    fn numbers_are_distinguished_from_names_and_dots() {
        check("1 0x1F 2u 0xAu", "Int:1 Int:0x1F Uint:2u Uint:0xAu");
        check("1.5 .5 1e3 1.5E-3", "Double:1.5 Double:.5 Double:1e3 Double:1.5E-3");
        check("1.a 1e", "Int:1 Sign:. Ident:a Int:1 Ident:e");
        check("a.b[0]", "Ident:a Sign:. Ident:b Sign:[ Int:0 Sign:]");
    }

    #[test]
    fn strings_keep_their_prefix_and_quotes() {
        check("'a' \"b\" r'\\n' b'x' Rb\"y\"", "String:'a' String:\"b\" String:r'\\n' Bytes:b'x' Bytes:Rb\"y\"");
        check("'''a'b''' '' ''''''", "String:'''a'b''' String:'' String:''''''");
        check(r"'it\'s' bar", r"String:'it\'s' Ident:bar");
    }

    #[test]
    fn operators_are_the_longest_that_match() {
        check("a<=b!=!c", "Ident:a Sign:<= Ident:b Sign:!= Sign:! Ident:c");
        check("a&&b||c // all\n+d", "Ident:a Sign:&& Ident:b Sign:|| Ident:c Sign:+ Ident:d");
    }

    #[test]
    fn invalid_tokens_are_reported() {
        check("a = b", "Ident:a Syntax error: token recognition error at: '= '");
        check("a # b", "Ident:a Syntax error: token recognition error at: '#'");
        check("'abc", "Syntax error: token recognition error at: ''abc'");
        check("'a\nb'", "Syntax error: token recognition error at: ''a'");
    }
}
