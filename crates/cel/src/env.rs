//! CEL environments: the variables, libraries and schemas available to an expression.

mod hosts;
mod shapes;
mod versions;

use std::sync::Arc;

use apimachinery::schema::TypeId;
use apimachinery::{Schema, Str};

use crate::check::check;
use crate::cost::{Estimate, estimate};
use crate::error::{Finding, Findings};
use crate::eval::{Program, compile};
use crate::library::{Library, OverloadId, TABLE};
use crate::parser::{Syntax, parse};
use crate::schema::{TypeSet, builtin, type_of};
use crate::types::{SchemaType, Type};

pub use hosts::ExpressionContext;
pub use versions::{EnvSet, Version};

/// The environment of an expression. Cheap to clone and extend.
#[derive(Clone, Debug)]
pub struct Env {
    libraries: u32,
    variables: Vec<(Str, Variable)>,
    sets: Vec<TypeSet>,
    strictness: Strictness,
    mutation: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub ty: Type,
    /// The schema of the variable, if it holds an object; cost estimates read sizes from it.
    pub schema: Option<SchemaType>,
}

/// The rules for literals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// The language's own rules: lists and maps may mix types, and literals are parsed when evaluated.
    Plain,
    /// Kubernetes' rules: items of a list literal have one type, and times, durations and patterns are parsed when
    /// compiled.
    Kubernetes,
}

/// An expression that is ready to run.
#[derive(Debug)]
pub struct Compiled {
    pub program: Program,
    /// The estimated cost.
    pub estimate: Estimate,
}

impl Env {
    /// Creates an environment with the standard functions only.
    pub fn new(strictness: Strictness) -> Self {
        let env = Self { libraries: 0, variables: Vec::new(), sets: vec![builtin()], strictness, mutation: false };
        env.with_library(Library::Standard)
    }

    /// Adds a library.
    #[must_use]
    pub const fn with_library(mut self, library: Library) -> Self {
        self.libraries |= 1 << library as u32;
        self
    }

    /// Adds libraries.
    #[must_use]
    pub fn with_libraries(self, libraries: &[Library]) -> Self {
        libraries.iter().fold(self, |env, library| env.with_library(*library))
    }

    /// Adds the types of mutations, `Object{…}` and `JSONPatch{…}`, and the escaping of paths.
    #[must_use]
    pub const fn with_mutation(mut self) -> Self {
        self.mutation = true;
        self.with_library(Library::JsonPatch)
    }

    /// Adds a variable; a dotted name is one variable.
    #[must_use]
    pub fn with_variable(mut self, name: &str, ty: Type) -> Self {
        self.set(name, Variable { ty, schema: None });
        self
    }

    /// Adds a set of types, and returns its index for [`Env::with_object`].
    pub fn add_types(&mut self, set: TypeSet) -> u16 {
        self.sets.push(set);
        u16::try_from(self.sets.len() - 1).expect("the number of type sets fits into u16")
    }

    /// Adds a variable whose values are described by a schema. `root`: complete objects, which have `apiVersion`,
    /// `kind` and `metadata` even if the schema does not declare them.
    ///
    /// A schema without a CEL type adds no variable.
    #[must_use]
    pub fn with_object(mut self, name: &str, set: u16, id: TypeId, root: bool) -> Self {
        let schema = SchemaType { set, id, root, name: Arc::from("object") };
        if let Some(ty) = type_of(&self.sets, &schema) {
            self.set(name, Variable { ty, schema: Some(schema) });
        }
        self
    }

    /// Adds a variable that holds complete objects of a built-in type.
    #[must_use]
    pub fn with_builtin(mut self, name: &str, schema: Schema<'static>) -> Self {
        // Two variables of one type must share a type set, so that their values can be compared.
        let same = |set: &TypeSet| matches!(set, TypeSet::Static(types) if std::ptr::eq(*types, schema.types()));
        let set = match self.sets.iter().position(same) {
            Some(at) => u16::try_from(at).expect("the number of type sets fits into u16"),
            None => self.add_types(TypeSet::Static(schema.types())),
        };
        self.with_object(name, set, schema.id(), true)
    }

    fn set(&mut self, name: &str, variable: Variable) {
        match self.variables.iter_mut().find(|(have, _)| have == name) {
            Some((_, have)) => *have = variable,
            None => self.variables.push((Str::from(name), variable)),
        }
    }

    /// Parses, checks and compiles an expression.
    ///
    /// # Errors
    /// All parse and type errors.
    pub fn compile(&self, source: &str) -> Result<Compiled, Findings> {
        let checked = check(self, parse(source, self.syntax())?)?;
        let estimate = estimate(self, &checked);
        Ok(Compiled { program: compile(&checked), estimate })
    }

    /// Compiles like [`Env::compile`], and requires one of the result types.
    ///
    /// # Errors
    /// All parse and type errors, including a wrong result type.
    pub fn compile_as(&self, source: &str, expected: &[Type]) -> Result<Compiled, Findings> {
        let compiled = self.compile(source)?;
        let found = compiled.program.result_type();
        // A dynamic type is checked during evaluation.
        if found.is_dyn() || expected.contains(found) {
            return Ok(compiled);
        }
        let names: Vec<_> = expected.iter().map(ToString::to_string).collect();
        let message = format!("must evaluate to {}", names.join(" or "));
        Err(Findings::new(source, vec![Finding { offset: 0, message }]))
    }

    pub(crate) fn syntax(&self) -> Syntax {
        Syntax {
            optional: self.has(Library::Optional),
            two_variables: self.has(Library::TwoVariables),
            bind: self.has(Library::Bind),
            sort_by: self.has(Library::ListsExtended),
            math: self.has(Library::Math),
        }
    }

    pub(crate) const fn has(&self, library: Library) -> bool {
        self.libraries & (1 << library as u32) != 0
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|(have, _)| have == name).map(|(_, variable)| variable)
    }

    pub(crate) fn overloads(&self, name: &str) -> impl Iterator<Item = OverloadId> {
        TABLE.named(name).iter().copied().filter(|id| self.has(TABLE.overload(*id).library))
    }

    pub(crate) fn sets(&self) -> &[TypeSet] {
        &self.sets
    }

    pub(crate) const fn strictness(&self) -> Strictness {
        self.strictness
    }

    pub(crate) const fn mutation(&self) -> bool {
        self.mutation
    }
}
