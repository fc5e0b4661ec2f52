//! Environments for table tests and other tests.

use std::sync::Arc;

use apimachinery::schema::structural::Structural;
use apimachinery::{GroupVersionKind, Value};
use cel::{Authorizer, Check, Decision, Env, EnvSet, ExpressionContext, Library, Strictness, Type, Val, Variables};

/// An environment and the values of its variables.
pub(crate) struct Surroundings {
    pub env: Env,
    values: Vec<(&'static str, Value)>,
    schema: Option<Arc<Structural>>,
    host: Option<ExpressionContext>,
    authorizer: bool,
}

pub(crate) struct Bound<'a>(&'a Surroundings);

impl Surroundings {
    pub(crate) fn variables(&self) -> Bound<'_> {
        Bound(self)
    }
}

impl<'a> Variables<'a> for Bound<'a> {
    fn variable(&self, name: &str) -> Option<Result<Val<'a>, cel::Failure>> {
        if self.0.authorizer && name == "authorizer" {
            return Some(Ok(Val::authorizer(Arc::new(Clerk))));
        }
        if self.0.authorizer && name == "authorizer.requestResource" {
            return Some(Ok(Val::resource_check(Arc::new(Clerk), |check| check.resource = "pods".into())));
        }
        let (_, value) = self.0.values.iter().find(|(have, _)| *have == name)?;
        let host = self.0.host.and_then(|host| host.schema(name));
        Some(Val::json(value, host.or_else(|| self.0.schema.as_ref().map(|schema| schema.schema()))))
    }
}

/// Allows to get and create pods, and everything for the service account `default:robot`.
struct Clerk;

impl Authorizer for Clerk {
    fn authorize(&self, question: &Check) -> Decision {
        let robot = question.service_account() == Some(("default", "robot"));
        let path = question.path.as_deref() == Some("/healthz");
        let pods = &*question.resource == "pods" && matches!(&*question.verb, "get" | "create");
        if &*question.resource == "broken" {
            return Decision { error: Some("no answer".into()), ..Decision::default() };
        }
        let allowed = robot || pods || (path && &*question.verb == "get");
        Decision { allowed, reason: if allowed { "clerk says yes" } else { "clerk says no" }.into(), error: None }
    }
}

const EVERYTHING: [Library; 23] = [
    Library::Standard,
    Library::CrossTypeNumeric,
    Library::Strings,
    Library::StringsFormat,
    Library::StringsReverse,
    Library::Lists,
    Library::ListsExtended,
    Library::Regex,
    Library::Url,
    Library::Authorizer,
    Library::AuthorizerSelectors,
    Library::Quantity,
    Library::Optional,
    Library::Sets,
    Library::Ip,
    Library::Cidr,
    Library::Format,
    Library::TwoVariables,
    Library::Semver,
    Library::Math,
    Library::Encoders,
    Library::JsonPatch,
    Library::Bind,
];

