//! Parser of the schema catalogue.
//!
//! The text is compiled in, so a syntax error is a bug and panics, which every test detects. Strings of the text are
//! used in place, and types with the same spelling are created once.

use std::collections::HashMap;

use apimachinery::schema::{
    Either, Field, List, ListKind, Map, Message, Omit, Patch, Shape, Struct, Type, TypeId, Types, Wire,
};
use apimachinery::{GroupVersionKind, Str, Value, json};

use super::Catalogue;

const BROKEN: &str = "the catalogue follows its grammar";

pub(super) fn catalogue(text: &'static str) -> Catalogue {
    let (declared, packages, kinds) = declarations(text);
    let mut loader = Loader::new(&declared);
    for (at, declaration) in declared.iter().enumerate() {
        loader.define(TypeId::from(at), declaration);
    }
    let variants = loader.vary();
    let mut kinds: Vec<_> = kinds.into_iter().map(|(kind, ty)| (kind, loader.names[&ty])).collect();
    kinds.sort_by(|(a, _), (b, _)| a.cmp(b));
    let names = declared.iter().map(|declaration| (packages[declaration.name.0], declaration.name.1)).collect();
    Catalogue { types: loader.types, kinds, names, variants, atomic_lists: loader.atomic_lists }
}

type Name = (&'static str, &'static str);

/// Package paths by alias.
type Packages = HashMap<&'static str, &'static str>;

#[derive(Clone, Copy)]
struct Declaration {
    name: Name,
    what: DeclarationKind,
}

