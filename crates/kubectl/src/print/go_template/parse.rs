//! Parses a template into a tree.

use std::collections::BTreeMap;

use apimachinery::go;

use super::lex::{Kind, Token, tokens};
use super::tree::{Branch, BranchKind, Command, Node, Number, Operand, Pipe, Term};
use super::{NAME, ParseError, functions};

/// Maximum nesting of parentheses and blocks.
const DEPTH_MAX: usize = 200;

/// Parses a text; returns the template itself, by the name `output`, and those that it defines.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, Vec<Node>>> {
    let mut parser = Parser {
        tokens: tokens(text),
        at: 0,
        furthest: 0,
        variables: vec!["$".to_owned()],
        templates: BTreeMap::new(),
        ranges: 0,
        depth: 0,
        action_line: None,
    };
    let root = parser.root()?;
    parser.define(NAME.to_owned(), root)?;
    Ok(parser.templates)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    /// The last token that was inspected: errors have its line.
    furthest: usize,
    variables: Vec<String>,
    templates: BTreeMap<String, Vec<Node>>,
    /// The number of open ranges.
    ranges: usize,
    depth: usize,
    action_line: Option<usize>,
}

/// The action that ends a list of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    End,
    Else,
}

/// A node, or the end of the enclosing list.
enum Item {
    Node(Node),
    Next(Next),
}

type Result<T> = std::result::Result<T, ParseError>;

impl Next {
    const fn text(self) -> &'static str {
        match self {
            Self::End => "{{end}}",
            Self::Else => "{{else}}",
        }
    }
}

impl Parser {
    fn next(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn peek(&mut self) -> Token {
        let at = self.at.min(self.tokens.len() - 1);
        self.furthest = self.furthest.max(at);
        self.tokens[at].clone()
    }

    fn next_non_space(&mut self) -> Token {
        loop {
            let token = self.next();
            if token.kind != Kind::Space {
                return token;
            }
        }
    }

    fn peek_non_space(&mut self) -> Token {
        let token = self.next_non_space();
        self.at -= 1;
        token
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(ParseError { line: self.tokens[self.furthest].line, message: message.into() })
    }

    fn unexpected<T>(&self, token: &Token, context: &str) -> Result<T> {
        if token.kind != Kind::Error {
            return self.error(format!("unexpected {token} in {context}"));
        }
        let extra = match self.action_line {
            Some(line) if line != token.line && token.text.ends_with(" action") => format!(" started at {NAME}:{line}"),
            Some(line) if line != token.line => format!(" in action started at {NAME}:{line}"),
            _ => String::new(),
        };
        self.error(format!("{token}{extra}"))
    }

    fn expect(&mut self, kind: Kind, context: &str) -> Result<Token> {
        let token = self.next_non_space();
        if token.kind == kind { Ok(token) } else { self.unexpected(&token, context) }
    }

    /// Adds a template, unless one with content exists.
    fn define(&mut self, name: String, nodes: Vec<Node>) -> Result<()> {
        let is_empty =
            |nodes: &[Node]| nodes.iter().all(|node| matches!(node, Node::Text { text, .. } if text.trim().is_empty()));
        match self.templates.get(&name) {
            Some(existing) if !is_empty(existing) => {
                if !is_empty(&nodes) {
                    let name = go::quote(&name);
                    return self.error(format!("template: multiple definition of template {name}"));
                }
            }
            _ => drop(self.templates.insert(name, nodes)),
        }
        Ok(())
    }

    fn root(&mut self) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        while self.peek().kind != Kind::End {
            if self.peek().kind == Kind::LeftDelim {
                let start = self.at;
                self.next();
                if self.next_non_space().is_keyword("define") {
                    self.definition()?;
                    continue;
                }
                self.at = start;
            }
            match self.text_or_action()? {
                Item::Node(node) => nodes.push(node),
                Item::Next(next) => return self.error(format!("unexpected {}", next.text())),
            }
        }
        Ok(nodes)
    }

    fn definition(&mut self) -> Result<()> {
        const CONTEXT: &str = "define clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        self.expect(Kind::RightDelim, CONTEXT)?;
        let (nodes, next) = self.separate_list()?;
        if next != Next::End {
            return self.error(format!("unexpected {} in {CONTEXT}", next.text()));
        }
        self.define(name, nodes)
    }

