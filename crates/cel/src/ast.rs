//! The syntax tree: nodes in one arena, each with the place in the source it came from.

use machinery::Str;

use crate::error::{Finding, Findings};

/// How deep a tree may be: every later stage walks it by recursion.
pub const DEPTH_MAX: u16 = 500;

/// The accumulator that macros fold into; no identifier of the language can collide with it.
pub const ACCUMULATOR: &str = "@result";

/// The number of a node in its [`Ast`].
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

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A constant.
    Literal(Literal),
    /// A name.
    Ident(Str),
    /// `operand.field`, or the test whether it is there.
    Select {
        /// What has the field.
        operand: ExprId,
        /// Its name.
        field: Str,
        /// Whether this asks for presence (`has`) rather than for the value.
        test: bool,
    },
    /// A call; operators are calls of functions such as `_+_`.
    Call {
        /// The name of the function.
        function: Str,
        /// The receiver, if it was called as a method.
        target: Option<ExprId>,
        /// The arguments in order.
        args: Box<[ExprId]>,
    },
    /// `[a, ?b]`
    List {
        /// The items.
        items: Box<[ExprId]>,
        /// For each item, whether it is an optional that is left out when it has no value.
        optional: Box<[bool]>,
    },
    /// `{k: v, ?k: v}`
    Map(Box<[Entry]>),
    /// `Name{field: value}`
    Struct {
        /// The name of the type.
        name: Str,
        /// The fields.
        fields: Box<[Init]>,
    },
    /// A fold over a range, what all list macros become.
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
    /// The key.
    pub key: ExprId,
    /// The value.
    pub value: ExprId,
    /// Whether the value is an optional, and the entry left out when it has no value.
    pub optional: bool,
}

/// A field of a struct literal.
#[derive(Clone, Debug, PartialEq)]
pub struct Init {
    /// The field's name as written.
    pub name: Str,
    /// Its value.
    pub value: ExprId,
    /// Whether the value is an optional, and the field left out when it has no value.
    pub optional: bool,
    /// Where the field is in the source.
    pub offset: u32,
}

/// `accu = init; for var in range { if !cond { break }; accu = step }; result`
#[derive(Clone, Debug, PartialEq)]
pub struct Fold {
    /// What is iterated over.
    pub range: ExprId,
    /// The item of a list, the key of a map; with `var2` the index or key.
    pub var: Str,
    /// The value, in a fold over two variables.
    pub var2: Option<Str>,
    /// The accumulator's name.
    pub accu: Str,
    /// Its first value.
    pub init: ExprId,
    /// Whether to go on.
    pub cond: ExprId,
    /// Its next value.
    pub step: ExprId,
    /// What the fold amounts to.
    pub result: ExprId,
}

impl Ast {
    pub(crate) fn new(source: &str) -> Self {
        Self { nodes: Vec::with_capacity(16), root: None, source: source.into() }
    }

    /// The whole expression.
    ///
    /// # Panics
    /// Never after parsing: the parser sets it last.
    pub fn root(&self) -> ExprId {
        self.root.expect("a parsed tree has a root")
    }

    /// One node.
    pub fn expr(&self, id: ExprId) -> &Expr {
        &self.nodes[id.0 as usize].expr
    }

    /// Where a node is in the source, in bytes.
    pub fn offset(&self, id: ExprId) -> u32 {
        self.nodes[id.0 as usize].offset
    }

    /// How many nodes there are; ids are smaller.
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What was parsed.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub(crate) const fn set_root(&mut self, root: ExprId) {
        self.root = Some(root);
    }

    pub(crate) fn replace(&mut self, id: ExprId, expr: Expr) {
        self.nodes[id.0 as usize].expr = expr;
    }

    /// Adds a node, unless the tree would become deeper than [`DEPTH_MAX`].
    pub(crate) fn add(&mut self, offset: u32, expr: Expr) -> Result<ExprId, Findings> {
        let mut below = 0;
        expr.children(|child| below = below.max(self.nodes[child.0 as usize].depth));
        if below >= DEPTH_MAX {
            let message = format!("expression recursion limit exceeded: {DEPTH_MAX}");
            return Err(Findings::one(&self.source, Finding { offset, message }));
        }
        let id = ExprId(u32::try_from(self.nodes.len()).expect("the source is limited, so is the tree"));
        self.nodes.push(Node { expr, offset, depth: below + 1 });
        Ok(id)
    }
}

impl ExprId {
    /// The number as an index for side tables.
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
