//! Statuses of classes, Gateways and listeners, and addresses.

use super::*;
use crate::routing::ListenAddress;

const HTTP: &str = "http 80 HTTP";
const BOTH: &str = "HTTPRoute,GRPCRoute";

/// Plans one Gateway and compares its status.
fn check_status(listeners: &[&str], rest: &str, expect: &[&str]) {
    let plan = planned(&[gateway("gw", listeners, rest), tls_secret("cert")]);
    assert_eq!(gateway_status(&plan, "gw"), expect);
}

#[test]
fn class_of_this_controller_is_accepted_with_its_features() {
    let plan = planned(&[]);
    let status = write_of(&plan, Kind::GatewayClass, "knarr").unwrap();
    assert_eq!(conditions(status.get("conditions").unwrap()), "+Accepted");
    assert_eq!(status.get("supportedFeatures").and_then(Value::as_array).unwrap().len(), FEATURES.len());
    assert!(write_of(&plan, Kind::GatewayClass, "other").is_none());
    assert!(FEATURES.is_sorted(), "the features are sorted");
}

#[test]
fn valid_listener_is_programmed() {
    check_status(
        &[HTTP, "https 443 HTTPS - tls: {certificateRefs: [{name: cert}]}"],
        "",
        &[
            "+Accepted +Programmed [192.0.2.1]",
            &format!("http 0 {BOTH} +Accepted +ResolvedRefs +Programmed"),
            &format!("https 0 {BOTH} +Accepted +ResolvedRefs +Programmed"),
        ],
    );
}

#[test]
fn unsupported_protocols_are_not_accepted() {
    check_status(
        &[HTTP, "tcp 81 TCP"],
        "",
        &[
            "+Accepted=ListenersNotValid +Programmed [192.0.2.1]",
            &format!("http 0 {BOTH} +Accepted +ResolvedRefs +Programmed"),
            "tcp 0  -Accepted=UnsupportedProtocol +ResolvedRefs -Programmed=Invalid",
        ],
    );
    check_status(
        &["tcp 81 TCP"],
        "",
        &[
            "-Accepted=ListenersNotValid -Programmed=Invalid [192.0.2.1]",
            "tcp 0  -Accepted=UnsupportedProtocol +ResolvedRefs -Programmed=Invalid",
        ],
    );
}

#[test]
fn unknown_kinds_of_routes_are_reported() {
    check_status(
        &[
            "one 80 HTTP - allowedRoutes: {kinds: [{kind: Other}, {kind: HTTPRoute}]}",
            "two 81 HTTP - allowedRoutes: {kinds: [{kind: Other}]}",
        ],
        "",
        &[
            "+Accepted +Programmed [192.0.2.1]",
            "one 0 HTTPRoute +Accepted -ResolvedRefs=InvalidRouteKinds +Programmed",
            "two 0  +Accepted -ResolvedRefs=InvalidRouteKinds -Programmed=Invalid",
        ],
    );
}

#[test]
fn certificates_must_be_secrets_that_the_gateway_may_use() {
    let listener = |name: &str, port: u16, reference: &str| {
        format!("{name} {port} HTTPS - tls: {{certificateRefs: [{reference}]}}")
    };
    let listeners = [
        listener("none", 1, "{name: none}"),
        listener("kind", 2, "{name: cert, kind: Other}"),
        listener("group", 3, "{name: cert, group: example.com}"),
        listener("far", 4, "{name: cert, namespace: apps}"),
        listener("several", 5, "{name: none}, {name: cert}"),
    ];
    let listeners: Vec<&str> = listeners.iter().map(String::as_str).collect();
    let invalid =
        |name: &str| format!("{name} 0 {BOTH} +Accepted -ResolvedRefs=InvalidCertificateRef -Programmed=Invalid");
    check_status(
        &listeners,
        "",
        &[
            "+Accepted +Programmed [192.0.2.1]",
            &invalid("none"),
            &invalid("kind"),
            &invalid("group"),
            &format!("far 0 {BOTH} +Accepted -ResolvedRefs=RefNotPermitted -Programmed=Invalid"),
            &format!("several 0 {BOTH} +Accepted +ResolvedRefs +Programmed"),
        ],
    );
}

