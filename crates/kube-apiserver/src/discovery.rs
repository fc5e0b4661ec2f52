//! Non-resource endpoints: health, version, metrics, discovery and OpenAPI.

use api::kind::{Kind, Version};
use api_registry::negotiate::{FORMS, ResponseFormat, negotiate};
use apimachinery::{Object, Value, json};
use auth::service_account::openid;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, VARY,
};
use openapi::discovery::{self, AggregatedVersion};
use openapi::{CompressedDocument, merged, v2, v3};

use crate::VERSION;
use crate::request_info::RequestInfo;
use crate::response::{self, HttpResponse, PLAIN};
use crate::state::State;

/// Media types of aggregated discovery as clients write them in `Accept`.
const AGGREGATED: [(&str, AggregatedVersion, &str); 2] = [
    (
        "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        AggregatedVersion::V2,
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    ),
    (
        "g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        AggregatedVersion::V2Beta1,
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    ),
];

/// Serves a non-resource path. Returns `None` if the path does not exist.
pub async fn serve(state: &State, request: &RequestInfo) -> Option<HttpResponse> {
    let path = request.info.path.trim_end_matches('/');
    if let Some(response) = state.health.serve(path, request.uri.query().unwrap_or_default()).await {
        return Some(response);
    }
    match path {
        "/version" => Some(indented(&version())),
        "/openapi/v2" => Some(swagger(state, request)),
        "/openapi/v3" => {
            let own = with_table(state, v3::index);
            Some(plain(&state.aggregation.with_foreign(|foreign| merged::index(own, foreign))))
        }
        "/metrics" => Some(metrics(state.metrics.text(|out| {
            state.storage.print_metrics(out);
            state.filters.fairness.print_metrics(out);
        }))),
        component_base::health::SLIS_PATH => Some(metrics(state.health.slis())),
        openid::DISCOVERY_PATH | openid::KEYS_PATH => issuer(state, path),
        "" => Some(with_table(state, |table| indented(&json::to_vec(&paths(table))))),
        _ => match path.strip_prefix("/openapi/v3/") {
            Some(document) => with_table(state, |table| openapi3(state, request, table, document)),
            None => with_table(state, |table| described(state, request, table, path)),
        },
    }
}

fn with_table<R>(state: &State, make: impl FnOnce(&openapi::Table<'_>) -> R) -> R {
    let table = state.storage.table();
    let served = |_: &Kind, version: &Version| version.served;
    make(&openapi::Table { kinds: &table.kinds, served: &served })
}

/// Serves discovery: groups, versions and resources.
fn described(state: &State, request: &RequestInfo, table: &openapi::Table<'_>, path: &str) -> Option<HttpResponse> {
    let aggregated = aggregated(request);
    let accepted = negotiate(header(request, &ACCEPT), request.is_pretty(), FORMS);
    let accepted = accepted.unwrap_or(ResponseFormat { pretty: request.is_pretty(), ..PLAIN });
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let document = match (parts.as_slice(), aggregated) {
        (["api"], Some((form, media))) => {
            return Some(tagged(request, &discovery::legacy_aggregated(table, form), accepted, media));
        }
        (["apis"], Some((form, media))) => {
            let own = discovery::aggregated(table, form);
            let all = state.aggregation.with_foreign(|foreign| merged::aggregated(table, own, foreign));
            return Some(tagged(request, &all, accepted, media));
        }
        (["api"], None) => discovery::legacy_versions(table, &state.external_address),
        (["apis"], None) => {
            let own = discovery::groups(table);
            state.aggregation.with_foreign(|foreign| merged::groups(table, own, foreign))
        }
        (["api", version], _) => discovery::resources(table, "", version)?,
        (["apis", group], _) => {
            let own = discovery::group(table, group);
            state.aggregation.with_foreign(|foreign| merged::group(table, group, own, foreign))?
        }
        (["apis", group, version], _) => discovery::resources(table, group, version)?,
        _ => return None,
    };
    Some(response::encoded(200, &document, accepted, None))
}

/// Returns the aggregated discovery form if the client prefers one.
fn aggregated(request: &RequestInfo) -> Option<(AggregatedVersion, &'static str)> {
    let compact: String = header(request, &ACCEPT).chars().filter(|letter| !letter.is_whitespace()).collect();
    compact.split(',').find_map(|clause| {
        let (_, parameters) = clause.split_once(';')?;
        let found = AGGREGATED.iter().find(|(required, ..)| required.split(';').all(|word| parameters.contains(word)));
        found.map(|(_, form, media)| (*form, *media))
    })
}

/// Serves a document with an ETag; returns 304 if the client has the document already.
fn tagged(request: &RequestInfo, document: &Value, accepted: ResponseFormat, media: &'static str) -> HttpResponse {
    let line = response::as_json(document);
    let tag = format!("\"{}\"", openapi::etag(&line));
    if header(request, &IF_NONE_MATCH) == tag {
        return stamped(response::bytes(304, media, Vec::new()), &tag);
    }
    let mut response = response::json(200, line, accepted);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    stamped(response, &tag)
}

fn stamped(mut response: HttpResponse, tag: &str) -> HttpResponse {
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(ETAG, tag);
    }
    response
}

