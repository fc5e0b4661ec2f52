//! The server of `kubectl proxy`.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use client::transport::UpgradeResponse;
use client::{Https, Transport};
use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

use super::filter::Filter;
use crate::Failure;
use crate::failure::chain;

/// Characters that are not escaped in links to files.
const LINK: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Headers that belong to one connection and are not passed on.
const HOP_BY_HOP: [HeaderName; 4] = [CONNECTION, HOST, TRANSFER_ENCODING, HeaderName::from_static("keep-alive")];

pub(super) struct Server(Arc<ServerState>);

struct ServerState {
    transport: Https,
    filter: Option<Filter>,
    api_prefix: String,
    directory: Option<PathBuf>,
    directory_prefix: String,
}

impl Server {
    pub(super) fn new(
        config: client::Config,
        filter: Option<Filter>,
        api_prefix: &str,
        directory: &str,
        directory_prefix: &str,
    ) -> Result<Self, Failure> {
        let with_slash = |prefix: &str| if prefix.ends_with('/') { prefix.to_owned() } else { format!("{prefix}/") };
        Ok(Self(Arc::new(ServerState {
            transport: Https::new(config)?,
            filter,
            api_prefix: with_slash(api_prefix),
            directory: Some(directory).filter(|directory| !directory.is_empty()).map(PathBuf::from),
            directory_prefix: with_slash(directory_prefix),
        })))
    }

    pub(super) async fn serve_tcp(self, listener: TcpListener) -> Result<(), Failure> {
        loop {
            let (stream, _) = listener.accept().await?;
            self.connection(stream);
        }
    }

    pub(super) async fn serve_unix(self, listener: UnixListener) -> Result<(), Failure> {
        loop {
            let (stream, _) = listener.accept().await?;
            self.connection(stream);
        }
    }

    fn connection(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, std::convert::Infallible>(shared.answer(request).await) }
            });
            // The client disconnected; there is nothing left to do.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
                .await;
        });
    }
}

impl ServerState {
    async fn answer(&self, request: Request<Incoming>) -> Response<client::Body> {
        let path = request.uri().path().to_owned();
        if let Some(directory) = &self.directory
            && let Some(rest) = path.strip_prefix(&self.directory_prefix)
            && self.directory_prefix.len() > self.api_prefix.len()
        {
            return file(directory, rest);
        }
        let whole = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let filter = self.filter.as_ref();
        let target = match decide(&self.api_prefix, filter, request.method().as_str(), whole, host) {
            Decision::Pass(target) => target,
            Decision::Redirect(location) => {
                let mut response = text(StatusCode::MOVED_PERMANENTLY, "");
                if let Ok(location) = HeaderValue::from_str(&location) {
                    response.headers_mut().insert(http::header::LOCATION, location);
                }
                return response;
            }
            Decision::NotFound => return text(StatusCode::NOT_FOUND, "404 page not found\n"),
            Decision::Forbid => return text(StatusCode::FORBIDDEN, "Forbidden\n"),
        };
        match self.pass(request, &target).await {
            Ok(response) => response,
            Err(problem) => text(StatusCode::BAD_GATEWAY, &format!("{problem}\n")),
        }
    }

    async fn pass(&self, mut request: Request<Incoming>, path: &str) -> Result<Response<client::Body>, String> {
        let upgrade = request.headers().get(UPGRADE).cloned();
        let taken = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.map_err(|error| chain(&error))?.to_bytes();
        let mut outgoing = Request::builder().method(parts.method).uri(path);
        let passed = |name: &HeaderName| !HOP_BY_HOP.contains(name) || upgrade.is_some() && *name == CONNECTION;
        for (name, value) in parts.headers.iter().filter(|(name, _)| passed(name)) {
            outgoing = outgoing.header(name, value);
        }
        let outgoing = outgoing.body(bytes).map_err(|error| error.to_string())?;
        if let (Some(taken), Some(_)) = (taken, upgrade) {
            return self.upgrade(outgoing, taken).await;
        }
        let mut response = self.transport.send(outgoing).await.map_err(|error| chain(&error))?;
        for name in HOP_BY_HOP {
            response.headers_mut().remove(name);
        }
        Ok(response)
    }

    /// Connects the client's connection with one to the server after both switched protocols.
    async fn upgrade(
        &self,
        request: Request<Bytes>,
        client_side: hyper::upgrade::OnUpgrade,
    ) -> Result<Response<client::Body>, String> {
        match self.transport.switch(request).await.map_err(|error| chain(&error))? {
            UpgradeResponse::NotSwitched(response) => Ok(response),
            UpgradeResponse::Switched { head, mut connection } => {
                tokio::spawn(async move {
                    if let Ok(upgraded) = client_side.await {
                        let mut upgraded = TokioIo::new(upgraded);
                        // Either side may close the connection at any time.
                        let _ = tokio::io::copy_bidirectional(&mut upgraded, &mut connection).await;
                    }
                });
                Ok(head.map(|()| client::transport::body(Full::new(Bytes::new()))))
            }
        }
    }
}

/// The outcome of a request for the API.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// It is passed on with this path and query.
    Pass(String),
    Redirect(String),
    NotFound,
    Forbid,
}

