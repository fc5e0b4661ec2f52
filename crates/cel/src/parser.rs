//! CEL parser: recursive descent with limited depth; macros are expanded during parsing.

mod literal;

use apimachinery::Str;

use crate::ast::{Ast, Entry, Expr, ExprId, Init, Literal};
use crate::error::{Finding, Findings};
use crate::lexer::{Kind, Lexer, RESERVED, Token};
use crate::macros;

/// Maximum length of an expression in code points.
pub const LENGTH_MAX: usize = 100_000;

/// Maximum number of reported token errors.
const PASSED_OVER_MAX: usize = 100;

/// Maximum nesting of brackets and operators in the source.
pub const NESTING_MAX: u16 = 250;

/// The enabled parts of the syntax.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syntax {
    /// `a.?b`, `a[?b]`, `{?k: v}` and the macros `optMap`, `optFlatMap`.
    pub optional: bool,
    /// `all(k, v, …)`, `transformList`, `transformMap` and similar.
    pub two_variables: bool,
    /// `cel.bind(name, value, …)`.
    pub bind: bool,
    /// `list.sortBy(x, key)`.
    pub sort_by: bool,
    /// `math.greatest(a, b, c, …)` with any number of arguments.
    pub math: bool,
}

/// Parses an expression.
///
/// # Errors
/// All syntax errors up to the first from which the parser cannot continue.
pub fn parse(source: &str, syntax: Syntax) -> Result<Ast, Findings> {
    // Checking the byte length first avoids counting the characters of almost every expression.
    if source.len() > LENGTH_MAX {
        let size = source.chars().count();
        if size > LENGTH_MAX {
            let message = format!("expression code point size exceeds limit: size: {size}, limit {LENGTH_MAX}");
            return Err(Findings::one("", Finding { offset: 0, message }));
        }
    }
    let mut reader = Reader { lexer: Lexer::new(source), passed_over: Vec::new() };
    let token = reader.next();
    let mut parser = Parser { source, reader, token, ast: Ast::new(source), syntax, nesting: 0 };
    let parsed = parser.whole();
    let mut findings = std::mem::take(&mut parser.reader.passed_over);
    match parsed {
        Ok(()) if findings.is_empty() => Ok(parser.ast),
        Ok(()) => Err(Findings::new(source, findings)),
        Err(wrong) => {
            findings.extend(wrong.iter().cloned());
            Err(Findings::new(source, findings))
        }
    }
}

/// Reads tokens and skips invalid text, whose errors are reported at the end.
struct Reader<'s> {
    lexer: Lexer<'s>,
    passed_over: Vec<Finding>,
}

impl<'s> Reader<'s> {
    fn next(&mut self) -> Token<'s> {
        loop {
            match self.lexer.next_token() {
                Ok(token) => return token,
                Err(finding) if self.passed_over.len() < PASSED_OVER_MAX => self.passed_over.push(finding),
                Err(_) => {}
            }
        }
    }
}

struct Parser<'s> {
    source: &'s str,
    reader: Reader<'s>,
    token: Token<'s>,
    ast: Ast,
    syntax: Syntax,
    nesting: u16,
}

type ParseResult<T = ExprId> = Result<T, Findings>;

const OPERAND: &str =
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// The precedence of `==`; logical operators have a lower one.
const RELATION: u8 = 2;

/// Text, precedence and function of each binary operator.
const OPERATORS: [(&str, u8, &str); 14] = [
    ("||", 0, "_||_"),
    ("&&", 1, "_&&_"),
    ("<", RELATION, "_<_"),
    ("<=", RELATION, "_<=_"),
    (">=", RELATION, "_>=_"),
    (">", RELATION, "_>_"),
    ("==", RELATION, "_==_"),
    ("!=", RELATION, "_!=_"),
    ("in", RELATION, "@in"),
    ("+", 3, "_+_"),
    ("-", 3, "_-_"),
    ("*", 4, "_*_"),
    ("/", 4, "_/_"),
    ("%", 4, "_%_"),
];

