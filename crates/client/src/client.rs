//! API client: the verbs of the API, retries, and response parsing.

use std::sync::Arc;
use std::time::Duration;

use apimachinery::status::{GroupName, Status};
use apimachinery::{Resource, Value, json, serde_bridge};
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::config::{Config, Impersonate};
use crate::error::{Error, ResponseError};
use crate::limit::Limit;
use crate::object_ref::Target;
use crate::options::{DeleteOptions, ListOptions, Patch, WatchOptions, WriteOptions};
use crate::shared_objects::{Objects, ResponseObject, WantShared};
use crate::transport::{Body, Https, LongLived, Transport, TransportError, UpgradeResponse};
use crate::watch::Watch;

/// The settings of a client, independent of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    pub user_agent: String,
    /// Requests per second; zero for no limit.
    pub qps: f32,
    /// Burst of requests above the rate.
    pub burst: u32,
    /// Request timeout, except for watches. The server's own timeout is a minute.
    pub request_timeout: Duration,
    /// Maximum attempts if the server sends Retry-After or cannot be reached.
    pub attempts_max: u32,
    /// Back-off between attempts without Retry-After.
    pub backoff: Backoff,
    /// Maximum Retry-After that is honoured. A longer one is returned as an error.
    pub retry_after_max: Duration,
    /// Maximum response size.
    pub response_bytes_max: usize,
    /// Maximum size of a watch event.
    pub event_bytes_max: usize,
}

/// A client of the API server. Clones share rate limit and connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    transport: Arc<dyn Transport>,
    settings: Settings,
    limit: Option<Limit>,
    headers: Vec<(HeaderName, HeaderValue)>,
    form: Form,
}

/// The requested representation of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Object,
    Metadata,
}

impl Form {
    /// Returns the Accept header for an object or a list.
    const fn accept(self, list: bool) -> Option<&'static str> {
        match (self, list) {
            (Self::Object, _) => None,
            (Self::Metadata, false) => Some("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
            (Self::Metadata, true) => Some("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
        }
    }
}

/// One page of objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct List {
    /// The resourceVersion of the list.
    pub resource_version: String,
    /// The continue token of the next page; empty if this is the last.
    pub continue_token: String,
    /// The remaining item count, if known.
    pub remaining: Option<i64>,
    /// The objects, each with kind and apiVersion.
    pub items: Vec<Value>,
}

/// Grace period after the requested watch timeout.
const WATCH_GRACE: Duration = Duration::from_secs(30);

impl Default for Settings {
    fn default() -> Self {
        Self {
            user_agent: concat!("knarr/", env!("CARGO_PKG_VERSION")).to_owned(),
            qps: 0.0,
            burst: 0,
            request_timeout: Duration::from_secs(65),
            attempts_max: 10,
            backoff: Backoff { first: Duration::from_millis(100), max: Duration::from_secs(5) },
            retry_after_max: Duration::from_secs(30),
            // 41 MB hold 7,200 pods, so the limit allows lists of nearly a hundred thousand pods.
            response_bytes_max: 512 << 20,
            // A request body is limited to 3 MiB, and the server adds little to an object.
            event_bytes_max: 16 << 20,
        }
    }
}

impl Client {
    /// Creates a client that sends through `transport`.
    pub fn new(transport: Arc<dyn Transport>, settings: Settings) -> Result<Self, Error> {
        let user_agent = HeaderValue::from_str(&settings.user_agent).map_err(http::Error::from)?;
        let limit = Limit::new(settings.qps, settings.burst);
        let headers = vec![(USER_AGENT, user_agent), (ACCEPT, HeaderValue::from_static("application/json"))];
        Ok(Self(Arc::new(Inner { transport, settings, limit, headers, form: Form::Object })))
    }

    /// Creates a client of the server in a configuration.
    pub fn connect(config: &Config, settings: Settings) -> Result<Self, Error> {
        let client = Self::new(Arc::new(Https::new(config.clone())?), settings)?;
        match &config.impersonate {
            Some(impersonate) => client.impersonating(impersonate),
            None => Ok(client),
        }
    }

