//! URL library: URLs as parsed by Go's `url.ParseRequestURI`: absolute, or an absolute path.

use std::fmt;
use std::sync::Arc;

use super::opaque::Opaque;
use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::{Entries, Key, Text, Val};

type Result<T> = std::result::Result<T, Failure>;

pub const ROWS: &[Row] = &[
    row("url(string) -> URL", Cost::ScanSame, url),
    row("isURL(string) -> bool", Cost::Unit, is_url),
    row("URL.getScheme() -> string", Cost::Unit, |args| part(args, |url| Val::text(&*url.scheme))),
    row("URL.getHost() -> string", Cost::Unit, |args| part(args, |url| Val::text(&*url.host))),
    row("URL.getHostname() -> string", Cost::Unit, |args| part(args, |url| Val::text(url.hostname()))),
    row("URL.getPort() -> string", Cost::Unit, |args| part(args, |url| Val::text(url.port()))),
    row("URL.getEscapedPath() -> string", Cost::Unit, |args| part(args, |url| Val::text(&*url.escaped_path))),
    row("URL.getQuery() -> map<string, list<string>>", Cost::Unit, |args| part(args, Url::query_values)),
];

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    text: Box<str>,
    scheme: Box<str>,
    host: Box<str>,
    escaped_path: Box<str>,
    query: Box<str>,
}

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    /// Go's error message.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let parts = Parts::of(text).map_err(|error| format!("parse {text:?}: {error}"))?;
        let host = unescape(parts.host).unwrap_or_default();
        let path = parts.path;
        let valid = path.bytes().all(|b| keeps(b) || b"!$&'()*+,;=:@[]%/".contains(&b));
        Ok(Self {
            text: text.into(),
            scheme: parts.scheme.to_ascii_lowercase().into(),
            host: String::from_utf8_lossy(&host).into(),
            escaped_path: if valid { path.into() } else { escape(&unescape(path).unwrap_or_default()).into() },
            query: parts.query.into(),
        })
    }

    /// Returns the host without its port and brackets.
    fn hostname(&self) -> &str {
        match self.host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => self.host.split(':').next().unwrap_or_default(),
        }
    }

    fn port(&self) -> &str {
        let after = self.host.rfind(']').map_or(&*self.host, |at| &self.host[at..]);
        after.rsplit_once(':').map_or("", |(_, port)| port)
    }

    fn query_values<'a>(&self) -> Val<'a> {
        let mut found: Vec<(String, Vec<Val<'a>>)> = Vec::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(key), Some(value)) = (unescape(&key.replace('+', " ")), unescape(&value.replace('+', " ")))
            else {
                continue;
            };
            let value = Val::text(String::from_utf8_lossy(&value));
            let key = String::from_utf8_lossy(&key).into_owned();
            match found.iter_mut().find(|(have, _)| *have == key) {
                Some((_, values)) => values.push(value),
                None => found.push((key, vec![value])),
            }
        }
        let mut entries = Entries::new();
        for (key, values) in found {
            entries.insert(Key::String(Text::made(&key)), Val::list(values));
        }
        Val::map(entries)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// The parts of a URL as written.
struct Parts<'t> {
    scheme: &'t str,
    host: &'t str,
    path: &'t str,
    query: &'t str,
}

/// The reason why a text is not a URL; formatted only when it is reported.
enum Reason<'t> {
    Message(&'static str),
    Port(&'t str),
    HostCharacter(char),
    Escape(&'t str),
}

impl fmt::Display for Reason<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(message) => out.write_str(message),
            Self::Port(port) => write!(out, "invalid port {port:?} after host"),
            Self::HostCharacter(c) => write!(out, "invalid character {:?} in host name", c.to_string()),
            Self::Escape(text) => write!(out, "invalid URL escape {:?}", bad_escape(text)),
        }
    }
}

impl<'t> Parts<'t> {
    fn of(text: &'t str) -> std::result::Result<Self, Reason<'t>> {
        if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return Err(Reason::Message("net/url: invalid control character in URL"));
        }
        if text.is_empty() {
            return Err(Reason::Message("empty url"));
        }
        let (scheme, rest) = scheme(text).map_err(Reason::Message)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !rest.starts_with('/') {
            // `mailto:someone` has neither host nor path.
            return if scheme.is_empty() {
                Err(Reason::Message("invalid URI for request"))
            } else {
                Ok(Self { scheme, host: "", path: "", query })
            };
        }
        let (authority, path) = match rest.strip_prefix("//") {
            Some(after) if !after.starts_with('/') => {
                let end = after.find('/').unwrap_or(after.len());
                (&after[..end], &after[end..])
            }
            _ => ("", rest),
        };
        let host = host(authority)?;
        if !is_escaped(path) {
            return Err(Reason::Escape(path));
        }
        Ok(Self { scheme, host, path, query })
    }
}

fn scheme(text: &str) -> std::result::Result<(&str, &str), &'static str> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme"),
            ':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    match text.split('/').next() {
        Some(first) if first.contains(':') => Err("first path segment in URL cannot contain colon"),
        _ => Ok(("", text)),
    }
}

/// Returns the host with its port, without user information.
fn host(authority: &str) -> std::result::Result<&str, Reason<'_>> {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if !user.bytes().all(|b| keeps(b) || b"!$&'()*+,;=:%@".contains(&b)) {
        return Err(Reason::Message("net/url: invalid userinfo"));
    }
    let colon_port = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or(Reason::Message("missing ']' in host"))?.1,
        None => host.find(':').map_or("", |at| &host[at..]),
    };
    let valid = colon_port.is_empty()
        || colon_port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    if !valid {
        return Err(Reason::Port(colon_port));
    }
    let unfit = |b: &u8| matches!(b, b' ' | b'<' | b'>' | b'"' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}');
    if let Some(bad) = host.as_bytes().iter().find(|b| unfit(b)) {
        return Err(Reason::HostCharacter(char::from(*bad)));
    }
    if is_escaped(host) { Ok(host) } else { Err(Reason::Escape(host)) }
}

fn keeps(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-_.~".contains(&b)
}

/// Whether every `%` is followed by two hexadecimal digits.
fn is_escaped(text: &str) -> bool {
    text.split('%').skip(1).all(|after| after.len() >= 2 && after.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    if !is_escaped(text) {
        return None;
    }
    let mut parts = text.split('%');
    let mut out = Vec::with_capacity(text.len());
    out.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        let (digits, rest) = part.split_at(2);
        out.push(u8::from_str_radix(digits, 16).ok()?);
        out.extend(rest.bytes());
    }
    Some(out)
}

fn bad_escape(text: &str) -> String {
    text.find('%').map(|at| text[at..].chars().take(3).collect()).unwrap_or_default()
}

fn escape(path: &[u8]) -> String {
    path.iter().fold(String::with_capacity(path.len()), |mut out, b| {
        if keeps(*b) || b"$&+,/:;=@".contains(b) {
            out.push(char::from(*b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
        out
    })
}

fn url<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let parsed = Url::parse(args.str(0)?);
    parsed
        .map(|url| Val::Opaque(Opaque::Url(Arc::new(url))))
        .map_err(|error| Failure::message(format!("URL parse error during conversion from string: {error}")))
}

fn is_url<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Bool(Parts::of(args.str(0)?).is_ok()))
}

fn part<'a>(args: Args<'_, 'a>, of: impl Fn(&Url) -> Val<'a>) -> Result<Val<'a>> {
    match args.args {
        [Val::Opaque(Opaque::Url(url))] => Ok(of(url)),
        _ => Err(Failure::no_overload()),
    }
}
