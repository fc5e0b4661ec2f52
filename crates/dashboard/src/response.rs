//! Responses and their security headers.

use bytes::Bytes;
use client::{Body, transport};
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName,
    HeaderValue, IF_NONE_MATCH, LOCATION, REFERRER_POLICY, RETRY_AFTER, VARY, WARNING, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::{HeaderMap, Method, Response, StatusCode, response};
use http_body_util::Full;

use crate::assets::Asset;
use crate::rejection::Rejection;

/// The policy of the page: all resources are files of the same origin, and no other page can embed it.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
/// The policy of data, which is never rendered.
const DATA_POLICY: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const CROSS_ORIGIN_OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Media types of the API that are forwarded. Browsers render none of them as a document.
const DATA_TYPES: &[&str] = &["application/json", "application/yaml", "text/plain"];

/// Returns a page, script or style. Browsers cache it and revalidate it for each use.
pub(crate) fn asset(asset: &Asset, request: &HeaderMap) -> Response<Body> {
    let is_known = request
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| tag.trim().trim_start_matches("W/").as_bytes() == asset.etag.as_bytes());
    let mut response = Response::new(transport::body(Full::new(Bytes::new())));
    let headers = response.headers_mut();
    headers.insert(ETAG, asset.etag.clone());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return secured(response);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.media_type));
    let content = if accepts_gzip(request) {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        asset.gzip()
    } else {
        match asset.unpacked() {
            Ok(content) => content,
            Err(_) => return rejected(&Rejection::NotFound),
        }
    };
    secured(response.map(|_| transport::body(Full::new(content))))
}

/// Returns JSON of the dashboard itself.
pub(crate) fn data(code: StatusCode, json: Vec<u8>) -> Response<Body> {
    stream(code, transport::body(Full::new(Bytes::from(json))))
}

/// Returns a stream of JSON documents.
pub(crate) fn stream(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    as_data(response)
}

pub(crate) fn rejected(rejection: &Rejection) -> Response<Body> {
    let mut response = data(rejection.code(), rejection.body());
    if let Rejection::Method(_) = rejection {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE"));
    }
    response
}

/// Redirects to another path of the dashboard.
pub(crate) fn moved(path: &'static str) -> Response<Body> {
    let mut response = data(StatusCode::PERMANENT_REDIRECT, Vec::new());
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(path));
    response
}

/// Returns a response of the API server. Only listed headers are forwarded, and nothing that a browser would render.
pub(crate) fn forwarded(head: &response::Parts, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    for name in [WARNING, RETRY_AFTER, AUDIT_ID] {
        for value in head.headers.get_all(&name) {
            response.headers_mut().append(&name, value.clone());
        }
    }
    let media_type = head.headers.get(CONTENT_TYPE).filter(|value| is_data(value)).cloned();
    let media_type = media_type.unwrap_or_else(|| HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    as_data(response)
}

fn is_data(media_type: &HeaderValue) -> bool {
    let essence = media_type.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    DATA_TYPES.iter().any(|known| essence.eq_ignore_ascii_case(known))
}

fn accepts_gzip(request: &HeaderMap) -> bool {
    let accepted = request.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings = accepted.flat_map(|value| value.split(','));
    codings.any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        matches!(parts.next(), Some("gzip" | "*")) && !parts.any(|part| matches!(part, "q=0" | "q=0.0"))
    })
}

fn as_data(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(DATA_POLICY));
    secured(response)
}

fn secured(mut response: Response<Body>) -> Response<Body> {
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
        (CROSS_ORIGIN_OPENER_POLICY, "same-origin"),
        (PERMISSIONS_POLICY, "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Removes the body of a response to HEAD.
pub(crate) fn for_method(method: &Method, response: Response<Body>) -> Response<Body> {
    component_base::without_head_body(method, response, || transport::body(Full::new(Bytes::new())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_responses_cannot_be_rendered() {
        let check = |media_type: &'static str, expect: &str| {
            let mut upstream = Response::new(());
            upstream.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
            upstream.headers_mut().insert(LOCATION, HeaderValue::from_static("https://elsewhere.test/"));
            upstream.headers_mut().insert(http::header::SET_COOKIE, HeaderValue::from_static("a=b"));
            let (head, ()) = upstream.into_parts();
            let response = forwarded(&head, transport::body(Full::new(Bytes::new())));
            let headers = response.headers();
            assert_eq!(headers[CONTENT_TYPE], expect, "{media_type}");
            assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
            assert_eq!(headers[CONTENT_SECURITY_POLICY], DATA_POLICY);
            assert!(!headers.contains_key(LOCATION) && !headers.contains_key(http::header::SET_COOKIE));
        };
        check("application/json;as=Table", "application/json;as=Table");
        check("text/plain; charset=utf-8", "text/plain; charset=utf-8");
        check("text/html", "application/octet-stream");
        check("image/svg+xml", "application/octet-stream");
        check("text/plainish", "application/octet-stream");
    }

    #[test]
    fn gzip_is_sent_only_to_clients_that_accept_it() {
        let check = |value: &'static str, expect: bool| {
            let headers = [(ACCEPT_ENCODING, HeaderValue::from_static(value))].into_iter().collect();
            assert_eq!(accepts_gzip(&headers), expect, "{value}");
        };
        check("gzip, deflate, br", true);
        check("br;q=1.0, gzip;q=0.8", true);
        check("*", true);
        check("gzip;q=0", false);
        check("br", false);
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
