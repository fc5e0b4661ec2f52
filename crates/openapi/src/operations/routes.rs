//! OpenAPI paths of a group version, generated from its kinds.

use api::kind::{Connect, Kind, Shape, Subresource, SubresourceAction, Verb, Version};
use apimachinery::GroupVersionKind;

use super::parameters::{self, DELETE, DELETE_COLLECTION, LIST, PATCH, Parameter, READ, WRITE};
use super::{Body, Content, Operation, Route, pascal, pascal_group, with_article};

/// Response media types of objects.
const OBJECT: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
/// Response media types of lists and watches.
const STREAM: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
/// Response media types of custom resources.
const CUSTOM: &[&str] = &["application/json", "application/yaml"];
/// Response media types of logs.
const LOG: &[&str] = &["text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
/// Response media types of proxied requests.
const ANY: &[&str] = &["*/*"];

/// Patch types of built-in kinds.
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
/// Patch types of custom resources, which do not support strategic merge patch.
const CUSTOM_PATCHES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// Generates the paths of one group version.
pub(crate) struct Routes<'a> {
    group: &'a str,
    version: &'a str,
    base: String,
    routes: Vec<Route>,
}

/// Returns the tag of a group version: `core_v1`, `rbacAuthorization_v1`.
pub(crate) fn tag(group: &str, version: &str) -> String {
    let pascal = pascal_group(group);
    let mut chars = pascal.chars();
    let camel: String = chars.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(chars).collect();
    if version.is_empty() { camel } else { format!("{camel}_{version}") }
}

impl<'a> Routes<'a> {
    /// Returns the paths of these kinds, which must be all kinds of the group version.
    pub(crate) fn of(group: &'a str, version: &'a str, kinds: &[(&Kind, &Version)]) -> Vec<Route> {
        let base = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let mut routes = Self { group, version, base, routes: Vec::new() };
        routes.add_discovery();
        for (at, (kind, version)) in kinds.iter().enumerate() {
            let custom = matches!(version.shape, Shape::Custom(..)).then_some(at);
            KindRoutes { kind, version: &version.name, custom }.add(&mut routes);
        }
        routes.routes
    }

    /// Returns a path that serves a discovery document. `{group}` in `id` is replaced by the group's name.
    pub(crate) fn discovery(path: &str, group: &str, kind: &'static str, id: &str, description: &str) -> Route {
        Route {
            path: path.to_owned(),
            operations: vec![Operation {
                method: "get",
                id: id.replace("{group}", &pascal_group(group)),
                description: description.to_owned(),
                action: None,
                parameters: Vec::new(),
                body: Body::None,
                response: (Content::BuiltIn(GroupVersionKind::of("", "v1", kind)), &[]),
                produces: OBJECT,
            }],
        }
    }

    fn add_discovery(&mut self) {
        let id = format!("get{{group}}{}APIResources", pascal(self.version));
        let path = format!("{}/", self.base);
        self.routes.push(Self::discovery(&path, self.group, "APIResourceList", &id, "get available resources"));
    }

    fn push(&mut self, path: String, operations: Vec<Operation>) {
        if !operations.is_empty() {
            self.routes.push(Route { path, operations });
        }
    }
}

/// Generates the paths of one kind.
struct KindRoutes<'k> {
    kind: &'k Kind,
    version: &'k str,
    /// Index among the kinds of the group version, if the kind is custom.
    custom: Option<usize>,
}

/// The objects that a path addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathScope {
    /// The objects of all namespaces.
    All,
    /// The objects of one namespace, or all objects of a cluster-scoped kind.
    Scope,
    /// One object.
    One,
}