    /// Returns a client that impersonates a user, with a separate rate limit.
    pub fn impersonating(&self, who: &Impersonate) -> Result<Self, Error> {
        let value = |text: &str| HeaderValue::from_str(text).map_err(http::Error::from);
        let mut headers: Vec<_> =
            self.0.headers.iter().filter(|(name, _)| !name.as_str().starts_with("impersonate-")).cloned().collect();
        headers.push((HeaderName::from_static("impersonate-user"), value(&who.user)?));
        if !who.uid.is_empty() {
            headers.push((HeaderName::from_static("impersonate-uid"), value(&who.uid)?));
        }
        for group in &who.groups {
            headers.push((HeaderName::from_static("impersonate-group"), value(group)?));
        }
        for (key, values) in &who.extra {
            let key = percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC);
            let name = HeaderName::try_from(format!("impersonate-extra-{key}")).map_err(http::Error::from)?;
            for text in values {
                headers.push((name.clone(), value(text)?));
            }
        }
        let settings = self.0.settings.clone();
        let limit = Limit::new(settings.qps, settings.burst);
        let transport = Arc::clone(&self.0.transport);
        Ok(Self(Arc::new(Inner { transport, settings, limit, headers, form: self.0.form })))
    }

    /// Returns a client that reads metadata only (PartialObjectMetadata), with a separate rate limit.
    #[must_use]
    pub fn metadata_only(&self) -> Self {
        let (settings, headers) = (self.0.settings.clone(), self.0.headers.clone());
        let limit = Limit::new(settings.qps, settings.burst);
        let transport = Arc::clone(&self.0.transport);
        Self(Arc::new(Inner { transport, settings, limit, headers, form: Form::Metadata }))
    }

    /// Reads an object or a subresource.
    pub async fn get(&self, target: &Target<'_>) -> Result<Value, Error> {
        let request = self.reading(target.object_path()?, false)?;
        self.request_json(request, target).await
    }

    /// Reads an object as a type.
    pub async fn get_as<T: DeserializeOwned>(&self, target: &Target<'_>) -> Result<T, Error> {
        Ok(serde_bridge::from_value(&self.get(target).await?).map_err(ResponseError::from)?)
    }

    /// Reads one page of objects.
    pub async fn list(&self, target: &Target<'_>, options: &ListOptions) -> Result<List, Error> {
        let path = options.query().after(target.path()?);
        let request = self.reading(path, true)?;
        let response = self.request_json(request, target).await?;
        List::read(response, target.resource)
    }

    /// Reads all objects, in pages of `limit` if it is not zero.
    pub async fn list_all(&self, target: &Target<'_>, options: &ListOptions) -> Result<List, Error> {
        let mut options = options.clone();
        let mut all = List::default();
        loop {
            let page = self.list(target, &options).await?;
            all.items.extend(page.items);
            all.resource_version = page.resource_version;
            if page.continue_token.is_empty() {
                return Ok(all);
            }
            options.continue_token = page.continue_token;
            // The continue token contains the version.
            options.resource_version.clear();
            options.resource_version_match = None;
        }
    }

    pub async fn watch(&self, target: &Target<'_>, options: &WatchOptions) -> Result<Watch, Error> {
        self.watch_as(target, options, None).await
    }

    /// Starts a watch that may receive shared objects of a server in this process.
    pub(crate) async fn watch_as(
        &self,
        target: &Target<'_>,
        options: &WatchOptions,
        want_shared: Option<WantShared>,
    ) -> Result<Watch, Error> {
        let path = options.query().after(target.path()?);
        let mut request = self.reading(path, false)?;
        request.extensions_mut().insert(LongLived);
        if let Some(want_shared) = want_shared {
            request.extensions_mut().insert(want_shared);
        }
        let deadline = Instant::now() + self.0.settings.request_timeout;
        let response = self.send(request).await?;
        if !response.status().is_success() {
            return Err(self.read_rejection(response, &Method::GET, target, deadline).await);
        }
        let ends = options.timeout.map(|timeout| Instant::now() + timeout + WATCH_GRACE);
        let objects = response.extensions().get::<Objects>().and_then(Objects::take);
        Ok(Watch::new(response.into_body(), self.0.settings.event_bytes_max, ends).with_objects(objects))
    }

    /// Creates an object, or posts to a subresource such as `binding`, `eviction` and `token`.
    pub async fn create(&self, target: &Target<'_>, object: &Value, options: &WriteOptions) -> Result<Value, Error> {
        let path = options.query().after(target.path()?);
        self.value(Method::POST, target, path, Some(("application/json", object))).await
    }

    /// Replaces an object or a subresource. A resourceVersion in the object is a precondition.
    pub async fn update(&self, target: &Target<'_>, object: &Value, options: &WriteOptions) -> Result<Value, Error> {
        let path = options.query().after(target.object_path()?);
        self.value(Method::PUT, target, path, Some(("application/json", object))).await
    }

    /// Patches an object or a subresource.
    pub async fn patch(&self, target: &Target<'_>, patch: &Patch, options: &WriteOptions) -> Result<Value, Error> {
        let path = options.query().after(target.object_path()?);
        self.value(Method::PATCH, target, path, Some((patch.content_type(), patch.value()))).await
    }

    /// Deletes an object. The response is the object, or a `Status` if it no longer exists.
    pub async fn delete(&self, target: &Target<'_>, options: &DeleteOptions) -> Result<Value, Error> {
        let body = options.body();
        self.value(Method::DELETE, target, target.object_path()?, Some(("application/json", &body))).await
    }

    /// Deletes all objects that a list would return.
    pub async fn delete_collection(
        &self,
        target: &Target<'_>,
        which: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Value, Error> {
        let path = which.query().after(target.path()?);
        self.value(Method::DELETE, target, path, Some(("application/json", &options.body()))).await
    }

    /// Sends a request unchanged, except for the client's default headers, and returns the response unchecked.
    pub async fn raw(&self, mut request: Request<Bytes>) -> Result<Response<Body>, Error> {
        self.add_headers(&mut request);
        self.send(request).await
    }

    /// Sends a request with an `Upgrade` header, with the client's default headers, once. Only the time until the
    /// response is limited.
    pub async fn switch(&self, mut request: Request<Bytes>) -> Result<UpgradeResponse, Error> {
        self.add_headers(&mut request);
        let timeout = self.0.settings.request_timeout;
        let sent = tokio::time::timeout(timeout, self.0.transport.switch(request)).await;
        Ok(sent.map_err(|_| Error::Timeout(timeout))??)
    }

    fn add_headers(&self, request: &mut Request<Bytes>) {
        let own = request.headers().clone();
        for (name, value) in self.0.headers.iter().filter(|(name, _)| !own.contains_key(name)) {
            request.headers_mut().append(name, value.clone());
        }
    }

    async fn value(
        &self,
        method: Method,
        target: &Target<'_>,
        path: String,
        body: Option<(&str, &Value)>,
    ) -> Result<Value, Error> {
        self.request_json(self.request(method, path, body)?, target).await
    }

    async fn request_json(&self, mut request: Request<Bytes>, target: &Target<'_>) -> Result<Value, Error> {
        let method = request.method().clone();
        request.extensions_mut().insert(WantShared);
        let mut response = self.send(request).await?;
        if let Some(ResponseObject(object)) = response.extensions_mut().remove() {
            return Ok(object);
        }
        let deadline = Instant::now() + self.0.settings.request_timeout;
        if !response.status().is_success() {
            return Err(self.read_rejection(response, &method, target, deadline).await);
        }
        let bytes = self.collect(response.into_body(), deadline).await?;
        Ok(json::parse(&bytes).map_err(ResponseError::from)?)
    }

    fn reading(&self, path: String, list: bool) -> Result<Request<Bytes>, Error> {
        let mut request = self.request(Method::GET, path, None)?;
        if let Some(accept) = self.0.form.accept(list) {
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
        }
        Ok(request)
    }

    fn request(&self, method: Method, path: String, body: Option<(&str, &Value)>) -> Result<Request<Bytes>, Error> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in &self.0.headers {
            request = request.header(name, value);
        }
        let bytes = match body {
            Some((content_type, value)) => {
                request = request.header(CONTENT_TYPE, content_type);
                json::to_vec(value).into()
            }
            None => Bytes::new(),
        };
        Ok(request.body(bytes)?)
    }

    /// Sends a request with retries until a response without Retry-After or the maximum attempts.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, Error> {
        let settings = &self.0.settings;
        let mut waits = settings.backoff.waits();
        for attempt in 1.. {
            if let Some(limit) = &self.0.limit {
                limit.acquire().await;
            }
            let sending = self.0.transport.send(request.clone());
            let sent = tokio::time::timeout(settings.request_timeout, sending).await;
            let result = sent.map_err(|_| Error::Timeout(settings.request_timeout))?;
            let wait = match &result {
                // No request was sent, so a retry cannot execute it twice.
                Err(TransportError::Connect { .. }) => Some(waits.next_wait()),
                Err(_) => None,
                Ok(response) => retry_delay(response).filter(|wait| *wait <= settings.retry_after_max),
            };
            match wait {
                Some(wait) if attempt < settings.attempts_max => tokio::time::sleep(wait).await,
                _ => return Ok(result?),
            }
        }
        unreachable!("the last attempt returns")
    }

    async fn read_rejection(
        &self,
        response: Response<Body>,
        method: &Method,
        target: &Target<'_>,
        deadline: Instant,
    ) -> Error {
        let code = response.status().as_u16();
        let retry_after = retry_after(&response);
        let bytes = match self.collect(response.into_body(), deadline).await {
            Ok(bytes) => bytes,
            Err(error) => return error,
        };
        let parsed_status = json::parse(&bytes).ok().and_then(|value| Status::from_value(&value));
        let mut status = parsed_status.filter(|status| !status.success).unwrap_or_else(|| {
            let resource = GroupName { group: &target.resource.group, name: &target.resource.plural };
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(2048)]);
            Status::generic(code, method.as_str(), resource, &target.name, text.trim())
        });
        if status.code == 0 {
            status.code = code;
        }
        if let (None, Some(wait)) = (status.retry_after_seconds(), retry_after) {
            let seconds = wait.as_secs().try_into().unwrap_or(u32::MAX);
            status.details.get_or_insert_default().retry_after_seconds = seconds;
        }
        status.into()
    }

    async fn collect(&self, mut body: Body, deadline: Instant) -> Result<Bytes, Error> {
        let settings = &self.0.settings;
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        loop {
            let frame = tokio::time::timeout_at(deadline, body.frame()).await;
            let frame = frame.map_err(|_| Error::Timeout(settings.request_timeout))?;
            let Some(frame) = frame.transpose().map_err(TransportError::Broken)? else { break };
            let Ok(bytes) = frame.into_data() else { continue };
            if first.len() + rest.len() + bytes.len() > settings.response_bytes_max {
                return Err(ResponseError::TooLarge(settings.response_bytes_max).into());
            }
            // A body in one piece, as within a process, is not copied.
            if first.is_empty() && rest.is_empty() {
                first = bytes;
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&std::mem::take(&mut first));
                }
                rest.extend_from_slice(&bytes);
            }
        }
        Ok(if rest.is_empty() { first } else { rest.freeze() })
    }
}

