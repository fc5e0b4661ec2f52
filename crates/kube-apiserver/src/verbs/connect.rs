//! Connect subresources: log, exec, attach, port-forward and proxy.

mod proxied;

use admission::Operation;
use api::kind::Connect;
use api_registry::connect::{ForwardOptions, LogOptions, Node, ProcessOptions, broken, choose, node_of};
use apimachinery::status::{GroupName, Status};
use apimachinery::{Value, value};
use bytes::BytesMut;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{Call, subresource};
use crate::proxy::{
    self, CertificateVerification, ProxyError, STREAM_CLOSE, Stream, TUNNEL_PREFIX, Target, headers, nothing,
};
use crate::response::{Body, HttpResponse};

/// Maximum number of bytes read from a kubelet's error response.
const ERROR_BYTES_MAX: usize = 50_000;

pub(super) async fn serve(call: &Call<'_>, connect: Connect) -> Result<HttpResponse, Status> {
    match connect {
        Connect::Log => log(call).await,
        Connect::Exec => process(call, "exec").await,
        Connect::Attach => process(call, "attach").await,
        Connect::PortForward => forward(call).await,
        Connect::Proxy => proxied::serve(call).await,
    }
}

/// Serves `pods/log`.
async fn log(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let name = &call.resource.name;
    let options = LogOptions::of(&call.request.query, name)?;
    let offered = headers::websocket_protocols(&call.request.headers);
    if !proxy::has_messages(&offered) {
        return Err(Status::bad_request(format!("requested protocol(s) are not supported: {offered:?}")));
    }
    let pod = call.current(name).await?.ok_or_else(|| call.not_found(name))?.object;
    let container = choose(&pod, &options.container)?;
    let Some(node) = node_of(&pod) else {
        // The pod is not scheduled yet, so there is no log.
        let mut nothing = Response::new(Body::Full(bytes::Bytes::new()));
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        return Ok(nothing);
    };
    let node = kubelet_of(call, node).await?;
    let path = format!("/containerLogs/{}/{name}/{container}?{}", call.namespace(), options.query());
    let proof = if options.insecure { CertificateVerification::Skipped } else { CertificateVerification::Configured };
    let target = call
        .state
        .kubelets
        .target(&node, path.trim_end_matches('?').to_owned(), proof)
        .map_err(|error| failed(&error))?;
    let request = target.request(Method::GET, HeaderMap::new(), nothing()).map_err(|error| failed(&error))?;
    let response = target.send(request).await.map_err(|error| {
        let (url, path) = (&target.route.dial, &target.path);
        broken(format!("Get \"https://{url}{path}\": {}", reached(&error)))
    })?;
    if !(200..=206).contains(&response.status().as_u16()) {
        return Err(error_status(response, GroupName::new("", "pods/log"), name).await);
    }
    if headers::is_websocket(&call.request.headers) {
        let client = upgrade(call)?.1;
        return proxy::messages(&call.request.headers, client, response.into_body()).map_err(|error| failed(&error));
    }
    let mut returned = proxy::returned(response);
    *returned.status_mut() = StatusCode::OK;
    returned.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    returned.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(returned)
}

/// Serves `pods/exec` and `pods/attach`.
async fn process(call: &Call<'_>, action: &str) -> Result<HttpResponse, Status> {
    // Opening a stream requires `create`, even for a WebSocket, which can only use GET.
    call.authorize("create")?;
    let name = &call.resource.name;
    let options = ProcessOptions::of(&call.request.query);
    let query = &call.request.query;
    let mut connect_options = value!({
        "apiVersion": "v1",
        "kind": (if action == "exec" { "PodExecOptions" } else { "PodAttachOptions" }),
        "stdin": (options.stdin), "stdout": (options.stdout), "stderr": (options.stderr), "tty": (options.tty),
        "container": (options.container.as_str()),
    });
    if let (Value::Object(fields), "exec") = (&mut connect_options, action) {
        fields.insert("command", query.all("command").into_iter().map(Value::from).collect::<Vec<_>>());
    }
    subresource::admit(call, &call.kind, name, action, &mut connect_options, Operation::Connect).await?;
    let pod = call.current(name).await?.ok_or_else(|| call.not_found(name))?.object;
    let (node, path) = options.target(&pod, action)?;
    let node = kubelet_of(call, node).await?;
    let target =
        call.state.kubelets.target(&node, path, CertificateVerification::Configured).map_err(|error| failed(&error))?;
    let offered = headers::websocket_protocols(&call.request.headers);
    if !node.websockets && offered.contains(&STREAM_CLOSE) {
        let client = upgrade(call)?.1;
        return proxy::translate(&target, &call.request.headers, client, &options)
            .await
            .map_err(|error| failed(&error));
    }
    switch(call, &target).await
}

