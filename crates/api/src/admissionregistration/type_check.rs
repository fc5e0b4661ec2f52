//! Type checking of ValidatingAdmissionPolicy expressions against the schemas of the matched kinds.
//!
//! An expression is compiled once per type, with that type for `object` and `oldObject`. A compilation failure becomes
//! a warning in the policy's status and has no other effect: evaluation uses the actual objects.

use std::sync::{Arc, LazyLock};

use apimachinery::schema::structural::Structural;
use apimachinery::{At, GroupVersionKind, Object, Value, value};
use cel::schema::TypeSet;
use cel::{Env, EnvSet, ExpressionContext, Type};

use crate::kind::{Kind, Shape, Version};

/// Maximum number of types that one rule is checked against.
const TYPES_MAX: usize = 10;

/// The schema of ObjectMeta, used for custom resources whose CRD does not describe `metadata`.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let text = || value!({"type": "string"});
    let texts = || value!({"type": "object", "additionalProperties": {"type": "string"}});
    let time = || value!({"type": "string", "format": "date-time"});
    let owner = value!({"type": "object", "properties": {
        "apiVersion": (text()), "kind": (text()), "name": (text()), "uid": (text()),
        "controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"},
    }});
    value!({"type": "object", "properties": {
        "name": (text()), "generateName": (text()), "namespace": (text()), "uid": (text()), "selfLink": (text()),
        "resourceVersion": (text()), "generation": {"type": "integer", "format": "int64"},
        "creationTimestamp": (time()), "deletionTimestamp": (time()),
        "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
        "labels": (texts()), "annotations": (texts()),
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "ownerReferences": {"type": "array", "items": (owner)},
    }})
});

/// A kind as a policy refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindRef<'a> {
    /// The resource name of URLs: `deployments`.
    Plural(&'a str),
    /// The kind of objects: `Deployment`.
    Kind(&'a str),
}

impl KindRef<'_> {
    /// Whether this reference names the kind.
    pub fn is(&self, plural: &str, kind: &str) -> bool {
        match self {
            Self::Plural(called) => *called == plural,
            Self::Kind(called) => *called == kind,
        }
    }
}

/// Looks up a kind by API group and reference.
pub type Find<'f> = &'f dyn Fn(&str, KindRef<'_>) -> Option<Arc<Kind>>;

/// A kind with the version in which it is matched.
struct MatchedKind {
    name: GroupVersionKind,
    kind: Arc<Kind>,
}

/// Returns the expression warnings for the policy's status.
pub fn warnings(policy: &Value, find: Find<'_>) -> Vec<Value> {
    let root = At::root(policy);
    let spec = root.get("spec");
    let types = types_to_check(&spec, find);
    let params = params_of(&spec, find);
    let mut warnings = Vec::new();
    for validation in spec.get("validations").items() {
        for field in ["expression", "messageExpression"] {
            let expression = validation.get(field);
            if expression.is_empty() {
                continue;
            }
            let found: Vec<String> =
                types.iter().filter_map(|ty| compile_error(&spec, ty, params.as_ref(), expression.str())).collect();
            if !found.is_empty() {
                let field_ref = expression.path().to_string();
                warnings.push(value!({"fieldRef": field_ref, "warning": (found.join("\n"))}));
            }
        }
    }
    warnings
}

/// Compiles an expression for objects of type `ty` and returns the compilation error.
fn compile_error(spec: &At<'_>, ty: &MatchedKind, params: Option<&MatchedKind>, expression: &str) -> Option<String> {
    let mut env = EnvSet::default().stored;
    for variable in ["namespaceObject", "request"] {
        if let Some(schema) = ExpressionContext::MatchConditions.schema(variable) {
            let set = env.add_types(TypeSet::Static(schema.types()));
            env = env.with_object(variable, set, schema.id(), false);
        }
    }
    env = with_objects(env, &["object", "oldObject"], ty)?;
    if let Some(params) = params {
        env = with_objects(env, &["params"], params)?;
    }
    env = env
        .with_variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"))
        .with_variable("authorizer.requestResource", Type::Opaque("kubernetes.authorization.ResourceCheck"));
    for variable in spec.get("variables").items() {
        let compiled = env.compile(variable.get("expression").str());
        let ty = compiled.map_or(Type::Dyn, |compiled| compiled.program.result_type().clone());
        env = env.with_variable(&format!("variables.{}", variable.get("name").str()), ty);
    }
    let GroupVersionKind { group, version, kind } = &ty.name;
    env.compile(expression).err().map(|wrong| format!("{group}/{version}, Kind={kind}: {wrong}\n"))
}

/// Adds variables that hold objects of a kind. Returns `None` if the kind has no such version.
fn with_objects(mut env: Env, names: &[&str], of: &MatchedKind) -> Option<Env> {
    match &version_of(&of.kind, &of.name.version)?.shape {
        Shape::BuiltIn(schema) => Some(names.iter().fold(env, |env, name| env.with_builtin(name, *schema))),
        Shape::Custom(..) => {
            let mut schema = of.kind.rules.published_schema(&of.name.version)?.clone();
            let properties = schema.as_object_mut()?.get_or_insert_with("properties", Value::object);
            if let Some(properties) = properties.as_object_mut() {
                add_metadata(properties);
            }
            let types = Arc::new(Structural::new(&schema).ok()?);
            let root = types.root();
            let set = env.add_types(TypeSet::Structural(types));
            Some(names.iter().fold(env, |env, name| env.with_object(name, set, root, true)))
        }
    }
}

fn add_metadata(properties: &mut Object) {
    properties.insert("metadata", METADATA.clone());
}

fn version_of<'k>(kind: &'k Kind, name: &str) -> Option<&'k Version> {
    kind.version(name).filter(|version| version.served)
}

