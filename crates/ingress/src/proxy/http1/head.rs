//! Heads of HTTP/1 messages, and the framing of their bodies (RFC 9112, section 6).

use std::mem::MaybeUninit;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body::Body as _;

use crate::proxy::body::Body;

/// Longest head of a response.
const HEAD_BYTES_MAX: usize = 128 << 10;
const HEADERS_MAX: usize = 128;

/// Searches a buffer that grows for the end of a head. An incomplete head is parsed once: further bytes are only searched
/// for its end, so that a peer that sends single bytes causes no more work than others.
#[derive(Debug, Default)]
pub(super) struct HeadSearch {
    searched: usize,
    /// Bytes of empty lines before the head, which are ignored.
    skipped: usize,
}

/// The length of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestFraming {
    Empty,
    Length(u64),
    Chunked,
}

/// The end of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseFraming {
    Length(u64),
    Chunked,
    /// The body ends with the connection.
    Close,
}

#[derive(Debug)]
pub(super) struct ResponseHead {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub framing: ResponseFraming,
    /// Whether the endpoint keeps the connection open.
    pub keep_alive: bool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(in crate::proxy) enum HeadError {
    #[error("its head is malformed: {0}")]
    Malformed(#[from] httparse::Error),
    #[error("its status or a header is malformed")]
    Value,
    #[error("its head is larger than {HEAD_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the length of its body is ambiguous")]
    Length,
    #[error("its transfer encoding is not supported")]
    Encoding,
    #[error("it is preceded by too many informational responses")]
    Informational,
}

impl HeadSearch {
    /// Whether the buffer has to be parsed: it may have a complete head, or be of another protocol.
    pub(super) fn is_due(&mut self, buffer: &mut BytesMut) -> bool {
        while let [b'\n', ..] | [b'\r', b'\n', ..] = buffer[..] {
            let length = if buffer[0] == b'\n' { 1 } else { 2 };
            buffer.advance(length);
            (self.searched, self.skipped) = (0, self.skipped + length);
        }
        let is_due = match self.searched {
            0 => !buffer.is_empty(),
            searched => has_empty_line(&buffer[searched.saturating_sub(3)..]),
        };
        self.searched = buffer.len();
        is_due
    }

    /// Whether an incomplete head has more bytes than it may have.
    pub(super) fn is_over(&self, bytes_max: usize) -> bool {
        self.searched.saturating_add(self.skipped) > bytes_max
    }
}

/// Whether a line ends and an empty line follows.
pub(super) fn has_empty_line(bytes: &[u8]) -> bool {
    let ends_line = |at: usize| matches!(bytes[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]);
    bytes.iter().enumerate().any(|(at, byte)| *byte == b'\n' && ends_line(at))
}

impl RequestFraming {
    pub(super) fn of(request: &Request<Body>) -> RequestFraming {
        let body = request.body();
        if body.is_end_stream() {
            return RequestFraming::Empty;
        }
        body.size_hint().exact().map_or(RequestFraming::Chunked, RequestFraming::Length)
    }
}

/// Appends the head of a request. Only the framing decides about the headers that frame the body.
pub(super) fn encode(request: &Request<Body>, framing: RequestFraming, out: &mut BytesMut) {
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    // The path of `http://a.test?b` is empty.
    let start = if path.starts_with(['/', '*']) { "" } else { "/" };
    for part in [request.method().as_str(), " ", start, path, " HTTP/1.1\r\n"] {
        out.put_slice(part.as_bytes());
    }
    let mut has_length = false;
    for (name, value) in request.headers() {
        if *name == CONTENT_LENGTH {
            has_length = true;
        } else if *name != TRANSFER_ENCODING {
            put_header(name, value.as_bytes(), out);
        }
    }
    match framing {
        RequestFraming::Empty => {
            if has_length || matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) {
                put_header(&CONTENT_LENGTH, b"0", out);
            }
        }
        RequestFraming::Length(length) => put_header(&CONTENT_LENGTH, length.to_string().as_bytes(), out),
        RequestFraming::Chunked => put_header(&TRANSFER_ENCODING, b"chunked", out),
    }
    out.put_slice(b"\r\n");
}

/// Appends the size of a chunk.
pub(super) fn put_chunk_size(size: usize, out: &mut BytesMut) {
    out.put_slice(format!("{size:x}\r\n").as_bytes());
}

pub(super) fn put_header(name: &HeaderName, value: &[u8], out: &mut BytesMut) {
    out.reserve(name.as_str().len() + value.len() + 4);
    out.put_slice(name.as_str().as_bytes());
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}

/// Takes the head of a response to `method` from the start of a buffer, if it is complete.
pub(super) fn read(
    search: &mut HeadSearch,
    buffer: &mut BytesMut,
    method: &Method,
) -> Result<Option<ResponseHead>, HeadError> {
    let parsed = if search.is_due(buffer) { parse(buffer, method)? } else { None };
    match parsed {
        Some(_) => *search = HeadSearch::default(),
        None if search.is_over(HEAD_BYTES_MAX) => return Err(HeadError::TooLarge),
        None => {}
    }
    Ok(parsed)
}

fn parse(buffer: &mut BytesMut, method: &Method) -> Result<Option<ResponseHead>, HeadError> {
    let mut fields = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let status = config.parse_response_with_uninit_headers(&mut parsed, buffer, &mut fields)?;
    let httparse::Status::Complete(length) = status else {
        return Ok(None);
    };
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(HeadError::Value)?;
    let is_http11 = parsed.version == Some(1);
    // Values are slices of the buffer, so that they are not copied.
    let start = buffer.as_ptr().addr();
    let mut places = Vec::with_capacity(parsed.headers.len());
    for field in &*parsed.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| HeadError::Value)?;
        let at = field.value.as_ptr().addr().wrapping_sub(start);
        places.push((name, at, field.value.len()));
    }
    let bytes = buffer.split_to(length).freeze();
    let mut headers = HeaderMap::with_capacity(places.len());
    for (name, at, length) in places {
        let value = if length == 0 { Bytes::new() } else { bytes.slice(at..at + length) };
        headers.append(name, HeaderValue::from_maybe_shared(value).map_err(|_| HeadError::Value)?);
    }
    let framing = response_framing(method, status, &headers)?;
    let keep_alive = match headers.contains_key(CONNECTION) {
        // The framing of such a response is not trusted (RFC 9112, section 6.1).
        _ if !is_http11 && headers.contains_key(TRANSFER_ENCODING) => false,
        false => is_http11,
        true if is_http11 => !has_token(&headers, &CONNECTION, "close"),
        true => has_token(&headers, &CONNECTION, "keep-alive"),
    };
    Ok(Some(ResponseHead { status, headers, framing, keep_alive }))
}