impl List {
    /// Returns the objects as a type.
    pub fn items_as<T: DeserializeOwned>(&self) -> Result<Vec<T>, Error> {
        let items: Result<Vec<T>, _> = self.items.iter().map(serde_bridge::from_value).collect();
        Ok(items.map_err(ResponseError::from)?)
    }

    fn read(mut response: Value, resource: &Resource) -> Result<Self, Error> {
        let kind = response.text_at(&["kind"]);
        let Some(item_kind) = kind.strip_suffix("List").map(str::to_owned) else {
            return Err(ResponseError::Unexpected(format!("the list of {resource} has kind {kind:?}")).into());
        };
        let meta = |field| response.text_at(&["metadata", field]).to_owned();
        let (resource_version, continue_token) = (meta("resourceVersion"), meta("continue"));
        let remaining = response.int_at(&["metadata", "remainingItemCount"]);
        let api_version = response.text_at(&["apiVersion"]).to_owned();
        let mut items = match response.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        // The server omits kind and apiVersion of the items.
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            item.get_or_insert_with("apiVersion", || api_version.as_str().into());
            item.get_or_insert_with("kind", || item_kind.as_str().into());
        }
        Ok(Self { resource_version, continue_token, remaining, items })
    }
}

/// Returns Retry-After of a 429 or 5xx response.
fn retry_delay(response: &Response<Body>) -> Option<Duration> {
    let busy = response.status() == StatusCode::TOO_MANY_REQUESTS || response.status().is_server_error();
    busy.then(|| retry_after(response)).flatten()
}

fn retry_after(response: &Response<Body>) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}