/// Returns the kinds that the rules name explicitly, sorted by group, version and kind. Wildcards are skipped.
fn types_to_check(spec: &At<'_>, find: Find<'_>) -> Vec<MatchedKind> {
    let mut types: Vec<MatchedKind> = Vec::new();
    let constraints = spec.get("matchConstraints");
    'rules: for rule in constraints.get("resourceRules").items() {
        let [groups, versions] = ["apiGroups", "apiVersions"].map(|field| named(&rule.get(field)));
        let (Some(groups), Some(versions)) = (groups, versions) else { continue };
        let listed = rule.get("resources");
        let mut resources: Vec<&str> =
            listed.list().iter().filter_map(Value::as_str).filter(|one| !one.contains(['*', '/'])).collect();
        resources.sort_unstable();
        let mut count = 0;
        for (group, version, resource) in product(&groups, &versions, &resources) {
            let found = find(group, KindRef::Plural(resource));
            let Some(kind) = found.filter(|kind| version_of(kind, version).is_some()) else { continue };
            let name = kind.gvk(version);
            if !types.iter().any(|have| have.name == name) {
                types.push(MatchedKind { name, kind });
            }
            count += 1;
            if count == TYPES_MAX {
                break 'rules;
            }
        }
    }
    let order = |one: &MatchedKind| (one.name.group.clone(), one.name.version.clone(), one.name.kind.clone());
    types.sort_by_key(order);
    types
}

fn product<'a>(
    groups: &'a [&'a str],
    versions: &'a [&'a str],
    resources: &'a [&'a str],
) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    groups.iter().flat_map(move |group| {
        versions.iter().flat_map(move |version| resources.iter().map(move |resource| (*group, *version, *resource)))
    })
}

/// Returns the sorted names of a list, or `None` if the list contains a wildcard.
fn named<'a>(list: &At<'a>) -> Option<Vec<&'a str>> {
    let mut names: Vec<&str> = list.list().iter().filter_map(Value::as_str).collect();
    names.sort_unstable();
    (!names.iter().any(|name| name.contains('*'))).then_some(names)
}

fn params_of(spec: &At<'_>, find: Find<'_>) -> Option<MatchedKind> {
    let param = spec.get("paramKind");
    let name = GroupVersionKind::parse(param.get("apiVersion").str(), param.get("kind").str()).ok()?;
    let kind = find(&name.group, KindRef::Kind(&name.kind))?;
    version_of(&kind, &name.version).is_some().then_some(MatchedKind { name, kind })
}

#[cfg(test)]
mod tests {
    use apimachinery::json;

    use super::*;
    use crate::apiextensions::custom_resource::kind_of;

    fn find(group: &str, called: KindRef<'_>) -> Option<Arc<Kind>> {
        let is = |kind: &Arc<Kind>| kind.group == group && called.is(&kind.plural, &kind.kind);
        crate::kinds::all().into_iter().chain([Arc::new(kind_of(&widgets()).unwrap())]).find(is)
    }

    fn widgets() -> Value {
        json::parse(
            br#"{"spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}]}}"#,
        )
        .unwrap()
    }

    fn rule(group: &str, resources: &[&str]) -> Value {
        value!({"apiGroups": [group], "apiVersions": ["v1"], "operations": ["*"],
            "resources": (resources.iter().map(|one| Value::from(*one)).collect::<Vec<_>>())})
    }

    fn check(rules: Vec<Value>, expression: &str, expect: &[&str]) {
        let policy = value!({"spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": rules},
            "variables": [{"name": "most", "expression": "int(params.data['most'])"}],
            "validations": [{"expression": expression}],
        }});
        let found = warnings(&policy, &find);
        let messages: Vec<String> = found
            .iter()
            .flat_map(|one| one.str_at(&["warning"]).unwrap().lines().filter(|line| line.contains("ERROR")))
            .map(str::to_owned)
            .collect();
        assert_eq!(messages, expect, "{expression}");
        assert!(found.iter().all(|one| one.str_at(&["fieldRef"]) == Some("spec.validations[0].expression")));
    }

    #[test]
    fn expressions_are_checked_against_every_named_type() {
        let workloads = || vec![rule("apps", &["deployments", "replicasets", "deployments/scale"])];
        check(workloads(), "object.spec.replicas <= variables.most && has(oldObject.spec)", &[]);
        check(
            workloads(),
            "object.spec.paused",
            &["apps/v1, Kind=ReplicaSet: ERROR: <input>:1:12: undefined field 'paused'"],
        );
        check(
            workloads(),
            "object.replicas > 1",
            &[
                "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'",
                "apps/v1, Kind=ReplicaSet: ERROR: <input>:1:7: undefined field 'replicas'",
            ],
        );
        check(vec![rule("", &["pods"])], "object.nope", &["/v1, Kind=Pod: ERROR: <input>:1:7: undefined field 'nope'"]);
        check(vec![rule("*", &["pods"])], "object.nope", &[]);
        check(vec![rule("", &["*"]), rule("", &["nothings"])], "object.nope", &[]);
        check(vec![rule("", &["pods"])], "params.nope", &["/v1, Kind=Pod: ERROR: <input>:1:7: undefined field 'nope'"]);
    }

    #[test]
    fn custom_resources_use_the_crd_schema_and_full_metadata() {
        let widgets = || vec![rule("example.com", &["widgets"])];
        check(widgets(), "object.spec.size > 3 && object.metadata.labels['a'] == object.kind", &[]);
        check(
            widgets(),
            "object.spec.sise > 3",
            &["example.com/v1, Kind=Widget: ERROR: <input>:1:12: undefined field 'sise'"],
        );
    }
}
