//! Type unification: assignability of types, and the bindings of type variables it requires.

use std::sync::Arc;

use crate::types::{Param, Type};

/// The bindings of the type variables of one expression.
#[derive(Clone, Debug, Default)]
pub(super) struct Unifier {
    bound: Vec<Option<Type>>,
    /// The variables in binding order, so that undoing a failed attempt costs no more than the attempt.
    trail: Vec<u32>,
}

impl Unifier {
    /// Creates a type variable.
    pub(super) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Param(Param::Fresh(self.bound.len() as u32 - 1))
    }

    /// Replaces the type parameters of a declaration with new variables.
    pub(super) fn instantiate(&mut self, params: &[Type], result: &Type) -> (Vec<Type>, Type) {
        let mut made = Vec::new();
        let params = params.iter().map(|param| self.replace(param, &mut made)).collect();
        (params, self.replace(result, &mut made))
    }

    fn replace(&mut self, ty: &Type, made: &mut Vec<(u8, Type)>) -> Type {
        match ty {
            Type::Param(Param::Declared(letter)) => match made.iter().find(|(have, _)| have == letter) {
                Some((_, fresh)) => fresh.clone(),
                None => {
                    let fresh = self.fresh();
                    made.push((*letter, fresh.clone()));
                    fresh
                }
            },
            Type::List(item) => Type::List(Arc::new(self.replace(item, made))),
            Type::Map(key, value) => Type::map(self.replace(key, made), self.replace(value, made)),
            Type::Optional(inner) => Type::optional(self.replace(inner, made)),
            Type::Type(inner) => Type::Type(Arc::new(self.replace(inner, made))),
            plain => plain.clone(),
        }
    }

    /// Replaces the bound variables in a type.
    pub(super) fn resolve(&self, ty: &Type) -> Type {
        self.rebuild(ty, Type::clone)
    }

    /// Replaces all variables in a type for display; unbound ones become `dyn`.
    pub(super) fn substitute(&self, ty: &Type) -> Type {
        self.rebuild(ty, |_| Type::Dyn)
    }

    /// Returns the final type; unbound variables become `dyn`.
    pub(super) fn finish(&self, ty: &Type) -> Type {
        self.substitute(ty)
    }

    fn rebuild(&self, ty: &Type, open: fn(&Type) -> Type) -> Type {
        match ty {
            Type::Param(Param::Fresh(number)) => match &self.bound[*number as usize] {
                Some(bound) => self.rebuild(bound, open),
                None => open(ty),
            },
            Type::List(item) => Type::list(self.rebuild(item, open)),
            Type::Map(key, value) => Type::map(self.rebuild(key, open), self.rebuild(value, open)),
            Type::Optional(inner) => Type::optional(self.rebuild(inner, open)),
            Type::Type(inner) => Type::Type(Arc::new(self.rebuild(inner, open))),
            plain => plain.clone(),
        }
    }

    /// Whether a value of type `from` can be used as `to`. Variables are bound only on success.
    pub(super) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.all_assignable(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// Checks lists of types pairwise; variables are bound only if all are assignable.
    pub(super) fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        let before = self.trail.len();
        let fits = from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.fits(from, to));
        if !fits {
            for variable in self.trail.drain(before..) {
                self.bound[variable as usize] = None;
            }
        }
        fits
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        let (from, to) = (self.follow(from), self.follow(to));
        match (&from, &to) {
            (Type::Param(a), Type::Param(b)) if a == b => true,
            (_, Type::Param(Param::Fresh(variable))) => self.bind(*variable, &from),
            (Type::Param(Param::Fresh(variable)), _) => self.bind(*variable, &to),
            (Type::Dyn | Type::Error, _) | (_, Type::Dyn | Type::Error) | (Type::Type(_), Type::Type(_)) => true,
            (Type::Null, other) | (other, Type::Null) => nullable(other),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.fits(a, b),
            (Type::Map(ak, av), Type::Map(bk, bv)) => self.fits(ak, bk) && self.fits(av, bv),
            (a, b) => a == b,
        }
    }

    /// Binds a variable; returns false if the type would contain itself.
    fn bind(&mut self, variable: u32, ty: &Type) -> bool {
        if self.occurs(variable, ty) {
            return false;
        }
        self.bound[variable as usize] = Some(ty.clone());
        self.trail.push(variable);
        true
    }

    /// Resolves a variable at the outermost level.
    fn follow(&self, ty: &Type) -> Type {
        let mut ty = ty;
        while let Type::Param(Param::Fresh(number)) = ty {
            match &self.bound[*number as usize] {
                Some(bound) => ty = bound,
                None => break,
            }
        }
        ty.clone()
    }

    fn occurs(&self, variable: u32, ty: &Type) -> bool {
        match self.follow(ty) {
            Type::Param(Param::Fresh(number)) => number == variable,
            other => other.parts().into_iter().any(|part| self.occurs(variable, part)),
        }
    }

    /// Whether two types are equal after replacing variables.
    pub(super) fn equivalent(&self, a: &Type, b: &Type) -> bool {
        self.substitute(a) == self.substitute(b)
    }

    /// Returns the more general of two compatible types.
    pub(super) fn more_general(&self, a: &Type, b: &Type) -> Type {
        match (self.follow(a), self.follow(b)) {
            (dynamic @ (Type::Dyn | Type::Error), _) | (_, dynamic @ (Type::Dyn | Type::Error)) => dynamic,
            (Type::Null, other) | (other, Type::Null) => other,
            (Type::List(a), Type::List(b)) => Type::list(self.more_general(&a, &b)),
            (Type::Map(ak, av), Type::Map(bk, bv)) => {
                Type::map(self.more_general(&ak, &bk), self.more_general(&av, &bv))
            }
            (Type::Optional(a), Type::Optional(b)) => Type::optional(self.more_general(&a, &b)),
            (a, _) => a,
        }
    }
}

/// Whether `null` is a value of the type: true for types that represent objects.
const fn nullable(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Null
            | Type::Timestamp
            | Type::Duration
            | Type::Opaque(_)
            | Type::Schema(_)
            | Type::PartialObject(_)
            | Type::Optional(_)
    )
}
