//! Golden tests: recorded upstream responses to impersonation and reviews are reproduced.

use std::fs;

use apimachinery::status::{GroupName, Status};
use apimachinery::time::Time;
use apimachinery::{Str, Value, json};
use auth::access_review::{self, Kind};
use auth::attributes::Resource;
use auth::chain::PrivilegedGroup;
use auth::impersonation::{self, Gate, Trial};
use auth::node::Node;
use auth::rbac::{Binding, Policy, Rule, bootstrap};
use auth::service_account::request;
use auth::{Attributes, Authorizer, Chain, Decision, Target, User, token_review};

const NOW: Time = Time::from_unix(1_800_000_000, 0);
const ISSUER: &str = "https://kubernetes.default.svc";

/// The authorization state of a server: the policy of the objects created so far.
struct Server {
    policy: Policy,
}

/// The attributes of a request from its method and path.
struct Request<'a> {
    verb: &'static str,
    target: Target<'a>,
}

#[test]
fn compare_decisions_with_recordings() {
    let recorded = fs::read_to_string(test_requirements::upstream("golden/errors.jsonl")).unwrap();
    let scenario = recorded
        .lines()
        .map(|line| json::parse(line.replace("$NS", "ns").as_bytes()).expect("a recording is JSON"))
        .find(|scenario| scenario.str_at(&["name"]) == Some("errors/impersonation"))
        .expect("the recording of impersonation is there");
    let mut server = Server::new();
    let steps = scenario["steps"].as_array().expect("a scenario has steps");
    let mut checked = 0;
    for step in steps {
        let (request, expect) = (&step["do"], &step["expect"]);
        match server.respond(request) {
            // Responses that need a store are not compared.
            None => {
                assert!(expect["code"].as_int().is_some_and(|code| code < 300), "allowed here, not there: {request}");
            }
            Some(response) => {
                compare(&response, &expect["body"], request);
                checked += 1;
            }
        }
    }
    assert!(checked >= 18, "{checked} of {} steps were compared", steps.len());
}

/// Asserts that every field of the response equals the recorded one. Missing fields need a store.
fn compare(response: &Value, recorded: &Value, request: &Value) {
    for (key, value) in response.as_object().expect("a response is an object").iter() {
        match (key, value) {
            ("metadata", Value::Object(metadata)) => {
                for (key, value) in metadata.iter().filter(|(key, _)| !matches!(*key, "creationTimestamp" | "uid")) {
                    assert_eq!(value, &recorded["metadata"][key], "{key} of {request}");
                }
            }
            _ => assert_eq!(value, &recorded[key], "{key} of {request}"),
        }
    }
}

impl Server {
    fn new() -> Self {
        let mut server = Self { policy: Policy::default() };
        bootstrap::objects().iter().for_each(|object| server.store(object, ""));
        server
    }

