//! Heads of responses to clients, and the framing of their bodies (RFC 9112, sections 4 and 6).

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{BufMut, BytesMut};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE,
    HOST, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use http_body::SizeHint;

use super::head::{put_chunk_size, put_header};

/// Headers that are no trailers (RFC 9110, section 6.5.1): they would change framing, routing, authentication or the
/// meaning of the content after the fact.
const NO_TRAILERS: [HeaderName; 14] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    HOST,
    MAX_FORWARDS,
    SET_COOKIE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The form in which the body of a response is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// There is none.
    None,
    /// Bytes that are left.
    Length(u64),
    Chunked,
    /// The body ends with the connection.
    Close,
}

/// The request that a response belongs to.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    pub method: Method,
    pub version: Version,
}

/// Chooses the framing of a body.
pub(super) fn framing(answered: &Answered, status: StatusCode, body: SizeHint) -> BodyFraming {
    let has_body = answered.method != Method::HEAD
        && !status.is_informational()
        && status != StatusCode::NO_CONTENT
        && status != StatusCode::NOT_MODIFIED;
    match body.exact() {
        _ if !has_body => BodyFraming::None,
        Some(length) => BodyFraming::Length(length),
        None if answered.version == Version::HTTP_11 => BodyFraming::Chunked,
        None => BodyFraming::Close,
    }
}

