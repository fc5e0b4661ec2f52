//! The types of context variables other than objects: the request, the user, the namespace.

use std::sync::LazyLock;

use apimachinery::schema::{
    Field, List, ListKind, Map, Omit, Patch, Shape as Kind, Struct, Type as SchemaOf, TypeId, Types,
};

/// Fields are strings unless a type follows; `{*: T}` is a map, `any` is checked during evaluation.
const ADMISSION_REQUEST: &str = "{dryRun: bool, kind: {group, kind, version}, name, namespace, operation, options: any, \
    requestKind: {group, kind, version}, requestResource: {group, resource, version}, requestSubResource, \
    resource: {group, resource, version}, subResource, uid, userInfo: {extra: {*: [string]}, groups: [string], uid, username}}";

const NAMESPACE: &str = "{metadata: {annotations: {*: string}, creationTimestamp: time, deletionGracePeriodSeconds: int, \
    deletionTimestamp: time, finalizers: [string], generateName, generation: int, labels: {*: string}, name, namespace, \
    resourceVersion, uid}, spec: {finalizers: [string]}, status: {phase}}";

const ACCESS_REVIEW: &str = "{extra: {*: [string]}, groups: [string], nonResourceAttributes: {path, verb}, \
    resourceAttributes: {fieldSelector: {rawSelector, requirements: [{key, operator, values: [string]}]}, group, \
    labelSelector: {rawSelector, requirements: [{key, operator, values: [string]}]}, name, namespace, resource, subresource, \
    verb, version}, uid, user}";

const USER: &str = "{extra: {*: [string]}, groups: [string], uid, username}";

/// The types of these variables in all contexts.
pub(super) struct Shapes {
    pub types: Types,
    pub admission_request: TypeId,
    pub namespace: TypeId,
    pub access_review: TypeId,
    pub user: TypeId,
}

pub(super) static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
    let mut types = Types::new();
    let mut add = |text: &str| Reader { types: &mut types, rest: text }.read();
    let (admission_request, namespace) = (add(ADMISSION_REQUEST), add(NAMESPACE));
    let (access_review, user) = (add(ACCESS_REVIEW), add(USER));
    Shapes { types, admission_request, namespace, access_review, user }
});

struct Reader<'t> {
    types: &'t mut Types,
    rest: &'t str,
}

impl Reader<'_> {
    fn read(&mut self) -> TypeId {
        let kind = if self.take("{*: ") {
            let value = self.read();
            self.take("}");
            Kind::Map(Map { value, atomic: false, value_default: None })
        } else if self.take("{") {
            self.fields()
        } else if self.take("[") {
            let item = self.read();
            self.take("]");
            Kind::List(List { item, kind: ListKind::Atomic, item_default: None })
        } else {
            match self.word() {
                "bool" => Kind::Bool,
                "int" => Kind::Int64,
                "time" => Kind::Time,
                // The checker treats an int-or-string as a value of unknown type.
                "any" => Kind::IntOrString,
                _ => Kind::String,
            }
        };
        self.types.add(SchemaOf::new("", kind))
    }

    fn fields(&mut self) -> Kind {
        let mut fields = Vec::new();
        while !self.take("}") {
            let name = self.word().into();
            let ty = if self.take(": ") { self.read() } else { self.types.add(SchemaOf::new("string", Kind::String)) };
            fields.push(Field {
                name,
                ty,
                required: false,
                omit: Omit::Never,
                pointer: false,
                default: None,
                patch: Patch::default(),
                inlined: Box::default(),
            });
            self.take(", ");
        }
        Kind::Struct(Struct { fields: fields.into(), ..Struct::default() })
    }

    fn take(&mut self, sign: &str) -> bool {
        let rest = self.rest.strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn word(&mut self) -> &str {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        assert!(!word.is_empty(), "a shape reads: {}", self.rest);
        self.rest = rest;
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_parse_and_their_fields_are_sorted() {
        for id in [SHAPES.admission_request, SHAPES.namespace, SHAPES.access_review, SHAPES.user] {
            let Kind::Struct(shape) = SHAPES.types.schema(id).shape() else { panic!("an object") };
            assert!(shape.fields.is_sorted_by(|a, b| a.name < b.name));
        }
        let request = SHAPES.types.schema(SHAPES.admission_request);
        let (_, user) = request.field("userInfo").expect("a request has a user");
        assert!(user.field("groups").is_some_and(|(_, groups)| groups.item().is_some()));
    }
}