impl<'s> Parser<'s> {
    /// Parses an expression up to the end of the source.
    fn whole(&mut self) -> ParseResult<()> {
        let root = self.expr()?;
        if self.token.kind != Kind::End {
            // ANTLR distinguishes a single extra token from other unexpected input.
            let what = if self.reader.next().kind == Kind::End { "extraneous input" } else { "mismatched input" };
            return Err(self.unexpected(what, "<EOF>"));
        }
        self.ast.set_root(root);
        Ok(())
    }

    /// Parses `binary ('?' binary ':' expr)?`.
    fn expr(&mut self) -> ParseResult {
        self.enter()?;
        let condition = self.binary(0)?;
        let parsed = if self.at("?") { self.conditional(condition)? } else { condition };
        self.nesting -= 1;
        Ok(parsed)
    }

    fn conditional(&mut self, condition: ExprId) -> ParseResult {
        let offset = self.advance().offset;
        let then = self.binary(0)?;
        self.expect(":")?;
        let otherwise = self.expr()?;
        self.call(offset, "_?_:_", None, vec![condition, then, otherwise])
    }

    /// Descends one level. The first error ends parsing, so only success needs to ascend again.
    fn enter(&mut self) -> ParseResult<()> {
        if self.nesting >= NESTING_MAX {
            return Err(self.error(self.token.offset, format!("expression recursion limit exceeded: {NESTING_MAX}")));
        }
        self.nesting += 1;
        Ok(())
    }

    /// Parses operators of precedence `least` and above: equal precedence is left-associative, higher precedence binds
    /// tighter.
    fn binary(&mut self, least: u8) -> ParseResult {
        let mut left = self.unary()?;
        while let Some((rank, function)) = self.operator().filter(|(rank, _)| *rank >= least) {
            left = if rank < RELATION {
                self.logic(left, rank, function)?
            } else {
                let offset = self.advance().offset;
                let right = self.binary(rank + 1)?;
                self.call(offset, function, None, vec![left, right])?
            };
        }
        Ok(left)
    }

    fn operator(&self) -> Option<(u8, &'static str)> {
        if !matches!(self.token.kind, Kind::Sign | Kind::Ident) {
            return None;
        }
        OPERATORS.iter().find(|(sign, ..)| *sign == self.token.text).map(|(_, rank, function)| (*rank, *function))
    }

    /// Turns a chain of one logical operator into a balanced tree, so that a long chain is not deep.
    fn logic(&mut self, first: ExprId, rank: u8, function: &'static str) -> ParseResult {
        let (mut terms, mut offsets) = (vec![first], Vec::new());
        while self.operator() == Some((rank, function)) {
            offsets.push(self.advance().offset);
            terms.push(self.binary(rank + 1)?);
        }
        self.balance(function, &terms, &offsets)
    }

    /// Builds the balanced tree; `offsets[i]` is the operator between `terms[i]` and `terms[i + 1]`.
    fn balance(&mut self, function: &str, terms: &[ExprId], offsets: &[u32]) -> ParseResult {
        if let [only] = terms {
            return Ok(*only);
        }
        let middle = offsets.len() / 2;
        let left = self.balance(function, &terms[..=middle], &offsets[..middle])?;
        let right = self.balance(function, &terms[middle + 1..], &offsets[middle + 1..])?;
        self.call(offsets[middle], function, None, vec![left, right])
    }

    /// Parses `!` and `-`, any number of one of them: an even number cancels out.
    fn unary(&mut self) -> ParseResult {
        for (sign, function) in [("!", "!_"), ("-", "-_")] {
            if !self.at(sign) {
                continue;
            }
            let offset = self.token.offset;
            let mut count = 0_usize;
            while self.at(sign) {
                self.advance();
                count += 1;
            }
            if sign == "-" && matches!(self.token.kind, Kind::Int | Kind::Double) {
                // The sign belongs to the literal: the smallest integer has no positive counterpart.
                let literal = self.number(count % 2 == 1)?;
                let operand = self.ast.add(offset, Expr::Literal(literal))?;
                return self.postfix(operand);
            }
            let operand = self.member()?;
            return if count % 2 == 1 { self.call(offset, function, None, vec![operand]) } else { Ok(operand) };
        }
        self.member()
    }

