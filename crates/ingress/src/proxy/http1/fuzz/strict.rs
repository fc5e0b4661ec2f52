//! A parser of HTTP/1 messages that accepts one form only, and shares no code with the proxy's.

use http::Method;

/// The first message of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub start: Start,
    pub body: Vec<u8>,
    pub is_complete: bool,
    pub ends_with_connection: bool,
    /// The bytes after the message.
    pub rest: &'a [u8],
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The head is not complete.
    Incomplete,
    /// The request target.
    Request(String),
    /// The status.
    Response(String),
}

enum Framing {
    Length(usize),
    Chunked,
    Close,
}

impl Message<'_> {
    pub(super) const INCOMPLETE: Message<'static> = Message {
        start: Start::Incomplete,
        body: Vec::new(),
        is_complete: false,
        ends_with_connection: false,
        rest: &[],
    };
}

/// Parses a response to `method`, or a request. Panics on bytes that another parser could take for something else.
pub(super) fn parse<'a>(mut bytes: &'a [u8], method: Option<&Method>) -> Message<'a> {
    let Some(first) = line(&mut bytes) else { return Message::INCOMPLETE };
    let parts: Vec<&str> = first.splitn(3, ' ').collect();
    let [one, two, three] = parts[..] else { panic!("a malformed start line: {first:?}") };
    let mut headers = Vec::new();
    loop {
        let Some(header) = line(&mut bytes) else { return Message::INCOMPLETE };
        if header.is_empty() {
            break;
        }
        headers.push(field(&header));
    }
    let framing = match method {
        None => {
            assert!(three == "HTTP/1.1" && is_token(one) && two.starts_with(['/', '*']), "{first:?}");
            framing(&headers).unwrap_or(Framing::Length(0))
        }
        Some(method) => {
            assert!(matches!(one, "HTTP/1.1" | "HTTP/1.0") && two.len() == 3, "{first:?}");
            let has_body = *method != Method::HEAD && !matches!(two, "204" | "304") && !two.starts_with('1');
            let framing = framing(&headers);
            assert!(one == "HTTP/1.1" || !matches!(framing, Some(Framing::Chunked)), "{first:?} has chunks");
            if has_body { framing.unwrap_or(Framing::Close) } else { Framing::Length(0) }
        }
    };
    let start = if method.is_some() { Start::Response(two.to_owned()) } else { Start::Request(two.to_owned()) };
    let mut body = Vec::new();
    let is_complete = take_body(&framing, &mut bytes, &mut body);
    // A request whose body is not complete is none.
    if method.is_none() && !is_complete {
        return Message::INCOMPLETE;
    }
    let ends_with_connection = matches!(framing, Framing::Close);
    Message { start, body, is_complete, ends_with_connection, rest: bytes }
}

/// Takes a line, which ends with CRLF and has no other control characters than tabs.
fn line(bytes: &mut &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = bytes.split_at(end + 1);
    *bytes = rest;
    let line = line.strip_suffix(b"\r\n").expect("lines end with CRLF");
    assert!(line.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control()), "{:?}", String::from_utf8_lossy(line));
    Some(String::from_utf8_lossy(line).into_owned())
}

fn field(line: &str) -> (String, String) {
    let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("a malformed header: {line:?}"));
    assert!(is_token(name) && name == name.to_ascii_lowercase(), "{line:?}");
    (name.to_owned(), value.to_owned())
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn framing(headers: &[(String, String)]) -> Option<Framing> {
    let of = |name: &str| {
        let mut values = headers.iter().filter(|(have, _)| have == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert!(values.next().is_none(), "several headers {name}");
        value
    };
    match (of("content-length"), of("transfer-encoding")) {
        (None, None) => None,
        (Some(length), None) => {
            assert!(length.bytes().all(|byte| byte.is_ascii_digit()), "{length:?}");
            Some(Framing::Length(length.parse().unwrap_or(usize::MAX)))
        }
        (None, Some("chunked")) => Some(Framing::Chunked),
        both => panic!("ambiguous framing: {both:?}"),
    }
}

/// Takes a body. Returns whether it is complete.
fn take_body(framing: &Framing, bytes: &mut &[u8], body: &mut Vec<u8>) -> bool {
    match framing {
        Framing::Length(length) => take(bytes, *length, body),
        Framing::Close => {
            body.extend_from_slice(std::mem::take(bytes));
            true
        }
        Framing::Chunked => loop {
            let Some(size) = line(bytes) else { return false };
            assert!(!size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit()), "{size:?}");
            let size = usize::from_str_radix(&size, 16).expect("the size of a chunk is a number");
            if size > 0 {
                if !take(bytes, size, body) {
                    return false;
                }
                let Some(end) = line(bytes) else { return false };
                assert_eq!(end, "", "a chunk is longer than its size");
                continue;
            }
            loop {
                match line(bytes).as_deref() {
                    None => return false,
                    Some("") => return true,
                    Some(trailer) => {
                        let (name, _) = field(trailer);
                        assert!(!matches!(name.as_str(), "content-length" | "transfer-encoding" | "host"), "{name}");
                    }
                }
            }
        },
    }
}

fn take(bytes: &mut &[u8], length: usize, body: &mut Vec<u8>) -> bool {
    let (data, rest) = bytes.split_at(length.min(bytes.len()));
    body.extend_from_slice(data);
    *bytes = rest;
    data.len() == length
}