fn response_framing(method: &Method, status: StatusCode, headers: &HeaderMap) -> Result<ResponseFraming, HeadError> {
    let length = content_length(headers)?;
    let has_body = *method != Method::HEAD
        && !status.is_informational()
        && status != StatusCode::NO_CONTENT
        && status != StatusCode::NOT_MODIFIED;
    if !has_body {
        return Ok(ResponseFraming::Length(0));
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        // A message with both could be two different messages.
        if length.is_some() {
            return Err(HeadError::Length);
        }
        let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
        let is_chunked = encodings.next().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
        return if is_chunked && encodings.next().is_none() {
            Ok(ResponseFraming::Chunked)
        } else {
            Err(HeadError::Encoding)
        };
    }
    Ok(length.map_or(ResponseFraming::Close, ResponseFraming::Length))
}

/// Returns the value of `Content-Length`. Several headers have to agree.
pub(super) fn content_length(headers: &HeaderMap) -> Result<Option<u64>, HeadError> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    match lengths.next() {
        Some(first) if lengths.all(|other| other == first) => parse_length(first).map(Some).ok_or(HeadError::Length),
        Some(_) => Err(HeadError::Length),
        None => Ok(None),
    }
}

/// Parses digits only: `+1` is no length.
fn parse_length(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

/// Whether a header that is a list of tokens has this one.
pub(super) fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::body;

    /// Parses a response to `GET`, with `|` for line breaks. Returns its framing, and whether the connection stays open.
    fn framing(head: &str) -> Result<Option<(ResponseFraming, bool)>, HeadError> {
        let mut buffer = BytesMut::from(head.replace('|', "\r\n").as_bytes());
        Ok(read(&mut HeadSearch::default(), &mut buffer, &Method::GET)?.map(|head| (head.framing, head.keep_alive)))
    }

    #[test]
    fn head_decides_about_the_end_of_the_body() {
        use ResponseFraming::*;
        let check = |head: &str, expect: ResponseFraming, keep_alive: bool| {
            assert_eq!(framing(head), Ok(Some((expect, keep_alive))), "{head}");
        };
        check("HTTP/1.1 200 OK|Content-Length: 5||", Length(5), true);
        check("HTTP/1.1 200 OK|Content-Length: 5|content-length: 5||", Length(5), true);
        check("HTTP/1.1 200 OK|Transfer-Encoding: Chunked||", Chunked, true);
        check("HTTP/1.1 200 OK||", Close, true);
        check("HTTP/1.1 204 No Content|Content-Length: 5||", Length(0), true);
        check("HTTP/1.1 304 Not Modified|Transfer-Encoding: chunked||", Length(0), true);
        check("HTTP/1.1 100 Continue||", Length(0), true);
        check("HTTP/1.1 200 OK|Content-Length: 5|Connection: x, Close||", Length(5), false);
        check("HTTP/1.0 200 OK|Content-Length: 5||", Length(5), false);
        check("HTTP/1.0 200 OK|Content-Length: 5|Connection: keep-alive||", Length(5), true);
        check("HTTP/1.0 200 OK|Transfer-Encoding: chunked|Connection: keep-alive||", Chunked, false);
        check("||HTTP/1.1 200 OK|Content-Length: 5||", Length(5), true);
        assert_eq!(framing("HTTP/1.1 200 OK|Content-Length: 5|"), Ok(None));
    }

    #[test]
    fn ambiguous_heads_are_rejected() {
        let check = |head: &str, expect: HeadError| assert_eq!(framing(head), Err(expect), "{head}");
        check("HTTP/1.1 200 OK|Content-Length: 5|Content-Length: 6||", HeadError::Length);
        check("HTTP/1.1 200 OK|Content-Length: +5||", HeadError::Length);
        check("HTTP/1.1 200 OK|Content-Length: 5, 5||", HeadError::Length);
        check("HTTP/1.1 200 OK|Content-Length:||", HeadError::Length);
        check("HTTP/1.1 200 OK|Content-Length: 5|Transfer-Encoding: chunked||", HeadError::Length);
        check("HTTP/1.1 200 OK|Transfer-Encoding: gzip, chunked||", HeadError::Encoding);
        check("HTTP/1.1 200 OK|Transfer-Encoding: chunked|Transfer-Encoding: gzip||", HeadError::Encoding);
        check("HTTP/1.1 200 OK|X: 1| folded||", HeadError::Malformed(httparse::Error::HeaderName));
        check("HTTP/1.1 099 OK||", HeadError::Value);
        let endless = format!("HTTP/1.1 200 OK|X: {}", "x".repeat(HEAD_BYTES_MAX));
        check(&endless, HeadError::TooLarge);
        let many = format!("HTTP/1.1 200 OK|{}|", "X: 1|".repeat(HEADERS_MAX + 1));
        check(&many, HeadError::Malformed(httparse::Error::TooManyHeaders));
    }

    #[test]
    fn head_is_taken_from_the_buffer() {
        let mut buffer =
            BytesMut::from(&b"HTTP/1.1 404 Not Found\r\nX-One: a b \r\nx-empty:\r\nX-ONE: c\r\n\r\nrest"[..]);
        let head = read(&mut HeadSearch::default(), &mut buffer, &Method::GET).unwrap().unwrap();
        assert_eq!((head.status, &buffer[..]), (StatusCode::NOT_FOUND, &b"rest"[..]));
        assert_eq!(head.headers.get_all("x-one").iter().collect::<Vec<_>>(), ["a b", "c"]);
        assert_eq!(head.headers["x-empty"], "");
    }

    #[test]
    fn incomplete_heads_are_parsed_once() {
        let text = b"HTTP/1.1 200 OK\r\nX: 1\r\n\n";
        for start in ["", "\r\n", "\n\n\r\n"] {
            let (mut search, mut buffer, mut parses) = (HeadSearch::default(), BytesMut::new(), Vec::new());
            for byte in start.as_bytes().iter().chain(text) {
                buffer.put_u8(*byte);
                if search.is_due(&mut buffer) {
                    parses.push(buffer.len());
                }
            }
            // The first byte of a line break may be all that has arrived.
            parses.retain(|length| *length > 1);
            assert_eq!((parses, buffer.len()), (vec![text.len()], text.len()), "{start:?}");
        }
        let (mut search, mut buffer) = (HeadSearch::default(), BytesMut::from(&[b'\n'; HEAD_BYTES_MAX + 1][..]));
        assert_eq!(read(&mut search, &mut buffer, &Method::GET).unwrap_err(), HeadError::TooLarge);
    }

    #[test]
    fn requests_have_the_framing_of_their_body() {
        let check = |method: Method, headers: &[&str], body: Body, expect: &str| {
            let mut request = Request::new(body);
            *request.method_mut() = method;
            *request.uri_mut() = "/a?b".parse().unwrap();
            for header in headers {
                let (name, value) = header.split_once(": ").unwrap();
                request.headers_mut().append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            let mut out = BytesMut::new();
            encode(&request, RequestFraming::of(&request), &mut out);
            assert_eq!(String::from_utf8_lossy(&out).replace("\r\n", "|"), expect);
        };
        check(Method::GET, &["host: a"], body::empty(), "GET /a?b HTTP/1.1|host: a||");
        check(Method::GET, &["content-length: 0"], body::empty(), "GET /a?b HTTP/1.1|content-length: 0||");
        check(Method::POST, &[], body::empty(), "POST /a?b HTTP/1.1|content-length: 0||");
        let mut query = Request::new(body::empty());
        *query.uri_mut() = "http://a.test?b".parse().unwrap();
        let mut out = BytesMut::new();
        encode(&query, RequestFraming::Empty, &mut out);
        assert_eq!(&out[..], b"GET /?b HTTP/1.1\r\n\r\n");
        check(
            Method::PUT,
            &["content-length: 9", "transfer-encoding: chunked", "x: 1"],
            body::text("four"),
            "PUT /a?b HTTP/1.1|x: 1|content-length: 4||",
        );
    }
}