/// Returns the environment with the given name in the rows.
pub(crate) fn surroundings(name: &str) -> Surroundings {
    let plain = |env: Env| Surroundings { env, values: Vec::new(), schema: None, host: None, authorizer: false };
    match name {
        // Every library with the language's own rules: lists may mix types.
        "all" => plain(Env::new(Strictness::Plain).with_libraries(&EVERYTHING)),
        // The environment of the server.
        "kubernetes" => plain(EnvSet::default().new),
        // Variables of each type, known to the checker.
        "typed" => typed(Env::new(Strictness::Plain).with_libraries(&EVERYTHING)),
        // A policy: the object has dynamic type.
        "policy" => policy(ExpressionContext::ValidatingPolicy),
        "mutation" => policy(ExpressionContext::MutatingPolicy),
        "authorization" => host(
            ExpressionContext::Authorization,
            vec![(
                "request",
                r#"{"user": "ann", "groups": ["dev"], "resourceAttributes": {"namespace": "shop", "verb": "get", "resource": "pods"}}"#,
            )],
        ),
        "claims" => host(
            ExpressionContext::AuthenticationClaims,
            vec![(
                "claims",
                r#"{"sub": "ann", "aud": ["knarr"], "roles": "a,b", "other_roles": "c", "exp": 1703232949, "nbf": 1703229349}"#,
            )],
        ),
        "user" => host(
            ExpressionContext::AuthenticationUser,
            vec![("user", r#"{"username": "ann", "groups": ["dev"], "extra": {"k": ["v"]}}"#)],
        ),
        "device" => host(
            ExpressionContext::DeviceSelector,
            vec![
                ("device.driver", r#""gpu.example.com""#),
                ("device.attributes", r#"{"gpu.example.com": {"model": "a100", "cores": 8}}"#),
                ("device.allowMultipleAllocations", "false"),
            ],
        ),
        // A policy on pods, whose type errors are reported in its status.
        "pods" => {
            let kind = GroupVersionKind { group: "".into(), version: "v1".into(), kind: "Pod".into() };
            let schema = api::catalogue::schema(&kind).expect("pods are built in");
            let mut pods = policy(ExpressionContext::ValidatingPolicy);
            pods.env = pods.env.with_builtin("object", schema).with_builtin("oldObject", schema);
            pods
        }
        // The rules of a CRD, whose schema is below.
        "crd" => crd(SCHEMA, OBJECT),
        // A CRD with the fields of the examples in the documentation.
        "documented" => crd(DOCUMENTED, DOCUMENTED_OBJECT),
        other => panic!("unknown environment {other}"),
    }
}

fn typed(env: Env) -> Surroundings {
    let types = [
        ("b", Type::Bool),
        ("i", Type::Int),
        ("d", Type::Double),
        ("s", Type::String),
        ("li", Type::list(Type::Int)),
        ("ls", Type::list(Type::String)),
        ("m", Type::map(Type::String, Type::Int)),
        ("x", Type::Dyn),
        ("lm", Type::list(Type::map(Type::String, Type::Dyn))),
        ("a.b", Type::Int),
    ];
    let env = types.into_iter().fold(env, |env, (name, ty)| env.with_variable(name, ty));
    let values = [
        ("b", "true"),
        ("i", "7"),
        ("d", "1.5"),
        ("s", "\"text\""),
        ("li", "[1, 2, 3]"),
        ("ls", "[\"a\", \"b\"]"),
        ("m", "{\"one\": 1, \"two\": 2}"),
        (
            "x",
            "{\"name\": \"x\", \"list\": [1, \"two\", 3.5, null, true], \"nested\": {\"deep\": {\"er\": 1}}, \"none\": null}",
        ),
        ("lm", "[{\"k\": \"a\", \"v\": 1}, {\"k\": \"b\", \"v\": 2}]"),
        ("a.b", "42"),
    ];
    let values = values.into_iter().map(|(name, text)| (name, json(text))).collect();
    Surroundings { env, values, schema: None, host: None, authorizer: false }
}

fn host(host: ExpressionContext, values: Vec<(&'static str, &str)>) -> Surroundings {
    let values = values.into_iter().map(|(name, text)| (name, json(text))).collect();
    Surroundings { env: host.env_set().new, values, schema: None, host: Some(host), authorizer: false }
}

fn policy(host: ExpressionContext) -> Surroundings {
    let object = r#"{
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web", "a/b": "c"}},
        "spec": {
            "replicas": 3, "minReplicas": 1, "maxReplicas": 5,
            "template": {"spec": {"containers": [
                {"name": "app", "image": "registry.example/app:v1", "ports": [{"containerPort": 80}],
                 "resources": {"limits": {"memory": "512Mi", "cpu": "500m"}}},
                {"name": "side", "image": "registry.example/side:v2"}]}}}}"#;
    let values = vec![
        ("object", json(object)),
        ("oldObject", json(r#"{"spec": {"replicas": 2}, "metadata": {"name": "web"}}"#)),
        ("params", json(r#"{"maxReplicas": 5, "allowed": ["app", "side"]}"#)),
        (
            "request",
            json(
                r#"{"operation": "UPDATE", "userInfo": {"username": "ann", "groups": ["dev"]}, "namespace": "shop",
                "resource": {"group": "apps", "version": "v1", "resource": "deployments"}}"#,
            ),
        ),
        (
            "namespaceObject",
            json(
                r#"{"metadata": {"name": "shop", "labels": {"env": "test"}, "creationTimestamp": "2020-01-01T00:00:00Z"}}"#,
            ),
        ),
    ];
    Surroundings { env: host.env_set().new, values, schema: None, host: Some(host), authorizer: true }
}

fn json(text: &str) -> Value {
    apimachinery::json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Fields of every type that a schema can have, with and without limits.
const SCHEMA: &str = r#"{"type": "object", "properties": {"spec": {"type": "object", "required": ["name"], "properties": {
    "name": {"type": "string", "maxLength": 10},
    "free": {"type": "string"},
    "mode": {"type": "string", "enum": ["off", "always"]},
    "replicas": {"type": "integer"},
    "ratio": {"type": "number"},
    "on": {"type": "boolean"},
    "port": {"x-kubernetes-int-or-string": true},
    "created": {"type": "string", "format": "date-time"},
    "day": {"type": "string", "format": "date"},
    "ttl": {"type": "string", "format": "duration"},
    "blob": {"type": "string", "format": "byte"},
    "tags": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 10}},
    "moreTags": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 10}},
    "ports": {"type": "array", "maxItems": 3, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "maxLength": 5}, "number": {"type": "integer"}}}},
    "words": {"type": "array", "items": {"type": "string"}},
    "numbers": {"type": "array", "items": {"type": "integer"}},
    "labels": {"type": "object", "maxProperties": 4, "additionalProperties": {"type": "string", "maxLength": 8}},
    "x-prop": {"type": "integer"}, "namespace": {"type": "string"}, "a.b": {"type": "string"}, "redact__d": {"type": "integer"},
    "unknown": {"x-kubernetes-preserve-unknown-fields": true},
    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "string"}}},
    "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    "maybe": {"type": "string", "nullable": true}}}}}"#;

