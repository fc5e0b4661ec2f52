//! Tests of OIDC tokens and of valid and invalid configurations.

use apimachinery::value;

use super::*;
use crate::jwt::sign;
use crate::keys::tests::{p256_pem, rsa_pem};
use crate::keys::{PrivateKey, jwks};

const NOW: Time = Time::from_unix(1_000_000, 0);

const PLAIN: &str = "
- issuer: {url: https://issuer.example, audiences: [kubernetes]}
  claimMappings:
    username: {claim: sub, prefix: 'oidc:'}
    groups: {claim: roles, prefix: ''}
";

const EXPRESSIONS: &str = "
- issuer: {url: https://issuer.example, audiences: [kubernetes, other], audienceMatchPolicy: MatchAny}
  claimValidationRules:
  - {claim: hd, requiredValue: example.com}
  - {expression: 'claims.exp - claims.nbf <= 86400', message: 'at most a day'}
  claimMappings:
    username: {expression: \"claims.username + ':external'\"}
    groups: {expression: \"claims.roles.split(',')\"}
    uid: {claim: sub}
    extra:
    - {key: example.com/tenant, valueExpression: claims.tenant}
    - {key: example.com/none, valueExpression: \"''\"}
  userValidationRules:
  - {expression: \"!user.username.startsWith('system:')\", message: 'username cannot use reserved prefix'}
  - {expression: \"user.groups.all(group, !group.startsWith('system:'))\"}
";

fn parse(jwt: &str) -> Result<Config, String> {
    let text = format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{jwt}");
    Config::parse(&text, &["https://own".into()]).map_err(|error| error.to_string())
}

fn authenticator(jwt: &str) -> Authenticator {
    parse(&format!("jwt:{jwt}")).unwrap().authenticators.remove(0)
}

fn key() -> PrivateKey {
    PrivateKey::from_pem(rsa_pem()).unwrap()
}

/// Returns the test key as a parsed key set, as issuers publish it.
fn keys() -> KeySet {
    KeySet::parse(&json::to_vec(&jwks(&[key().public().clone()]))).unwrap()
}

fn token(changes: Value) -> String {
    let mut claims =
        value!({"iss": "https://issuer.example", "aud": "kubernetes", "sub": "u1", "exp": 1_000_600, "nbf": 999_000});
    let Value::Object(changes) = changes else { panic!("changes are an object") };
    for (name, value) in changes {
        claims.as_object_mut().unwrap().insert(name, value);
    }
    sign(&key(), &claims).unwrap()
}

fn check(jwt: &str, changes: Value, expect: Result<User, &str>) {
    let found = authenticator(jwt).check(&token(changes), &keys(), NOW);
    let found = found.map(|user| user.expect("a token of this issuer")).map_err(|error| error.to_string());
    assert_eq!(found, expect.map_err(str::to_owned));
}

#[test]
fn claims_with_prefixes_make_a_user() {
    check(PLAIN, value!({"roles": ["a", "b"]}), Ok(User::authenticated("oidc:u1", ["a".into(), "b".into()])));
    check(PLAIN, value!({"roles": "one"}), Ok(User::authenticated("oidc:u1", ["one".into()])));
    check(PLAIN, value!({}), Ok(User::authenticated("oidc:u1", [])));
    check(PLAIN, value!({"aud": ["x", "kubernetes"]}), Ok(User::authenticated("oidc:u1", [])));
    check(
        PLAIN,
        value!({"sub": 1}),
        Err("oidc: parse username claims \"sub\": json: cannot unmarshal number into Go value of type string"),
    );
    check(
        PLAIN,
        value!({"roles": {}}),
        Err("oidc: parse groups claim \"roles\": json: cannot unmarshal object into Go value of type string"),
    );
}

#[test]
fn expressions_map_and_validate_users() {
    let good = || value!({"username": "jane", "roles": "a,b,", "tenant": "t1", "hd": "example.com", "nbf": 1_000_000});
    let with = |name: &str, value: Value| {
        let mut claims = good();
        claims.as_object_mut().unwrap().insert(name, value);
        claims
    };
    let jane = User { uid: "u1".into(), ..User::authenticated("jane:external", ["a".into(), "b".into()]) };
    check(EXPRESSIONS, good(), Ok(jane.clone().with_extra("example.com/tenant", "t1")));
    check(EXPRESSIONS, with("tenant", value!([""])), Ok(jane));
    check(
        EXPRESSIONS,
        with("hd", value!("evil.com")),
        Err("oidc: required claim hd value does not match. Got = evil.com, want = example.com"),
    );
    check(
        EXPRESSIONS,
        with("nbf", value!(1)),
        Err(
            "oidc: error evaluating claim validation expression: validation expression 'claims.exp - claims.nbf <= 86400' failed: at most a day",
        ),
    );
    check(
        EXPRESSIONS,
        with("username", value!("system:x")),
        Err(
            "oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith('system:')' failed: username cannot use reserved prefix",
        ),
    );
    check(
        EXPRESSIONS,
        with("roles", value!("system:masters")),
        Err(
            "oidc: error evaluating user info validation rule: validation expression 'user.groups.all(group, !group.startsWith('system:'))' failed: ",
        ),
    );
    check(
        EXPRESSIONS,
        with("tenant", value!(1)),
        Err("oidc: error evaluating extra claim expression: expression must return a string or a list of strings"),
    );
    let missing = authenticator(EXPRESSIONS).check(&token(value!({})), &keys(), NOW).unwrap_err().to_string();
    assert!(missing.starts_with("oidc: error evaluating username claim expression: expression 'claims.username + ':external'' resulted in error: no such key"), "{missing}");
}

#[test]
fn signature_time_and_audience_are_verified() {
    check(
        PLAIN,
        value!({"exp": 999_999}),
        Err("oidc: verify token: oidc: token is expired (Token Expiry: 1970-01-12T13:46:39Z)"),
    );
    check(
        PLAIN,
        value!({"exp": null}),
        Err("oidc: verify token: oidc: token is expired (Token Expiry: 1970-01-01T00:00:00Z)"),
    );
    check(PLAIN, value!({"nbf": 1_000_300}), Ok(User::authenticated("oidc:u1", [])));
    check(
        PLAIN,
        value!({"nbf": 1_000_301}),
        Err(
            "oidc: verify token: oidc: current time 1970-01-12T13:46:40Z before the nbf (not before) time: 1970-01-12T13:51:41Z",
        ),
    );
    check(
        PLAIN,
        value!({"aud": ["x", "y"]}),
        Err(r#"oidc: verify token: oidc: expected audience in ["kubernetes"] got ["x" "y"]"#),
    );
    let issuer = authenticator(PLAIN);
    assert_eq!(issuer.check(&token(value!({"iss": "https://other"})), &keys(), NOW), Ok(None));
    assert_eq!(issuer.check("opaque", &keys(), NOW), Ok(None));
    let stranger = KeySet::of([PrivateKey::from_pem(&p256_pem()).unwrap().public().clone()]);
    assert_eq!(issuer.check(&token(value!({})), &stranger, NOW), Err(Error::Verify(Verify::Signature)));
    let unsigned = "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIn0.";
    let result = issuer.check(unsigned, &keys(), NOW);
    assert_eq!(result, Err(Error::Verify(Verify::Malformed(jwt::Error::Algorithm("none".into())))));
}

#[test]
fn unverified_email_is_rejected() {
    let by_email = "\n- issuer: {url: https://issuer.example, audiences: [kubernetes]}\n  claimMappings: {username: {claim: email, prefix: ''}}\n";
    check(by_email, value!({"email": "a@b"}), Ok(User::authenticated("a@b", [])));
    check(by_email, value!({"email": "a@b", "email_verified": true}), Ok(User::authenticated("a@b", [])));
    check(by_email, value!({"email": "a@b", "email_verified": false}), Err("oidc: email not verified"));
    let expected = "oidc: parse 'email_verified' claim: json: cannot unmarshal string into Go value of type bool";
    check(by_email, value!({"email": "a@b", "email_verified": "yes"}), Err(expected));
}

#[test]
fn discovery_and_key_urls_are_determined() {
    let plain = authenticator(PLAIN);
    assert_eq!(plain.discovery_url(), "https://issuer.example/.well-known/openid-configuration");
    let elsewhere =
        authenticator(&PLAIN.replace("issuer.example,", "issuer.example/, discoveryURL: 'https://inside.example/d',"));
    assert_eq!(elsewhere.discovery_url(), "https://inside.example/d");
    let document = br#"{"issuer":"https://issuer.example","jwks_uri":"https://issuer.example/keys"}"#;
    assert_eq!(keys_url(&plain, document).as_deref(), Ok("https://issuer.example/keys"));
    let other =
        DiscoveryError::Issuer { expected: "https://issuer.example/".into(), found: "https://issuer.example".into() };
    assert_eq!(keys_url(&elsewhere, document), Err(other));
    assert_eq!(keys_url(&plain, b"[]"), Err(DiscoveryError::Malformed));
    assert_eq!(keys_url(&plain, br#"{"issuer":"https://issuer.example"}"#), Err(DiscoveryError::NoKeys));
}

#[test]
fn anonymous_requests_are_limited_to_listed_paths() {
    let config = parse("anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}]}").unwrap();
    let anonymous = config.anonymous.unwrap();
    assert!(
        anonymous.allows_path("/livez") && !anonymous.allows_path("/healthz") && !anonymous.allows_path("/livez/etcd")
    );
    assert!(parse("anonymous: {enabled: true}").unwrap().anonymous.unwrap().allows_path("/healthz"));
    assert!(!parse("anonymous: {}").unwrap().anonymous.unwrap().allows_path("/healthz"));
    assert_eq!(parse("jwt: []").unwrap().anonymous, None);
    assert_eq!(
        parse("anonymous: {enabled: false, conditions: [{path: /livez}]}").unwrap_err(),
        r#"anonymous.conditions: Invalid value: [{"Path":"/livez"}]: enabled should be set to true when conditions are defined"#
    );
}

/// Returns the validation error of a configuration with one issuer.
fn validation_error(issuer: &str, mappings: &str, rules: &str) -> String {
    let text = format!("jwt:\n- issuer: {issuer}\n  claimMappings: {mappings}\n  {rules}\n");
    parse(&text).err().unwrap_or_default()
}

const ISSUER: &str = "{url: https://issuer.example, audiences: [a]}";
const NAME: &str = "{username: {claim: sub, prefix: ''}}";

#[test]
fn invalid_issuers_are_rejected() {
    let check = |issuer: &str, expect: &str| assert_eq!(validation_error(issuer, NAME, ""), expect, "{issuer}");
    check(ISSUER, "");
    check("{audiences: [a]}", "jwt[0].issuer.url: Required value");
    check(
        "{url: http://x, audiences: [a]}",
        r#"jwt[0].issuer.url: Invalid value: "http://x": URL scheme must be https"#,
    );
    check(
        "{url: https://own, audiences: [a]}",
        r#"jwt[0].issuer.url: Invalid value: "https://own": URL must not overlap with disallowed issuers: [https://own]"#,
    );
    check(
        "{url: https://x, discoveryURL: https://x/, audiences: [a]}",
        r#"jwt[0].issuer.discoveryURL: Invalid value: "https://x/": discoveryURL must be different from URL"#,
    );
    check(
        "{url: https://x}",
        "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
    );
    check(
        "{url: https://x, audiences: [a, a], audienceMatchPolicy: MatchAny}",
        r#"jwt[0].issuer.audiences[1]: Duplicate value: "a""#,
    );
    check(
        "{url: https://x, audiences: [a, b]}",
        r#"jwt[0].issuer.audienceMatchPolicy: Invalid value: "": audienceMatchPolicy must be MatchAny for multiple audiences"#,
    );
    check(
        "{url: https://x, audiences: [a], audienceMatchPolicy: All}",
        r#"jwt[0].issuer.audienceMatchPolicy: Invalid value: "All": audienceMatchPolicy must be empty or MatchAny for single audience"#,
    );
    check(
        "{url: https://x, audiences: [a], certificateAuthority: none}",
        r#"jwt[0].issuer.certificateAuthority: Invalid value: "<omitted>": data does not contain any valid RSA or ECDSA certificates"#,
    );
    check(
        "{url: https://x, audiences: [a], egressSelectorType: moon}",
        r#"jwt[0].issuer.egressSelectorType: Invalid value: "moon": egress selector must be either controlplane or cluster"#,
    );
    check("{url: https://x, audiences: [a], urls: 1}", r#"strict decoding error: unknown field "jwt[0].issuer.urls""#);
    let twice =
        format!("jwt:\n- {{issuer: {ISSUER}, claimMappings: {NAME}}}\n- {{issuer: {ISSUER}, claimMappings: {NAME}}}");
    assert_eq!(parse(&twice).unwrap_err(), r#"jwt[1].issuer.url: Duplicate value: "https://issuer.example""#);
}

#[test]
fn invalid_mappings_are_rejected() {
    let check = |mappings: &str, expect: &str| {
        let message = validation_error(ISSUER, mappings, "");
        assert!(message.starts_with(expect) && message.is_empty() == expect.is_empty(), "{message}");
    };
    let at = "jwt[0].claimMappings";
    check("{}", &format!("{at}.username: Required value: claim or expression is required"));
    check(
        "{username: {claim: sub}}",
        &format!(
            "{at}.username.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing"
        ),
    );
    check(
        "{username: {claim: sub, expression: claims.sub}}",
        &format!("{at}.username: Invalid value: \"\": claim and expression can't both be set"),
    );
    check(
        "{username: {expression: claims.sub, prefix: a}}",
        &format!("{at}.username.prefix: Invalid value: \"a\": may not be specified when expression is set"),
    );
    check(
        "{username: {expression: 'claims.'}}",
        &format!("{at}.username.expression: Invalid value: \"claims.\": compilation failed: ERROR:"),
    );
    let with = |more: &str| format!("{{username: {{expression: claims.sub}}, {more}}}");
    check(&with("groups: {claim: a}"), &format!("{at}.groups.prefix: Required value"));
    check(
        &with("uid: {claim: a, expression: claims.a}"),
        &format!("{at}.uid: Invalid value: \"\": claim and expression can't both be set"),
    );
    let extra = |key: &str| with(&format!("extra: [{{key: {key}, valueExpression: claims.a}}]"));
    check(
        &extra("foo"),
        &format!("{at}.extra[0].key: Invalid value: \"foo\": must be a domain-prefixed path (such as \"acme.io/foo\")"),
    );
    check(&extra("acme.io/Foo"), &format!("{at}.extra[0].key: Invalid value: \"acme.io/Foo\": must be lowercase"));
    check(
        &extra("a.k8s.io/b"),
        &format!(
            "{at}.extra[0].key: Invalid value: \"a.k8s.io/b\": k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"
        ),
    );
    check(&with("extra: [{key: acme.io/a}]"), &format!("{at}.extra[0].valueExpression: Required value"));
    check(
        &with("extra: [{key: acme.io/a, valueExpression: claims.a}, {key: acme.io/a, valueExpression: claims.b}]"),
        &format!("{at}.extra[1].key: Duplicate value: \"acme.io/a\""),
    );
    check(
        "{username: {expression: claims.email}}",
        &format!("{at}.username.expression: Invalid value: \"claims.email\": claims.email_verified must be used"),
    );
    check("{username: {expression: \"claims.email_verified ? claims.email : ''\"}}", "");
}

#[test]
fn invalid_rules_are_rejected() {
    let check = |rules: &str, expect: &str| {
        let message = validation_error(ISSUER, NAME, rules);
        assert!(message.starts_with(expect) && message.is_empty() == expect.is_empty(), "{message}");
    };
    let at = "jwt[0].claimValidationRules";
    check("claimValidationRules: [{}]", &format!("{at}[0]: Required value: claim or expression is required"));
    check(
        "claimValidationRules: [{claim: a, expression: b}]",
        &format!("{at}[0]: Invalid value: \"a\": claim and expression can't both be set"),
    );
    check("claimValidationRules: [{claim: a}, {claim: a}]", &format!("{at}[1].claim: Duplicate value: \"a\""));
    check(
        "claimValidationRules: [{claim: a, message: m}]",
        &format!("{at}[0].message: Invalid value: \"m\": may not be specified when claim is set"),
    );
    check(
        "claimValidationRules: [{expression: 'true', requiredValue: v}]",
        &format!("{at}[0].requiredValue: Invalid value: \"v\": may not be specified when expression is set"),
    );
    check(
        "claimValidationRules: [{expression: claims.a}]",
        &format!("{at}[0].expression: Invalid value: \"claims.a\": must evaluate to bool"),
    );
    let at = "jwt[0].userValidationRules";
    check("userValidationRules: [{message: m}]", &format!("{at}[0].expression: Required value"));
    check(
        "userValidationRules: [{expression: 'true'}, {expression: 'true'}]",
        &format!("{at}[1].expression: Duplicate value: \"true\""),
    );
    check(
        "userValidationRules: [{expression: user.nick == ''}]",
        &format!("{at}[0].expression: Invalid value: \"user.nick == ''\": compilation failed"),
    );
}

#[test]
fn flags_describe_one_issuer() {
    assert!(Flags::default().authenticator().unwrap().is_none());
    let flags =
        Flags { issuer_url: "https://issuer.example".into(), client_id: "kubernetes".into(), ..Flags::default() };
    let name = |flags: Flags| {
        let issuer = flags.authenticator().unwrap().unwrap();
        issuer.check(&token(value!({"email": "a@b"})), &keys(), NOW).unwrap().unwrap().name
    };
    assert_eq!(name(flags.clone()), "https://issuer.example#u1");
    assert_eq!(name(Flags { username_prefix: "-".into(), ..flags.clone() }), "u1");
    assert_eq!(name(Flags { username_prefix: "o:".into(), ..flags.clone() }), "o:u1");
    assert_eq!(name(Flags { username_claim: "email".into(), ..flags.clone() }), "a@b");
    let required =
        Flags { required_claims: vec![("hd".into(), "x".into())], ..flags.clone() }.authenticator().unwrap().unwrap();
    let error = required.check(&token(value!({})), &keys(), NOW).unwrap_err();
    assert_eq!(error.to_string(), "oidc: required claim hd not present in ID token");
    let alone = Flags { client_id: Str::default(), ..flags.clone() }.authenticator().unwrap_err();
    assert_eq!(alone, flags::Error::Incomplete);
    let insecure = Flags { issuer_url: "http://x".into(), ..flags }.authenticator().unwrap_err();
    assert_eq!(insecure.to_string(), "oidc-issuer-url: URL scheme must be https");
}
