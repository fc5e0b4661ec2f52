//! ComponentStatus: probes the control plane components when it is read.

use std::time::Duration;

use api::kind::Verb;
use api_registry::options::ListOptions;
use api_registry::selection::Selection;
use apimachinery::status::{Reason, Status};
use apimachinery::{Object, Value, value};
use bytes::BytesMut;
use client::config::Tls;
use http::{HeaderMap, Method, Uri};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::{Call, authorized_verb, method_not_allowed, render};
use crate::backend::Route;
use crate::proxy::{ProxyError, Target, nothing};
use crate::response::HttpResponse;

/// Components probed over HTTPS on localhost, with their ports.
const COMPONENTS: [(&str, u16); 2] = [("controller-manager", 10257), ("scheduler", 10259)];
/// The name of the store in the list.
const STORE: &str = "etcd-0";
/// Timeout of a probe.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of bytes returned from a probe's response.
const PROBE_BYTES_MAX: usize = 10 << 10;

/// The result of a probe: health, response body and error.
struct ProbeResult {
    healthy: bool,
    message: String,
    error: String,
}

/// Serves one ComponentStatus or the list.
pub(super) async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    if !matches!(authorized_verb(call), Some(Verb::Get | Verb::List)) || call.request.query.has("watch") {
        return Err(method_not_allowed());
    }
    if call.resource.in_url {
        let status = one(call, &call.resource.name).await;
        let status = status
            .ok_or_else(|| Status::failure(Reason::Unknown, format!("Component not found: {}", call.resource.name)))?;
        return render::formed(call, 200, &status, &call.version().columns);
    }
    let options = ListOptions::of_list(&call.request.query)?;
    let selection = Selection::of(&call.kind, call.version(), &options)?;
    let [(manager, _), (scheduler, _)] = COMPONENTS;
    let (manager, store, scheduler) = tokio::join!(one(call, manager), one(call, STORE), one(call, scheduler));
    let all = [manager, store, scheduler].into_iter().flatten();
    let selected = all.filter(|status| selection.matches(&call.kind, call.version(), status)).collect();
    render::many(call, selected, Object::new())
}

async fn one(call: &Call<'_>, name: &str) -> Option<Value> {
    let found = match COMPONENTS.iter().find(|(component, _)| *component == name) {
        Some((_, port)) => timeout(TIMEOUT, probe(*port)).await.unwrap_or_else(|_| {
            ProbeResult::ill(format!("Get \"https://127.0.0.1:{port}/healthz\": context deadline exceeded"))
        }),
        None if name == STORE => match call.state.storage.catch_up().await {
            Ok(_) => ProbeResult { healthy: true, message: "ok".to_owned(), error: String::new() },
            Err(status) => ProbeResult { healthy: false, message: String::new(), error: status.message },
        },
        None => return None,
    };
    let mut condition = value!({"type": "Healthy", "status": (if found.healthy { "True" } else { "False" })});
    if let Value::Object(condition) = &mut condition {
        for (field, text) in [("message", found.message), ("error", found.error)] {
            if !text.is_empty() {
                condition.insert(field, text);
            }
        }
    }
    let conditions = vec![condition];
    Some(value!({"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": name}, "conditions": conditions}))
}

/// Probes a component on localhost. Its certificate is not verified: a process that owns the port controls the host.
async fn probe(port: u16) -> ProbeResult {
    let dial = format!("127.0.0.1:{port}");
    let url = format!("https://{dial}/healthz");
    let tls = Tls { insecure_skip_verify: true, ..Tls::default() };
    let route = Route { url: Uri::try_from(&url).unwrap_or_default(), dial, server_name: "127.0.0.1".to_owned() };
    let target = Target { route, tls, path: "/healthz".to_owned() };
    let response = match target.request(Method::GET, HeaderMap::new(), nothing()) {
        Ok(request) => target.send(request).await,
        Err(error) => Err(error),
    };
    let response = match response {
        Ok(response) => response,
        Err(ProxyError::Dial { text, .. }) => return ProbeResult::ill(format!("Get \"{url}\": {text}")),
        Err(error) => return ProbeResult::ill(format!("Get \"{url}\": {error}")),
    };
    let status = response.status().as_u16();
    if !(200..400).contains(&status) {
        return ProbeResult::ill(format!("HTTP probe failed with statuscode: {status}"));
    }
    let mut body = response.into_body();
    let mut output = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        let remaining = PROBE_BYTES_MAX - output.len();
        output.extend_from_slice(&data[..data.len().min(remaining)]);
    }
    ProbeResult { healthy: true, message: String::from_utf8_lossy(&output).into_owned(), error: String::new() }
}

impl ProbeResult {
    const fn ill(message: String) -> Self {
        Self { healthy: false, message, error: String::new() }
    }
}
