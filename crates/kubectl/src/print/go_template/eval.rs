//! Executes the tree of a template.

use std::collections::BTreeMap;

use apimachinery::jsonpath::MissingKeys;
use apimachinery::{Value, go};

use super::NAME;
use super::functions::{self, Function, Parameter};
use super::printf;
use super::tree::{Branch, BranchKind, Command, Located, Node, Number, Operand, Pipe, Term};
use super::value::{Datum, Kind};

/// Maximum nesting of templates.
// DEVIATION: kubectl nests 100,000 templates.
const DEPTH_MAX: usize = 500;

/// Executes the template `output` on an object.
pub(super) fn execute(
    text: &str,
    templates: &BTreeMap<String, Vec<Node>>,
    missing: MissingKeys,
    object: &Value,
    out: &mut String,
) -> Result<()> {
    let root = Datum::of(object).unboxed();
    let Some(nodes) = templates.get(NAME) else { return Ok(()) };
    let variables = vec![("$".to_owned(), root.clone())];
    let mut state = State { text, templates, missing, name: NAME, located: None, variables, depth: 0, out };
    state.list(&root, nodes).map(drop)
}

struct State<'t, 'o> {
    text: &'t str,
    templates: &'t BTreeMap<String, Vec<Node>>,
    missing: MissingKeys,
    /// The template that is executed.
    name: &'t str,
    /// The evaluated node, for messages.
    located: Option<&'t dyn Located>,
    variables: Vec<(String, Datum<'t>)>,
    depth: usize,
    out: &'o mut String,
}

/// The control flow after a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

type Result<T> = std::result::Result<T, String>;

impl<'t> State<'t, '_> {
    fn error<T>(&self, message: impl AsRef<str>) -> Result<T> {
        let message = message.as_ref();
        let Some(located) = self.located else { return Err(format!("template: {}: {message}", self.name)) };
        let before = &self.text[..located.at()];
        let line = 1 + before.matches('\n').count();
        let column = before.len() - before.rfind('\n').map_or(0, |newline| newline + 1);
        let name = go::quote(self.name);
        Err(format!("template: {NAME}:{line}:{column}: executing {name} at <{located}>: {message}"))
    }

