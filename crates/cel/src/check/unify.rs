//! Which types fit which, and what type variables must be for them to fit.

use std::sync::Arc;

use crate::types::{Param, Type};

/// What the type variables of one expression stand for.
#[derive(Clone, Debug, Default)]
pub struct Unifier {
    bound: Vec<Option<Type>>,
    /// Variables in the order they were bound, so that a failed attempt is undone at the price of the attempt.
    trail: Vec<u32>,
}

impl Unifier {
    /// A new type variable.
    pub fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Param(Param::Fresh(self.bound.len() as u32 - 1))
    }

    /// A declaration's types with its parameters replaced by new variables.
    pub fn instantiate(&mut self, params: &[Type], result: &Type) -> (Vec<Type>, Type) {
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

    /// The type with the variables it is made of replaced by what they stand for.
    pub fn resolve(&self, ty: &Type) -> Type {
        self.rebuild(ty, Type::clone)
    }

    /// The type with unbound variables shown as what they amount to.
    pub fn shown(&self, ty: &Type) -> Type {
        self.rebuild(ty, |_| Type::Dyn)
    }

    /// The type, finally: what is still open is any type.
    pub fn finish(&self, ty: &Type) -> Type {
        self.shown(ty)
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

    /// Whether a value of type `from` can be used where `to` is wanted. Variables are bound only if so.
    pub fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.all_assignable(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// The same for lists of types, all or nothing.
    pub fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
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

    /// A type cannot contain itself.
    fn bind(&mut self, variable: u32, ty: &Type) -> bool {
        if self.occurs(variable, ty) {
            return false;
        }
        self.bound[variable as usize] = Some(ty.clone());
        self.trail.push(variable);
        true
    }

    /// What a variable stands for at its outside.
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

    /// Whether two types are the same once variables are replaced.
    pub fn equivalent(&self, a: &Type, b: &Type) -> bool {
        self.shown(a) == self.shown(b)
    }

    /// Of two types that fit each other, the one that says less.
    pub fn more_general(&self, a: &Type, b: &Type) -> Type {
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

/// Types of which `null` is a value: those that stand for objects.
const fn nullable(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Null
            | Type::Timestamp
            | Type::Duration
            | Type::Opaque(_)
            | Type::Schema(_)
            | Type::Built(_)
            | Type::Optional(_)
    )
}
