//! The CEL syntax tree: nodes in one arena, each with its source offset.

use apimachinery::Str;

use crate::error::{Finding, Findings};

/// Maximum depth of a tree: every later stage walks it recursively.
pub const DEPTH_MAX: u16 = 500;

/// The accumulator variable of macros; no identifier of the language can collide with it.
pub const ACCUMULATOR: &str = "@result";

/// The index of a node in its [`Ast`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExprId(u32);

/// A parsed expression, macros expanded.
#[derive(Debug, Default)]
pub struct Ast {
    nodes: Vec<Node>,
    root: Option<ExprId>,
    source: Box<str>,
}

#[derive(Debug)]
struct Node {
    expr: Expr,
    offset: u32,
    depth: u16,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Literal(Literal),
    Ident(Str),
    /// `operand.field`, or the test for its presence.
    Select {
        operand: ExprId,
        field: Str,
        /// Whether this tests for presence (`has`) instead of selecting the value.
        test: bool,
    },
    /// A call; operators are calls of functions such as `_+_`.
    Call {
        function: Str,
        /// The receiver of a method call.
        target: Option<ExprId>,
        args: Box<[ExprId]>,
    },
    /// `[a, ?b]`
    List {
        items: Box<[ExprId]>,
        /// For each item, whether it is an optional that is omitted if it has no value.
        optional: Box<[bool]>,
    },
    /// `{k: v, ?k: v}`
    Map(Box<[Entry]>),
    /// `Name{field: value}`
    Struct {
        /// The name of the type.
        name: Str,
        fields: Box<[Init]>,
    },
    /// A comprehension over a range; all list macros expand to it.
    Fold(Box<Fold>),
}

/// A constant in the source.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`
    Null,
    /// `true`
    Bool(bool),
    /// `1`
    Int(i64),
    /// `1u`
    Uint(u64),
    /// `1.0`
    Double(f64),
    /// `'a'`
    String(Str),
    /// `b'a'`
    Bytes(Box<[u8]>),
}

/// An entry of a map literal.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: ExprId,
    pub value: ExprId,
    /// Whether the value is an optional, and the entry is omitted if it has no value.
    pub optional: bool,
}

/// A field of a struct literal.
#[derive(Clone, Debug, PartialEq)]
pub struct Init {
    /// The field's name as written.
    pub name: Str,
    pub value: ExprId,
    /// Whether the value is an optional, and the field is omitted if it has no value.
    pub optional: bool,
    /// The source offset in bytes.
    pub offset: u32,
}

/// `accu = init; for var in range { if !cond { break }; accu = step }; result`
#[derive(Clone, Debug, PartialEq)]
pub struct Fold {
    pub range: ExprId,
    /// The item of a list or the key of a map; with `var2` the index or key.
    pub var: Str,
    /// The value, in a comprehension with two variables.
    pub var2: Option<Str>,
    /// The name of the accumulator.
    pub accu: Str,
    /// The initial value of the accumulator.
    pub init: ExprId,
    /// The condition to continue.
    pub cond: ExprId,
    /// The next value of the accumulator.
    pub step: ExprId,
    /// The result of the comprehension.
    pub result: ExprId,
}

impl Ast {
    pub(crate) fn new(source: &str) -> Self {
        Self { nodes: Vec::with_capacity(16), root: None, source: source.into() }
    }

    /// Returns the root node.
    ///
    /// # Panics
    /// Never after parsing: the parser sets the root last.
    pub fn root(&self) -> ExprId {
        self.root.expect("a parsed tree has a root")
    }

    pub fn expr(&self, id: ExprId) -> &Expr {
        &self.nodes[id.0 as usize].expr
    }

    /// Returns the source offset of a node in bytes.
    pub fn offset(&self, id: ExprId) -> u32 {
        self.nodes[id.0 as usize].offset
    }

    /// Returns the number of nodes; IDs are smaller.
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the source text.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub(crate) const fn set_root(&mut self, root: ExprId) {
        self.root = Some(root);
    }

    pub(crate) fn replace(&mut self, id: ExprId, expr: Expr) {
        self.nodes[id.0 as usize].expr = expr;
    }

    /// Adds a node; fails if the tree would become deeper than [`DEPTH_MAX`].
    pub(crate) fn add(&mut self, offset: u32, expr: Expr) -> Result<ExprId, Findings> {
        let mut below = 0;
        expr.children(|child| below = below.max(self.nodes[child.0 as usize].depth));
        if below >= DEPTH_MAX {
            let message = format!("expression recursion limit exceeded: {DEPTH_MAX}");
            return Err(Findings::one(&self.source, Finding { offset, message }));
        }
        let id = ExprId(u32::try_from(self.nodes.len()).expect("the source length bounds the tree"));
        self.nodes.push(Node { expr, offset, depth: below + 1 });
        Ok(id)
    }
}

impl ExprId {
    /// Returns the ID as an index for side tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Expr {
    /// Calls `each` with every direct child.
    pub fn children(&self, mut each: impl FnMut(ExprId)) {
        match self {
            Self::Literal(_) | Self::Ident(_) => {}
            Self::Select { operand, .. } => each(*operand),
            Self::Call { target, args, .. } => target.iter().chain(args.iter()).for_each(|id| each(*id)),
            Self::List { items, .. } => items.iter().for_each(|id| each(*id)),
            Self::Map(entries) => entries.iter().for_each(|entry| {
                each(entry.key);
                each(entry.value);
            }),
            Self::Struct { fields, .. } => fields.iter().for_each(|field| each(field.value)),
            Self::Fold(fold) => {
                [fold.range, fold.init, fold.cond, fold.step, fold.result].into_iter().for_each(each);
            }
        }
    }
}