/// Serves `pods/portforward`.
async fn forward(call: &Call<'_>) -> Result<HttpResponse, Status> {
    // Opening a stream requires `create`, even for a WebSocket, which can only use GET.
    call.authorize("create")?;
    let name = &call.resource.name;
    let options = ForwardOptions::of(&call.request.query)?;
    let mut connect_options = value!({"apiVersion": "v1", "kind": "PodPortForwardOptions"});
    subresource::admit(call, &call.kind, name, "portforward", &mut connect_options, Operation::Connect).await?;
    let pod = call.current(name).await?.ok_or_else(|| call.not_found(name))?.object;
    let (node, path) = options.target(&pod)?;
    let node = kubelet_of(call, node).await?;
    let target =
        call.state.kubelets.target(&node, path, CertificateVerification::Configured).map_err(|error| failed(&error))?;
    let offered = headers::websocket_protocols(&call.request.headers);
    if !node.websockets && offered.iter().any(|protocol| protocol.starts_with(TUNNEL_PREFIX)) {
        let client = upgrade(call)?.1;
        return proxy::tunnel(&target, &call.request.headers, client).await.map_err(|error| failed(&error));
    }
    switch(call, &target).await
}

/// Forwards an upgrade request.
async fn switch(call: &Call<'_>, target: &Target) -> Result<HttpResponse, Status> {
    let (stream, client) = upgrade(call)?;
    let passed = headers::forwarded(&call.request.headers, call.request.from);
    let request = target.request(call.request.method.clone(), passed, stream.body).map_err(|error| failed(&error))?;
    target.switch(request, client).await.map_err(|error| failed(&error))
}

/// Returns the client's stream and upgrade. Fails if the client did not request an upgrade.
fn upgrade(call: &Call<'_>) -> Result<(Stream, hyper::upgrade::OnUpgrade), Status> {
    let required = || Status::bad_request("Upgrade request required");
    let mut stream = taken(call)?;
    let client = stream.upgrade.take().filter(|_| headers::is_upgrade(&call.request.headers)).ok_or_else(required)?;
    Ok((stream, client))
}

/// Takes the request's body and connection; can be called once.
fn taken(call: &Call<'_>) -> Result<Stream, Status> {
    let stream = call.stream.lock().expect("no holder panics").take();
    stream.ok_or_else(|| Status::internal_error("the request has no stream"))
}

/// Returns the kubelet address of a node.
async fn kubelet_of(call: &Call<'_>, name: &str) -> Result<Node, Status> {
    let table = call.state.storage.table();
    let kind = table.kind("", "nodes").ok_or_else(|| Status::internal_error("nodes are not served"))?;
    let node = call.object_of(kind, "", name).await?.object;
    Node::of(&node, &call.state.kubelets.preferred).map_err(|error| broken(error.to_string()))
}

/// Converts a kubelet's error response to a Status.
async fn error_status(response: Response<Incoming>, resource: GroupName<'_>, name: &str) -> Status {
    let code = response.status().as_u16();
    let mut body = response.into_body();
    let mut text = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        let remaining = ERROR_BYTES_MAX - text.len();
        text.extend_from_slice(&data[..data.len().min(remaining)]);
        if data.len() >= remaining {
            break;
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    match code {
        500 => Status::internal_error(text),
        400 => Status::bad_request(text),
        code => Status::generic(code, "", resource, name, &text),
    }
}

fn failed(error: &ProxyError) -> Status {
    broken(error.to_string())
}

/// Returns the message of a proxy error without the "error dialing backend" prefix.
fn reached(error: &ProxyError) -> String {
    match error {
        ProxyError::Dial { text, .. } => text.clone(),
        other => other.to_string(),
    }
}
