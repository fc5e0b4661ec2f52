use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::Instrument;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

use super::*;

/// The log of a test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the log lines of `work` without time and level.
fn logged(levels: &str, work: impl FnOnce()) -> Vec<String> {
    let log = Log::default();
    let writer = log.clone();
    let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_ansi(false).without_time();
    let levels: Targets = levels.parse().expect("valid levels");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer.with_filter(levels)), work);
    let bytes = log.0.lock().expect("no writer panics").clone();
    let text = String::from_utf8(bytes).expect("UTF-8");
    text.lines().map(|line| line.trim().split_once(' ').map_or(line, |(_, rest)| rest).to_owned()).collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

const GET: Request<'_> =
    Request { audit_id: "1f", verb: "get", resource: "pods", subresource: "log", namespace: "default", name: "web" };

#[test]
fn component_is_on_lines_of_its_tasks_and_has_no_parent() {
    let lines = logged("info", || {
        let _up = component("up").entered();
        runtime().block_on(
            async {
                let task = async { tracing::info!(target: "kubelet::pods", "started") };
                tokio::spawn(task.in_current_span()).await.expect("the task ends");
            }
            .instrument(component("kubelet")),
        );
    });
    // Only the future is in the span of the kubelet, so the span of its starter does not precede it.
    assert_eq!(lines, ["component{name=\"kubelet\"}: kubelet::pods: started"]);
}

#[test]
fn request_has_audit_id_verb_resource_and_later_its_user() {
    let lines = logged("info", || {
        let server = component("kube-apiserver");
        // A client in the same process has its own spans.
        let _client = component("kubelet").entered();
        let span = request(&server, &GET);
        span.in_scope(|| tracing::info!(target: "kube_apiserver::request", "authenticating"));
        authenticated(&span, "system:node:a\n\u{1b}[31m");
        span.in_scope(|| tracing::info!(target: "kube_apiserver::request", "authorized"));
        let path = Request { resource: "/healthz", subresource: "", namespace: "", name: "", ..GET };
        request(&server, &path).in_scope(|| tracing::info!(target: "kube_apiserver::request", "served"));
    });
    let head = "component{name=\"kube-apiserver\"}:request{audit_id=\"1f\" verb=\"get\" resource=";
    let pod = "\"pods\" subresource=\"log\" namespace=\"default\" name=\"web\"";
    assert_eq!(
        lines,
        [
            format!("{head}{pod}}}: kube_apiserver::request: authenticating"),
            format!("{head}{pod} user=\"system:node:a\\n\\u{{1b}}[31m\"}}: kube_apiserver::request: authorized"),
            format!("{head}\"/healthz\"}}: kube_apiserver::request: served"),
        ]
    );
}

#[test]
fn request_span_is_off_below_info() {
    let lines = logged("kube_apiserver=warn,info", || {
        let span = request(&component("kube-apiserver"), &GET);
        assert!(span.is_disabled());
        authenticated(&span, "a");
        span.in_scope(|| tracing::warn!(target: "kube_apiserver::request", "failed"));
    });
    assert_eq!(lines, ["kube_apiserver::request: failed"]);
}

#[test]
fn values_of_clients_are_bounded() {
    let long = "é".repeat(VALUE_MAX);
    let lines = logged("info", || {
        let span = request(&component("kube-apiserver"), &Request { resource: &long, ..GET });
        span.in_scope(|| tracing::info!(target: "kube_apiserver::request", "x"));
    });
    assert!(lines[0].contains(&format!("resource=\"{}\"", "é".repeat(VALUE_MAX / 2))), "{lines:?}");
}

#[test]
fn pod_and_controller_key_are_on_lines_below_them_at_any_level() {
    let lines = logged("warn", || {
        let _component = component("kubelet").entered();
        pod("default", "web-1", "u1").in_scope(|| tracing::warn!(target: "kubelet::pod_worker", "failed to stop"));
        let key = controller_key("deployment", &"default/web");
        key.in_scope(|| tracing::error!(target: "controller_runtime::run", "panicked"));
    });
    assert_eq!(
        lines,
        [
            "component{name=\"kubelet\"}:pod{namespace=\"default\" name=\"web-1\" uid=\"u1\"}: kubelet::pod_worker: failed to stop",
            "component{name=\"kubelet\"}:reconcile{controller=\"deployment\" key=default/web}: controller_runtime::run: panicked",
        ]
    );
}