    /// Parses the body of a separate template, which has no access to outer variables.
    fn separate_list(&mut self) -> Result<(Vec<Node>, Next)> {
        let variables = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let ranges = std::mem::take(&mut self.ranges);
        let action_line = self.action_line.take();
        let list = self.list();
        (self.variables, self.ranges, self.action_line) = (variables, ranges, action_line);
        list
    }

    fn list(&mut self) -> Result<(Vec<Node>, Next)> {
        let mut nodes = Vec::new();
        while self.peek_non_space().kind != Kind::End {
            match self.text_or_action()? {
                Item::Node(node) => nodes.push(node),
                Item::Next(next) => return Ok((nodes, next)),
            }
        }
        self.error("unexpected EOF")
    }

    fn text_or_action(&mut self) -> Result<Item> {
        let token = self.next_non_space();
        match token.kind {
            Kind::Text => Ok(Item::Node(Node::Text { at: token.at, text: token.text })),
            Kind::LeftDelim => {
                self.action_line = Some(token.line);
                let item = self.action();
                self.action_line = None;
                item
            }
            _ => self.unexpected(&token, "input"),
        }
    }

    fn action(&mut self) -> Result<Item> {
        let token = self.next_non_space();
        let word = if token.kind == Kind::Keyword { token.text.as_str() } else { "" };
        let node = match word {
            "block" => self.block()?,
            "break" | "continue" => self.jump(&token)?,
            "else" => {
                let next = self.peek_non_space();
                if !next.is_keyword("if") && !next.is_keyword("with") {
                    self.expect(Kind::RightDelim, "else")?;
                }
                return Ok(Item::Next(Next::Else));
            }
            "end" => {
                self.expect(Kind::RightDelim, "end")?;
                return Ok(Item::Next(Next::End));
            }
            "if" => self.branch(BranchKind::If)?,
            "range" => self.branch(BranchKind::Range)?,
            "with" => self.branch(BranchKind::With)?,
            "template" => self.template()?,
            _ => {
                self.at -= 1;
                let at = self.peek().at;
                Node::Action { at, pipe: self.pipe("command", Kind::RightDelim)? }
            }
        };
        Ok(Item::Node(node))
    }

    fn jump(&mut self, token: &Token) -> Result<Node> {
        let action = format!("{{{{{}}}}}", token.text);
        self.expect(Kind::RightDelim, &action)?;
        if self.ranges == 0 {
            return self.error(format!("{action} outside {{{{range}}}}"));
        }
        Ok(if token.text == "break" { Node::Break { at: token.at } } else { Node::Continue { at: token.at } })
    }

    fn branch(&mut self, kind: BranchKind) -> Result<Node> {
        self.deeper()?;
        let variables = self.variables.len();
        let pipe = self.pipe(kind.name(), Kind::RightDelim)?;
        self.ranges += usize::from(kind == BranchKind::Range);
        let (body, next) = self.list()?;
        self.ranges -= usize::from(kind == BranchKind::Range);
        let otherwise = match next {
            Next::End => None,
            // `else if` is an `if` inside of `else`; both end at the same `end`.
            Next::Else if kind != BranchKind::Range && self.peek_non_space().is_keyword(kind.name()) => {
                self.next_non_space();
                Some(vec![self.branch(kind)?])
            }
            Next::Else => {
                let (otherwise, next) = self.list()?;
                if next != Next::End {
                    return self.error(format!("expected end; found {}", next.text()));
                }
                Some(otherwise)
            }
        };
        self.variables.truncate(variables);
        self.depth -= 1;
        Ok(Node::Branch(Branch { at: pipe.at, kind, pipe, body, otherwise }))
    }

    fn block(&mut self) -> Result<Node> {
        const CONTEXT: &str = "block clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        let pipe = self.pipe(CONTEXT, Kind::RightDelim)?;
        let (nodes, next) = self.separate_list()?;
        if next != Next::End {
            return self.error(format!("unexpected {} in {CONTEXT}", next.text()));
        }
        self.define(name.clone(), nodes)?;
        Ok(Node::Template { at: token.at, name, pipe: Some(pipe) })
    }

