//! Routes of the table and their precedence.

use super::*;
use crate::routing::{CorsNames, CorsOrigins, CorsPolicy, OriginPattern};

const HTTP: &str = "http 80 HTTP";

#[test]
fn ports_are_closed_without_a_gateway_of_this_class() {
    let other = gateway("gw", &[HTTP], "").replace("gatewayClassName: knarr", "gatewayClassName: other");
    check(&[other, http_route("a", "{name: gw}", &[], &to("/", "web:80"))], &[]);
}

#[test]
fn route_serves_the_hosts_that_it_shares_with_the_listener() {
    check(
        &[
            gateway("gw", &["http 80 HTTP *.test"], ""),
            http_route("a", "{name: gw}", &["a.test", "b.example", "*.b.test"], &to("/", "web:80")),
        ],
        &["80 a.test: / -> 10.0.0.1:8080", "80 *.b.test: / -> 10.0.0.1:8080", "80 *.test: "],
    );
}

#[test]
fn requests_prefer_the_more_specific_host_then_path_method_headers_and_query() {
    let rules = "{matches: [{path: {value: /a}}, {path: {value: /a}, method: GET}, \
         {path: {value: /a}, headers: [{name: x, value: v}]}, {path: {value: /a}, queryParams: [{name: q, value: r}]}, \
         {path: {type: Exact, value: /z}}, {path: {value: /a/b/}}], backendRefs: [{name: web, port: 80}]}";
    check(
        &[
            gateway("gw", &[HTTP], ""),
            http_route("wide", "{name: gw}", &["*.test"], &to("/wide", "web:80")),
            http_route("a", "{name: gw}", &["a.test"], rules),
        ],
        &[
            "80 a.test: =/z -> 10.0.0.1:8080; /a/b -> 10.0.0.1:8080; /a GET -> 10.0.0.1:8080; \
             /a x:v -> 10.0.0.1:8080; /a ?q=r -> 10.0.0.1:8080; /a -> 10.0.0.1:8080; /wide -> 10.0.0.1:8080",
            "80 *.test: /wide -> 10.0.0.1:8080",
            "80 *: ",
        ],
    );
}

#[test]
fn older_route_wins_then_the_first_name() {
    let second = "{name: gw}";
    let plan = planned(&[
        gateway("gw", &[HTTP], ""),
        http_route("b", second, &[], &to("/", "web:80")),
        http_route("a", second, &[], &to("/", "web:90")),
    ]);
    assert_eq!(routes(&plan), ["80 *: / -> 10.0.0.1:8080; / -> h2c 10.0.0.1:9090"]);
}

#[test]
fn listeners_are_isolated_by_host_name() {
    check(
        &[
            gateway("gw", &["any 80 HTTP", "wild 80 HTTP *.test", "one 80 HTTP a.test"], ""),
            http_route("any", "{name: gw, sectionName: any}", &[], &to("/any", "web:80")),
            http_route("wild", "{name: gw, sectionName: wild}", &["a.test", "b.test"], &to("/wild", "web:80")),
        ],
        &["80 a.test: ", "80 b.test: /wild -> 10.0.0.1:8080", "80 *.test: ", "80 *: /any -> 10.0.0.1:8080"],
    );
}

#[test]
fn weights_filters_and_timeouts_are_kept() {
    let rules = "{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}]}}, \
         {type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}, \
         {type: RequestMirror, requestMirror: {backendRef: {name: web, port: 90}, percent: 20}}], \
         timeouts: {request: 500ms, backendRequest: 0s}, \
         backendRefs: [{name: web, port: 80, weight: 3}, {name: web, port: 90, weight: 0, \
         filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [c]}}]}]}";
    let plan = check(
        &[gateway("gw", &[HTTP], ""), http_route("a", "{name: gw}", &[], rules)],
        &["80 *: / -> 3x10.0.0.1:8080 0xh2c 10.0.0.1:9090 +request +rewrite +mirror"],
    );
    let route = &plan.table.listeners[&80.into()].hosts[&HostPattern::Any].routes[0];
    assert_eq!(route.options.request_timeout, Some(std::time::Duration::from_millis(500)));
    assert_eq!(route.options.backend_timeout, None);
    let Filter::Mirror(mirror) = &route.filters[2] else { panic!("{:?}", route.filters) };
    assert_eq!((mirror.numerator, mirror.denominator), (20, 100));
}

