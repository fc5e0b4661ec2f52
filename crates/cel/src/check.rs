//! Type checker: assigns a type to every node and resolves names; reports errors with their source position.

mod resolve;
mod unify;
mod validate;

use std::sync::Arc;

use apimachinery::Str;

use crate::ast::{Ast, Expr, ExprId, Fold, Literal};
use crate::env::{Env, Strictness};
use crate::error::{Finding, Findings};
use crate::library::{OverloadId, named_type};
use crate::schema;
use crate::types::{SchemaType, Type};

use unify::Unifier;

/// A type-checked expression.
#[derive(Debug)]
pub struct CheckedExpr {
    /// The expression; calls of namespaced functions no longer have a receiver.
    pub ast: Ast,
    types: Vec<Type>,
    meanings: Vec<Meaning>,
}

/// The resolution of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Meaning {
    /// Nothing to resolve.
    #[default]
    Plain,
    /// A variable of the environment, by its full name.
    Variable(Str),
    /// The property of an object, whose name may be escaped in the source.
    Property(Str),
    /// A type as a value.
    Type(Type),
    /// The candidate overloads; the values determine which one is called.
    Overloads(Box<[OverloadId]>),
}

impl CheckedExpr {
    pub fn type_of(&self, id: ExprId) -> &Type {
        &self.types[id.index()]
    }

    pub fn meaning(&self, id: ExprId) -> &Meaning {
        &self.meanings[id.index()]
    }
}

/// Checks an expression.
///
/// # Errors
/// All type errors.
pub fn check(env: &Env, ast: Ast) -> Result<CheckedExpr, Findings> {
    let count = ast.len();
    let mut checker = Checker {
        env,
        ast,
        types: vec![None; count],
        meanings: vec![Meaning::Plain; count],
        unifier: Unifier::default(),
        scopes: Vec::new(),
        findings: Vec::new(),
    };
    let root = checker.ast.root();
    checker.check(root);
    if env.strictness() == Strictness::Kubernetes {
        validate::literals(&checker.ast, &mut checker.findings);
    }
    if !checker.findings.is_empty() {
        return Err(Findings::new(checker.ast.source(), checker.findings));
    }
    let types = checker.types.into_iter().map(|ty| ty.map_or(Type::Dyn, |ty| checker.unifier.finish(&ty))).collect();
    Ok(CheckedExpr { ast: checker.ast, types, meanings: checker.meanings })
}

struct Checker<'e> {
    env: &'e Env,
    ast: Ast,
    types: Vec<Option<Type>>,
    meanings: Vec<Meaning>,
    unifier: Unifier,
    scopes: Vec<(Str, Type)>,
    findings: Vec<Finding>,
}

