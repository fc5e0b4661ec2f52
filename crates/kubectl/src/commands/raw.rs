//! `--raw`: requests with any path.

use std::io::Write;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;

use crate::failure::go_io_error;
use crate::request::{self, Path};
use crate::{Context, Failure, Invocation};

/// Checks the flags beside `--raw` of a command that sends a file, or may send one.
pub(super) fn check(invocation: &Invocation, requires_file: bool) -> Result<(), Failure> {
    let files = invocation.list("filename");
    if files.len() > 1 || requires_file && files.is_empty() {
        return Err(Failure::new("--raw can only use a single local file or stdin"));
    }
    if files.iter().any(|file| file.starts_with("http://") || file.starts_with("https://")) {
        return Err(Failure::new("--raw cannot read from a url"));
    }
    if invocation.bool("recursive") {
        return Err(Failure::new("--raw and --recursive are mutually exclusive"));
    }
    if !invocation.text("output").is_empty() {
        return Err(Failure::new("--raw and --output are mutually exclusive"));
    }
    check_path(invocation.text("raw"))
}

pub(super) fn check_path(path: &str) -> Result<(), Failure> {
    if path.starts_with('/') {
        return Ok(());
    }
    Err(Failure::new(format!("--raw must be a valid URL path: parse {path:?}: invalid URI for request")))
}

/// Sends a request, with a file or standard input as its body, and prints the response as it arrives.
pub(super) async fn send(context: &Context, method: Method, path: &str, file: &str) -> Result<(), Failure> {
    let body = match file {
        "" => Vec::new(),
        "-" => context.read_stdin()?,
        file => std::fs::read(file).map_err(|error| Failure::new(format!("open {file}: {}", go_io_error(&error))))?,
    };
    let client = context.client()?;
    let response = request::send(&client, method, Path::new(path), "application/json, */*", Bytes::from(body)).await?;
    let mut body = response.into_body();
    let mut out = context.out();
    while let Some(frame) = body.frame().await {
        if let Ok(bytes) = frame.map_err(client::TransportError::Broken)?.into_data() {
            out.write_all(&bytes)?;
            out.flush()?;
        }
    }
    Ok(())
}