/// Appends the head of a response. The framing decides about the headers that frame the body; a response without one may
/// name the length that another method would get.
pub(super) fn encode(parts: &Parts, answered: &Answered, framing: BodyFraming, is_last: bool, out: &mut BytesMut) {
    let is_http11 = answered.version == Version::HTTP_11;
    out.put_slice(if is_http11 { b"HTTP/1.1 " } else { b"HTTP/1.0 " });
    out.put_slice(parts.status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(parts.status.canonical_reason().unwrap_or_default().as_bytes());
    out.put_slice(b"\r\n");
    let is_switch = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    let (mut has_length, mut has_date) = (false, false);
    for (name, value) in &parts.headers {
        if *name == TRANSFER_ENCODING || *name == CONNECTION && !is_switch {
            continue;
        }
        if *name == CONTENT_LENGTH {
            let is_wanted = match framing {
                BodyFraming::None => parts.status != StatusCode::NO_CONTENT && !parts.status.is_informational(),
                BodyFraming::Length(length) => is_number(value, length),
                BodyFraming::Chunked | BodyFraming::Close => false,
            };
            if !is_wanted || has_length {
                continue;
            }
            has_length = true;
        }
        has_date |= *name == DATE;
        put_header(name, value.as_bytes(), out);
    }
    match framing {
        BodyFraming::Length(length) if !has_length => put_length(length, out),
        BodyFraming::Chunked => out.put_slice(b"transfer-encoding: chunked\r\n"),
        BodyFraming::None | BodyFraming::Length(_) | BodyFraming::Close => {}
    }
    if !has_date && !parts.status.is_informational() {
        put_date(out);
    }
    match (is_last, is_http11) {
        _ if is_switch => {}
        (true, _) => out.put_slice(b"connection: close\r\n"),
        (false, false) => out.put_slice(b"connection: keep-alive\r\n"),
        (false, true) => {}
    }
    out.put_slice(b"\r\n");
}

/// Appends the response to a request that could not be read.
pub(super) fn encode_error(status: StatusCode, out: &mut BytesMut) {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    let answered = Answered { method: Method::GET, version: Version::HTTP_11 };
    encode(&parts, &answered, BodyFraming::Length(0), true, out);
}

/// Appends data of a body. Returns false if the body is longer than its length.
pub(super) fn put_data(data: &[u8], framing: &mut BodyFraming, out: &mut BytesMut) -> bool {
    match framing {
        BodyFraming::Length(left) => match left.checked_sub(data.len() as u64) {
            Some(rest) => *left = rest,
            None => return false,
        },
        BodyFraming::Chunked if !data.is_empty() => put_chunk_size(data.len(), out),
        BodyFraming::None | BodyFraming::Chunked | BodyFraming::Close => {}
    }
    out.put_slice(data);
    if *framing == BodyFraming::Chunked && !data.is_empty() {
        out.put_slice(b"\r\n");
    }
    true
}

/// Appends the end of a body. Returns false if the body is shorter than its length.
pub(super) fn put_end(trailers: Option<&HeaderMap>, framing: BodyFraming, out: &mut BytesMut) -> bool {
    match framing {
        BodyFraming::Length(left) => left == 0,
        BodyFraming::None | BodyFraming::Close => true,
        BodyFraming::Chunked => {
            out.put_slice(b"0\r\n");
            for (name, value) in trailers.into_iter().flatten() {
                if !NO_TRAILERS.contains(name) {
                    put_header(name, value.as_bytes(), out);
                }
            }
            out.put_slice(b"\r\n");
            true
        }
    }
}

/// Whether a header has this number.
fn is_number(value: &HeaderValue, number: u64) -> bool {
    value.to_str().is_ok_and(|value| value.parse() == Ok(number) && !value.starts_with('+'))
}

fn put_length(length: u64, out: &mut BytesMut) {
    out.put_slice(format!("content-length: {length}\r\n").as_bytes());
}

/// Appends the `Date` header, whose text is made once per second.
fn put_date(out: &mut BytesMut) {
    thread_local! {
        static CURRENT: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
    }
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    CURRENT.with_borrow_mut(|(current, line)| {
        if *current != second {
            (*current, *line) = (second, format!("date: {}\r\n", httpdate::fmt_http_date(now)));
        }
        out.put_slice(line.as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    /// Returns the head of a response without its date, and with `|` for line breaks.
    fn head(method: Method, version: Version, response: Response<u64>, is_last: bool) -> String {
        let answered = Answered { method, version };
        let (mut parts, length) = response.into_parts();
        let body = if length == u64::MAX { SizeHint::new() } else { SizeHint::with_exact(length) };
        let framing = framing(&answered, parts.status, body);
        let mut out = BytesMut::new();
        parts.headers.insert(DATE, HeaderValue::from_static("now"));
        encode(&parts, &answered, framing, is_last, &mut out);
        String::from_utf8_lossy(&out).replace("date: now\r\n", "").replace("\r\n", "|")
    }

    #[test]
    fn responses_have_the_framing_of_their_body() {
        const STREAM: u64 = u64::MAX;
        let response = |status: u16, headers: &[(&'static str, &'static str)], length: u64| {
            let response = Response::builder().status(status);
            headers
                .iter()
                .fold(response, |response, (name, value)| response.header(*name, *value))
                .body(length)
                .unwrap()
        };
        let check = |method: Method, version: Version, response: Response<u64>, is_last: bool, expect: &str| {
            assert_eq!(head(method, version, response, is_last), expect);
        };
        let (get, new, old) = (|| Method::GET, Version::HTTP_11, Version::HTTP_10);
        check(get(), new, response(200, &[("x", "1")], 5), false, "HTTP/1.1 200 OK|x: 1|content-length: 5||");
        check(get(), new, response(200, &[("content-length", "5")], 5), false, "HTTP/1.1 200 OK|content-length: 5||");
        check(get(), new, response(200, &[("content-length", "9")], 5), false, "HTTP/1.1 200 OK|content-length: 5||");
        check(get(), new, response(200, &[], STREAM), false, "HTTP/1.1 200 OK|transfer-encoding: chunked||");
        check(
            get(),
            old,
            response(200, &[("content-length", "5")], STREAM),
            true,
            "HTTP/1.0 200 OK|connection: close||",
        );
        check(get(), old, response(200, &[], 0), false, "HTTP/1.0 200 OK|content-length: 0|connection: keep-alive||");
        check(get(), new, response(204, &[("content-length", "5")], 0), false, "HTTP/1.1 204 No Content||");
        check(
            get(),
            new,
            response(304, &[("content-length", "5")], 0),
            false,
            "HTTP/1.1 304 Not Modified|content-length: 5||",
        );
        check(
            Method::HEAD,
            new,
            response(200, &[("content-length", "5")], 0),
            true,
            "HTTP/1.1 200 OK|content-length: 5|connection: close||",
        );
        check(
            get(),
            new,
            response(200, &[("transfer-encoding", "gzip"), ("connection", "x")], 0),
            false,
            "HTTP/1.1 200 OK|content-length: 0||",
        );
        let switch = response(101, &[("connection", "upgrade"), ("upgrade", "websocket")], 0);
        check(get(), new, switch, true, "HTTP/1.1 101 Switching Protocols|connection: upgrade|upgrade: websocket||");
    }

    #[test]
    fn bodies_have_their_length_or_an_end() {
        let write = |mut framing: BodyFraming, data: &[&str], trailers: Option<&HeaderMap>| {
            let mut out = BytesMut::new();
            let is_written = data.iter().all(|data| put_data(data.as_bytes(), &mut framing, &mut out));
            let is_complete = is_written && put_end(trailers, framing, &mut out);
            (String::from_utf8_lossy(&out).replace("\r\n", "|"), is_complete)
        };
        assert_eq!(write(BodyFraming::Length(5), &["hel", "lo"], None), ("hello".to_owned(), true));
        assert!(!write(BodyFraming::Length(5), &["hello!"], None).1);
        assert!(!write(BodyFraming::Length(5), &["hell"], None).1);
        assert_eq!(write(BodyFraming::Chunked, &["hello", ""], None), ("5|hello|0||".to_owned(), true));
        let trailers = HeaderMap::from_iter([
            (CONTENT_LENGTH, HeaderValue::from_static("1")),
            (SET_COOKIE, HeaderValue::from_static("a=b")),
            (http::header::ETAG, HeaderValue::from_static("x")),
        ]);
        assert_eq!(write(BodyFraming::Chunked, &[], Some(&trailers)), ("0|etag: x||".to_owned(), true));
        assert_eq!(write(BodyFraming::Close, &["hello"], None), ("hello".to_owned(), true));
    }

    #[test]
    fn responses_without_a_date_get_one() {
        let mut out = BytesMut::new();
        encode_error(StatusCode::BAD_REQUEST, &mut out);
        let text = String::from_utf8_lossy(&out).into_owned();
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\ndate: "), "{text}");
        assert!(text.ends_with(" GMT\r\nconnection: close\r\n\r\n"), "{text}");
    }
}
