use super::*;

const HEAD: &str = "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\n";

fn parse(rest: &str) -> Result<Configuration, Error> {
    Configuration::parse(format!("{HEAD}{rest}").as_bytes(), Reload::Never)
}

fn check(rest: &str, expect: &str) {
    assert_eq!(parse(rest).unwrap_err().to_string(), expect, "{rest}");
}

/// Returns a rule for these resources with this provider.
fn rule(resources: &str, provider: &str) -> String {
    format!("resources:\n- resources: [{resources}]\n  providers:\n  - {provider}\n")
}

const IDENTITY: &str = "identity: {}";
/// A 32-byte key.
const SECRET: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

#[test]
fn encryption_configuration_is_parsed() {
    let text = format!(
        "resources:
- resources: [secrets, configmaps, deployments.apps]
  providers:
  - aesgcm: {{keys: [{{name: a, secret: {SECRET}}}]}}
  - aescbc: {{keys: [{{name: b, secret: {SECRET}}}, {{name: c, secret: {SECRET}}}]}}
  - secretbox: {{keys: [{{name: d, secret: {SECRET}}}]}}
  - kms: {{apiVersion: v2, name: vault, endpoint: 'unix:///run/kms.sock'}}
  - identity: {{}}
"
    );
    let configuration = parse(&text).unwrap();
    let [rule] = configuration.rules() else { panic!("one rule") };
    assert_eq!(rule.resources[2], GroupResource { group: "apps".into(), resource: "deployments".into() });
    let key = |name: &str| Key::new(name, *b"01234567890123456789012345678901");
    let kms = Kms { name: "vault".into(), endpoint: "unix:///run/kms.sock".into(), timeout: Duration::from_seconds(3) };
    assert_eq!(
        rule.providers,
        [
            Provider::AesGcm(vec![key("a")]),
            Provider::AesCbc(vec![key("b"), key("c")]),
            Provider::Secretbox(vec![key("d")]),
            Provider::Kms(kms),
            Provider::Identity,
        ]
    );
}

#[test]
fn invalid_files_are_rejected() {
    assert!(matches!(Configuration::parse(b"", Reload::Never), Err(Error::Empty)));
    let other = "kind: Pod\napiVersion: v1\n";
    assert_eq!(
        Configuration::parse(other.as_bytes(), Reload::Never).unwrap_err().to_string(),
        r#"error while parsing file: no kind "Pod" is registered for version "v1""#
    );
    check(
        "resources:\n- resources: [secrets]\n  provider:\n  - identity: {}\n",
        r#"error while parsing file: strict decoding error: unknown field "resources[0].provider""#,
    );
    check("", "resources: Required value: at least one resources is required");
    check(
        "resources:\n- resources: []\n  providers: []\n",
        "[resources[0].resources: Required value: at least one resources[0].resources is required, resources[0].providers: Required value: at least one resources[0].providers is required]",
    );
}