    fn list(&mut self, dot: &Datum<'t>, nodes: &'t [Node]) -> Result<Flow> {
        for node in nodes {
            let flow = self.node(dot, node)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, dot: &Datum<'t>, node: &'t Node) -> Result<Flow> {
        self.located = Some(node);
        match node {
            Node::Text { text, .. } => self.out.push_str(text),
            Node::Action { pipe, .. } => {
                let value = self.pipe(dot, pipe)?;
                if pipe.variables.is_empty() {
                    self.out.push_str(&printf::action(&value));
                }
            }
            Node::Branch(branch) => {
                let variables = self.variables.len();
                let flow = match branch.kind {
                    BranchKind::If | BranchKind::With => self.if_or_with(dot, branch)?,
                    BranchKind::Range => self.range(dot, branch)?,
                };
                self.variables.truncate(variables);
                return Ok(flow);
            }
            Node::Template { name, pipe, .. } => self.template(dot, name, pipe.as_ref())?,
            Node::Break { .. } => return Ok(Flow::Break),
            Node::Continue { .. } => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn if_or_with(&mut self, dot: &Datum<'t>, branch: &'t Branch) -> Result<Flow> {
        let value = self.pipe(dot, &branch.pipe)?;
        match &branch.otherwise {
            _ if value.is_true() && branch.kind == BranchKind::With => self.list(&value, &branch.body),
            _ if value.is_true() => self.list(dot, &branch.body),
            Some(otherwise) => self.list(dot, otherwise),
            None => Ok(Flow::Next),
        }
    }

    fn range(&mut self, dot: &Datum<'t>, branch: &'t Branch) -> Result<Flow> {
        let value = self.pipe(dot, &branch.pipe)?;
        let items: Vec<(Datum<'t>, Datum<'t>)> = match value.kind {
            Kind::List(items) => {
                (0_i64..).map(|at| Datum::new(Kind::Int(at))).zip(items.iter().map(Datum::of)).collect()
            }
            Kind::Map(object) => object.iter().map(|(key, value)| (Datum::text(key), Datum::of(value))).collect(),
            Kind::Int(end) | Kind::Int64(end) => {
                if branch.pipe.variables.len() > 1 {
                    return self.error(format!("can't use {end} to iterate over more than one variable"));
                }
                let wrap = |at| if matches!(value.kind, Kind::Int(_)) { Kind::Int(at) } else { Kind::Int64(at) };
                (0..end).map(|at| (Datum::ABSENT, Datum::new(wrap(at)))).collect()
            }
            Kind::Absent | Kind::Nil => Vec::new(),
            _ => return self.error(format!("range can't iterate over {}", printf::sprint(&value))),
        };
        if items.is_empty() {
            return branch.otherwise.as_ref().map_or(Ok(Flow::Next), |otherwise| self.list(dot, otherwise));
        }
        let mark = self.variables.len();
        for (index, item) in items {
            self.bind(&branch.pipe, &index, &item);
            let flow = self.list(&item, &branch.body)?;
            self.variables.truncate(mark);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::Next)
    }

    /// Sets the variables of a range for an iteration: the item, or index and item.
    fn bind(&mut self, pipe: &Pipe, index: &Datum<'t>, item: &Datum<'t>) {
        let values = if pipe.variables.len() > 1 { vec![index, item] } else { vec![item] };
        let mark = self.variables.len();
        for (at, (name, value)) in pipe.variables.iter().zip(values).enumerate() {
            if pipe.assigns {
                self.set(name, value.clone());
            } else if let Some(variable) = self.variables.get_mut(mark - pipe.variables.len() + at) {
                variable.1 = value.clone();
            }
        }
    }

    fn set(&mut self, name: &str, value: Datum<'t>) {
        if let Some(variable) = self.variables.iter_mut().rev().find(|(variable, _)| variable == name) {
            variable.1 = value;
        }
    }

    fn template(&mut self, dot: &Datum<'t>, name: &'t str, pipe: Option<&'t Pipe>) -> Result<()> {
        let Some(nodes) = self.templates.get(name) else {
            return self.error(format!("template {} not defined", go::quote(name)));
        };
        if self.depth == DEPTH_MAX {
            return self.error(format!("exceeded maximum template depth ({DEPTH_MAX})"));
        }
        let dot = match pipe {
            Some(pipe) => self.pipe(dot, pipe)?,
            None => Datum::ABSENT,
        };
        let variables = std::mem::replace(&mut self.variables, vec![("$".to_owned(), dot.clone())]);
        let caller = std::mem::replace(&mut self.name, name);
        self.depth += 1;
        self.list(&dot, nodes)?;
        self.depth -= 1;
        (self.variables, self.name) = (variables, caller);
        Ok(())
    }

    fn pipe(&mut self, dot: &Datum<'t>, pipe: &'t Pipe) -> Result<Datum<'t>> {
        self.located = Some(pipe);
        let mut value = None;
        for command in &pipe.commands {
            value = Some(self.command(dot, command, value)?.unboxed());
        }
        let value = value.unwrap_or(Datum::ABSENT);
        for variable in &pipe.variables {
            if pipe.assigns {
                self.set(variable, value.clone());
            } else {
                self.variables.push((variable.clone(), value.clone()));
            }
        }
        Ok(value)
    }

    /// Evaluates a command; `last` is the result of the command before it.
    fn command(&mut self, dot: &Datum<'t>, command: &'t Command, last: Option<Datum<'t>>) -> Result<Datum<'t>> {
        let first = &command.operands[0];
        let has_arguments = command.operands.len() > 1 || last.is_some();
        match &first.term {
            Term::Field(_) | Term::Chain(..) => return self.fields(dot, first, has_arguments),
            Term::Variable(names) if names.len() > 1 => return self.fields(dot, first, has_arguments),
            Term::Function(name) => {
                self.located = Some(first);
                return self.call(dot, name, command, &command.operands[1..], last);
            }
            Term::Pipe(_) => {}
            _ => self.located = Some(first),
        }
        if has_arguments {
            return self.error(format!("can't give argument to non-function {first}"));
        }
        match &first.term {
            Term::Nil => self.error("nil is not a command"),
            _ => self.operand(dot, first),
        }
    }

    /// Evaluates an operand that is not a call with arguments.
    fn operand(&mut self, dot: &Datum<'t>, operand: &'t Operand) -> Result<Datum<'t>> {
        if !matches!(operand.term, Term::Pipe(_)) {
            self.located = Some(operand);
        }
        match &operand.term {
            Term::Dot => Ok(dot.clone()),
            Term::Nil => Ok(Datum::NIL),
            Term::Bool(bool) => Ok(Datum::new(Kind::Bool(*bool))),
            Term::Number(number) => self.number(number),
            Term::Text { text, .. } => Ok(Datum::text(text.as_str())),
            Term::Function(name) => self.call(dot, name, operand, &[], None),
            Term::Variable(names) if names.len() == 1 => Ok(self.variable(&names[0])),
            Term::Field(_) | Term::Variable(_) | Term::Chain(..) => self.fields(dot, operand, false),
            Term::Pipe(pipe) => self.pipe(dot, pipe),
        }
    }

    fn variable(&self, name: &str) -> Datum<'t> {
        let found = self.variables.iter().rev().find(|(variable, _)| variable == name);
        found.map_or(Datum::ABSENT, |(_, value)| value.clone())
    }

    /// Returns a constant in the type that its notation suggests.
    fn number(&self, number: &Number) -> Result<Datum<'t>> {
        let text = &number.text;
        let is_hex = text.len() > 2 && (text.starts_with("0x") || text.starts_with("0X")) && !text.contains(['p', 'P']);
        let looks_float = !is_hex && !text.starts_with('\'') && text.contains(['.', 'e', 'E', 'p', 'P']);
        match (number.float, number.int) {
            (Some(float), _) if looks_float => Ok(Datum::new(Kind::Float(float))),
            (_, Some(int)) => Ok(Datum::new(Kind::Int(int))),
            _ => self.error(format!("{text} overflows int")),
        }
    }

