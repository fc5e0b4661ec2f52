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

/// Headers that belong to one connection and are not passed on.
/// Characters that are not escaped in links to files.
const LINK: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

const HOP_BY_HOP: [HeaderName; 4] = [CONNECTION, HOST, TRANSFER_ENCODING, HeaderName::from_static("keep-alive")];

pub(super) struct Server(Arc<Shared>);

struct Shared {
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
        Ok(Self(Arc::new(Shared {
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
            // A client that disconnects needs no answer.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
                .await;
        });
    }
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Response<client::Body> {
        let path = request.uri().path().to_owned();
        if let Some(directory) = &self.directory
            && let Some(rest) = path.strip_prefix(&self.directory_prefix)
            && self.directory_prefix.len() > self.api_prefix.len()
        {
            return file(directory, rest);
        }
        // As Go's router, paths with empty segments are redirected.
        if path.contains("//") {
            let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
            let slash = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
            let mut response = text(StatusCode::MOVED_PERMANENTLY, "");
            if let Ok(location) = HeaderValue::from_str(&format!("/{}{slash}", segments.join("/"))) {
                response.headers_mut().insert(http::header::LOCATION, location);
            }
            return response;
        }
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
        let allowed = |filter: &Filter| filter.accepts(request.method().as_str(), &path, &host);
        if !self.filter.as_ref().is_none_or(allowed) {
            return text(StatusCode::FORBIDDEN, "Forbidden\n");
        }
        let Some(query_path) = self.target(&request) else {
            return text(StatusCode::NOT_FOUND, "404 page not found\n");
        };
        match self.pass(request, &query_path).await {
            Ok(response) => response,
            Err(problem) => text(StatusCode::BAD_GATEWAY, &format!("{problem}\n")),
        }
    }

    /// Returns the path and query at the server.
    fn target(&self, request: &Request<Incoming>) -> Option<String> {
        let whole = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        if !format!("{whole}/").starts_with(&self.api_prefix) && !whole.starts_with(&self.api_prefix) {
            return None;
        }
        if self.api_prefix.starts_with("/api") {
            return Some(whole.to_owned());
        }
        let rest = whole.strip_prefix(&self.api_prefix)?;
        Some(if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") })
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