const OBJECT: &str = r#"{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {
    "name": "one", "free": "text", "mode": "off", "replicas": 3, "ratio": 2, "on": true, "port": "80%",
    "created": "2020-01-01T00:00:00Z", "day": "2020-01-02", "ttl": "1h", "blob": "aGVsbG8=",
    "tags": ["a", "b"], "moreTags": ["b", "a"],
    "ports": [{"name": "web", "number": 80}, {"name": "dns", "number": 53}], "words": ["x", "y"], "numbers": [3, 1, 2],
    "labels": {"app": "web"}, "x-prop": 1, "namespace": "here", "a.b": "dotted", "redact__d": 2,
    "unknown": {"a": 1}, "open": {"known": "yes", "other": 1},
    "embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "inner"}}, "maybe": null}}"#;

const DOCUMENTED: &str = r#"{"type": "object", "properties": {
    "minReplicas": {"type": "integer"}, "replicas": {"type": "integer"}, "maxReplicas": {"type": "integer"},
    "stateCounts": {"type": "object", "additionalProperties": {"type": "integer"}},
    "list1": {"type": "array", "items": {"type": "string"}}, "list2": {"type": "array", "items": {"type": "string"}},
    "created": {"type": "string", "format": "date-time"}, "expired": {"type": "string", "format": "date-time"},
    "ttl": {"type": "string", "format": "duration"}, "health": {"type": "string"},
    "widgets": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"],
        "items": {"type": "object", "required": ["key"], "properties": {
            "key": {"type": "string"}, "foo": {"type": "integer"}}}},
    "share": {"x-kubernetes-int-or-string": true},
    "set1": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "set2": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "names": {"type": "array", "items": {"type": "string"}},
    "details": {"type": "object", "additionalProperties": {"type": "string"}},
    "envars": {"type": "array", "items": {"type": "object", "properties": {
        "name": {"type": "string"}, "value": {"type": "string"}}}},
    "items": {"type": "array", "items": {"type": "object", "properties": {"weight": {"type": "number"}}}},
    "lowPriorities": {"type": "array", "items": {"type": "object", "properties": {"priority": {"type": "integer"}}}},
    "highPriorities": {"type": "array", "items": {"type": "object", "properties": {"priority": {"type": "integer"}}}},
    "immutable": {"type": "string"}, "optional": {"type": "string"}, "address": {"type": "string"},
    "memory": {"x-kubernetes-int-or-string": true}}}"#;

const DOCUMENTED_OBJECT: &str = r#"{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "singleton"},
    "minReplicas": 1, "replicas": 3, "maxReplicas": 10, "stateCounts": {"Available": 2}, "list1": ["a"], "list2": [],
    "created": "2020-01-01T00:00:00Z", "expired": "2020-01-01T02:00:00Z", "ttl": "1h", "health": "ok, all well",
    "widgets": [{"key": "x", "foo": 5}, {"key": "y", "foo": 50}], "share": "99%", "set1": ["a", "b"], "set2": ["c"],
    "names": ["first", "second"], "details": {"first": "abc", "second": "DEF"},
    "envars": [{"name": "MY_ENV", "value": "letters"}, {"name": "OTHER", "value": "123"}],
    "items": [{"weight": 0.25}, {"weight": 0.75}], "lowPriorities": [{"priority": 1}, {"priority": 2}],
    "highPriorities": [{"priority": 5}, {"priority": 8}], "immutable": "same", "address": "10.0.0.7",
    "memory": "512Mi"}"#;

fn crd(schema: &str, object: &str) -> Surroundings {
    let schema = Arc::new(Structural::new(&json(schema)).expect("the schema is structural"));
    let mut env = EnvSet::default().new;
    let set = env.add_types(cel::schema::TypeSet::Structural(schema.clone()));
    let env = env.with_object("self", set, schema.root(), true).with_object("oldSelf", set, schema.root(), true);
    let older = object.replace("\"replicas\": 3", "\"replicas\": 2");
    let values = vec![("self", json(object)), ("oldSelf", json(&older))];
    Surroundings { env, values, schema: Some(schema), host: None, authorizer: false }
}
