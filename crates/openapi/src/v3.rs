//! OpenAPI v3: an index, and one document per group version and per discovery path.

use apimachinery::{Object, Value, json, value};

use crate::operations::{Body, Content, Operation, Parameter, ParameterLocation, Route, Routes, tag};
use crate::packed::hash;
use crate::schemas::{Definitions, Dialect, gvk, of_type};
use crate::{Table, discovery};

/// Returns the `/openapi/v3` index: the path of each document. The path contains a hash of the document, so clients can
/// cache the document forever.
pub fn index(table: &Table<'_>) -> Value {
    let paths: Object = documents(table)
        .into_iter()
        .map(|path| {
            let hash = document_hash(table, &path).expect("the index lists documents that exist");
            let url = format!("/openapi/v3/{path}?hash={hash}");
            (path, value!({"serverRelativeURL": url}))
        })
        .collect();
    value!({"paths": paths})
}

/// Returns the document at `/openapi/v3/<path>`, for example `api/v1`, `apis/apps` or `version`.
pub fn document(table: &Table<'_>, path: &str) -> Option<Value> {
    let (routes, tag) = routes(table, path)?;
    let (group, version) = group_version(path).unwrap_or_default();
    let mut definitions = Definitions::new(Dialect::V3, Some((group, version)));
    let kinds = table.resources(group, version);
    let mut printer = Printer { definitions: &mut definitions, kinds: &kinds, tag };
    let paths: Object = routes.iter().map(|route| (route.path.clone(), printer.path(route))).collect();
    Some(value!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {
            "schemas": (definitions.finish()),
            "securitySchemes": {"BearerToken": {
                "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
            }},
        },
    }))
}

/// Returns a hash that changes whenever the document does, without generating the document.
pub fn document_hash(table: &Table<'_>, path: &str) -> Option<String> {
    let mut parts = vec![env!("FINGERPRINT").as_bytes().to_vec(), path.as_bytes().to_vec()];
    if let Some((group, version)) = group_version(path) {
        parts.push(json::to_vec(&discovery::resources(table, group, version)?));
        for (kind, version) in table.resources(group, version) {
            parts.extend(kind.rules.published_schema(&version.name).map(json::to_vec));
        }
    } else {
        routes(table, path)?;
    }
    Some(hash(parts.iter().map(Vec::as_slice)))
}

/// Returns the paths of all documents.
pub fn documents(table: &Table<'_>) -> Vec<String> {
    let mut out: Vec<String> =
        ["api", "apis", "version", "openid/v1/jwks", ".well-known/openid-configuration"].map(str::to_owned).into();
    for group in table.groups() {
        let versions = table.versions(group);
        if group.is_empty() {
            out.extend(versions.iter().map(|version| format!("api/{version}")));
        } else {
            out.push(format!("apis/{group}"));
            out.extend(versions.iter().map(|version| format!("apis/{group}/{version}")));
        }
    }
    out
}

pub(crate) fn group_version(path: &str) -> Option<(&str, &str)> {
    if let Some(version) = path.strip_prefix("api/") {
        return (!version.contains('/')).then_some(("", version));
    }
    path.strip_prefix("apis/")?.split_once('/').filter(|(_, version)| !version.contains('/'))
}

/// Returns the paths that a document describes, and their tag.
pub(crate) fn routes(table: &Table<'_>, path: &str) -> Option<(Vec<Route>, String)> {
    let one = |path: &str, group: &str, kind, id: &str, description: &str| {
        vec![Routes::discovery(path, group, kind, id, description)]
    };
    if let Some((group, version)) = group_version(path) {
        let kinds = table.resources(group, version);
        return (!kinds.is_empty()).then(|| (Routes::of(group, version, &kinds), tag(group, version)));
    }
    Some(match path {
        "api" => (one("/api/", "", "APIVersions", "get{group}APIVersions", "get available API versions"), tag("", "")),
        "apis" => {
            (one("/apis/", "", "APIGroupList", "getAPIVersions", "get available API versions"), "apis".to_owned())
        }
        "version" => (
            plain("/version/", "getCodeVersion", "get the version information for this server", Content::Version),
            path.to_owned(),
        ),
        "openid/v1/jwks" => (
            plain(
                "/openid/v1/jwks/",
                "getServiceAccountIssuerOpenIDKeyset",
                "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
                Content::Text,
            ),
            "openid".to_owned(),
        ),
        ".well-known/openid-configuration" => (
            plain(
                "/.well-known/openid-configuration/",
                "getServiceAccountIssuerOpenIDConfiguration",
                "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
                Content::Text,
            ),
            "WellKnown".to_owned(),
        ),
        _ => {
            let group = path.strip_prefix("apis/").filter(|group| !table.versions(group).is_empty())?;
            let path = format!("/apis/{group}/");
            (one(&path, group, "APIGroup", "get{group}APIGroup", "get information of a group"), tag(group, ""))
        }
    })
}

