//! The HTTP cache on disk, in kubectl's format: a file named after the SHA-256 of the URL contains the SHA-256 of the
//! response and the response.
//!
//! Only documents whose URL contains the hash of their contents are cached, so an entry never becomes stale.

use std::path::{Path, PathBuf};

use apimachinery::{Value, json};
use bytes::Bytes;
use client::ResponseError;
use http::Method;
use http::header::{CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING, VARY};
use sha2::{Digest, Sha256};

use crate::request::{self, JSON};
use crate::{Context, Failure, cache_file};

/// The query parameter of kubectl's discovery requests, which is part of the name of a file.
const TIMEOUT: &str = "32s";
const SUM_BYTES: usize = 32;
/// The size of the largest file that is read. OpenAPI documents of the core group have about a mebibyte.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Returns the JSON document at a path, which has the parameter `hash`, from the cache or from the server.
pub async fn get(context: &Context, path: &str) -> Result<Value, Failure> {
    let base = context.config()?.server.to_string();
    let file = file_of(&context.cache_dir(), base.trim_end_matches('/'), path);
    if let Some(document) = read(&file) {
        return Ok(document);
    }
    let path = request::Path::new(path).with("timeout", TIMEOUT);
    let response = request::send(&context.client()?, Method::GET, path, JSON, Bytes::new()).await?;
    let (head, body) = response.into_parts();
    let body = request::collect(body).await?;
    let document = json::parse(&body).map_err(ResponseError::from)?;
    // A cache that cannot be written is not an error: the next command requests the document again.
    let _ = write(&file, &dump(&head.headers, &body));
    Ok(document)
}

fn file_of(cache: &Path, base: &str, path: &str) -> PathBuf {
    let name = Sha256::digest(format!("{base}{path}&timeout={TIMEOUT}"));
    let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    cache.join("http").join(name)
}

fn read(file: &Path) -> Option<Value> {
    if std::fs::metadata(file).ok()?.len() > FILE_BYTES_MAX {
        return None;
    }
    let bytes = std::fs::read(file).ok()?;
    let (sum, response) = bytes.split_at_checked(SUM_BYTES)?;
    if Sha256::digest(response).as_slice() != sum {
        return None;
    }
    json::parse(body(response)?).ok()
}

/// Returns the body of a successful response; `None` if it is encoded in chunks or has another length than it states.
fn body(response: &[u8]) -> Option<&[u8]> {
    let end = response.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, body) = (std::str::from_utf8(&response[..end]).ok()?, &response[end + 4..]);
    let mut lines = head.split("\r\n");
    let status = lines.next()?;
    if !status.starts_with("HTTP/") || status.split(' ').nth(1) != Some("200") {
        return None;
    }
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let length = name.eq_ignore_ascii_case(CONTENT_LENGTH.as_str());
        if name.eq_ignore_ascii_case(TRANSFER_ENCODING.as_str()) || length && value.trim() != body.len().to_string() {
            return None;
        }
    }
    Some(body)
}

/// Returns a response in the form of HTTP/1.1, with the requested representation in a header, as Go's cache has it.
fn dump(headers: &HeaderMap, body: &[u8]) -> Vec<u8> {
    let mut out = format!("HTTP/2.0 200 OK\r\nContent-Length: {}\r\n", body.len()).into_bytes();
    for (name, value) in headers.iter().filter(|(name, _)| *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING) {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if headers.get(VARY).is_some_and(|vary| vary.as_bytes().eq_ignore_ascii_case(b"accept")) {
        out.extend_from_slice(format!("X-Varied-Accept: {JSON}\r\n").as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    out
}

fn write(file: &Path, response: &[u8]) -> std::io::Result<()> {
    cache_file::replace(file, &[Sha256::digest(response).as_slice(), response].concat())
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use http::header::{CONTENT_TYPE, HeaderValue};

    use super::*;

    #[test]
    fn files_are_named_like_kubectls() {
        let path = "/openapi/v3/api/v1?hash=880512AE9B30FAE652B97832066AD5490DE51DFEDC557FC838D3AFA77E5FBCAB";
        let file = file_of(Path::new("/c"), "https://127.0.0.1:19743", path);
        let name = "73d3d47027b81bfd4095be9d247a1a043548286173fbe9f6383be5ff1312ed2f";
        assert_eq!(file, Path::new("/c/http").join(name));
    }

    #[test]
    fn cached_response_is_read_unless_it_is_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("http/a");
        assert_eq!(read(&file), None);
        let headers: HeaderMap =
            [(CONTENT_TYPE, HeaderValue::from_static(JSON)), (VARY, HeaderValue::from_static("Accept"))]
                .into_iter()
                .collect();
        let response = dump(&headers, br#"{"a":1}"#);
        let text = "HTTP/2.0 200 OK\r\nContent-Length: 7\r\ncontent-type: application/json\r\nvary: Accept\r\n\
            X-Varied-Accept: application/json\r\n\r\n{\"a\":1}";
        assert_eq!(String::from_utf8(response.clone()).unwrap(), text);
        write(&file, &response).unwrap();
        assert_eq!(read(&file), Some(value!({"a": 1})));
        let mut bytes = std::fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() = b']';
        std::fs::write(&file, &bytes).unwrap();
        assert_eq!(read(&file), None);
        std::fs::write(&file, b"short").unwrap();
        assert_eq!(read(&file), None);
    }

    #[test]
    fn only_complete_successful_responses_have_a_body() {
        let check = |response: &str, expect: Option<&str>| {
            assert_eq!(body(response.as_bytes()), expect.map(str::as_bytes), "{response:?}");
        };
        // Go writes no length if the length was unknown.
        check("HTTP/2.0 200 OK\r\nA: b\r\n\r\n{}", Some("{}"));
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", Some("{}"));
        check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", None);
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", None);
        check("HTTP/1.1 404 Not Found\r\n\r\n{}", None);
        check("{}", None);
    }
}
