//! Attachment of routes, and their statuses.

use super::*;

/// Plans an HTTPRoute `a` and compares its conditions for its parents.
fn check_route(listeners: &[&str], parent: &str, hostnames: &[&str], expect: &str) {
    let documents = [gateway("gw", listeners, ""), http_route("a", parent, hostnames, &to("/", "web:80"))];
    assert_eq!(route_status(&planned(&documents), "a"), [expect], "{listeners:?} {parent} {hostnames:?}");
}

#[test]
fn parent_is_selected_by_section_and_port() {
    let listeners = ["one 80 HTTP", "two 81 HTTP"];
    let accepted = "+Accepted +ResolvedRefs";
    let missing = "-Accepted=NoMatchingParent +ResolvedRefs";
    check_route(&listeners, "{name: gw}", &[], accepted);
    check_route(&listeners, "{name: gw, sectionName: two}", &[], accepted);
    check_route(&listeners, "{name: gw, port: 81}", &[], accepted);
    check_route(&listeners, "{name: gw, sectionName: two, port: 81}", &[], accepted);
    check_route(&listeners, "{name: gw, sectionName: two, port: 80}", &[], missing);
    check_route(&listeners, "{name: gw, sectionName: three}", &[], missing);
    check_route(&listeners, "{name: gw, port: 82}", &[], missing);
}

#[test]
fn listener_must_allow_the_kind_and_the_host_name() {
    let rejected = "-Accepted=NotAllowedByListeners +ResolvedRefs";
    check_route(&["one 80 HTTP - allowedRoutes: {kinds: [{kind: GRPCRoute}]}"], "{name: gw}", &[], rejected);
    let no_host = "-Accepted=NoMatchingListenerHostname +ResolvedRefs";
    check_route(&["one 80 HTTP a.test"], "{name: gw}", &["b.test"], no_host);
    check_route(&["one 80 HTTP a.test"], "{name: gw}", &["b.test", "a.test"], "+Accepted +ResolvedRefs");
}

#[test]
fn listener_must_allow_the_namespace() {
    let check = |from: &str, expect: &str| {
        let listener = format!("one 80 HTTP - allowedRoutes: {{namespaces: {from}}}");
        let route = http_route("apps/a", "{name: gw, namespace: default}", &[], &to("/", "app:80"));
        let plan = planned(&[gateway("gw", &[&listener], ""), route]);
        assert_eq!(route_status(&plan, "a"), [expect], "{from}");
    };
    let rejected = "-Accepted=NotAllowedByListeners +ResolvedRefs";
    let accepted = "+Accepted +ResolvedRefs";
    check("{from: All}", accepted);
    check("{from: Same}", rejected);
    check("{from: Selector, selector: {matchLabels: {team: b}}}", accepted);
    check("{from: Selector, selector: {matchLabels: {team: a}}}", rejected);
    check("{from: Selector}", rejected);
}

#[test]
fn attached_routes_are_counted_per_listener() {
    let plan = planned(&[
        gateway("gw", &["one 80 HTTP a.test", "two 81 HTTP", "none 443 HTTPS"], ""),
        http_route("a", "{name: gw}", &["a.test"], &to("/", "web:80")),
        http_route("b", "{name: gw, sectionName: two}, {name: gw, port: 81}", &["b.test"], &to("/", "none:80")),
    ]);
    let counts: Vec<String> =
        gateway_status(&plan, "gw")[1..].iter().map(|line| line.split(" HTTP").next().unwrap().to_owned()).collect();
    assert_eq!(counts, ["one 1", "two 2", "none 1"]);
}

#[test]
fn http_and_grpc_routes_do_not_share_a_host_name() {
    let rules = "{backendRefs: [{name: web, port: 80}]}";
    let plan = planned(&[
        gateway("gw", &["one 80 HTTP"], ""),
        route_object("GRPCRoute", "grpc", "{name: gw}", &["a.test"], rules),
        http_route("a", "{name: gw}", &["*.test"], &to("/", "web:80")),
        http_route("b", "{name: gw}", &["b.test"], &to("/", "web:80")),
    ]);
    assert_eq!(route_status(&plan, "a"), ["-Accepted=HostnameConflict +ResolvedRefs"]);
    assert_eq!(route_status(&plan, "b"), ["+Accepted +ResolvedRefs"]);
    assert_eq!(parents(write_of(&plan, Kind::GrpcRoute, "grpc").unwrap()), ["+Accepted +ResolvedRefs"]);
}

#[test]
fn parents_of_other_controllers_are_kept() {
    let foreign = "{controllerName: example.com/other, parentRef: {name: x}, conditions: []}";
    let stale = "{controllerName: knarr.io/gateway-controller, parentRef: {name: gone}, conditions: []}";
    let route = http_route("a", "{name: gw}, {name: x}", &[], &to("/", "web:80"))
        + &format!("status: {{parents: [{foreign}, {stale}]}}\n");
    let plan = planned(&[gateway("gw", &["one 80 HTTP"], ""), route]);
    let status = write_of(&plan, Kind::HttpRoute, "a").unwrap();
    let parents = status.get("parents").and_then(Value::as_array).unwrap();
    let names: Vec<_> = parents.iter().map(|parent| parent.str_at(&["parentRef", "name"]).unwrap()).collect();
    assert_eq!(names, ["x", "gw"]);
}

#[test]
fn unsupported_values_drop_their_rules() {
    let regex = "{matches: [{path: {type: RegularExpression, value: /a.*}}], backendRefs: [{name: web, port: 80}]}";
    let extension = "{filters: [{type: ExtensionRef, extensionRef: {group: x, kind: Y, name: z}}]}";
    let check = |rules: &str, expect: &str, expect_routes: &str| {
        let plan = planned(&[gateway("gw", &["one 80 HTTP"], ""), http_route("a", "{name: gw}", &[], rules)]);
        assert_eq!(route_status(&plan, "a"), [expect]);
        assert_eq!(routes(&plan), [expect_routes]);
    };
    check(regex, "-Accepted=UnsupportedValue +ResolvedRefs", "80 *: ");
    check(extension, "-Accepted=UnsupportedValue +ResolvedRefs", "80 *: ");
    check(
        &format!("{regex}, {}", to("/b", "web:80")),
        "+Accepted +ResolvedRefs +PartiallyInvalid=UnsupportedValue",
        "80 *: /b -> 10.0.0.1:8080",
    );
}