#[test]
fn reference_grant_allows_a_certificate_of_another_namespace() {
    let secret = tls_secret("cert").replace("namespace: default", "namespace: apps");
    let grant = |to: &str| {
        format!(
            "---\nkind: ReferenceGrant\nmetadata: {{name: g, namespace: apps}}\nspec: {{from: \
             [{{group: gateway.networking.k8s.io, kind: Gateway, namespace: default}}], to: [{to}]}}\n"
        )
    };
    let check = |to: &str, expect: &str| {
        let listener = "https 443 HTTPS - tls: {certificateRefs: [{name: cert, namespace: apps}]}";
        let plan = planned(&[secret.clone(), grant(to), gateway("gw", &[listener], "")]);
        assert_eq!(gateway_status(&plan, "gw")[1], format!("https 0 {BOTH} +Accepted {expect}"), "{to}");
    };
    check("{group: '', kind: Secret}", "+ResolvedRefs +Programmed");
    check("{group: '', kind: Secret, name: cert}", "+ResolvedRefs +Programmed");
    check("{group: '', kind: Secret, name: other}", "-ResolvedRefs=RefNotPermitted -Programmed=Invalid");
    check("{group: '', kind: Service}", "-ResolvedRefs=RefNotPermitted -Programmed=Invalid");
}

#[test]
fn listeners_of_one_port_with_several_protocols_conflict() {
    let plan = planned(&[
        tls_secret("cert"),
        gateway("gw", &[HTTP, "tls 80 HTTPS - tls: {certificateRefs: [{name: cert}]}", "ok 81 HTTP"], ""),
    ]);
    let conflict = "-Accepted=ProtocolConflict +Conflicted=ProtocolConflict +ResolvedRefs -Programmed=Invalid";
    assert_eq!(
        gateway_status(&plan, "gw"),
        [
            "+Accepted=ListenersNotValid +Programmed [192.0.2.1]".to_owned(),
            format!("http 0 {BOTH} {conflict}"),
            format!("tls 0 {BOTH} {conflict}"),
            format!("ok 0 {BOTH} +Accepted +ResolvedRefs +Programmed"),
        ]
    );
    assert_eq!(routes(&plan), ["81 *: "]);
}

#[test]
fn https_listeners_with_overlapping_host_names_are_reported_and_isolated() {
    let tls = "tls: {certificateRefs: [{name: cert}]}";
    let plan = planned(&[
        tls_secret("cert"),
        gateway("gw", &[&format!("wild 443 HTTPS *.test {tls}"), &format!("one 443 HTTPS a.test {tls}")], ""),
    ]);
    assert!(gateway_status(&plan, "gw")[1].ends_with("+OverlappingTLSConfig=OverlappingHostnames"));
    let served = plan.table.listeners[&443.into()].tls.as_ref().unwrap();
    assert_eq!(served.isolated.iter().map(host).collect::<Vec<_>>(), ["a.test", "*.test"]);
    assert_eq!(served.certificates.len(), 2);
    assert!(served.default.is_none());
}

#[test]
fn gateway_settings_that_are_not_enforced_are_rejected() {
    check_status(
        &[HTTP, "https 443 HTTPS - tls: {certificateRefs: [{name: cert}]}"],
        ", tls: {frontend: {default: {validation: {caCertificateRefs: [{kind: ConfigMap, name: ca}]}}}}",
        &[
            "+Accepted=ListenersNotValid +Programmed [192.0.2.1]",
            &format!("http 0 {BOTH} +Accepted +ResolvedRefs +Programmed"),
            &format!("https 0 {BOTH} -Accepted=UnsupportedValue +ResolvedRefs -Programmed=Invalid"),
        ],
    );
    check_status(
        &[HTTP],
        ", infrastructure: {parametersRef: {group: example.com, kind: X, name: x}}",
        &[
            "-Accepted=InvalidParameters -Programmed=Invalid []",
            &format!("http 0 {BOTH} +Accepted +ResolvedRefs -Programmed=Invalid"),
        ],
    );
}

#[test]
fn requested_addresses_must_belong_to_the_controller() {
    let check = |addresses: &str, expect: &str| {
        let plan = planned(&[gateway("gw", &[HTTP], &format!(", addresses: [{addresses}]"))]);
        assert_eq!(gateway_status(&plan, "gw")[0], expect, "{addresses}");
    };
    check("{value: 192.0.2.1}", "+Accepted +Programmed [192.0.2.1]");
    check("{type: IPAddress}", "+Accepted +Programmed [192.0.2.1]");
    check("{value: 192.0.2.9}", "+Accepted -Programmed=AddressNotUsable []");
    check("{value: 192.0.2.9}, {value: 192.0.2.1}", "+Accepted -Programmed=AddressNotUsable [192.0.2.1]");
    check("{type: Hostname, value: a.test}", "-Accepted=UnsupportedAddress -Programmed=Invalid []");
}

