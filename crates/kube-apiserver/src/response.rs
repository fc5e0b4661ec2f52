//! HTTP responses: bodies, Status objects and encoded objects.

use std::pin::Pin;
use std::task::{Context, Poll};

use api::{catalogue, codec};
use api_registry::negotiate::{Encoding, Form, ResponseFormat};
use apimachinery::status::Status;
use apimachinery::{GroupVersionKind, Schema, Value, json, protobuf, yaml};
use bytes::Bytes;
use client::shared_objects::ResponseObject;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use http_body::{Frame, SizeHint};
use tokio::sync::mpsc;

/// Responses above this size are compressed; upstream's limit.
const COMPRESSED_FROM: usize = 128 * 1024;
/// The content negotiation result of clients without an Accept header.
pub const PLAIN: ResponseFormat = ResponseFormat { encoding: Encoding::Json, form: Form::Object, pretty: false };

pub type HttpResponse = Response<Body>;

pub enum Body {
    /// A complete body.
    Full(Bytes),
    /// A streamed body; the sender blocks while the client does not read.
    Stream(mpsc::Receiver<Bytes>),
    /// The body of a proxied response.
    Proxied(hyper::body::Incoming),
    /// A body of which the first chunk has been read already.
    Started(Option<Bytes>, Box<Self>),
}

impl http_body::Body for Body {
    type Data = Bytes;
    /// A proxied response may break off; the error aborts this response as well.
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Self::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream(pieces) => pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece)))),
            Self::Proxied(body) => Pin::new(body).poll_frame(context),
            Self::Started(read, rest) => match read.take() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => Pin::new(&mut **rest).poll_frame(context),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_empty(),
            Self::Stream(_) => false,
            Self::Proxied(body) => body.is_end_stream(),
            Self::Started(read, rest) => read.is_none() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(_) | Self::Started(Some(_), _) => SizeHint::default(),
            Self::Proxied(body) => body.size_hint(),
            Self::Started(None, rest) => rest.size_hint(),
        }
    }
}

pub fn bytes(code: u16, media_type: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(Body::Full(body.into()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    // Upstream forbids caching of responses that depend on authorization.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

pub fn text(code: u16, body: impl Into<String>) -> HttpResponse {
    bytes(code, "text/plain; charset=utf-8", body.into())
}

/// Returns a Status as a response; code 0 becomes 200.
pub fn status(status: &Status, accepted: ResponseFormat) -> HttpResponse {
    let code = if status.code == 0 { 200 } else { status.code };
    let mut value = status.to_value();
    if let (Value::Object(fields), true) = (&mut value, !status.success) {
        fields.insert("code", i64::from(code));
    }
    let mut response = encoded(code, &value, accepted, None);
    if let Some(seconds) = status.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Returns an object in the negotiated encoding. Custom resources have no protobuf form and are returned as JSON.
pub fn encoded(code: u16, value: &Value, accepted: ResponseFormat, schema: Option<Schema<'_>>) -> HttpResponse {
    let encoding = accepted.encoding;
    match encoding {
        Encoding::Json => json(code, as_json(value), accepted),
        Encoding::Yaml => bytes(code, encoding.media_type(), yaml::to_string(value)),
        Encoding::Protobuf => match as_protobuf(value, schema) {
            Some(body) => bytes(code, encoding.media_type(), body),
            None => json(code, as_json(value), accepted),
        },
    }
}

/// Returns an object as JSON on one line without a final newline.
pub fn as_json(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    codec::JSON.write(value, &mut out);
    out
}

/// Returns a response from single-line JSON: indented if the client requested `pretty`, otherwise with a final newline.
pub fn json(code: u16, mut line: Vec<u8>, accepted: ResponseFormat) -> HttpResponse {
    if accepted.pretty {
        line = json::indent(&line);
    } else {
        line.push(b'\n');
    }
    bytes(code, Encoding::Json.media_type(), line)
}

/// Returns a response that carries the decoded object, for clients in this process.
pub fn shared_object(code: u16, object: Value) -> HttpResponse {
    let mut response = bytes(code, Encoding::Json.media_type(), Bytes::new());
    response.extensions_mut().insert(ResponseObject(object));
    response
}

/// Returns an object in its protobuf envelope, or `None` if its kind has no protobuf form.
pub fn as_protobuf(value: &Value, schema: Option<Schema<'_>>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let schema = match schema {
        Some(schema) => schema,
        None => catalogue::schema(&GroupVersionKind::of_object(value).ok()?)?,
    };
    protobuf::encode_object(value, schema, &mut out).ok()?;
    Some(out)
}

/// Returns 429 with a Retry-After header.
pub fn too_many(retry_after_seconds: u32) -> HttpResponse {
    let mut response = text(429, "Too many requests, please try again later.\n");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after_seconds));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Compresses a large response with gzip. The caller checks that the client accepts gzip.
pub async fn compressed(response: HttpResponse) -> HttpResponse {
    let is_whole = matches!(response.body(), Body::Full(bytes) if bytes.len() > COMPRESSED_FROM);
    if !is_whole || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Body::Full(bytes) = body else { unreachable!("just looked") };
    // Compression is CPU-bound and must not block the other tasks of this thread.
    let packed = tokio::task::spawn_blocking(move || gzip(&bytes).map_or(Err(bytes), Ok)).await;
    match packed {
        Ok(Ok(packed)) => {
            parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            parts.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
            Response::from_parts(parts, Body::Full(packed.into()))
        }
        Ok(Err(bytes)) => Response::from_parts(parts, Body::Full(bytes)),
        Err(_) => status(&Status::internal_error("the response could not be compressed"), PLAIN),
    }
}

fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::with_capacity(bytes.len() / 8), flate2::Compression::fast());
    packed.write_all(bytes)?;
    packed.finish()
}

/// Adds warnings as `Warning` headers, which kubectl prints.
pub fn warn(response: &mut HttpResponse, warnings: &[String]) {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(http::header::WARNING, value);
        }
    }
}
