//! The log of requests that `-v` shows, in the layout of kubectl's log.

use std::io::Write;
use std::time::{Duration, SystemTime};

use apimachinery::time::Time;
use bytes::Bytes;
use http::Request;
use http::header::{HeaderMap, HeaderName};

/// From this level on: method, URL, status and duration.
pub const LEVEL_URL: i64 = 6;
/// From this level on: headers of requests.
const LEVEL_HEADERS: i64 = 7;
/// From this level on: headers of responses, and bodies.
// DEVIATION: level 9 shows no curl command and no times of the connection's parts.
pub const LEVEL_BODIES: i64 = 8;

/// Logs a request before it is sent.
pub fn request(verbosity: i64, url: &str, request: &Request<Bytes>) {
    if verbosity >= LEVEL_BODIES {
        body(verbosity, "Request Body", url, request.body());
    }
    if verbosity >= LEVEL_HEADERS {
        let (method, headers) = (request.method(), headers(request.headers()));
        line("round_trippers.go:527", &format!("\"Request\" verb=\"{method}\" url=\"{url}\" headers={headers}"));
    }
}

/// Logs the status of a response; empty if there is none.
pub fn response(verbosity: i64, method: &str, url: &str, status: &str, head: Option<&HeaderMap>, took: Duration) {
    let milliseconds = took.as_millis();
    let text = match (verbosity, head) {
        (LEVEL_BODIES.., Some(head)) => format!("status=\"{status}\" headers={}", headers(head)),
        (LEVEL_HEADERS.., _) => format!("status=\"{status}\""),
        _ => format!("verb=\"{method}\" url=\"{url}\" status=\"{status}\""),
    };
    line("round_trippers.go:632", &format!("\"Response\" {text} milliseconds={milliseconds}"));
}

/// Logs a body, cut to a length that depends on the level.
// DEVIATION: bodies with Secrets and tokens are masked.
pub fn body(verbosity: i64, title: &str, url: &str, bytes: &[u8]) {
    let path = url.split('?').next().unwrap_or_default();
    let secret = path.split('/').any(|part| matches!(part, "secrets" | "token" | "tokenreviews"));
    let text = if secret { "<masked>".into() } else { String::from_utf8_lossy(bytes) };
    let limit = match verbosity {
        ..=8 => 1024,
        9 => 10_240,
        _ => usize::MAX,
    };
    let prefix: String = text.chars().take(limit).collect();
    let rest = text.chars().count().saturating_sub(limit);
    let cut = if rest > 0 { format!(" [truncated {rest} chars]") } else { String::new() };
    line("helper.go:105", &format!("\"{title}\" body={}", apimachinery::go::quote(&format!("{prefix}{cut}"))));
}

fn headers(headers: &HeaderMap) -> String {
    let mut lines: Vec<String> = headers
        .iter()
        .map(|(name, value)| {
            let text = if secret(name) { "<masked>".into() } else { String::from_utf8_lossy(value.as_bytes()) };
            format!("\t{}: {text}\n", canonical(name))
        })
        .collect();
    lines.sort();
    format!("<\n{} >", lines.concat())
}

/// Returns a header's name in Go's form: `Content-Type`.
fn canonical(name: &HeaderName) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.as_str()
        .split('-')
        .map(|part| if part.is_empty() { String::new() } else { word(part) })
        .collect::<Vec<_>>()
        .join("-")
}

fn secret(name: &HeaderName) -> bool {
    matches!(name.as_str(), "authorization" | "cookie" | "set-cookie" | "proxy-authorization")
}

/// Prints a line of the log.
pub fn line(place: &str, text: &str) {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = Time::from_unix(since.as_secs().try_into().unwrap_or(i64::MAX), since.subsec_nanos()).micro().to_string();
    let (month, day, time) = (&now[5..7], &now[8..10], &now[11..26]);
    let _ = writeln!(std::io::stderr().lock(), "I{month}{day} {time} {:>7} {place}] {text}", std::process::id());
}

#[cfg(test)]
mod tests {
    use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};

    use super::*;

    #[test]
    fn credentials_are_masked_and_headers_sorted() {
        let mut map = HeaderMap::new();
        map.insert(CONTENT_TYPE, HeaderValue::from_static("a/b"));
        map.insert(AUTHORIZATION, HeaderValue::from_static("Bearer abc"));
        assert_eq!(headers(&map), "<\n\tAuthorization: <masked>\n\tContent-Type: a/b\n >");
    }
}