    fn template(&mut self) -> Result<Node> {
        const CONTEXT: &str = "template clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        let pipe = match self.peek_non_space().kind {
            Kind::RightDelim => {
                self.next_non_space();
                None
            }
            _ => Some(self.pipe(CONTEXT, Kind::RightDelim)?),
        };
        Ok(Node::Template { at: token.at, name, pipe })
    }

    fn template_name(&self, token: &Token, context: &str) -> Result<String> {
        match token.kind {
            Kind::String | Kind::RawString => self.unquote(&token.text),
            _ => self.unexpected(token, context),
        }
    }

    fn unquote(&self, quoted: &str) -> Result<String> {
        let inside = &quoted[1..quoted.len() - 1];
        match quoted.starts_with('`') {
            true => Ok(inside.replace('\r', "")),
            false => go::unquote(inside, '"').map_or_else(|| self.error("invalid syntax"), Ok),
        }
    }

    fn pipe(&mut self, context: &str, end: Kind) -> Result<Pipe> {
        let at = self.peek_non_space().at;
        let mut pipe = Pipe { at, assigns: false, variables: Vec::new(), commands: Vec::new() };
        self.declarations(&mut pipe, context)?;
        loop {
            let token = self.next_non_space();
            match token.kind {
                kind if kind == end => break,
                Kind::Bool
                | Kind::CharConstant
                | Kind::Complex
                | Kind::Dot
                | Kind::Field
                | Kind::Identifier
                | Kind::Number
                | Kind::RawString
                | Kind::String
                | Kind::Variable
                | Kind::LeftParen => {}
                Kind::Keyword if token.text == "nil" => {}
                _ => return self.unexpected(&token, context),
            }
            self.at -= 1;
            let command = self.command()?;
            pipe.commands.push(command);
        }
        if pipe.commands.is_empty() {
            return self.error(format!("missing value for {context}"));
        }
        for (at, command) in pipe.commands.iter().enumerate().skip(1) {
            let first = &command.operands[0].term;
            if matches!(first, Term::Bool(_) | Term::Dot | Term::Nil | Term::Number(_) | Term::Text { .. }) {
                return self.error(format!("non executable command in pipeline stage {}", at + 1));
            }
        }
        Ok(pipe)
    }

    /// Parses `$x :=`, `$x =` and `$x, $y :=` at the start of a pipe.
    fn declarations(&mut self, pipe: &mut Pipe, context: &str) -> Result<()> {
        loop {
            let variable = self.peek_non_space();
            if variable.kind != Kind::Variable {
                return Ok(());
            }
            let start = self.at;
            self.next_non_space();
            let next = self.peek_non_space();
            let comma = next.kind == Kind::Char && next.text == ",";
            if !comma && !matches!(next.kind, Kind::Assign | Kind::Declare) {
                self.at = start;
                return Ok(());
            }
            self.next_non_space();
            pipe.variables.push(variable.text.clone());
            self.variables.push(variable.text);
            if !comma {
                pipe.assigns = next.kind == Kind::Assign;
                return Ok(());
            }
            if context != "range" || pipe.variables.len() > 1 {
                return self.error(format!("too many declarations in {context}"));
            }
            if !matches!(self.peek_non_space().kind, Kind::Variable | Kind::RightDelim | Kind::RightParen) {
                return self.error("range can only initialize variables");
            }
        }
    }

    fn command(&mut self) -> Result<Command> {
        let mut command = Command { at: self.peek_non_space().at, operands: Vec::new() };
        loop {
            self.peek_non_space();
            command.operands.extend(self.operand()?);
            let token = self.next();
            match token.kind {
                Kind::Space => {}
                Kind::RightDelim | Kind::RightParen => {
                    self.at -= 1;
                    break;
                }
                Kind::Pipe => break,
                _ => return self.unexpected(&token, "operand"),
            }
        }
        if command.operands.is_empty() {
            return self.error("empty command");
        }
        Ok(command)
    }

    /// Parses a term with the fields that follow it; [`None`] if there is no term.
    fn operand(&mut self) -> Result<Option<Operand>> {
        let Some(operand) = self.term()? else { return Ok(None) };
        let chain = self.peek();
        if chain.kind != Kind::Field {
            return Ok(Some(operand));
        }
        let mut names = Vec::new();
        while self.peek().kind == Kind::Field {
            names.push(self.next().text[1..].to_owned());
        }
        let term = match operand.term {
            Term::Field(first) => Term::Field([first, names].concat()),
            Term::Variable(first) => Term::Variable([first, names].concat()),
            Term::Bool(_) | Term::Text { .. } | Term::Number(_) | Term::Nil | Term::Dot => {
                return self.error(format!("unexpected . after term {}", go::quote(&operand.to_string())));
            }
            _ => Term::Chain(Box::new(operand), names),
        };
        Ok(Some(Operand { at: chain.at, term }))
    }

    fn term(&mut self) -> Result<Option<Operand>> {
        let token = self.next_non_space();
        let term = match token.kind {
            Kind::Identifier if functions::find(&token.text).is_none() => {
                return self.error(format!("function {} not defined", go::quote(&token.text)));
            }
            Kind::Identifier => Term::Function(token.text),
            Kind::Dot => Term::Dot,
            Kind::Keyword if token.text == "nil" => Term::Nil,
            Kind::Variable if !self.variables.contains(&token.text) => {
                return self.error(format!("undefined variable {}", go::quote(&token.text)));
            }
            Kind::Variable => Term::Variable(vec![token.text]),
            Kind::Field => Term::Field(vec![token.text[1..].to_owned()]),
            Kind::Bool => Term::Bool(token.text == "true"),
            Kind::CharConstant | Kind::Complex | Kind::Number => match number(&token) {
                Ok(number) => Term::Number(number),
                Err(message) => return self.error(message),
            },
            Kind::LeftParen => {
                self.deeper()?;
                let pipe = self.pipe("parenthesized pipeline", Kind::RightParen)?;
                self.depth -= 1;
                return Ok(Some(Operand { at: pipe.at, term: Term::Pipe(Box::new(pipe)) }));
            }
            Kind::String | Kind::RawString => {
                let text = self.unquote(&token.text)?;
                Term::Text { quoted: token.text, text }
            }
            _ => {
                self.at -= 1;
                return Ok(None);
            }
        };
        Ok(Some(Operand { at: token.at, term }))
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { self.error("max expression depth exceeded") } else { Ok(()) }
    }
}

