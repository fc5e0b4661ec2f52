//! References to backends, ReferenceGrants and BackendTLSPolicies.

use super::*;
use crate::routing::AlternativeName;

/// Plans an HTTPRoute with one backend and compares the target and `ResolvedRefs`.
fn check_backend(objects: &str, backend: &str, expect: &str, expect_condition: &str) {
    let rules = format!("{{backendRefs: [{backend}]}}");
    let documents =
        [gateway("gw", &["http 80 HTTP"], ""), objects.to_owned(), http_route("a", "{name: gw}", &[], &rules)];
    let plan = planned(&documents);
    assert_eq!(routes(&plan), [format!("80 *: / -> {expect}")], "{backend}");
    assert_eq!(route_status(&plan, "a"), [format!("+Accepted {expect_condition}")], "{backend}");
}

#[test]
fn reference_that_cannot_be_resolved_is_answered_with_500() {
    check_backend("", "{name: web, port: 80}", "10.0.0.1:8080", "+ResolvedRefs");
    check_backend("", "{name: none, port: 80}", "500", "-ResolvedRefs=BackendNotFound");
    check_backend("", "{name: web, port: 81}", "500", "-ResolvedRefs=BackendNotFound");
    check_backend("", "{kind: Bucket, group: example.com, name: web}", "500", "-ResolvedRefs=InvalidKind");
    check_backend("", "{name: app, namespace: apps, port: 80}", "500", "-ResolvedRefs=RefNotPermitted");
    check_backend("", "{name: web, port: 90}", "h2c 10.0.0.1:9090", "+ResolvedRefs");
    check_backend("", "{name: web, port: 443}", "500", "-ResolvedRefs=UnsupportedProtocol");
}

#[test]
fn reference_grant_allows_a_service_of_another_namespace() {
    let grant = |kind: &str, namespace: &str| {
        format!(
            "---\nkind: ReferenceGrant\nmetadata: {{name: g, namespace: apps}}\nspec: {{from: \
             [{{group: gateway.networking.k8s.io, kind: {kind}, namespace: {namespace}}}], to: [{{group: '', kind: Service}}]}}\n"
        )
    };
    let far = "{name: app, namespace: apps, port: 80}";
    check_backend(&grant("HTTPRoute", "default"), far, "10.0.0.2:80", "+ResolvedRefs");
    check_backend(&grant("GRPCRoute", "default"), far, "500", "-ResolvedRefs=RefNotPermitted");
    check_backend(&grant("HTTPRoute", "apps"), far, "500", "-ResolvedRefs=RefNotPermitted");
}

fn ca() -> String {
    let pem = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert.pem().replace('\n', "\n    ");
    format!("---\nkind: ConfigMap\nmetadata: {{name: ca, namespace: default}}\ndata:\n  ca.crt: |\n    {pem}\n")
}

fn policy(name: &str, target: &str, validation: &str) -> String {
    format!(
        "---\nkind: BackendTLSPolicy\nmetadata: {{name: {name}, namespace: default, generation: 1}}\n\
         spec: {{targetRefs: [{{group: '', kind: Service, {target}}}], validation: {{{validation}}}}}\n"
    )
}

const CA: &str = "caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]";

#[test]
fn policy_applies_to_a_port_before_one_for_the_service() {
    let policies = ca()
        + &policy("all", "name: web", &format!("hostname: all.test, {CA}"))
        + &policy("tls", "name: web, sectionName: tls", &format!("hostname: tls.test, {CA}"));
    check_backend(&policies, "{name: web, port: 80}", "https all.test 10.0.0.1:8080", "+ResolvedRefs");
    check_backend(&policies, "{name: web, port: 443}", "https tls.test 10.0.0.1:8443", "+ResolvedRefs");
}

#[test]
fn oldest_policy_of_a_target_wins() {
    let plan = planned(&[
        ca(),
        gateway("gw", &["http 80 HTTP"], ""),
        policy(
            "old",
            "name: web",
            &format!("hostname: old.test, {CA}, subjectAltNames: [{{type: URI, uri: 'spiffe://a'}}]"),
        ),
        policy("new", "name: web", &format!("hostname: new.test, {CA}")),
        policy("unused", "name: none", &format!("hostname: none.test, {CA}")),
        http_route("a", "{name: gw}", &[], &to("/", "web:80")),
    ]);
    assert_eq!(routes(&plan), ["80 *: / -> https old.test 10.0.0.1:8080"]);
    let status = |name: &str| {
        let status = write_of(&plan, Kind::BackendTlsPolicy, name)?;
        let ancestors = status.get("ancestors").and_then(Value::as_array)?;
        Some(ancestors.iter().map(|one| conditions(one.get("conditions").unwrap())).collect::<Vec<_>>().join("; "))
    };
    assert_eq!(status("old").as_deref(), Some("+Accepted +ResolvedRefs"));
    assert_eq!(status("new").as_deref(), Some("-Accepted=Conflicted +ResolvedRefs"));
    assert_eq!(status("unused"), None);
    let route = &plan.table.listeners[&80.into()].hosts[&HostPattern::Any].routes[0];
    let Action::Forward(backends) = &route.action else { panic!("{route:?}") };
    let BackendTarget::Endpoints(backend) = &backends[0].target else { panic!("{route:?}") };
    let BackendProtocol::Https(tls) = &backend.protocol else { panic!("{route:?}") };
    assert_eq!(tls.alternative_names, [AlternativeName::Uri("spiffe://a".to_owned())]);
}

#[test]
fn policy_without_valid_cas_fails_its_requests() {
    let check = |validation: &str, expect: &str| {
        let malformed = "---\nkind: ConfigMap\nmetadata: {name: bad, namespace: default}\ndata: {ca.crt: none}\n";
        let plan = planned(&[
            ca(),
            malformed.to_owned(),
            gateway("gw", &["http 80 HTTP"], ""),
            policy("p", "name: web", &format!("hostname: a.test, {validation}")),
            http_route("a", "{name: gw}", &[], &to("/", "web:80")),
        ]);
        let status = write_of(&plan, Kind::BackendTlsPolicy, "p").unwrap();
        let ancestor = &status.get("ancestors").and_then(Value::as_array).unwrap()[0];
        assert_eq!(conditions(ancestor.get("conditions").unwrap()), expect, "{validation}");
        let served = expect.starts_with('+');
        assert_eq!(routes(&plan)[0].ends_with(" -> 500"), !served, "{validation}");
    };
    let reference = |kind: &str, name: &str| format!("{{group: '', kind: {kind}, name: {name}}}");
    let list = |references: &[String]| format!("caCertificateRefs: [{}]", references.join(", "));
    let invalid = "-Accepted=NoValidCACertificate -ResolvedRefs=InvalidCACertificateRef";
    check(&list(&[reference("ConfigMap", "none")]), invalid);
    check(&list(&[reference("ConfigMap", "bad")]), invalid);
    check(&list(&[reference("Secret", "ca")]), "-Accepted=NoValidCACertificate -ResolvedRefs=InvalidKind");
    check(
        &list(&[reference("ConfigMap", "none"), reference("ConfigMap", "ca")]),
        "+Accepted -ResolvedRefs=InvalidCACertificateRef",
    );
    check("wellKnownCACertificates: System", "-Accepted=Invalid +ResolvedRefs");
}