    fn member(&mut self) -> ParseResult {
        let operand = self.primary()?;
        self.postfix(operand)
    }

    /// Parses the selections, calls and indexes that follow an operand.
    fn postfix(&mut self, mut operand: ExprId) -> ParseResult {
        loop {
            operand = match self.token.text {
                "." if self.token.kind == Kind::Sign => self.selection(operand)?,
                "[" if self.token.kind == Kind::Sign => self.index(operand)?,
                "{" if self.token.kind == Kind::Sign => match self.qualified_name(operand) {
                    Some(name) => self.construction(&name)?,
                    None => return Ok(operand),
                },
                _ => return Ok(operand),
            };
        }
    }

    fn selection(&mut self, operand: ExprId) -> ParseResult {
        let dot = self.advance().offset;
        let optional = self.optional_mark(".?")?;
        let name = self.name()?;
        if optional {
            let field = self.ast.add(name.offset, Expr::Literal(Literal::String(Str::from(name.text))))?;
            return self.call(dot, "_?._", None, vec![operand, field]);
        }
        if self.at("(") {
            let offset = self.advance().offset;
            let args = self.list(")", Self::expr)?;
            return self.call(offset, name.text, Some(operand), args);
        }
        self.ast.add(dot, Expr::Select { operand, field: Str::from(name.text), test: false })
    }

    fn index(&mut self, operand: ExprId) -> ParseResult {
        let offset = self.advance().offset;
        let function = if self.optional_mark("[?")? { "_[?_]" } else { "_[_]" };
        let index = self.expr()?;
        self.expect("]")?;
        self.call(offset, function, None, vec![operand, index])
    }

    /// Returns the dotted name of a chain of plain selections, for `a.b.C{…}`.
    fn qualified_name(&self, id: ExprId) -> Option<String> {
        match self.ast.expr(id) {
            Expr::Ident(name) => Some(name.to_string()),
            Expr::Select { operand, field, test: false } => Some(format!("{}.{field}", self.qualified_name(*operand)?)),
            _ => None,
        }
    }

    fn primary(&mut self) -> ParseResult {
        let Token { kind, text, offset } = self.token;
        match kind {
            Kind::Int | Kind::Uint | Kind::Double => {
                let literal = self.number(false)?;
                self.ast.add(offset, Expr::Literal(literal))
            }
            Kind::String | Kind::Bytes => {
                self.advance();
                let literal = literal::string(text).map_err(|message| self.error(offset, message))?;
                self.ast.add(offset, Expr::Literal(literal))
            }
            Kind::Ident => self.ident_or_call(""),
            Kind::Sign => match text {
                "." => {
                    self.advance();
                    self.ident_or_call(".")
                }
                "(" => {
                    self.advance();
                    let inner = self.expr()?;
                    self.expect(")")?;
                    Ok(inner)
                }
                "[" => self.list_literal(),
                "{" => self.map_literal(),
                _ => Err(self.unexpected("mismatched input", OPERAND)),
            },
            Kind::End => Err(self.unexpected("mismatched input", OPERAND)),
        }
    }

    fn ident_or_call(&mut self, leading: &str) -> ParseResult {
        let constant = match self.token.text {
            "true" => Some(Literal::Bool(true)),
            "false" => Some(Literal::Bool(false)),
            "null" => Some(Literal::Null),
            _ => None,
        };
        if let Some(literal) = constant.filter(|_| leading.is_empty()) {
            let offset = self.advance().offset;
            return self.ast.add(offset, Expr::Literal(literal));
        }
        let name = self.name()?;
        if RESERVED.contains(&name.text) {
            return Err(self.error(name.offset, format!("reserved identifier: {}", name.text)));
        }
        let full = format!("{leading}{}", name.text);
        if self.at("(") {
            let offset = self.advance().offset;
            let args = self.list(")", Self::expr)?;
            return self.call(offset, &full, None, args);
        }
        self.ast.add(name.offset, Expr::Ident(Str::from(full)))
    }

