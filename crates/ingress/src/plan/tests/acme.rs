//! Orders of certificates, and the routes that answer challenges.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use super::*;
use crate::plan::objects::ISSUER;

/// An Ingress of `a.test` that asks for the certificate `web`.
fn wanting(hosts: &str) -> String {
    let spec = format!("knarr.io/acme: \"true\"|, tls: [{{hosts: [{hosts}], secretName: web}}]");
    ingress("web", &["a.test/=web:80"], &spec)
}

/// The Secret `web` with a certificate for a host that ends in this year. Lifetimes start in 2026.
fn secret(host: &str, manager: &str, end_year: i32) -> String {
    let mut params = CertificateParams::new([host.to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(end_year, 1, 1));
    let key = KeyPair::generate().unwrap();
    let (chain, key) = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
    format!(
        "---\nkind: Secret\nmetadata: {{name: web, namespace: default, labels: {{app.kubernetes.io/managed-by: {manager}}}}}\n\
         data: {{tls.crt: {}, tls.key: {}}}\n",
        STANDARD.encode(chain),
        STANDARD.encode(key)
    )
}

/// Returns the hosts of each order with the existence of its Secret, then the reasons of Events, then the year of the
/// next renewal.
fn outcome(documents: &str) -> String {
    let plan = plan(&settings(), &observe(documents), NOW);
    let order = |order: &crate::plan::acme::Order| {
        let kind = if order.replaces.is_some() { "renew" } else { "new" };
        format!("{kind} {:?}", order.hosts)
    };
    let orders = plan.orders.iter().map(order);
    let reasons = plan.events.iter().map(|event| event.reason.to_owned());
    let due = plan.wake_at.map(|time| format!("due {}", &time.to_string()[..4]));
    orders.chain(reasons).chain(due).collect::<Vec<_>>().join(", ")
}

#[test]
fn certificates_are_ordered_if_they_are_missing_or_due() {
    let check = |documents: &str, expect: &str| assert_eq!(outcome(documents), expect, "{documents}");
    // The time is January 2027.
    check(&wanting("a.test"), r#"new {"a.test"}"#);
    check(&wanting(""), r#"new {"a.test"}"#);
    check(&(wanting("a.test") + &secret("a.test", ISSUER, 2032)), "due 2029");
    check(&(wanting("a.test") + &secret("a.test", ISSUER, 2027)), r#"renew {"a.test"}"#);
    check(&(wanting("a.test") + &secret("other.test", ISSUER, 2032)), r#"renew {"a.test"}"#);
    check(&(wanting("a.test") + &secret("a.test", "helm", 2027)), "AcmeRefused");
    check(&wanting("\"*.a.test\""), "AcmeRefused");
    check(&wanting("other.test"), "AcmeRefused");
}

#[test]
fn certificates_are_not_ordered_for_hosts_of_other_namespaces() {
    // Objects are ordered by age.
    let check = |documents: [&str; 2], expect: &str| {
        let outcome = outcome(&documents.concat());
        let mut of_orders = outcome.split(", ").filter(|part| part.starts_with("new") || part.starts_with("Acme"));
        assert_eq!((of_orders.next(), of_orders.next()), (Some(expect), None), "{outcome}: {documents:?}");
    };
    let (wanting, issued) = (wanting("a.test"), r#"new {"a.test"}"#);
    let other = |namespace: &str, host: &str| {
        let ingress = ingress("other", &[&format!("{host}/=web:80")], "");
        ingress.replacen("namespace: default", &format!("namespace: {namespace}"), 1)
    };
    check([&wanting, &other("victim", "a.test")], issued);
    check([&other("victim", "a.test"), &wanting], "AcmeRefused");
    check([&other("victim", "*.test"), &wanting], "AcmeRefused");
    check([&other("victim", ""), &wanting], issued);
    check([&other("default", "a.test"), &wanting], issued);
    let gateway = "---\nkind: Gateway\nmetadata: {name: other, namespace: victim}\n\
                   spec: {gatewayClassName: knarr, listeners: [{name: a, port: 80, protocol: HTTP, hostname: a.test}]}\n";
    check([gateway, &wanting], "AcmeRefused");
    let route = "---\nkind: HTTPRoute\nmetadata: {name: other, namespace: victim}\nspec: {hostnames: [\"*.test\"]}\n";
    check([route, &wanting], "AcmeRefused");
}

#[test]
fn orders_need_an_acme_server() {
    let without = Settings { acme: false, ..settings() };
    let plan = plan(&without, &observe(&wanting("a.test")), NOW);
    assert_eq!(plan.orders, []);
    assert!(plan.events.iter().any(|event| event.reason == "AcmeNotConfigured"), "{:?}", plan.events);
}

#[test]
fn failed_orders_are_reported() {
    let mut objects = observe(&wanting("a.test"));
    objects.acme.failures.insert(Key::new("default", "web"), "no route".to_owned());
    let plan = plan(&settings(), &objects, NOW);
    let messages: Vec<&str> = plan.events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(messages, ["Secret web: no route"]);
}

#[test]
fn challenges_are_answered_over_http_before_the_redirect() {
    let mut objects = observe(&(wanting("a.test") + &secret("a.test", ISSUER, 2027)));
    for host in ["a.test", "other.test"] {
        objects.acme.challenges.insert((host.to_owned(), "token".to_owned()), "answer".to_owned());
    }
    let plan = plan(&settings(), &objects, NOW);
    let first = |port: u16| {
        let hosts = &plan.table.listeners[&port.into()].hosts;
        assert_eq!(hosts.len(), 1, "a host without rules is served: {hosts:?}");
        let route = &hosts[&HostPattern::Exact("a.test".to_owned())].routes[0];
        (route.matches.path.clone(), route.action.clone())
    };
    let path = PathMatch::Exact("/.well-known/acme-challenge/token".to_owned());
    assert_eq!(first(80), (path, Action::Answer("answer".to_owned())));
    assert!(matches!(first(443), (PathMatch::Prefix(_), Action::Forward(_))));
}
