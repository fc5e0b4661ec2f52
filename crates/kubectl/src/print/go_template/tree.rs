//! The tree of a template. `Display` of its parts is the context in messages.

use std::fmt;

use apimachinery::go;

#[derive(Clone, Debug)]
pub(super) enum Node {
    Text { at: usize, text: String },
    Action { at: usize, pipe: Pipe },
    Branch(Branch),
    Template { at: usize, name: String, pipe: Option<Pipe> },
    Break { at: usize },
    Continue { at: usize },
}

#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub at: usize,
    pub kind: BranchKind,
    pub pipe: Pipe,
    pub body: Vec<Node>,
    pub otherwise: Option<Vec<Node>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BranchKind {
    If,
    Range,
    With,
}

/// Commands whose results are the last arguments of their successors.
#[derive(Clone, Debug)]
pub(super) struct Pipe {
    pub at: usize,
    /// The variables get a new value instead of being declared.
    pub assigns: bool,
    pub variables: Vec<String>,
    pub commands: Vec<Command>,
}

#[derive(Clone, Debug)]
pub(super) struct Command {
    pub at: usize,
    /// Never empty.
    pub operands: Vec<Operand>,
}

#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub at: usize,
    pub term: Term,
}

#[derive(Clone, Debug)]
pub(super) enum Term {
    Dot,
    Nil,
    Bool(bool),
    Number(Number),
    Text {
        quoted: String,
        text: String,
    },
    Function(String),
    /// `.a.b`
    Field(Vec<String>),
    /// `$x.a.b`; the variable comes first.
    Variable(Vec<String>),
    /// `(…).a.b`
    Chain(Box<Operand>, Vec<String>),
    Pipe(Box<Pipe>),
}

/// A number in the types that can represent it.
#[derive(Clone, Debug, Default)]
pub(super) struct Number {
    pub text: String,
    pub int: Option<i64>,
    pub uint: Option<u64>,
    pub float: Option<f64>,
}

/// A part of the tree that messages refer to.
pub(super) trait Located: fmt::Display {
    /// The offset in the template's text.
    fn at(&self) -> usize;
}

impl BranchKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::If => "if",
            Self::Range => "range",
            Self::With => "with",
        }
    }
}

impl Located for Node {
    fn at(&self) -> usize {
        match self {
            Self::Text { at, .. }
            | Self::Action { at, .. }
            | Self::Branch(Branch { at, .. })
            | Self::Template { at, .. }
            | Self::Break { at }
            | Self::Continue { at } => *at,
        }
    }
}

impl Located for Pipe {
    fn at(&self) -> usize {
        self.at
    }
}

impl Located for Command {
    fn at(&self) -> usize {
        self.at
    }
}

impl Located for Operand {
    fn at(&self) -> usize {
        self.at
    }
}

impl fmt::Display for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { text, .. } => out.write_str(text),
            Self::Action { pipe, .. } => write!(out, "{{{{{pipe}}}}}"),
            Self::Branch(branch) => {
                write!(out, "{{{{{} {}}}}}", branch.kind.name(), branch.pipe)?;
                branch.body.iter().try_for_each(|node| write!(out, "{node}"))?;
                if let Some(otherwise) = &branch.otherwise {
                    out.write_str("{{else}}")?;
                    otherwise.iter().try_for_each(|node| write!(out, "{node}"))?;
                }
                out.write_str("{{end}}")
            }
            Self::Template { name, pipe, .. } => {
                write!(out, "{{{{template {}", go::quote(name))?;
                if let Some(pipe) = pipe {
                    write!(out, " {pipe}")?;
                }
                out.write_str("}}")
            }
            Self::Break { .. } => out.write_str("{{break}}"),
            Self::Continue { .. } => out.write_str("{{continue}}"),
        }
    }
}

impl fmt::Display for Pipe {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            let sign = if self.assigns { "=" } else { ":=" };
            write!(out, "{} {sign} ", self.variables.join(", "))?;
        }
        for (at, command) in self.commands.iter().enumerate() {
            if at > 0 {
                out.write_str(" | ")?;
            }
            write!(out, "{command}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, operand) in self.operands.iter().enumerate() {
            if at > 0 {
                out.write_str(" ")?;
            }
            match &operand.term {
                Term::Pipe(pipe) => write!(out, "({pipe})")?,
                _ => write!(out, "{operand}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.term {
            Term::Dot => out.write_str("."),
            Term::Nil => out.write_str("nil"),
            Term::Bool(bool) => write!(out, "{bool}"),
            Term::Number(number) => out.write_str(&number.text),
            Term::Text { quoted, .. } => out.write_str(quoted),
            Term::Function(name) => out.write_str(name),
            Term::Field(names) => names.iter().try_for_each(|name| write!(out, ".{name}")),
            Term::Variable(names) => out.write_str(&names.join(".")),
            Term::Chain(operand, names) => {
                match &operand.term {
                    Term::Pipe(pipe) => write!(out, "({pipe})")?,
                    _ => write!(out, "{operand}")?,
                }
                names.iter().try_for_each(|name| write!(out, ".{name}"))
            }
            Term::Pipe(pipe) => write!(out, "{pipe}"),
        }
    }
}