    fn store(&mut self, object: &Value, namespace: &str) {
        let Some(name) = object.str_at(&["metadata", "name"]) else { return };
        let namespace = object.str_at(&["metadata", "namespace"]).unwrap_or(namespace);
        match object["kind"].as_str() {
            Some("Role" | "ClusterRole") => self.policy.set_role(namespace, name, Rule::all_from_object(object)),
            Some("RoleBinding" | "ClusterRoleBinding") => {
                self.policy.set_binding(namespace, name, Binding::from_object(object));
            }
            _ => {}
        }
    }

    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let chain: Vec<Box<dyn Authorizer>> =
            vec![Box::new(PrivilegedGroup("system:masters")), Box::new(self.policy.clone()), Box::new(Node::new())];
        Chain(chain).authorize(attributes)
    }

    /// Returns the response, if it can be computed without a store.
    fn respond(&mut self, recorded_request: &Value) -> Option<Value> {
        let headers: Vec<(&str, &str)> = recorded_request["headers"]
            .as_object()
            .map(|headers| headers.iter().map(|(name, value)| (name, value.as_str().unwrap_or_default())).collect())
            .unwrap_or_default();
        let request = Request::parse(recorded_request["method"].as_str()?, recorded_request["path"].as_str()?);
        let mut user = User::authenticated("admin", ["system:masters".into()]);
        let target_user = match impersonation::target_user(&headers) {
            Ok(target_user) => target_user,
            Err(status) => return Some(status.to_value()),
        };
        if let Some(target_user) = target_user {
            let attributes = Attributes { user: &user, verb: request.verb, target: request.target };
            let trial = Trial::new(&target_user, &attributes, Gate::Constrained);
            user = match trial.run(|attributes| self.authorize(attributes)) {
                Ok(impersonated) => impersonated.user,
                Err(status) => return Some(status.to_value()),
            };
        }
        let attributes = Attributes { user: &user, verb: request.verb, target: request.target };
        match self.authorize(&attributes) {
            Decision::Allow(_) => self.execute(&user, &request, &recorded_request["body"]),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => Some(attributes.forbidden(&reason).to_value()),
        }
    }

    fn execute(&mut self, user: &User, request: &Request<'_>, body: &Value) -> Option<Value> {
        let Target::Resource(resource) = request.target else { return None };
        let result = match (resource.resource, resource.subresource) {
            ("selfsubjectaccessreviews", _) => self.review(Kind::SelfSubject, body, user),
            ("subjectaccessreviews", _) => self.review(Kind::Subject, body, user),
            ("localsubjectaccessreviews", _) => {
                let mut body = body.clone();
                apimachinery::meta::MetaMut::of(&mut body).expect("an object").set("namespace", resource.namespace);
                self.review(Kind::LocalSubject, &body, user)
            }
            ("tokenreviews", _) => review_token(body),
            ("selfsubjectreviews", _) => Ok(token_review::self_subject_review("authentication.k8s.io/v1", user, NOW)),
            ("serviceaccounts", "token") => request_token(body, resource),
            _ => {
                self.store(body, resource.namespace);
                return None;
            }
        };
        Some(result.unwrap_or_else(|status| status.to_value()))
    }

    fn review(&self, kind: Kind, body: &Value, user: &User) -> Result<Value, Status> {
        let review = access_review::read(kind, body, user)?;
        let decision = self.authorize(&review.question.attributes());
        Ok(with(body, "status", access_review::status(&review, &decision)))
    }
}

/// Reviews the recorded token, which is unknown here.
fn review_token(body: &Value) -> Result<Value, Status> {
    let request = token_review::read(body, &[ISSUER.into()])?;
    let status = token_review::status(&request, Err("invalid bearer token".to_owned()))?;
    Ok(with(body, "status", status))
}

fn request_token(body: &Value, resource: Resource<'_>) -> Result<Value, Status> {
    let mut body = body.clone();
    request::set_defaults(&mut body);
    request::check_path(&body, resource.namespace, resource.name)?;
    if resource.name != "default" {
        return Err(Status::not_found(GroupName::new("", "serviceaccounts"), resource.name));
    }
    let account =
        apimachinery::value!({"metadata": {"name": "default", "namespace": (resource.namespace), "uid": "u"}});
    let audiences = [Str::from(ISSUER)];
    request::prepare(&mut body, &account, &audiences, NOW)?;
    // The schema engine serializes a null here.
    body.get_mut("spec").and_then(Value::as_object_mut).expect("prepared").insert("boundObjectRef", Value::Null);
    Ok(body)
}

fn with(object: &Value, key: &str, value: Value) -> Value {
    let mut object = object.clone();
    object.as_object_mut().expect("reviews are objects").insert(key, value);
    object
}

impl<'a> Request<'a> {
    fn parse(method: &str, path: &'a str) -> Self {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Self { verb: "get", target: Target::Path(path) },
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let segment = |at: usize| rest.get(at).copied().unwrap_or_default();
        let resource = Resource {
            group,
            version,
            resource: segment(0),
            name: segment(1),
            subresource: segment(2),
            namespace,
            ..Resource::default()
        };
        let verb = match (method, resource.name) {
            ("POST", _) => "create",
            ("DELETE", _) => "delete",
            (_, "") => "list",
            _ => "get",
        };
        Self { verb, target: Target::Resource(resource) }
    }
}
