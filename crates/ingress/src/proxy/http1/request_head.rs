//! Heads of requests from clients, and the framing of their bodies (RFC 9112, sections 3 and 6).

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, EXPECT, TE, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};

use super::chunked::Chunked;
use super::decoder::Decoder;
use super::head::{self, HeadSearch};

/// Most headers of a request, whatever the settings are.
const HEADERS_MAX: usize = 128;
/// Headers that the proxy adds, for which the map has space.
const ADDED_HEADERS: usize = 8;

/// Limits of the head of a request.
#[derive(Debug, Clone, Copy)]
pub(in crate::proxy) struct HeadLimits {
    pub headers_max: usize,
    pub bytes_max: usize,
}

#[derive(Debug)]
pub(super) struct RequestHead {
    pub parts: Parts,
    pub body: Decoder,
    /// Whether the client keeps the connection open.
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    pub accepts_trailers: bool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(in crate::proxy) enum RequestHeadError {
    #[error("the head is malformed: {0}")]
    Malformed(httparse::Error),
    #[error("the method, the target or a header is malformed")]
    Value,
    #[error("the head has too many bytes or headers")]
    TooLarge,
    #[error("the length of the body is ambiguous")]
    Length,
    #[error("the transfer encoding is not supported")]
    Encoding,
}

impl RequestHeadError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            RequestHeadError::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// Takes the head of a request from the start of a buffer, if it is complete.
pub(super) fn read(
    search: &mut HeadSearch,
    buffer: &mut BytesMut,
    limits: &HeadLimits,
) -> Result<Option<RequestHead>, RequestHeadError> {
    let parsed = if search.is_due(buffer) { parse(buffer, limits)? } else { None };
    match parsed {
        Some(_) => *search = HeadSearch::default(),
        None if search.is_over(limits.bytes_max) => return Err(RequestHeadError::TooLarge),
        None => {}
    }
    Ok(parsed)
}

fn parse(buffer: &mut BytesMut, limits: &HeadLimits) -> Result<Option<RequestHead>, RequestHeadError> {
    let mut fields = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let fields = &mut fields[..limits.headers_max.min(HEADERS_MAX)];
    let mut parsed = httparse::Request::new(&mut []);
    let status = httparse::ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, buffer, fields);
    let length = match status {
        Ok(httparse::Status::Complete(length)) if length <= limits.bytes_max => length,
        Ok(httparse::Status::Complete(_)) | Err(httparse::Error::TooManyHeaders) => {
            return Err(RequestHeadError::TooLarge);
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(RequestHeadError::Malformed(error)),
    };
    let method = parsed.method.and_then(|method| Method::from_bytes(method.as_bytes()).ok());
    let version = if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    // The target and values are slices of the buffer, so that they are not copied.
    let start = buffer.as_ptr().addr();
    let place = |bytes: &[u8]| {
        let at = bytes.as_ptr().addr().wrapping_sub(start);
        at..at + bytes.len()
    };
    let target = place(parsed.path.unwrap_or_default().as_bytes());
    let fields = parsed.headers.iter().map(|field| (place(field.name.as_bytes()), place(field.value)));
    let fields: Vec<(Range<usize>, Range<usize>)> = fields.collect();
    let bytes = buffer.split_to(length).freeze();
    let slice = |place: Range<usize>| if place.is_empty() { Bytes::new() } else { bytes.slice(place) };
    let mut headers = HeaderMap::with_capacity(fields.len() + ADDED_HEADERS);
    for (name, value) in fields {
        let name = HeaderName::from_bytes(&bytes[name]).map_err(|_| RequestHeadError::Value)?;
        let value = HeaderValue::from_maybe_shared(slice(value)).map_err(|_| RequestHeadError::Value)?;
        headers.append(name, value);
    }
    let uri = Uri::from_maybe_shared(slice(target)).map_err(|_| RequestHeadError::Value)?;
    let method = method.filter(|method| is_target(&uri, method)).ok_or(RequestHeadError::Value)?;
    let (mut parts, ()) = Request::new(()).into_parts();
    (parts.method, parts.uri, parts.version) = (method, uri, version);
    parts.headers = headers;
    describe(parts).map(Some)
}

/// Whether a target has a form that the method allows (RFC 9112, section 3.2).
fn is_target(uri: &Uri, method: &Method) -> bool {
    match (uri.scheme_str(), uri.authority()) {
        (Some(scheme), Some(_)) => matches!(scheme, "http" | "https"),
        (None, Some(_)) => *method == Method::CONNECT,
        _ => uri.path().starts_with('/') || uri.path() == "*" && *method == Method::OPTIONS,
    }
}

/// Reads the headers that concern the connection.
fn describe(parts: Parts) -> Result<RequestHead, RequestHeadError> {
    let (headers, is_http11) = (&parts.headers, parts.version == Version::HTTP_11);
    let is_chunked = headers.contains_key(TRANSFER_ENCODING);
    if is_chunked {
        let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
        let is_known = encodings.next().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
        if !is_http11 || !is_known || encodings.next().is_some() {
            return Err(RequestHeadError::Encoding);
        }
    }
    let length = head::content_length(headers).map_err(|_| RequestHeadError::Length)?;
    let body = if is_chunked { Decoder::Chunked(Chunked::Size) } else { Decoder::Length(length.unwrap_or(0)) };
    let is_kept = match headers.contains_key(CONNECTION) {
        false => is_http11,
        true => {
            !head::has_token(headers, &CONNECTION, "close")
                && (is_http11 || head::has_token(headers, &CONNECTION, "keep-alive"))
        }
    };
    let expects_continue = is_http11
        && !body.is_done()
        && headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    Ok(RequestHead {
        body,
        // A request with both lengths may be two requests for another proxy: nothing after it is served.
        keep_alive: is_kept && !(is_chunked && length.is_some()),
        expects_continue,
        accepts_trailers: headers.contains_key(TE) && head::has_token(headers, &TE, "trailers"),
        parts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { headers_max: 5, bytes_max: 200 };

    /// Parses a request, with `|` for line breaks.
    fn read(text: &str) -> Result<Option<RequestHead>, RequestHeadError> {
        let mut buffer = BytesMut::from(text.replace('|', "\r\n").as_bytes());
        super::read(&mut HeadSearch::default(), &mut buffer, &LIMITS)
    }

    #[test]
    fn heads_frame_the_body_and_the_connection() {
        use Decoder::{Chunked as InChunks, Length};
        let check = |text: &str, body: Decoder, keep_alive: bool| {
            let head = read(text).unwrap().unwrap();
            assert_eq!((head.body, head.keep_alive), (body, keep_alive), "{text}");
        };
        check("GET / HTTP/1.1|Host: a||", Length(0), true);
        check("GET / HTTP/1.1|Connection: x, Close||", Length(0), false);
        check("GET / HTTP/1.1|Connection: close|Connection: keep-alive||", Length(0), false);
        check("GET / HTTP/1.0|Host: a||", Length(0), false);
        check("GET / HTTP/1.0|Connection: Keep-Alive||", Length(0), true);
        check("POST / HTTP/1.1|Content-Length: 5||", Length(5), true);
        check("POST / HTTP/1.1|Content-Length: 5|content-length: 5||", Length(5), true);
        check("POST / HTTP/1.1|Transfer-Encoding: Chunked||", InChunks(Chunked::Size), true);
        check("POST / HTTP/1.1|Transfer-Encoding: chunked|Content-Length: 5||", InChunks(Chunked::Size), false);
        check("POST / HTTP/1.1|Content-Length: 5|Transfer-Encoding: chunked||", InChunks(Chunked::Size), false);
        assert!(read("GET / HTTP/1.1|Host: a|").unwrap().is_none());
        assert!(read("POST / HTTP/1.1|Content-Length: 1|Expect: 100-Continue||").unwrap().unwrap().expects_continue);
        assert!(!read("GET / HTTP/1.1|Expect: 100-continue||").unwrap().unwrap().expects_continue);
        for (method, target) in [("OPTIONS", "*"), ("CONNECT", "a:80"), ("GET", "HTTP://a?b"), ("GET", "/*")] {
            assert!(read(&format!("{method} {target} HTTP/1.1||")).unwrap().is_some(), "{target}");
        }
    }

    #[test]
    fn ambiguous_and_malformed_heads_are_rejected() {
        let check = |text: &str, expect: RequestHeadError| assert_eq!(read(text).unwrap_err(), expect, "{text}");
        for length in ["+1", "-1", "1, 1", "0x1", "1 1", "", "18446744073709551616", "1|Content-Length: 2"] {
            check(&format!("POST / HTTP/1.1|Content-Length: {length}||"), RequestHeadError::Length);
        }
        for encoding in
            ["identity", "xchunked", "chunked, identity", "gzip, chunked", "chunked|Transfer-Encoding: chunked"]
        {
            check(&format!("POST / HTTP/1.1|Transfer-Encoding: {encoding}||"), RequestHeadError::Encoding);
        }
        check("POST / HTTP/1.0|Transfer-Encoding: chunked||", RequestHeadError::Encoding);
        check("GET / HTTP/1.1|X : 1||", RequestHeadError::Malformed(httparse::Error::HeaderName));
        check("GET / HTTP/1.1|X: 1| folded||", RequestHeadError::Malformed(httparse::Error::HeaderName));
        check("GET / HTTP/1.1|X: a\0b||", RequestHeadError::Malformed(httparse::Error::HeaderValue));
        check("GET / HTTP/1.1|X: a\rb||", RequestHeadError::Malformed(httparse::Error::HeaderValue));
        check("GET / HTTP/2.0||", RequestHeadError::Malformed(httparse::Error::Version));
        check("nonsense||", RequestHeadError::Malformed(httparse::Error::Token));
        for target in ["a.test", "a.test:80", "*", "a/b", "ftp://a.test/", "http:///a"] {
            check(&format!("GET {target} HTTP/1.1|Host: a.test||"), RequestHeadError::Value);
        }
    }

    #[test]
    fn heads_are_bounded() {
        let headers = |count: usize| format!("GET / HTTP/1.1|{}|", "X: 1|".repeat(count));
        assert_eq!(read(&headers(5)).unwrap().unwrap().parts.headers.len(), 5);
        assert_eq!(read(&headers(6)).unwrap_err(), RequestHeadError::TooLarge);
        let long = |bytes: usize| format!("GET /{} HTTP/1.1||", "x".repeat(bytes));
        assert!(read(&long(100)).unwrap().is_some());
        assert_eq!(read(&long(200)).unwrap_err(), RequestHeadError::TooLarge);
        assert_eq!(read(&"x".repeat(201)).unwrap_err(), RequestHeadError::TooLarge);
    }

    #[test]
    fn heads_are_read_however_they_arrive() {
        let text = "\r\nGET /a?b HTTP/1.1\r\nHost: a.test\r\nX-Empty:\r\n\r\nnext";
        for piece_bytes in 1..=text.len() {
            let (mut search, mut buffer, mut found) = (HeadSearch::default(), BytesMut::new(), None);
            for piece in text.as_bytes().chunks(piece_bytes) {
                buffer.extend_from_slice(piece);
                if found.is_none() {
                    found = super::read(&mut search, &mut buffer, &LIMITS).unwrap();
                }
            }
            let head = found.unwrap_or_else(|| panic!("pieces of {piece_bytes} bytes"));
            assert_eq!((head.parts.uri.to_string(), &buffer[..]), ("/a?b".to_owned(), &b"next"[..]));
            assert_eq!(
                (&head.parts.headers["host"], &head.parts.headers["x-empty"]),
                (&"a.test".parse().unwrap(), &"".parse().unwrap())
            );
        }
    }
}
