//! OpenAPI v2: one document for all group versions, as JSON and protobuf.

mod protobuf;

use apimachinery::{Object, Value, value};

use crate::Table;
use crate::operations::{Body, Content, Operation, Parameter, ParameterLocation, Route};
use crate::packed::hash;
use crate::schemas::{Definitions, Dialect, gvk};
use crate::v3::{self, status_description};

pub use protobuf::encode as to_protobuf;

/// The media type of the protobuf response. Clients also request it with an `@` before `v1.0`, which is not a valid
/// media type.
pub const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Returns the `/openapi/v2` document.
pub fn document(table: &Table<'_>) -> Value {
    let mut definitions = Definitions::new(Dialect::V2, None);
    let mut shared = Object::new();
    let mut paths = Object::new();
    for path in v3::documents(table) {
        let Some((routes, tag)) = v3::routes(table, &path) else { continue };
        let (group, version) = v3::group_version(&path).unwrap_or_default();
        let kinds = table.resources(group, version);
        let mut printer = Printer { definitions: &mut definitions, shared: &mut shared, kinds: &kinds, tag };
        for route in &routes {
            let item = printer.path(route);
            paths.insert(route.path.as_str(), item);
        }
    }
    value!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "definitions": (definitions.finish()),
        "parameters": shared,
        "securityDefinitions": {"BearerToken": {
            "description": "Bearer Token authentication", "type": "apiKey", "name": "authorization", "in": "header",
        }},
        "security": [{"BearerToken": []}],
    })
}

/// Returns a hash that changes whenever the document does, without generating the document.
pub fn document_hash(table: &Table<'_>) -> String {
    let parts: Vec<_> = v3::documents(table).iter().filter_map(|path| v3::document_hash(table, path)).collect();
    hash(parts.iter().map(String::as_bytes))
}

/// Prints routes, and collects the schemas and parameters they refer to.
struct Printer<'a, 't> {
    definitions: &'a mut Definitions,
    shared: &'a mut Object,
    kinds: &'a [(&'t api::Kind, &'t api::kind::Version)],
    tag: String,
}

impl Printer<'_, '_> {
    fn path(&mut self, route: &Route) -> Value {
        let common = route.common();
        let operations = route.operations.iter();
        let mut out: Object =
            operations.map(|operation| (operation.method, self.operation(operation, &common))).collect();
        if !common.is_empty() {
            out.insert("parameters", common.into_iter().map(|one| self.parameter(one)).collect::<Vec<_>>());
        }
        Value::Object(out)
    }

    fn operation(&mut self, operation: &Operation, common: &[&Parameter]) -> Value {
        let mut out = Object::new();
        out.insert("description", operation.description.as_str());
        out.insert("operationId", operation.id.as_str());
        out.insert("tags", value!([(self.tag.as_str())]));
        out.insert("schemes", value!(["https"]));
        let consumes = consumes(operation);
        if !consumes.is_empty() {
            out.insert("consumes", strings(consumes));
        }
        out.insert("produces", strings(operation.produces));
        if let Some((action, kind)) = &operation.action {
            out.insert("x-kubernetes-action", *action);
            out.insert("x-kubernetes-group-version-kind", gvk(kind));
        }
        let mut parameters: Vec<_> = self.body(&operation.body).into_iter().collect();
        let own = operation.parameters.iter().filter(|one| !common.contains(one));
        parameters.extend(own.map(|one| self.parameter(one)).collect::<Vec<_>>());
        if !parameters.is_empty() {
            out.insert("parameters", parameters);
        }
        let (content, codes) = &operation.response;
        let schema = self.definitions.content(content, self.kinds);
        let response = |code: &u16| {
            (code.to_string(), value!({"description": (status_description(*code)), "schema": (schema.clone())}))
        };
        let mut responses: Object = std::iter::once(&200).chain(codes.iter()).map(response).collect();
        responses.insert("401", value!({"description": "Unauthorized"}));
        out.insert("responses", responses);
        Value::Object(out)
    }

    fn body(&mut self, body: &Body) -> Option<Value> {
        let (schema, required) = match body {
            Body::None => return None,
            Body::Required(content) => (self.definitions.content(content, self.kinds), true),
            Body::Optional(content) => (self.definitions.content(content, self.kinds), false),
            Body::Patch(_) => (self.definitions.patch(), true),
        };
        let mut out: Object = [("in", "body"), ("name", "body")].into_iter().collect();
        out.insert("schema", schema);
        if required {
            out.insert("required", true);
        }
        Some(Value::Object(out))
    }

    /// Returns a reference to a shared parameter, or the parameter itself.
    fn parameter(&mut self, parameter: &Parameter) -> Value {
        let printed = print(parameter);
        if parameter.location == ParameterLocation::Path && parameter.name != "namespace" {
            return printed;
        }
        let text = apimachinery::json::to_vec(&printed);
        let name = format!("{}-{}", parameter.name, &hash([text.as_slice()])[..8]);
        let reference = value!({"$ref": (format!("#/parameters/{name}"))});
        self.shared.insert(name, printed);
        reference
    }
}

fn consumes(operation: &Operation) -> &'static [&'static str] {
    match &operation.body {
        Body::Patch(types) => types,
        _ if operation.response.0 == Content::Text && operation.action.is_none() => &[],
        _ if operation.action.is_none() => operation.produces,
        _ => &["*/*"],
    }
}

fn print(parameter: &Parameter) -> Value {
    let mut out = Object::new();
    out.insert("name", parameter.name.as_str());
    match parameter.location {
        ParameterLocation::Path => {
            out.insert("in", "path");
            out.insert("required", true);
        }
        ParameterLocation::Query => drop(out.insert("in", "query")),
    }
    if !parameter.description.is_empty() {
        out.insert("description", parameter.description.as_str());
    }
    out.insert("type", parameter.json_type);
    out.insert("uniqueItems", true);
    Value::Object(out)
}

fn strings(of: &[&str]) -> Vec<Value> {
    of.iter().map(|one| Value::from(*one)).collect()
}