#[test]
fn ambiguous_resources_are_rejected() {
    let check = |resources: &str, expect: &str| check(&rule(resources, IDENTITY), expect);
    let invalid =
        |at: &str, name: &str, detail: &str| format!("resources[0].resources{at}: Invalid value: {name}: {detail}");
    check("Secrets", &invalid("[0]", r#""Secrets""#, "resource name should not contain capital letters"));
    check(
        "'*'",
        &invalid(
            "[0]",
            r#""*""#,
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
        ),
    );
    check(
        "serviceipallocations",
        &invalid("[0]", r#""serviceipallocations""#, "resources which do not have REST API/s cannot be encrypted"),
    );
    check(
        "events.events.k8s.io",
        &invalid(
            "[0]",
            r#""events.events.k8s.io""#,
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        ),
    );
    check(
        "'*.extensions'",
        &invalid("[0]", r#""*.extensions""#, "'extensions' group has been removed and cannot be used for encryption"),
    );
    check("'pods.*'", &invalid("[0]", r#""pods.*""#, "encrypting the same resource across groups is not supported"));
    check(
        "secrets, secrets",
        &invalid("", r#"["secrets","secrets"]"#, "the same resource cannot be specified multiple times"),
    );
    let overlap = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked";
    check("secrets, '*.'", &invalid("", r#"["secrets","*."]"#, overlap));
    check("'*.apps', deployments.apps", &invalid("", r#"["*.apps","deployments.apps"]"#, overlap));
    check("secrets, '*.*'", &invalid("", r#"["secrets","*.*"]"#, overlap));
    assert!(parse(&rule("'*.', '*.apps', pods.metrics.k8s.io", IDENTITY)).is_ok());
}

#[test]
fn keys_must_have_names_and_secrets_of_the_right_length() {
    let check =
        |provider: &str, expect: &str| check(&rule("secrets", provider), &format!("resources[0].providers[0]{expect}"));
    check("aesgcm: {keys: []}", ".aesgcm.keys: Required value: at least one keys is required");
    check(
        &format!("aescbc: {{keys: [{{secret: {SECRET}}}]}}"),
        ".aescbc.keys[0].name: Required value: name is a mandatory field for a key",
    );
    check(
        "aescbc: {keys: [{name: a}]}",
        ".aescbc.keys[0].secret: Required value: secret is a mandatory field for a key",
    );
    check(
        "secretbox: {keys: [{name: a, secret: '???'}]}",
        r#".secretbox.keys[0].secret: Invalid value: "REDACTED": secrets must be base64 encoded"#,
    );
    check(
        "secretbox: {keys: [{name: a, secret: MDEyMzQ1Njc4OTAxMjM0NQ==}]}",
        r#".secretbox.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 16, expected one of [32]"#,
    );
    check(
        "aesgcm: {keys: [{name: a, secret: MDEy}]}",
        r#".aesgcm.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 3, expected one of [16 24 32]"#,
    );
    check(
        "{}",
        ": Invalid value: provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
    );
    check(
        &format!("{{identity: {{}}, aescbc: {{keys: [{{name: a, secret: {SECRET}}}]}}}}"),
        ": Invalid value: more than one provider specified in a single element, should split into different list elements",
    );
}

#[test]
fn kms_provider_fields_are_validated() {
    let check = |provider: &str, expect: &str| {
        check(&rule("secrets", &format!("kms: {{{provider}}}")), &format!("resources[0].providers[0].kms.{expect}"));
    };
    let sound = "apiVersion: v2, name: a, endpoint: 'unix:///a'";
    check("apiVersion: v2, endpoint: 'unix:///a'", "name: Required value: name is a mandatory field for a provider");
    check(
        "apiVersion: v2, name: 'a:b', endpoint: 'unix:///a'",
        r#"name: Invalid value: "a:b": invalid KMS provider name a:b, must not contain ':'"#,
    );
    check("apiVersion: v2, name: a", r#"endpoint: Invalid value: "": endpoint is a mandatory field for a kms"#);
    check(
        "apiVersion: v2, name: a, endpoint: 'tcp://a'",
        r#"endpoint: Invalid value: "tcp://a": unsupported scheme "tcp" for KMS provider, only unix is supported"#,
    );
    check(&format!("{sound}, timeout: 0s"), r#"timeout: Invalid value: "0s": timeout should be a positive value"#);
    check(&format!("{sound}, cachesize: 5"), "cachesize: Invalid value: 5: cachesize is not supported in v2");
    check(
        "apiVersion: v3, name: a, endpoint: 'unix:///a'",
        r#"apiVersion: Invalid value: "v3": unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"#,
    );
    let first = parse(&rule("secrets", "kms: {name: a, endpoint: 'unix:///a'}"));
    assert!(matches!(first, Err(Error::KmsV1)), "{first:?}");
    let timeout = parse(&rule("secrets", &format!("kms: {{{sound}, timeout: soon}}")));
    assert!(matches!(timeout, Err(Error::Timeout(_))), "{timeout:?}");
    let twice = format!("{}  - kms: {{{sound}}}\n", rule("secrets", &format!("kms: {{{sound}}}")));
    assert_eq!(
        parse(&twice).unwrap_err().to_string(),
        r#"resources[0].providers[1].kms.name: Invalid value: "a": duplicate KMS provider name a, names must be unique"#
    );
}

#[test]
fn rule_for_the_resource_precedes_its_group_and_the_wildcard() {
    let key = |name: &str| format!("  - secretbox: {{keys: [{{name: {name}, secret: {SECRET}}}]}}\n");
    let text = format!(
        "resources:
- resources: [secrets]
  providers:
{}- resources: ['*.apps']
  providers:
{}- resources: [deployments.apps, secrets]
  providers:
{}- resources: ['*.*']
  providers:
{}- resources: [leases.coordination.k8s.io]
  providers:
{}",
        key("one"),
        key("two"),
        key("three"),
        key("four"),
        key("five"),
    );
    let configuration = parse(&text).unwrap();
    let check = |group: &str, resource: &str, expect: &[&str]| {
        let names: Vec<Str> = configuration
            .providers(group, resource)
            .iter()
            .map(|provider| match provider {
                Provider::Secretbox(keys) => keys[0].name.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(names, expect, "{resource}.{group}");
    };
    check("", "secrets", &["one", "three"]);
    check("apps", "deployments", &["two"]);
    check("apps", "daemonsets", &["two"]);
    check("", "configmaps", &["four"]);
    check("coordination.k8s.io", "leases", &["four"]);
}

#[test]
fn debug_output_hides_secrets() {
    let configuration = parse(&rule("secrets", &format!("aesgcm: {{keys: [{{name: a, secret: {SECRET}}}]}}"))).unwrap();
    let rendered = format!("{configuration:?}");
    assert!(rendered.contains("name: \"a\"") && !rendered.contains("48, 49"), "{rendered}");
}