/// Decides by the path that the server will see: without the prefix, and with the percent-encoding resolved. Otherwise
/// `%65xec` would pass a filter that rejects `exec`.
fn decide(api_prefix: &str, filter: Option<&Filter>, method: &str, whole: &str, host: &str) -> Decision {
    let (path, query) = whole.split_once('?').map_or((whole, None), |(path, query)| (path, Some(query)));
    // As in Go's router, paths with empty or dot segments are redirected.
    let decoded = decode(path);
    let cleaned = clean(&decoded);
    if cleaned != decoded {
        let cleaned = percent_encoding::utf8_percent_encode(&cleaned, LINK);
        return Decision::Redirect(query.map_or_else(|| cleaned.to_string(), |query| format!("{cleaned}?{query}")));
    }
    let Some(target) = target(api_prefix, whole) else { return Decision::NotFound };
    let seen = decode(target.split('?').next().unwrap_or_default());
    match filter.is_none_or(|filter| filter.accepts(method, &seen, host)) {
        true => Decision::Pass(target),
        false => Decision::Forbid,
    }
}

fn decode(path: &str) -> String {
    percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned()
}

/// Returns a path without empty and dot segments. A trailing slash is kept.
fn clean(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let slash = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    format!("/{}{slash}", segments.join("/"))
}

/// Returns the path and query at the server.
fn target(api_prefix: &str, whole: &str) -> Option<String> {
    if !format!("{whole}/").starts_with(api_prefix) && !whole.starts_with(api_prefix) {
        return None;
    }
    if api_prefix.starts_with("/api") {
        return Some(whole.to_owned());
    }
    let rest = whole.strip_prefix(api_prefix)?;
    Some(if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") })
}

fn text(status: StatusCode, text: &str) -> Response<client::Body> {
    let body = client::transport::body(Full::new(Bytes::from(text.to_owned())));
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Serves a file below a directory.
fn file(directory: &Path, path: &str) -> Response<client::Body> {
    let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned();
    let relative = Path::new(&path);
    if relative.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return text(StatusCode::NOT_FOUND, "404 page not found\n");
    }
    let mut file = directory.join(relative);
    if file.is_dir() {
        let index = file.join("index.html");
        if !index.exists() {
            return listing(&file);
        }
        file = index;
    }
    let Ok(bytes) = std::fs::read(&file) else { return text(StatusCode::NOT_FOUND, "404 page not found\n") };
    let mut response = Response::new(client::transport::body(Full::new(Bytes::from(bytes))));
    let kind = match file.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        _ => "text/plain; charset=utf-8",
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Lists the files of a directory.
fn listing(directory: &Path) -> Response<client::Body> {
    let Ok(entries) = std::fs::read_dir(directory) else { return text(StatusCode::NOT_FOUND, "404 page not found\n") };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .map(|entry| {
            let slash = if entry.path().is_dir() { "/" } else { "" };
            format!("{}{slash}", entry.file_name().to_string_lossy())
        })
        .collect();
    names.sort();
    let mut page = String::from("<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n");
    for name in names {
        let link = percent_encoding::utf8_percent_encode(&name, LINK);
        let escaped = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;");
        page.push_str(&format!("<a href=\"{link}\">{escaped}</a>\n"));
    }
    page.push_str("</pre>\n");
    let mut response = text(StatusCode::OK, &page);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXEC: &str = "/api/v1/namespaces/a/pods/b/exec";

    fn decide_with_defaults(api_prefix: &str, whole: &str) -> Decision {
        let rejected = "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach";
        let filter = Filter::new("^.*", rejected, "^localhost$", "^$").unwrap();
        decide(api_prefix, Some(&filter), "GET", whole, "localhost:8001")
    }

    #[test]
    fn rejected_paths_are_compared_without_percent_encoding_and_prefix() {
        let check = |api_prefix: &str, whole: &str, expect: Decision| {
            assert_eq!(decide_with_defaults(api_prefix, whole), expect, "{api_prefix} {whole}");
        };
        let pods = "/api/v1/namespaces/a/pods?limit=1";
        check("/", pods, Decision::Pass(pods.to_owned()));
        check("/cluster/", &format!("/cluster{pods}"), Decision::Pass(pods.to_owned()));
        check("/", EXEC, Decision::Forbid);
        check("/", "/api/v1/namespaces/a/pods/b/%65xec?command=id", Decision::Forbid);
        check("/", "/ap%69/v1/namespaces/a/p%6Fds/b/%65xe%63", Decision::Forbid);
        check("/", "/api/v1/namespaces/a/pods%2Fb%2Fexec", Decision::Forbid);
        check("/cluster/", &format!("/cluster{EXEC}"), Decision::Forbid);
        check("/cluster/", "/cluster/api/v1/namespaces/a/pods/b/%61ttach", Decision::Forbid);
        check("/cluster/", EXEC, Decision::NotFound);
    }

    #[test]
    fn empty_and_dot_segments_are_redirected_before_the_filter() {
        let check = |whole: &str, expect: &str| {
            assert_eq!(decide_with_defaults("/", whole), Decision::Redirect(expect.to_owned()), "{whole}");
        };
        check("//api//v1/pods/?limit=1", "/api/v1/pods/?limit=1");
        check(&format!("/x/..{EXEC}"), EXEC);
        check(&format!("/x/%2e%2E{EXEC}"), EXEC);
        check(&format!("/./{EXEC}"), EXEC);
    }
}