impl Checker<'_> {
    /// Returns the type of a node. A node that a macro uses twice has the same scope both times, so it is checked once.
    fn check(&mut self, id: ExprId) -> Type {
        if let Some(ty) = &self.types[id.index()] {
            return ty.clone();
        }
        let ty = match self.ast.expr(id).clone() {
            Expr::Literal(literal) => literal_type(&literal),
            Expr::Ident(name) => self.ident(id, &name),
            Expr::Select { operand, field, test } => self.select(id, operand, &field, test),
            Expr::Call { function, target, args } => self.call(id, &function, target, &args),
            Expr::List { items, optional } => self.list(&items, &optional),
            Expr::Map(entries) => {
                let keys: Vec<_> = entries.iter().map(|entry| (entry.key, false)).collect();
                let values: Vec<_> = entries.iter().map(|entry| (entry.value, entry.optional)).collect();
                let key = self.join(&keys);
                // A list or map cannot be a key, so its type becomes `dyn`. Otherwise the type could double in size
                // with every enclosing map.
                let key = if self.unifier.resolve(&key).parts().is_empty() { key } else { Type::Dyn };
                Type::map(key, self.join(&values))
            }
            Expr::Struct { name, fields } => {
                let ty = self.construction(id, &name);
                for field in &fields {
                    self.init(&ty, field);
                }
                ty
            }
            Expr::Fold(fold) => self.fold(&fold),
        };
        self.types[id.index()] = Some(ty.clone());
        ty
    }

    fn ident(&mut self, id: ExprId, name: &str) -> Type {
        let absolute = name.strip_prefix('.');
        if absolute.is_none()
            && let Some((_, ty)) = self.scopes.iter().rev().find(|(have, _)| have == name)
        {
            return ty.clone();
        }
        let name = absolute.unwrap_or(name);
        self.global(id, name).unwrap_or_else(|| self.undeclared(id, name))
    }

    /// Resolves a full name to a variable of the environment or a type.
    fn global(&mut self, id: ExprId, name: &str) -> Option<Type> {
        if let Some(variable) = self.env.variable(name) {
            self.meanings[id.index()] = Meaning::Variable(Str::from(name));
            return Some(variable.ty.clone());
        }
        let ty = Type::named(name).or_else(|| named_type(name))?;
        self.meanings[id.index()] = Meaning::Type(ty.clone());
        Some(Type::Type(Arc::new(ty)))
    }

    /// Returns the dotted name of a chain of selections; [`None`] if its root is a local variable.
    fn qualified_name(&self, id: ExprId) -> Option<String> {
        match self.ast.expr(id) {
            Expr::Ident(name) if self.scopes.iter().any(|(have, _)| have == name) => None,
            Expr::Ident(name) => Some(name.strip_prefix('.').unwrap_or(name).to_owned()),
            Expr::Select { operand, field, test: false } => Some(format!("{}.{field}", self.qualified_name(*operand)?)),
            _ => None,
        }
    }

    fn select(&mut self, id: ExprId, operand: ExprId, field: &str, test: bool) -> Type {
        if !test
            && let Some(name) = self.qualified_name(id)
            && let Some(ty) = self.global(id, &name)
        {
            return ty;
        }
        let of = self.check(operand);
        let ty = self.field(id, &of, field);
        if test { Type::Bool } else { ty }
    }

    /// Returns the type of a field of a value of type `of`.
    fn field(&mut self, id: ExprId, of: &Type, field: &str) -> Type {
        match self.unifier.resolve(of) {
            Type::Error => Type::Error,
            Type::Dyn | Type::PartialObject(_) => Type::Dyn,
            variable @ Type::Param(_) => {
                self.unifier.assignable(&variable, &Type::Dyn);
                Type::Dyn
            }
            Type::Map(_, value) => (*value).clone(),
            Type::Optional(inner) => match self.field(id, &inner, field) {
                already @ Type::Optional(_) => already,
                ty => Type::optional(ty),
            },
            Type::Schema(schema) => self.property(id, &schema, field),
            other => self.error(id, format!("type '{other}' does not support field selection")),
        }
    }

    fn property(&mut self, id: ExprId, of: &SchemaType, field: &str) -> Type {
        match schema::field(self.env.sets(), of, field) {
            Some((property, ty)) => {
                self.meanings[id.index()] = Meaning::Property(Str::from(property));
                ty
            }
            None => self.error(id, format!("undefined field '{field}'")),
        }
    }

    fn list(&mut self, items: &[ExprId], optional: &[bool]) -> Type {
        let items: Vec<_> = items.iter().copied().zip(optional.iter().copied()).collect();
        Type::list(self.join(&items))
    }

    /// Returns the common type of the items; marked items are optionals of that type.
    fn join(&mut self, items: &[(ExprId, bool)]) -> Type {
        let mut joined: Option<Type> = None;
        for (item, optional) in items {
            let mut ty = self.check(*item);
            if *optional {
                ty = match self.unifier.resolve(&ty) {
                    Type::Optional(inner) => (*inner).clone(),
                    dynamic if dynamic.is_dyn() => dynamic,
                    other => {
                        let expected = Type::optional(other.clone());
                        self.error(*item, format!("expected type '{expected}' but found '{other}'"))
                    }
                };
            }
            joined = Some(match joined {
                None => ty,
                Some(before) if self.unifier.assignable(&ty, &before) => self.unifier.more_general(&before, &ty),
                Some(_) if self.env.strictness() == Strictness::Plain => Type::Dyn,
                Some(before) => {
                    let (before, ty) = (self.unifier.substitute(&before), self.unifier.substitute(&ty));
                    self.error(*item, format!("expected type '{before}' but found '{ty}'"))
                }
            });
        }
        joined.unwrap_or_else(|| self.unifier.fresh())
    }

    fn construction(&mut self, id: ExprId, name: &str) -> Type {
        let name = name.strip_prefix('.').unwrap_or(name);
        let known = name == "JSONPatch" || name == "Object" || name.starts_with("Object.");
        if self.env.mutation() && known {
            return Type::PartialObject(Arc::from(name));
        }
        if Type::named(name).is_some() || named_type(name).is_some() {
            return self.error(id, format!("'{name}' is not a message type"));
        }
        self.undeclared(id, name)
    }

    fn init(&mut self, of: &Type, field: &crate::ast::Init) {
        let mut given = self.check(field.value);
        if field.optional
            && let Type::Optional(inner) = self.unifier.resolve(&given)
        {
            given = (*inner).clone();
        }
        let Type::PartialObject(name) = of else { return };
        if &**name != "JSONPatch" {
            return;
        }
        let expected = match field.name.as_str() {
            "op" | "path" | "from" => Type::String,
            "value" => Type::Dyn,
            other => {
                let message = format!("undefined field '{other}'");
                self.findings.push(Finding { offset: field.offset, message });
                return;
            }
        };
        if !self.unifier.assignable(&given, &expected) {
            let given = self.unifier.substitute(&given);
            let message =
                format!("expected type of field '{}' is '{expected}' but provided type is '{given}'", field.name);
            self.findings.push(Finding { offset: field.offset, message });
        }
    }

    fn fold(&mut self, fold: &Fold) -> Type {
        let range = self.check(fold.range);
        let accu = self.check(fold.init);
        let (first, second) = self.range(fold, &range);
        let depth = self.scopes.len();
        self.scopes.push((fold.accu.clone(), accu.clone()));
        match &fold.var2 {
            Some(name) => {
                self.scopes.push((fold.var.clone(), first));
                self.scopes.push((name.clone(), second));
            }
            None => self.scopes.push((fold.var.clone(), first)),
        }
        let cond = self.check(fold.cond);
        self.expect(fold.cond, &cond, &Type::Bool);
        let step = self.check(fold.step);
        self.expect(fold.step, &step, &accu);
        self.scopes.truncate(depth + 1);
        let result = self.check(fold.result);
        self.scopes.truncate(depth);
        result
    }

    /// Returns the types of the variables of a comprehension over values of type `range`.
    fn range(&mut self, fold: &Fold, range: &Type) -> (Type, Type) {
        let two = fold.var2.is_some();
        match self.unifier.resolve(range) {
            Type::List(item) if two => (Type::Int, (*item).clone()),
            Type::List(item) => ((*item).clone(), Type::Dyn),
            Type::Map(key, value) => ((*key).clone(), (*value).clone()),
            Type::Dyn => (Type::Dyn, Type::Dyn),
            Type::Error => (Type::Error, Type::Error),
            variable @ Type::Param(_) => {
                self.unifier.assignable(&variable, &Type::Dyn);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.error(fold.range, message);
                (Type::Error, Type::Error)
            }
        }
    }

    fn expect(&mut self, id: ExprId, found: &Type, expected: &Type) {
        if !self.unifier.assignable(found, expected) {
            let (found, expected) = (self.unifier.substitute(found), self.unifier.substitute(expected));
            self.error(id, format!("expected type '{expected}' but found '{found}'"));
        }
    }

    fn undeclared(&mut self, id: ExprId, name: &str) -> Type {
        self.error(id, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn error(&mut self, id: ExprId, message: String) -> Type {
        self.findings.push(Finding { offset: self.ast.offset(id), message });
        Type::Error
    }
}

const fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