#[test]
fn gateways_with_the_same_listeners_get_addresses_of_their_own() {
    let gateway_addresses = vec![IpAddr::from([192, 0, 2, 2]), IpAddr::from([192, 0, 2, 3])];
    let settings = Settings { gateway_addresses, ..settings() };
    let other = gateway("other", &["http 80 HTTP a.test"], "");
    let kept = gateway("kept", &["http 81 HTTP"], "") + "status: {addresses: [{value: 192.0.2.3}]}\n";
    let documents = [
        gateway("one", &[HTTP], ""),
        gateway("two", &[HTTP], ""),
        other,
        kept,
        gateway("three", &[HTTP], ""),
        gateway("four", &[HTTP], ""),
        http_route("a", "{name: two}", &[], &to("/", "web:80")),
    ];
    let plan = plan(&settings, &observe(&documents.concat()), NOW);
    let address = |name: &str| gateway_status(&plan, name)[0].split_once('[').unwrap().1.replace(']', "");
    let addresses = ["one", "two", "other", "kept", "three", "four"].map(address);
    assert_eq!(addresses, ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.3", "192.0.2.3", "192.0.2.1"]);
    assert_eq!(
        routes(&plan),
        ["80 a.test: ", "80 *: ", "192.0.2.2:80 *: / -> 10.0.0.1:8080", "192.0.2.3:80 *: ", "192.0.2.3:81 *: "]
    );
}

#[test]
fn gateways_that_share_an_address_merge() {
    check(
        &[
            gateway("one", &[HTTP], ""),
            gateway("two", &[HTTP], ""),
            http_route("a", "{name: one}", &[], &to("/a", "web:80")),
            http_route("b", "{name: two}", &[], &to("/b", "web:80")),
        ],
        &["80 *: /a -> 10.0.0.1:8080; /b -> 10.0.0.1:8080"],
    );
}

#[test]
fn port_that_cannot_be_opened_is_reported_and_stays_in_the_table() {
    let mut objects = observe(&gateway("gw", &[HTTP], ""));
    objects.unavailable.insert(ListenAddress::from(80), "in use".to_owned());
    let plan = plan(&settings(), &objects, NOW);
    assert_eq!(
        gateway_status(&plan, "gw"),
        [
            "-Accepted=ListenersNotValid -Programmed=Invalid [192.0.2.1]".to_owned(),
            format!("http 0 {BOTH} -Accepted=PortUnavailable +ResolvedRefs -Programmed=Invalid"),
        ]
    );
    assert_eq!(routes(&plan), ["80 *: "]);
}

#[test]
fn observed_status_is_not_written_again() {
    let documents = [gateway("gw", &[HTTP], ""), http_route("a", "{name: gw}", &[], &to("/", "web:80"))].concat();
    let first = plan(&settings(), &observe(&documents), NOW);
    assert_eq!(first.statuses.len(), 3);
    let mut objects = observe(&documents);
    for write in &first.statuses {
        let key = &write.subject.key;
        let gateway = &mut objects.gateway;
        match write.subject.kind {
            Kind::GatewayClass => {
                let entry = gateway.classes.entry(key).unwrap();
                let value = GatewayClass { status: write.status.clone(), ..entry.value.clone() };
                drop(gateway.classes.insert(Entry {
                    key: key.clone(),
                    revision: 9,
                    observed_at: Time::from_unix(0, 0),
                    value,
                }));
            }
            Kind::Gateway => {
                let entry = gateway.gateways.entry(key).unwrap();
                let value = Gateway { status: write.status.clone(), ..entry.value.clone() };
                drop(gateway.gateways.insert(Entry {
                    key: key.clone(),
                    revision: 9,
                    observed_at: Time::from_unix(0, 0),
                    value,
                }));
            }
            _ => {
                let entry = gateway.http_routes.entry(key).unwrap();
                let observed = write.status.get("parents").and_then(Value::as_array).unwrap().to_vec();
                let value = Route { observed, ..entry.value.clone() };
                drop(gateway.http_routes.insert(Entry {
                    key: key.clone(),
                    revision: 9,
                    observed_at: Time::from_unix(0, 0),
                    value,
                }));
            }
        }
    }
    let later = Time::from_unix(NOW.unix_seconds() + 60, 0);
    assert_eq!(plan(&settings(), &objects, later).statuses, []);
}
