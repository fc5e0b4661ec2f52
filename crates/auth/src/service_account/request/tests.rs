//! Tests of TokenRequest.

use super::*;
use crate::jwt::Token;
use crate::keys::tests::rsa_pem;

const NOW: Time = Time::from_unix(1_000_000, 0);

fn account() -> Value {
    value!({"metadata": {"name": "robot", "namespace": "ns", "uid": "u1"}})
}

fn pod() -> Value {
    value!({"metadata": {"name": "p", "uid": "u2"}, "spec": {"serviceAccountName": "robot", "nodeName": "n"}})
}

fn prepared(mut request: Value) -> Result<Value, String> {
    set_defaults(&mut request);
    prepare(&mut request, &account(), &["https://me".into()], NOW).map_err(|status| status.message)?;
    Ok(request)
}

#[test]
fn request_gets_its_defaults() {
    let expect = value!({
        "metadata": {"name": "robot", "namespace": "ns", "uid": "u1", "creationTimestamp": "1970-01-12T13:46:40Z"},
        "spec": {"audiences": ["https://me"], "expirationSeconds": 3600},
    });
    assert_eq!(prepared(value!({"status": {"token": "mine"}})), Ok(expect.clone()));
    let again = value!({"metadata": {"uid": "u1"}, "spec": {"audiences": [], "expirationSeconds": null}});
    assert_eq!(prepared(again), Ok(expect));
}

#[test]
fn invalid_requests_are_rejected() {
    let check = |request: Value, expect: &str| assert_eq!(prepared(request).unwrap_err(), expect);
    let seconds = |seconds: i64| value!({"spec": {"expirationSeconds": seconds}});
    let invalid = |seconds: i64, detail: &str| {
        format!(
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: {seconds}: {detail}"
        )
    };
    check(seconds(599), &invalid(599, "may not specify a duration less than 10 minutes"));
    check(seconds(0), &invalid(0, "may not specify a duration less than 10 minutes"));
    check(seconds((1 << 32) + 1), &invalid((1 << 32) + 1, "may not specify a duration larger than 2^32 seconds"));
    assert!(prepared(seconds(600)).is_ok() && prepared(seconds(1 << 32)).is_ok());
    check(
        value!({"metadata": {"uid": "u9"}}),
        "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"robot\": the UID in the token request (u9) does not match the UID of the service account (u1)",
    );
    let path =
        |metadata: Value| check_path(&value!({"metadata": metadata}), "ns", "robot").map_err(|status| status.message);
    assert_eq!(path(value!({"name": "robot", "namespace": "ns"})), Ok(()));
    assert_eq!(
        path(value!({"namespace": "other"})).unwrap_err(),
        "TokenRequest.authentication.k8s.io \"robot\" is invalid: metadata.namespace: Invalid value: \"other\": must match the service account namespace if specified"
    );
}

#[test]
fn token_is_bound_to_pods_secrets_and_nodes() {
    let check = |object: Value, expect: Result<Option<Kind>, &str>| {
        let found = reference(&value!({"spec": {"boundObjectRef": object}}));
        let found = found.map(|found| found.map(|found| found.kind)).map_err(|status| status.message);
        assert_eq!(found, expect.map_err(str::to_owned));
    };
    check(Value::Null, Ok(None));
    check(value!({"apiVersion": "v1", "kind": "Pod"}), Ok(Some(Kind::Pod)));
    check(value!({"kind": "Secret"}), Ok(Some(Kind::Secret)));
    check(value!({"apiVersion": "v1", "kind": "Node"}), Ok(Some(Kind::Node)));
    check(
        value!({"apiVersion": "apps/v1", "kind": "Deployment"}),
        Err("cannot bind token to object of type apps/v1, Kind=Deployment"),
    );
    check(
        value!({"apiVersion": "v1", "kind": "ConfigMap"}),
        Err("cannot bind token to object of type /v1, Kind=ConfigMap"),
    );
}

#[test]
fn token_contains_its_bound_object() {
    let object = |name: &str, uid: &str| Some(ObjectRef { name: name.into(), uid: uid.into() });
    let bind = |kind, uid: &str, object: &Value, node: Option<&Value>| {
        let reference = Reference { kind, name: "p".into(), uid: uid.into() };
        claims(&account(), Some((&reference, object)), node, "j").map_err(|status| status.message)
    };
    let bound = bind(Kind::Pod, "u2", &pod(), None).unwrap();
    assert_eq!((bound.pod, bound.node), (object("p", "u2"), object("n", "")));
    let node = value!({"metadata": {"name": "n", "uid": "u3"}});
    assert_eq!(bind(Kind::Pod, "", &pod(), Some(&node)).unwrap().node, object("n", "u3"));
    assert_eq!(bind(Kind::Node, "u3", &node, None).unwrap().node, object("n", "u3"));
    assert_eq!(bind(Kind::Secret, "", &node, None).unwrap().secret, object("n", "u3"));
    assert_eq!(
        bind(Kind::Pod, "u9", &pod(), None).unwrap_err(),
        "Operation cannot be fulfilled on Pod \"p\": the UID in the bound object reference (u9) does not match the UID in record. The object might have been deleted and then recreated"
    );
    let stranger = value!({"spec": {"serviceAccountName": "other"}});
    assert_eq!(
        bind(Kind::Pod, "", &stranger, None).unwrap_err(),
        "cannot bind token for serviceaccount \"robot\" to pod running with different serviceaccount name."
    );
}

#[test]
fn response_holds_the_requested_token() {
    let key = PrivateKey::from_pem(rsa_pem()).unwrap();
    let config = Config {
        issuer: "https://me".into(),
        audiences: vec!["https://me".into()],
        extend_expiration: true,
        max_seconds: Some(7200),
    };
    let reference = Reference { kind: Kind::Pod, name: "p".into(), uid: Str::default() };
    let issue = |seconds: i64, audience: &str, bound: Option<(&Reference, &Value)>| {
        let mut request = prepared(value!({"spec": {"expirationSeconds": seconds, "audiences": [audience]}})).unwrap();
        let claims = claims(&account(), bound, None, "j").unwrap();
        let response = issue_token(&mut request, claims, &key, &config, NOW).unwrap();
        let token = Token::parse(request.str_at(&["status", "token"]).unwrap()).unwrap();
        let until = request.str_at(&["status", "expirationTimestamp"]).unwrap().to_owned();
        (token.seconds("exp").unwrap() - 1_000_000, token.claims["kubernetes.io"]["warnafter"].clone(), until, response)
    };
    let pod = pod();
    let bound = Some((&reference, &pod));
    let issued = ("authentication.kubernetes.io/issued-credential-id", "JTI=j".to_owned());
    let plain = IssueResult { warnings: vec![], annotations: vec![issued] };
    assert_eq!(issue(600, "https://me", bound), (600, Value::Null, "1970-01-12T13:56:40Z".into(), plain.clone()));
    // The default projected volume requests an hour and seven seconds.
    let extended = issue(3607, "https://me", bound);
    assert_eq!(extended, (EXTENDED_SECONDS, Value::Int(1_003_607), "1970-01-12T14:46:47Z".into(), plain));
    assert_eq!(issue(3607, "vault", bound).0, 3607, "only tokens for the server itself are extended");
    assert_eq!(issue(3607, "https://me", None).0, 3607, "only tokens of pods are extended");
    let shortened = issue(7201, "https://me", bound);
    assert_eq!(shortened.0, 7200);
    assert_eq!(shortened.3.warnings, ["requested expiration of 7201 seconds shortened to 7200 seconds"]);
}