#[derive(Clone, Copy)]
enum DeclarationKind {
    String,
    Special,
    Named(&'static str),
    Struct { atomic: bool, fields: &'static str },
}

/// Splits the text into declarations without interpreting them.
fn declarations(text: &'static str) -> (Vec<Declaration>, Packages, Vec<(GroupVersionKind, Name)>) {
    let (mut types, mut kinds) = (Vec::with_capacity(1500), Vec::with_capacity(800));
    let mut packages = Packages::new();
    let mut package = "";
    let mut rest = text;
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        let (keyword, declaration) = line.split_once(' ').unwrap_or((line, ""));
        let (name, more) = declaration.split_once(' ').unwrap_or((declaration, ""));
        let what = match keyword {
            "package" => {
                package = name;
                packages.insert(package, more);
                continue;
            }
            "kinds" => {
                let lines = body(&mut rest);
                kinds.extend(lines.lines().map(|line| kind(declaration, line)));
                continue;
            }
            "string" => DeclarationKind::String,
            "special" => DeclarationKind::Special,
            "named" => DeclarationKind::Named(more),
            "struct" => DeclarationKind::Struct { atomic: more == "atomic", fields: body(&mut rest) },
            _ => {
                assert!(line.starts_with('#'), "{BROKEN}: {line}");
                continue;
            }
        };
        types.push(Declaration { name: (package, name), what });
    }
    (types, packages, kinds)
}

/// Removes and returns the leading indented lines.
fn body(rest: &mut &'static str) -> &'static str {
    let mut end = 0;
    while rest[end..].starts_with('\t') {
        end = rest[end..].find('\n').map_or(rest.len(), |length| end + length + 1);
    }
    let (lines, after) = rest.split_at(end);
    *rest = after;
    lines
}

fn kind(version: &'static str, line: &'static str) -> (GroupVersionKind, Name) {
    let (group, version) = version.split_once('/').expect(BROKEN);
    let (kind, ty) = line[1..].split_once(' ').expect(BROKEN);
    (GroupVersionKind::of(group, version, kind), ty.rsplit_once('.').expect(BROKEN))
}

struct Loader {
    types: Types,
    names: HashMap<Name, TypeId>,
    structs: HashMap<TypeId, (&'static str, &'static str)>,
    wrapped: Vec<TypeId>,
    /// Lists and maps, by the package and text they were declared with.
    made: HashMap<Name, TypeId>,
    /// Types that differ from another one only in their merge strategy.
    variants: Vec<(TypeId, TypeId, bool)>,
    /// Lists explicitly declared as atomic.
    atomic_lists: Vec<TypeId>,
}

impl Loader {
    fn new(declared: &[Declaration]) -> Self {
        let mut loader = Self {
            types: Types::with_capacity(declared.len() + 600),
            names: HashMap::with_capacity(declared.len() + 8),
            structs: HashMap::with_capacity(declared.len()),
            wrapped: Vec::new(),
            made: HashMap::with_capacity(600),
            variants: Vec::new(),
            atomic_lists: Vec::new(),
        };
        for declaration in declared {
            let id = loader.types.add(Type::new("", Shape::Any));
            loader.names.insert(declaration.name, id);
            match declaration.what {
                DeclarationKind::Struct { fields, .. } => drop(loader.structs.insert(id, (declaration.name.0, fields))),
                DeclarationKind::Named(text) if text.ends_with(" wrapped") => loader.wrapped.push(id),
                _ => {}
            }
        }
        for (name, go, shape) in [
            ("bool", "bool", Shape::Bool),
            ("int32", "int32", Shape::Int32),
            ("int64", "int64", Shape::Int64),
            ("float64", "float64", Shape::Double),
            ("string", "string", Shape::String),
            ("bytes", "[]uint8", Shape::Bytes),
            ("interface", "interface {}", Shape::Any),
        ] {
            let id = loader.types.add(Type::new(Str::const_new(go), shape));
            loader.names.insert(("", name), id);
        }
        loader
    }

    fn define(&mut self, id: TypeId, declaration: &Declaration) {
        let (package, name) = declaration.name;
        let shape = match declaration.what {
            DeclarationKind::String => Shape::String,
            DeclarationKind::Special => self.special(package, name),
            DeclarationKind::Named(text) => {
                let made = self.ty(package, text.split(' ').next().expect("split returns at least one part"));
                self.types.schema(made).shape().clone()
            }
            DeclarationKind::Struct { atomic, fields } => self.structure(package, fields, atomic),
        };
        self.types.set(id, Type::new(go_name(package, name), shape));
    }

    fn special(&mut self, package: &'static str, name: &str) -> Shape {
        match name {
            "Time" => Shape::Time,
            "MicroTime" => Shape::MicroTime,
            "Quantity" => Shape::Quantity,
            "IntOrString" => Shape::IntOrString,
            "RawExtension" => Shape::RawExtension,
            "FieldsV1" => Shape::FieldsV1,
            "JSON" => Shape::Any,
            "JSONSchemaPropsOrArray" => self.either(package, "[]JSONSchemaProps", (1, 2)),
            "JSONSchemaPropsOrBool" => self.either(package, "bool", (2, 1)),
            "JSONSchemaPropsOrStringArray" => self.either(package, "[]string", (1, 2)),
            _ => unreachable!("{BROKEN}: special {name}"),
        }
    }

    fn either(&mut self, package: &'static str, other: &'static str, numbers: (u32, u32)) -> Shape {
        Shape::Either(Either { object: self.ty(package, "JSONSchemaProps"), other: self.ty(package, other), numbers })
    }

    fn structure(&mut self, package: &'static str, lines: &'static str, atomic: bool) -> Shape {
        let mut flat = Vec::new();
        let mut message = self.fields(package, lines, &[], &mut flat);
        let mut order: Vec<u16> = (0..u16::try_from(flat.len()).expect(BROKEN)).collect();
        order.sort_unstable_by(|a, b| flat[usize::from(*a)].name.cmp(&flat[usize::from(*b)].name));
        let mut places = vec![0; order.len()];
        for (position, from) in (0..).zip(&order) {
            places[usize::from(*from)] = position;
        }
        renumber(&mut message, &places);
        flat.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Shape::Struct(Struct { fields: flat.into(), order: order.into(), atomic, message, ..Struct::default() })
    }

    /// Appends the fields that `lines` declare to `flat`, including those of inlined structs, and returns their
    /// protobuf form.
    fn fields(
        &mut self,
        package: &'static str,
        lines: &'static str,
        inlined: &[Str],
        flat: &mut Vec<Field>,
    ) -> Message {
        let mut message = Vec::with_capacity(8);
        for line in lines.lines() {
            let mut tokens = line[1..].split(' ');
            let mut word = || tokens.next().expect(BROKEN);
            let (name, number, ty) = (word(), word(), word());
            let (pointer, ty) = ty.strip_prefix('*').map_or((false, ty), |ty| (true, ty));
            let ty_id = self.ty(package, ty);
            let wire = if name == "+" {
                let (home, lines) = self.structs[&ty_id];
                let path: Vec<Str> =
                    inlined.iter().cloned().chain([Str::const_new(ty.rsplit('.').next().expect(BROKEN))]).collect();
                Wire::Inline { pointer, message: self.fields(home, lines, &path, flat) }
            } else {
                let at = u16::try_from(flat.len()).expect(BROKEN);
                flat.push(field(name, ty_id, pointer, inlined, tokens));
                if self.is_wrapped(ty_id) { Wire::Wrapped(at) } else { Wire::Field(at) }
            };
            if number != "-" {
                message.push((number.parse().expect(BROKEN), wire));
            }
        }
        message.sort_unstable_by_key(|(number, _)| *number);
        Message { fields: message.into() }
    }

    fn is_wrapped(&self, id: TypeId) -> bool {
        self.wrapped.contains(&id)
            || matches!(self.types.schema(id).shape(), Shape::Map(map) if self.wrapped.contains(&map.value))
    }

    /// Returns the type that `text` denotes in `package`.
    fn ty(&mut self, package: &'static str, text: &'static str) -> TypeId {
        if !text.starts_with(['[', '{']) && !text.contains(':') {
            let qualified = text.rsplit_once('.').unwrap_or((package, text));
            return *self.names.get(&qualified).or_else(|| self.names.get(&("", text))).expect(BROKEN);
        }
        if let Some(id) = self.made.get(&(package, text)) {
            return *id;
        }
        let id = match text.as_bytes()[0] {
            b'[' => self.list(package, &text[1..]),
            b'{' => self.map(package, &text[1..]),
            _ => {
                let (base, kind) = text.split_once(':').expect(BROKEN);
                let base = self.ty(package, base);
                let id = self.types.add(Type::new("", Shape::Any));
                self.variants.push((id, base, kind == "atomic"));
                id
            }
        };
        self.made.insert((package, text), id);
        id
    }

    fn list(&mut self, package: &'static str, text: &'static str) -> TypeId {
        let (about, item) = text.split_once(']').expect(BROKEN);
        let (kind, default) = about.split_once('=').map_or((about, None), |(kind, json)| (kind, Some(value(json))));
        let is_atomic = kind == "atomic";
        let kind = match kind.split_once(',') {
            Some(("map", keys)) => ListKind::Map(keys.split(',').map(Str::const_new).collect()),
            None if kind == "set" => ListKind::Set,
            _ => ListKind::Atomic,
        };
        let name = self.composite(&["[]"], package, item);
        let item = self.ty(package, item);
        let id = self.types.add(Type::new(name, Shape::List(List { item, kind, item_default: default })));
        if is_atomic {
            self.atomic_lists.push(id);
        }
        id
    }

    fn map(&mut self, package: &'static str, text: &'static str) -> TypeId {
        let (about, value_text) = text.split_once('}').expect(BROKEN);
        let (key, default) = about.split_once('=').map_or((about, None), |(key, json)| (key, Some(value(json))));
        let (value_text, kind) = value_text.split_once(':').unwrap_or((value_text, ""));
        let key = self.composite(&[], package, key);
        let name = self.composite(&["map[", &key, "]"], package, value_text);
        let value = self.ty(package, value_text);
        self.types.add(Type::new(name, Shape::Map(Map { value, atomic: kind == "atomic", value_default: default })))
    }

    /// Returns the Go name of a list or map from its element's name. A struct's own name may not be set yet.
    fn composite(&mut self, before: &[&str], package: &'static str, text: &'static str) -> Str {
        let mut name = Str::default();
        before.iter().for_each(|part| name.push_str(part));
        if text.starts_with(['[', '{']) {
            let id = self.ty(package, text);
            name.push_str(&self.types.schema(id).ty().name);
        } else if let Some(id) = self.names.get(&("", text)) {
            name.push_str(&self.types.schema(*id).ty().name);
        } else {
            let (home, own) = text.rsplit_once('.').unwrap_or((package, text));
            name.push_str(&go_name(home, own));
        }
        name
    }

    /// Creates the variants that differ from another type in their merge strategy, now that all types are complete.
    /// Returns each variant with that type.
    fn vary(&mut self) -> Vec<(TypeId, TypeId)> {
        let variants = std::mem::take(&mut self.variants);
        for &(id, base, as_one) in &variants {
            let mut ty = self.types.schema(base).ty().clone();
            if let Shape::Struct(Struct { atomic, .. }) | Shape::Map(Map { atomic, .. }) = &mut ty.shape {
                *atomic = as_one;
            }
            self.types.set(id, ty);
        }
        variants.into_iter().map(|(id, base, _)| (id, base)).collect()
    }
}

fn field(
    name: &'static str,
    ty: TypeId,
    pointer: bool,
    inlined: &[Str],
    tokens: std::str::Split<'static, char>,
) -> Field {
    let mut field = Field {
        name: Str::const_new(name),
        ty,
        required: false,
        omit: Omit::Never,
        pointer,
        default: None,
        patch: Patch::default(),
        inlined: inlined.into(),
    };
    for word in tokens {
        match word {
            "required" => field.required = true,
            "omitempty" => field.omit = Omit::Empty,
            // A declaration lists `omitzero` after `omitempty`, which it overrides.
            "omitzero" => field.omit = Omit::Zero,
            "patch:merge" => field.patch.merge = true,
            "patch:retainKeys" => field.patch.retain_keys = true,
            "patch:merge,retainKeys" => (field.patch.merge, field.patch.retain_keys) = (true, true),
            "patch:replace" => field.patch.replace = true,
            _ => match word.split_at(1) {
                ("=", json) => field.default = Some(value(json)),
                _ => field.patch.merge_key = Some(Str::const_new(word.strip_prefix("key:").expect(BROKEN))),
            },
        }
    }
    field
}

fn value(text: &str) -> Value {
    match text {
        "{}" => Value::object(),
        "\"\"" => Value::String(Str::const_new("")),
        _ => json::parse(text.as_bytes()).expect(BROKEN),
    }
}

/// Returns `v1.Pod` for `Pod` of core/v1.
fn go_name(package: &str, name: &str) -> Str {
    let package = package.rsplit('/').next().expect("split returns at least one part");
    let mut go = Str::with_capacity(package.len() + 1 + name.len());
    go.push_str(package);
    go.push('.');
    go.push_str(name);
    go
}

/// Maps field indexes to their positions after sorting.
fn renumber(message: &mut Message, places: &[u16]) {
    for (_, wire) in &mut message.fields {
        match wire {
            Wire::Field(at) | Wire::Wrapped(at) => *at = places[usize::from(*at)],
            Wire::Inline { message, .. } => renumber(message, places),
        }
    }
}
