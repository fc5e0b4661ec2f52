//! HTTP responses to HEAD.

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, Response};
use http_body::Body;

/// Removes the body of a response to HEAD and keeps its length in `Content-Length`. hyper does this only for HTTP/1.
/// Over HTTP/2 it would send the body, which clients treat as a stream error.
pub fn without_head_body<B: Body>(
    method: &Method,
    mut response: Response<B>,
    empty: impl FnOnce() -> B,
) -> Response<B> {
    if *method != Method::HEAD {
        return response;
    }
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    response.map(|_| empty())
}