    /// Parses `[a, ?b,]`.
    fn list_literal(&mut self) -> ParseResult {
        let offset = self.advance().offset;
        let items = self.list("]", |parser| Ok((parser.optional_mark("?")?, parser.expr()?)))?;
        let (optional, items): (Vec<_>, Vec<_>) = items.into_iter().unzip();
        self.ast.add(offset, Expr::List { items: items.into(), optional: optional.into() })
    }

    /// Parses `{k: v, ?k: v,}`.
    fn map_literal(&mut self) -> ParseResult {
        let offset = self.advance().offset;
        let entries = self.list("}", |parser| {
            let optional = parser.optional_mark("?")?;
            let key = parser.expr()?;
            parser.expect(":")?;
            Ok(Entry { key, value: parser.expr()?, optional })
        })?;
        self.ast.add(offset, Expr::Map(entries.into()))
    }

    /// Parses `Name{field: value,}`.
    fn construction(&mut self, name: &str) -> ParseResult {
        let offset = self.advance().offset;
        let fields = self.list("}", |parser| {
            let optional = parser.optional_mark("?")?;
            let field = parser.name()?;
            let offset = parser.token.offset;
            parser.expect(":")?;
            Ok(Init { name: Str::from(field.text), value: parser.expr()?, optional, offset })
        })?;
        self.ast.add(offset, Expr::Struct { name: Str::from(name), fields: fields.into() })
    }

    /// Parses comma-separated items up to `close`; a trailing comma is allowed, except in a call.
    fn list<T>(&mut self, close: &str, item: impl Fn(&mut Self) -> ParseResult<T>) -> ParseResult<Vec<T>> {
        let mut items = Vec::new();
        if self.at(close) {
            self.advance();
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.at(",") {
                self.advance();
                if close == ")" || !self.at(close) {
                    continue;
                }
            }
            self.expect(close)?;
            return Ok(items);
        }
    }

    fn number(&mut self, negative: bool) -> ParseResult<Literal> {
        let token = self.advance();
        literal::number(token.kind, token.text, negative).map_err(|message| self.error(token.offset, message))
    }

    /// Creates a call, or the expansion of the macro of that name.
    fn call(&mut self, offset: u32, function: &str, target: Option<ExprId>, args: Vec<ExprId>) -> ParseResult {
        if let Some(expanded) = macros::expand(&mut self.ast, self.syntax, offset, function, target, &args) {
            return expanded;
        }
        self.ast.add(offset, Expr::Call { function: Str::from(function), target, args: args.into() })
    }

    /// Consumes a `?` that marks an optional; returns whether there was one.
    fn optional_mark(&mut self, syntax: &str) -> ParseResult<bool> {
        if !self.at("?") {
            return Ok(false);
        }
        if !self.syntax.optional {
            return Err(self.error(self.token.offset, format!("unsupported syntax '{syntax}'")));
        }
        self.advance();
        Ok(true)
    }

    fn name(&mut self) -> ParseResult<Token<'s>> {
        // Keywords are also keywords after a dot.
        if self.token.kind != Kind::Ident || matches!(self.token.text, "in" | "true" | "false" | "null") {
            return Err(self.unexpected("mismatched input", "IDENTIFIER"));
        }
        Ok(self.advance())
    }

    fn at(&self, sign: &str) -> bool {
        self.token.kind == Kind::Sign && self.token.text == sign
    }

    fn advance(&mut self) -> Token<'s> {
        let next = self.reader.next();
        std::mem::replace(&mut self.token, next)
    }

    fn expect(&mut self, sign: &str) -> ParseResult<()> {
        if self.at(sign) {
            self.advance();
            return Ok(());
        }
        let message = format!("Syntax error: missing '{sign}' at '{}'", self.token_text());
        Err(self.error(self.token.offset, message))
    }

    fn unexpected(&self, what: &str, expecting: &str) -> Findings {
        let message = format!("Syntax error: {what} '{}' expecting {expecting}", self.token_text());
        self.error(self.token.offset, message)
    }

    fn token_text(&self) -> &'s str {
        if self.token.kind == Kind::End { "<EOF>" } else { self.token.text }
    }

    fn error(&self, offset: u32, message: String) -> Findings {
        Findings::one(self.source, Finding { offset, message })
    }
}

#[cfg(test)]
mod tests;
