use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{Object, Value, json};

type Rule = fn(&str) -> Vec<String>;

fn check(rule: Rule, value: &str, wrong: &[&str]) {
    assert_eq!(rule(value), wrong, "{value}");
}

#[test]
fn valid_names_have_no_errors() {
    check(dns1123_label, "a-1", &[]);
    check(dns1123_subdomain, "1.a-b.c", &[]);
    check(dns1035_label, "a-1", &[]);
    check(wildcard_dns1123_subdomain, "*.a.b", &[]);
    check(dns1123_subdomain_with_underscore, "_a.b_c", &[]);
    check(qualified_name, "a.b/C_d.e-1", &[]);
    check(label_value, "", &[]);
    check(label_value, "A_b.c-1", &[]);
    check(path_segment, "system:node-a", &[]);
    check(port_name, "http-1", &[]);
    check(percent, "50%", &[]);
    check(http_header_name, "X-A", &[]);
    check(http_path, "/a/%20:b", &[]);
    check(env_var_name, "_A.b-1", &[]);
    check(relaxed_env_var_name, "1 a;", &[]);
    check(config_map_key, "a_B.c-1", &[]);
    check(c_identifier, "_a1", &[]);
}

#[test]
fn invalid_names_report_the_regular_expression() {
    check(
        dns1123_label,
        "A",
        &[
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ],
    );
    check(dns1123_label, "a.b", &["must not contain dots"]);
    check(
        dns1123_subdomain,
        "",
        &[
            r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ],
    );
    let qualified = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    check(qualified_name, "", &["name part must be non-empty", &format!("name part {qualified}")]);
    check(qualified_name, "/a", &["prefix part must be non-empty"]);
    check(
        qualified_name,
        "a/b/c",
        &[&format!(
            "a valid label key {qualified} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )],
    );
    check(path_segment, "..", &["may not be '..'"]);
    check(path_segment, "a/%", &["may not contain '/'", "may not contain '%'"]);
    check(port_name, "-", &["must contain at least one letter (a-z)", "must not begin or end with a hyphen"]);
    check(config_map_key, "..a", &["must not start with '..'"]);
    check(http_path, "", &[r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')"]);
    assert_eq!(port_number(0), ["must be between 1 and 65535, inclusive"]);
}

#[test]
fn lengths_are_reported_in_the_unit_of_each_rule() {
    let long = "a".repeat(254);
    check(dns1123_label, &long, &["must be no more than 63 characters"]);
    check(dns1123_subdomain, &long, &["must be no more than 253 characters"]);
    check(label_value, &long, &["must be no more than 63 bytes"]);
    check(qualified_name, &long, &["name part must be no more than 63 bytes"]);
    check(qualified_name, &format!("{long}/a"), &["prefix part must be no more than 253 bytes"]);
}

#[test]
fn addresses_may_have_leading_zeros() {
    let check = |value: &str, address: Option<&str>| {
        assert_eq!(parse_ip(value).map(|ip| ip.to_string()).as_deref(), address, "{value}");
    };
    check("010.0.0.001", Some("10.0.0.1"));
    check("::ffff:10.0.0.1", Some("10.0.0.1"));
    check("2001:db8::1", Some("2001:db8::1"));
    check("256.0.0.1", None);
    check("1.2.3", None);
    check("1.2.3.4.5", None);
    check("fe80::1%eth0", None);
    assert_eq!(parse_cidr("10.0.0.1/33"), None);
    assert_eq!(parse_cidr("10.0.0.1/+1"), None);
    assert_eq!(parse_cidr("2001:db8::/64").unwrap().1, 64);
    assert_eq!(ipv6("10.0.0.1"), ["must be a valid IPv6 address"]);
}

proptest! {
    #[test]
    fn walking_the_bytes_agrees_with_the_regular_expressions(value in "[-a-zA-Z0-9._/*éx%]{0,8}") {
        let matches = |regex: &str, value: &str| regex::Regex::new(&format!("^(?:{regex})$")).unwrap().is_match(value);
        prop_assert_eq!(is_label(&value), matches(LABEL, &value));
        prop_assert_eq!(is_subdomain(&value), matches(SUBDOMAIN, &value));
        prop_assert_eq!(is_qualified(&value), matches(QUALIFIED, &value));
        prop_assert_eq!(c_identifier(&value).is_empty(), matches("[A-Za-z_][A-Za-z0-9_]*", &value));
        prop_assert_eq!(dns1035_label(&value).is_empty(), matches("[a-z]([-a-z0-9]*[a-z0-9])?", &value));
        let part = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
        let underscored = format!(r"{part}(\.{part})*");
        prop_assert_eq!(dns1123_subdomain_with_underscore(&value).is_empty(), matches(&underscored, &value));
    }
}

/// Every recorded kube-apiserver error about a name must be reproduced by one of these rules with the same message.
#[test]
fn compare_name_errors_with_recordings() {
    let files = std::fs::read_dir(test_requirements::upstream("golden")).unwrap();
    let mut findings = BTreeSet::new();
    for file in files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|it| it == "jsonl")) {
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            each_finding(&json::parse(line.as_bytes()).unwrap(), &mut findings);
        }
    }
    let rules: [Rule; 17] = [
        dns1123_label,
        dns1123_subdomain,
        dns1035_label,
        wildcard_dns1123_subdomain,
        dns1123_subdomain_with_underscore,
        qualified_name,
        label_value,
        path_segment,
        port_name,
        percent,
        http_header_name,
        env_var_name,
        relaxed_env_var_name,
        config_map_key,
        c_identifier,
        ip,
        cidr,
    ];
    let missed: Vec<_> = findings
        .iter()
        .filter(|(value, detail)| !rules.iter().any(|rule| rule(value).iter().any(|wrong| wrong == detail)))
        .collect();
    println!("{} recorded findings about names, {} of them not found again: {missed:#?}", findings.len(), missed.len());
    assert!(missed.is_empty());
}

/// Collects value and detail of each error that quotes a rule of this module.
fn each_finding(value: &Value, findings: &mut BTreeSet<(String, String)>) {
    let message = value.str_at(&["message"]).filter(|_| value.get("field").is_some());
    if let Some(rest) = message.and_then(|message| message.strip_prefix("Invalid value: ")) {
        let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        if let Some(Ok(value)) = strings.next() {
            let detail = rest[strings.byte_offset()..].trim_start_matches(": ");
            if detail.contains("regex used for validation") || detail.contains("must be no more than") {
                findings.insert((value, detail.to_owned()));
            }
        }
    }
    for item in value.as_array().unwrap_or_default() {
        each_finding(item, findings);
    }
    for item in value.as_object().into_iter().flat_map(Object::values) {
        each_finding(item, findings);
    }
}