impl KindRoutes<'_> {
    fn add(&self, routes: &mut Routes<'_>) {
        let (base, plural) = (routes.base.clone(), &self.kind.plural);
        let scoped = if self.kind.is_namespaced() { "/namespaces/{namespace}" } else { "" };
        let collection = format!("{base}{scoped}/{plural}");
        let item = format!("{collection}/{{name}}");
        if self.kind.is_namespaced() && self.may(Verb::List) {
            routes.push(format!("{base}/{plural}"), vec![self.list(routes, PathScope::All)]);
        }
        routes.push(collection, self.on_collection(routes));
        routes.push(item.clone(), self.on_item(routes));
        for part in self.kind.subresources_in(self.version) {
            self.add_part(routes, &item, part);
        }
        if self.may(Verb::Watch) && self.custom.is_none() {
            if self.kind.is_namespaced() {
                routes.push(format!("{base}/watch/{plural}"), vec![self.watch(routes, PathScope::All)]);
            }
            let watched = format!("{base}/watch{scoped}/{plural}");
            routes.push(format!("{watched}/{{name}}"), vec![self.watch(routes, PathScope::One)]);
            routes.push(watched, vec![self.watch(routes, PathScope::Scope)]);
        }
    }

    fn on_collection(&self, routes: &Routes<'_>) -> Vec<Operation> {
        let mut out = Vec::new();
        if self.may(Verb::List) {
            out.push(self.list(routes, PathScope::Scope));
        }
        if self.may(Verb::Create) {
            out.push(Operation {
                method: "post",
                description: format!("create {}", with_article(&self.kind.kind)),
                body: Body::Required(self.content()),
                response: (self.content(), &[201, 202]),
                ..self.operation(routes, "post", ("create", ""), WRITE, PathScope::Scope)
            });
        }
        if self.may(Verb::DeleteCollection) {
            out.push(Operation {
                method: "delete",
                description: format!("delete collection of {}", self.kind.kind),
                body: if self.custom.is_some() { Body::None } else { Body::Optional(meta("DeleteOptions")) },
                response: (meta("Status"), &[]),
                ..self.operation(
                    routes,
                    "deletecollection",
                    ("delete", "Collection"),
                    DELETE_COLLECTION,
                    PathScope::Scope,
                )
            });
        }
        out
    }

    fn on_item(&self, routes: &Routes<'_>) -> Vec<Operation> {
        let mut out = Vec::new();
        if self.may(Verb::Get) {
            out.push(self.read(routes, None));
        }
        if self.may(Verb::Update) {
            out.push(self.replace(routes, None));
        }
        if self.may(Verb::Patch) {
            out.push(self.patch(routes, None));
        }
        if self.may(Verb::Delete) {
            let response = if self.kind.returns_deleted { self.content() } else { meta("Status") };
            out.push(Operation {
                method: "delete",
                description: format!("delete {}", with_article(&self.kind.kind)),
                body: Body::Optional(meta("DeleteOptions")),
                response: (response, &[202]),
                ..self.operation(routes, "delete", ("delete", ""), DELETE, PathScope::One)
            });
        }
        out
    }

    fn add_part(&self, routes: &mut Routes<'_>, item: &str, part: &Subresource) {
        let path = format!("{item}/{}", part.name);
        match part.does {
            SubresourceAction::Connect(Connect::Log) => {
                let mut log = self.read(routes, Some(part));
                let options = parameters::options(&GroupVersionKind::of("", "v1", "PodLogOptions"));
                log.parameters = sorted(log.parameters.into_iter().chain(options).collect());
                log.response = (Content::Text, &[]);
                log.produces = LOG;
                routes.push(path, vec![log]);
            }
            SubresourceAction::Connect(connect) => {
                let methods: &[_] = match connect {
                    Connect::Proxy => &["get", "put", "post", "delete", "options", "head", "patch"],
                    Connect::Log | Connect::Exec | Connect::Attach | Connect::PortForward => &["get", "post"],
                };
                let all = |suffix| methods.iter().map(|method| self.connect(routes, part, method, suffix)).collect();
                let (plain, mut with_path): (_, Vec<Operation>) = (all(""), all("WithPath"));
                routes.push(path.clone(), plain);
                if connect == Connect::Proxy {
                    for operation in &mut with_path {
                        operation.parameters.push(parameters::path("path", "path to the resource".to_owned()));
                        operation.parameters = sorted(std::mem::take(&mut operation.parameters));
                    }
                    routes.push(format!("{path}/{{path}}"), with_path);
                }
            }
            SubresourceAction::Fields
            | SubresourceAction::Scale(_)
            | SubresourceAction::Bind
            | SubresourceAction::Evict
            | SubresourceAction::Token => {
                let verbs = part.verbs.iter().filter_map(|verb| match verb {
                    Verb::Get => Some(self.read(routes, Some(part))),
                    Verb::Update => Some(self.replace(routes, Some(part))),
                    Verb::Patch => Some(self.patch(routes, Some(part))),
                    Verb::Create => Some(self.create_part(routes, part)),
                    Verb::Delete | Verb::DeleteCollection | Verb::List | Verb::Watch => None,
                });
                let operations = verbs.collect();
                routes.push(path, operations);
            }
        }
    }

    fn list(&self, routes: &Routes<'_>, reach: PathScope) -> Operation {
        let listed = if self.may(Verb::Watch) { "list or watch" } else { "list" };
        let response = match self.custom {
            Some(at) => Content::CustomList(at),
            None => Content::BuiltIn(GroupVersionKind {
                group: self.kind.group.clone(),
                version: routes.version.into(),
                kind: self.kind.list_kind.clone(),
            }),
        };
        Operation {
            description: format!("{listed} objects of kind {}", self.kind.kind),
            response: (response, &[]),
            produces: if self.custom.is_some() { CUSTOM } else { STREAM },
            ..self.operation(routes, "list", ("list", ""), LIST, reach)
        }
    }

    fn watch(&self, routes: &Routes<'_>, reach: PathScope) -> Operation {
        let kind = &self.kind.kind;
        let (action, description) = match reach {
            PathScope::One => (
                "watch",
                format!(
                    "watch changes to an object of kind {kind}. deprecated: use the 'watch' parameter with a list \
                     operation instead, filtered to a single item with the 'fieldSelector' parameter."
                ),
            ),
            PathScope::All | PathScope::Scope => (
                "watchlist",
                format!(
                    "watch individual changes to a list of {kind}. deprecated: use the 'watch' parameter with a list \
                     operation instead."
                ),
            ),
        };
        Operation {
            description,
            response: (meta("WatchEvent"), &[]),
            produces: STREAM,
            ..self.operation(routes, action, ("watch", ""), LIST, reach)
        }
    }

    fn read(&self, routes: &Routes<'_>, part: Option<&Subresource>) -> Operation {
        Operation {
            description: format!("read {}the specified {}", of(part), self.kind.kind),
            response: (self.part_content(part), &[]),
            ..self.part_operation(routes, part, "get", "read", READ)
        }
    }

    fn replace(&self, routes: &Routes<'_>, part: Option<&Subresource>) -> Operation {
        Operation {
            method: "put",
            description: format!("replace {}the specified {}", of(part), self.kind.kind),
            body: Body::Required(self.part_content(part)),
            response: (self.part_content(part), &[201]),
            ..self.part_operation(routes, part, "put", "replace", WRITE)
        }
    }

    fn patch(&self, routes: &Routes<'_>, part: Option<&Subresource>) -> Operation {
        Operation {
            method: "patch",
            description: format!("partially update {}the specified {}", of(part), self.kind.kind),
            body: Body::Patch(if self.custom.is_some() { CUSTOM_PATCHES } else { PATCHES }),
            response: (self.part_content(part), &[201]),
            ..self.part_operation(routes, part, "patch", "patch", PATCH)
        }
    }

    fn create_part(&self, routes: &Routes<'_>, part: &Subresource) -> Operation {
        let content = self.part_content(Some(part));
        Operation {
            method: "post",
            description: format!("create {} of {}", part.name, with_article(&self.kind.kind)),
            body: Body::Required(content.clone()),
            response: (content, &[201, 202]),
            ..self.part_operation(routes, Some(part), "post", "create", WRITE)
        }
    }

    fn connect(&self, routes: &Routes<'_>, part: &Subresource, method: &'static str, suffix: &str) -> Operation {
        let name = &self.kind.kind;
        let parameters = part.kind.as_ref().map(parameters::options).unwrap_or_default();
        let verb = format!("connect{}{}{}", self.prefix(routes), pascal(method), self.namespaced());
        Operation {
            method,
            id: format!("{verb}{name}{}{suffix}", pascal(&part.name)),
            description: format!("connect {} requests to {} of {name}", method.to_uppercase(), part.name),
            parameters: sorted(
                parameters.into_iter().chain(self.path_parameters(PathScope::One, Some(part))).collect(),
            ),
            response: (Content::Text, &[]),
            produces: ANY,
            ..self.part_operation(routes, Some(part), "connect", "connect", &[])
        }
    }

    fn part_operation(
        &self,
        routes: &Routes<'_>,
        part: Option<&Subresource>,
        action: &'static str,
        verb: &str,
        query: &[&str],
    ) -> Operation {
        let mut operation = self.operation(routes, action, (verb, ""), query, PathScope::One);
        if let Some(part) = part {
            let parameters =
                parameters::query(query).into_iter().chain(self.path_parameters(PathScope::One, Some(part)));
            operation.parameters = sorted(parameters.collect());
            operation.id.push_str(&pascal(&part.name));
            if let Some(kind) = &part.kind {
                operation.action = Some((action, kind.clone()));
            }
        }
        operation
    }

    /// Builds an operation. `name` is the verb and the text between verb and kind in the operation ID.
    fn operation(
        &self,
        routes: &Routes<'_>,
        action: &'static str,
        name: (&str, &str),
        query: &[&str],
        reach: PathScope,
    ) -> Operation {
        let (verb, between) = name;
        let is_list = action == "watchlist";
        let list = if is_list { "List" } else { "" };
        let (namespaced, suffix) = match reach {
            PathScope::All => ("", "ForAllNamespaces"),
            PathScope::Scope | PathScope::One => (self.namespaced(), ""),
        };
        let prefix = self.prefix(routes);
        let parameters = parameters::query(query).into_iter().chain(self.path_parameters(reach, None)).collect();
        Operation {
            method: "get",
            id: format!("{verb}{prefix}{between}{namespaced}{}{list}{suffix}", self.kind.kind),
            description: String::new(),
            action: Some((action, self.kind.gvk(routes.version))),
            parameters: sorted(parameters),
            body: Body::None,
            response: (self.content(), &[]),
            produces: if self.custom.is_some() { CUSTOM } else { OBJECT },
        }
    }

    fn path_parameters(&self, reach: PathScope, part: Option<&Subresource>) -> Vec<Parameter> {
        let mut out = Vec::new();
        if reach == PathScope::One {
            let kind = part.and_then(|part| part.kind.as_ref()).map_or(&self.kind.kind, |other| &other.kind);
            out.push(parameters::path("name", format!("name of the {kind}")));
        }
        if reach != PathScope::All && self.kind.is_namespaced() {
            let description = "object name and auth scope, such as for teams and projects";
            out.push(parameters::path("namespace", description.to_owned()));
        }
        out
    }

    fn prefix(&self, routes: &Routes<'_>) -> String {
        format!("{}{}", pascal_group(routes.group), pascal(routes.version))
    }

    fn namespaced(&self) -> &'static str {
        if self.kind.is_namespaced() { "Namespaced" } else { "" }
    }

    fn content(&self) -> Content {
        match self.custom {
            Some(at) => Content::Custom(at),
            None => Content::BuiltIn(self.kind.gvk(self.version)),
        }
    }

    fn part_content(&self, part: Option<&Subresource>) -> Content {
        match part.and_then(|part| part.kind.clone()) {
            Some(kind) => Content::BuiltIn(kind),
            None => self.content(),
        }
    }

    fn may(&self, verb: Verb) -> bool {
        self.kind.verbs.contains(&verb)
    }
}

fn of(part: Option<&Subresource>) -> String {
    part.map(|part| format!("{} of ", part.name)).unwrap_or_default()
}

fn meta(kind: &'static str) -> Content {
    Content::BuiltIn(GroupVersionKind::of("", "v1", kind))
}

fn sorted(mut parameters: Vec<Parameter>) -> Vec<Parameter> {
    parameters.sort_by(|a, b| (&a.name, a.location).cmp(&(&b.name, b.location)));
    parameters
}