fn plain(path: &str, id: &str, description: &str, content: Content) -> Vec<Route> {
    let produces: &[_] = match path {
        "/openid/v1/jwks/" => &["application/jwk-set+json"],
        _ => &["application/json"],
    };
    vec![Route {
        path: path.to_owned(),
        operations: vec![Operation {
            method: "get",
            id: id.to_owned(),
            description: description.to_owned(),
            action: None,
            parameters: Vec::new(),
            body: Body::None,
            response: (content, &[]),
            produces,
        }],
    }]
}

/// Prints routes, and collects the schemas they refer to.
struct Printer<'a, 't> {
    definitions: &'a mut Definitions,
    kinds: &'a [(&'t api::Kind, &'t api::kind::Version)],
    tag: String,
}

impl Printer<'_, '_> {
    fn path(&mut self, route: &Route) -> Value {
        let common = route.common();
        let mut out: Object =
            route.operations.iter().map(|operation| (operation.method, self.operation(operation, &common))).collect();
        if !common.is_empty() {
            out.insert("parameters", common.into_iter().map(parameter).collect::<Vec<_>>());
        }
        Value::Object(out)
    }

    fn operation(&mut self, operation: &Operation, common: &[&Parameter]) -> Value {
        let mut out = Object::new();
        out.insert("description", operation.description.as_str());
        out.insert("operationId", operation.id.as_str());
        out.insert("tags", value!([(self.tag.as_str())]));
        if let Some((action, kind)) = &operation.action {
            out.insert("x-kubernetes-action", *action);
            out.insert("x-kubernetes-group-version-kind", gvk(kind));
        }
        let own: Vec<_> = operation.parameters.iter().filter(|one| !common.contains(one)).map(parameter).collect();
        if !own.is_empty() {
            out.insert("parameters", own);
        }
        if let Some(body) = self.body(&operation.body) {
            out.insert("requestBody", body);
        }
        let (content, codes) = &operation.response;
        let schema = self.content(content);
        let mut responses: Object = std::iter::once(&200)
            .chain(codes.iter())
            .map(|code| {
                (
                    code.to_string(),
                    value!({"description": (status_description(*code)), "content": (each(operation.produces, &schema))}),
                )
            })
            .collect();
        responses.insert("401", value!({"description": "Unauthorized"}));
        out.insert("responses", responses);
        Value::Object(out)
    }

    fn body(&mut self, body: &Body) -> Option<Value> {
        let (content, required) = match body {
            Body::None => return None,
            Body::Required(content) => (each(&["*/*"], &self.content(content)), true),
            Body::Optional(content) => (each(&["*/*"], &self.content(content)), false),
            Body::Patch(types) => (each(types, &self.definitions.patch()), true),
        };
        Some(if required { value!({"content": content, "required": true}) } else { value!({"content": content}) })
    }

    fn content(&mut self, content: &Content) -> Value {
        self.definitions.content(content, self.kinds)
    }
}

impl Definitions {
    /// Returns the schema of a request or response body.
    pub(crate) fn content(&mut self, content: &Content, kinds: &[(&api::Kind, &api::kind::Version)]) -> Value {
        match content {
            Content::BuiltIn(kind) => self.kind(kind).unwrap_or_else(Value::object),
            Content::Custom(at) => self.custom(kinds[*at].0, &kinds[*at].1.name),
            Content::CustomList(at) => self.custom_list(kinds[*at].0, &kinds[*at].1.name),
            Content::Text => Value::Object(of_type("string", None)),
            Content::Version => self.version(),
        }
    }
}

fn each(types: &[&str], schema: &Value) -> Object {
    types.iter().map(|one| (*one, value!({"schema": (schema.clone())}))).collect()
}

fn parameter(parameter: &Parameter) -> Value {
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
    out.insert("schema", value!({"type": (parameter.json_type), "uniqueItems": true}));
    Value::Object(out)
}

/// Returns the description of a status code.
pub(crate) const fn status_description(code: u16) -> &'static str {
    match code {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        _ => "Unauthorized",
    }
}