/// Serves OpenAPI v2 as JSON or protobuf.
fn swagger(state: &State, request: &RequestInfo) -> HttpResponse {
    with_table(state, |table| {
        let protobuf = header(request, &ACCEPT).contains("com.github.proto-openapi.spec.v2");
        let (key, media) = if protobuf { ("v2.pb", v2::PROTOBUF) } else { ("v2", "application/json") };
        let packed = state.aggregation.with_foreign(|foreign| {
            state.documents.get(key, merged::swagger_hash(v2::document_hash(table), foreign), || {
                let document = merged::swagger(v2::document(table), foreign);
                if protobuf {
                    CompressedDocument::new(&v2::to_protobuf(&document))
                } else {
                    CompressedDocument::json(&document)
                }
            })
        });
        packed_response(request, &packed, media)
    })
}

/// Serves an OpenAPI v3 document. With the current hash in the URL the response can be cached forever.
fn openapi3(state: &State, request: &RequestInfo, table: &openapi::Table<'_>, document: &str) -> Option<HttpResponse> {
    let hash = v3::document_hash(table, document)?;
    let key = format!("v3/{document}");
    let packed = state.documents.get(&key, hash.clone(), || {
        let document = v3::document(table, document).expect("every hash belongs to a document");
        CompressedDocument::json(&document)
    });
    let mut response = packed_response(request, &packed, "application/json");
    if request.query.get("hash") == Some(hash.as_str()) {
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    }
    Some(response)
}

fn packed_response(request: &RequestInfo, packed: &CompressedDocument, media: &'static str) -> HttpResponse {
    let tag = format!("\"{}\"", packed.etag());
    if header(request, &IF_NONE_MATCH) == tag {
        return stamped(response::bytes(304, media, Vec::new()), &tag);
    }
    if header(request, &ACCEPT_ENCODING).contains("gzip") {
        let mut response = stamped(response::bytes(200, media, packed.gzip().to_vec()), &tag);
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        return response;
    }
    stamped(response::bytes(200, media, packed.bytes()), &tag)
}

/// Serves the OIDC discovery document and the JWKS of the service account issuer.
fn issuer(state: &State, path: &str) -> Option<HttpResponse> {
    let accounts = state.filters.authenticators.service_accounts.as_ref()?;
    let keys: Vec<_> = accounts.checker.keys.0.iter().map(|(_, key)| key.clone()).collect();
    if path == openid::KEYS_PATH {
        let body = json::to_vec(&auth::keys::jwks(&keys));
        return Some(cached(response::bytes(200, "application/jwk-set+json", body)));
    }
    let document =
        openid::discovery(&accounts.config.issuer, &accounts.keys_uri, &state.external_address, &keys).ok()?;
    Some(cached(plain(&document)))
}

fn cached(mut response: HttpResponse) -> HttpResponse {
    let seconds = openid::MAX_AGE_SECONDS;
    if let Ok(value) = HeaderValue::from_str(&format!("public, max-age={seconds}")) {
        response.headers_mut().insert(CACHE_CONTROL, value);
    }
    response
}

/// Returns JSON that upstream always indents.
fn indented(line: &[u8]) -> HttpResponse {
    response::bytes(200, "application/json", json::indent(line))
}

fn plain(document: &Value) -> HttpResponse {
    response::bytes(200, "application/json", json::to_vec(document))
}

fn header<'a>(request: &'a RequestInfo, name: &http::HeaderName) -> &'a str {
    request.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Returns the list of paths that `/` serves.
fn paths(table: &openapi::Table<'_>) -> Value {
    let mut paths: Vec<String> = vec!["/.well-known/openid-configuration".into(), "/api".into(), "/api/v1".into()];
    paths.push("/apis".into());
    for group in table.groups().into_iter().filter(|group| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(table.versions(group).into_iter().map(|version| format!("/apis/{group}/{version}")));
    }
    let others = [
        "/healthz",
        "/livez",
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ];
    paths.extend(others.map(str::to_owned));
    paths.sort();
    let mut document = Object::new();
    document.insert("paths", paths.iter().map(|path| Value::from(path.as_str())).collect::<Vec<_>>());
    Value::Object(document)
}

/// Returns the `/version` document with its fields in upstream's order.
fn version() -> Vec<u8> {
    let fields = [
        ("major", "1"),
        ("minor", "36"),
        ("emulationMajor", "1"),
        ("emulationMinor", "36"),
        ("minCompatibilityMajor", "1"),
        ("minCompatibilityMinor", "35"),
        ("gitVersion", VERSION),
        ("gitCommit", ""),
        ("gitTreeState", "clean"),
        ("buildDate", "1970-01-01T00:00:00Z"),
        ("goVersion", ""),
        ("compiler", "rustc"),
        ("platform", "linux/amd64"),
    ];
    let fields = fields.map(|(key, value)| format!("\"{key}\":\"{value}\""));
    format!("{{{}}}", fields.join(",")).into_bytes()
}

fn metrics(text: String) -> HttpResponse {
    response::bytes(200, "text/plain; version=0.0.4; charset=utf-8", text)
}