/// Reads a number in all types that can represent it.
fn number(token: &Token) -> std::result::Result<Number, String> {
    let text = token.text.as_str();
    let mut number = Number { text: text.to_owned(), ..Number::default() };
    if token.kind == Kind::CharConstant {
        let inside = &text[1..text.len() - 1];
        let char = go::unquote(inside, '\'').filter(|char| char.chars().count() == 1);
        let char = char.and_then(|char| char.chars().next());
        let char = char.ok_or_else(|| format!("malformed character constant: {text}"))?;
        let code = u32::from(char);
        return Ok(Number { int: Some(code.into()), uint: Some(code.into()), float: Some(code.into()), ..number });
    }
    // DEVIATION: templates of kubectl know complex numbers.
    if token.kind == Kind::Complex || text.ends_with('i') && !text.starts_with("0x") {
        return Err(format!("illegal number syntax: {}", go::quote(text)));
    }
    let (sign, digits) = match text.as_bytes()[0] {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    if let Some(amount) = integer(digits) {
        number.int = i64::try_from(i128::from(amount) * sign).ok();
        number.uint = (sign > 0 || amount == 0).then_some(amount);
        number.float = number.int.map(|int| int as f64).or(number.uint.map(|uint| uint as f64));
    }
    if number.int.is_none() && number.uint.is_none() {
        let float: f64 = digits.parse().map_err(|_| format!("illegal number syntax: {}", go::quote(text)))?;
        if !text.contains(['.', 'e', 'E', 'p', 'P']) {
            return Err(format!("integer overflow: {}", go::quote(text)));
        }
        let float = float * sign as f64;
        number.float = Some(float);
        number.int = (float.fract() == 0.0 && float.abs() < i64::MAX as f64).then_some(float as i64);
    }
    Ok(number)
}

/// Parses an integer with Go's prefixes and underscores.
fn integer(digits: &str) -> Option<u64> {
    let lower = digits.to_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'x', ..] => (&lower[2..], 16),
        [b'0', b'o', ..] => (&lower[2..], 8),
        [b'0', b'b', ..] => (&lower[2..], 2),
        [b'0', _, ..] => (&lower[1..], 8),
        _ => (lower.as_str(), 10),
    };
    if digits.starts_with('+') || digits.ends_with('_') || digits.contains("__") {
        return None;
    }
    u64::from_str_radix(&digits.replace('_', ""), radix).ok()
}