    /// Evaluates `.a.b`, `$x.a.b` or `(…).a.b`.
    fn fields(&mut self, dot: &Datum<'t>, operand: &'t Operand, has_arguments: bool) -> Result<Datum<'t>> {
        self.located = Some(operand);
        let (mut value, names) = match &operand.term {
            Term::Field(names) => (dot.clone(), names.as_slice()),
            Term::Variable(names) => (self.variable(&names[0]), &names[1..]),
            Term::Chain(inner, _) if matches!(inner.term, Term::Nil) => {
                return self.error(format!("indirection through explicit nil in {operand}"));
            }
            Term::Chain(inner, names) => (self.operand(dot, inner)?, names.as_slice()),
            _ => return self.operand(dot, operand),
        };
        for (at, name) in names.iter().enumerate() {
            let last = at + 1 == names.len();
            value = self.field(&value, name, last && has_arguments)?;
        }
        Ok(value)
    }

    fn field(&self, value: &Datum<'t>, name: &str, has_arguments: bool) -> Result<Datum<'t>> {
        match &value.kind {
            Kind::Absent if self.missing == MissingKeys::Reject => {
                self.error(format!("nil data; no entry for key {}", go::quote(name)))
            }
            Kind::Absent => Ok(Datum::ABSENT),
            Kind::Nil => self.error(format!("nil pointer evaluating interface {{}}.{name}")),
            Kind::Map(_) if has_arguments => self.error(format!("{name} is not a method but has arguments")),
            Kind::Map(object) => match object.get(name) {
                Some(found) => Ok(Datum::of(found)),
                None if self.missing == MissingKeys::Reject => {
                    self.error(format!("map has no entry for key {}", go::quote(name)))
                }
                None => Ok(Datum::ABSENT),
            },
            _ => self.error(format!("can't evaluate field {name} in type {}", value.static_type())),
        }
    }

    /// Calls a function with operands and the result of the previous command.
    fn call(
        &mut self,
        dot: &Datum<'t>,
        name: &str,
        located: &'t dyn Located,
        operands: &'t [Operand],
        last: Option<Datum<'t>>,
    ) -> Result<Datum<'t>> {
        let Some(function) = functions::find(name) else {
            return self.error(format!("{} is not a defined function", go::quote(name)));
        };
        self.check_count(function, operands.len(), last.is_some())?;
        if name == "and" || name == "or" {
            return self.logic(dot, function, operands, last);
        }
        let mut arguments = Vec::with_capacity(operands.len() + 1);
        for operand in operands {
            let parameter = function.parameter(arguments.len());
            arguments.push(self.argument(dot, operand, parameter)?);
        }
        if let Some(last) = last {
            let parameter = function.parameter(arguments.len());
            arguments.push(self.checked(last, parameter)?);
        }
        (function.run)(&arguments).or_else(|message| {
            let message = match operands.first() {
                // Objects contain no functions.
                Some(callee) if name == "call" => {
                    message.replacen("non-function", &format!("non-function {callee}"), 1)
                }
                _ => message,
            };
            self.located = Some(located);
            self.error(format!("error calling {name}: {message}"))
        })
    }

    fn check_count(&self, function: &Function, operands: usize, has_last: bool) -> Result<()> {
        let count = operands + usize::from(has_last);
        let (name, fixed) = (function.name, function.parameters.len());
        match function.variadic {
            Some(_) if count < fixed => {
                self.error(format!("wrong number of args for {name}: want at least {fixed} got {operands}"))
            }
            None if count != fixed => self.error(format!("wrong number of args for {name}: want {fixed} got {count}")),
            _ => Ok(()),
        }
    }

    /// Evaluates `and` and `or` up to the operand that decides.
    fn logic(
        &mut self,
        dot: &Datum<'t>,
        function: &Function,
        operands: &'t [Operand],
        last: Option<Datum<'t>>,
    ) -> Result<Datum<'t>> {
        let mut value = Datum::ABSENT;
        for operand in operands {
            value = self.argument(dot, operand, Parameter::Value)?;
            if value.is_true() == (function.name == "or") {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    fn argument(&mut self, dot: &Datum<'t>, operand: &'t Operand, parameter: Parameter) -> Result<Datum<'t>> {
        self.located = Some(operand);
        let is_constant = matches!(operand.term, Term::Bool(_) | Term::Number(_));
        match (&operand.term, parameter) {
            (Term::Nil, Parameter::Text) => self.error("cannot assign nil to string"),
            (Term::Nil, Parameter::Value) => Ok(Datum::ABSENT),
            (_, Parameter::Text) if is_constant => self.error(format!("expected string; found {operand}")),
            _ => {
                let value = self.operand(dot, operand)?;
                self.checked(value, parameter)
            }
        }
    }

    /// Converts an argument to the type of its parameter.
    fn checked(&self, value: Datum<'t>, parameter: Parameter) -> Result<Datum<'t>> {
        match parameter {
            Parameter::Any if value.is_absent() => Ok(Datum::NIL),
            Parameter::Any | Parameter::Value => Ok(value),
            Parameter::Text => match value.kind {
                Kind::Text(_) => Ok(value.unboxed()),
                Kind::Absent => self.error("invalid value; expected string"),
                Kind::Nil => self.error("wrong type for value; expected string; got interface {}"),
                _ => self.error(format!("wrong type for value; expected string; got {}", value.type_name())),
            },
        }
    }
}