#[test]
fn cors_filter_becomes_an_option_of_the_route() {
    let rules = "{filters: [{type: CORS, cors: {allowOrigins: ['https://*.a.test'], allowMethods: ['*'], \
         allowHeaders: [x-a], allowCredentials: true}}], backendRefs: [{name: web, port: 80}]}";
    let plan =
        check(&[gateway("gw", &[HTTP], ""), http_route("a", "{name: gw}", &[], rules)], &["80 *: / -> 10.0.0.1:8080"]);
    let cors = plan.table.listeners[&80.into()].hosts[&HostPattern::Any].routes[0].options.cors.clone().unwrap();
    let origins = vec![OriginPattern::parse("https://*.a.test").unwrap()];
    assert_eq!(
        *cors,
        CorsPolicy {
            origins: CorsOrigins::Some(origins),
            credentials: true,
            methods: CorsNames::Any,
            request_headers: CorsNames::Some(vec!["x-a".to_owned()]),
            exposed_headers: Vec::new(),
            max_age_seconds: 5,
        }
    );
}

#[test]
fn rule_without_backends_redirects_or_fails() {
    let redirect = "{filters: [{type: RequestRedirect, requestRedirect: {scheme: https, statusCode: 301}}]}";
    check(
        &[
            gateway("gw", &[HTTP], ""),
            http_route("a", "{name: gw}", &["a.test"], redirect),
            http_route("b", "{name: gw}", &["b.test"], "{}"),
        ],
        &["80 a.test: / -> redirect 301", "80 b.test: / -> 500", "80 *: "],
    );
}

#[test]
fn grpc_methods_become_paths() {
    let rules = "{matches: [{method: {service: pkg.Echo, method: Get}}, {method: {service: pkg.Echo}}, \
         {method: {method: List}}, {headers: [{name: x, value: v}]}], backendRefs: [{name: web, port: 80}]}";
    check(
        &[gateway("gw", &[HTTP], ""), route_object("GRPCRoute", "a", "{name: gw}", &[], rules)],
        &["80 *: =/pkg.Echo/Get -> h2c 10.0.0.1:8080; /pkg.Echo -> h2c 10.0.0.1:8080; \
           */List -> h2c 10.0.0.1:8080; / x:v -> h2c 10.0.0.1:8080"],
    );
}

#[test]
fn gateways_and_ingresses_share_ports_by_host_name() {
    let ingress = "---\nkind: IngressClass\nmetadata: {name: knarr}\nspec: {controller: knarr.io/ingress-controller}\n\
         ---\nkind: Ingress\nmetadata: {name: i, namespace: default}\nspec: {ingressClassName: knarr, rules: [\
         {host: a.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}, \
         {host: b.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}\n";
    let plan = planned(&[
        ingress.to_owned(),
        gateway("gw", &[HTTP, "tls 80 HTTPS a.test"], ""),
        gateway("late", &["taken 443 HTTP"], ""),
        http_route("a", "{name: gw}", &["a.test"], &to("/", "web:90")),
    ]);
    let on_80: Vec<_> = routes(&plan).into_iter().filter(|line| line.starts_with("80 ")).collect();
    assert_eq!(
        on_80,
        ["80 a.test: / -> 10.0.0.1:8080", "80 b.test: / -> 10.0.0.1:8080"],
        "both listeners of gw have port 80 with another protocol"
    );
    assert_eq!(
        gateway_status(&plan, "late"),
        [
            "-Accepted=ListenersNotValid -Programmed=Invalid [192.0.2.1]",
            "taken 0 HTTPRoute,GRPCRoute -Accepted=PortUnavailable +ResolvedRefs -Programmed=Invalid",
        ]
    );
    let plan = planned(&[
        ingress.to_owned(),
        gateway("gw", &[HTTP], ""),
        http_route("a", "{name: gw}", &["a.test"], &to("/", "web:90")),
    ]);
    let on_80: Vec<_> = routes(&plan).into_iter().filter(|line| line.starts_with("80 ")).collect();
    assert_eq!(
        on_80,
        ["80 a.test: / -> h2c 10.0.0.1:9090; / -> 10.0.0.1:8080", "80 b.test: / -> 10.0.0.1:8080", "80 *: "]
    );
}
