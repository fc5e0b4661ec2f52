//! Request loads of the API server benchmark, and their latency.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use client::Client;
use http::{Method, Request};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::server::Server;

/// Padding that makes a pod as large as a real one with owners and status.
const FILLER_BYTES: usize = 3600;
const COLLECTION: &str = "/api/v1/namespaces/default/pods";

/// A type of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Create,
    Get,
    Patch,
}

pub(crate) struct Measurement {
    pub per_second: f64,
    pub p50: Duration,
    pub p99: Duration,
}

impl Load {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Create => "pod creates",
            Self::Get => "gets",
            Self::Patch => "patches",
        }
    }

    /// Returns request `number` of a client.
    fn request(self, client: usize, number: usize) -> Result<Request<Bytes>> {
        let object = format!("{COLLECTION}/load-{client}-0");
        Ok(match self {
            Self::Create => create(&format!("load-{client}-{number}"))?,
            Self::Get => Request::get(object).body(Bytes::new())?,
            Self::Patch => {
                let body = format!(r#"{{"metadata": {{"labels": {{"number": "{number}"}}}}}}"#);
                Request::builder()
                    .method(Method::PATCH)
                    .uri(object)
                    .header("content-type", "application/merge-patch+json")
                    .body(body.into())?
            }
        })
    }
}

/// Runs clients with one connection each, which send requests sequentially.
pub(crate) async fn run(server: &Server, load: Load, connections: usize, time: Duration) -> Result<Measurement> {
    static FIRST: AtomicUsize = AtomicUsize::new(1);
    // Each run uses new object names. Object 0 of every client always exists.
    let first = FIRST.fetch_add(1_000_000, Ordering::Relaxed);
    let mut clients = JoinSet::new();
    for number in 0..connections {
        let client = server.connect()?;
        let made = send(&client, Load::Create.request(number, 0)?).await?;
        ensure!(matches!(made.0, 201 | 409), "the first pod got {}", made.0);
        clients.spawn(async move {
            let (start, mut times) = (Instant::now(), Vec::new());
            while start.elapsed() < time {
                let sent = Instant::now();
                let (code, _) = send(&client, load.request(number, first + times.len())?).await?;
                ensure!(code < 300, "{load:?} got {code}");
                times.push(sent.elapsed());
            }
            anyhow::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(finished) = clients.join_next().await {
        times.extend(finished??);
    }
    summary(times, time)
}

/// Creates pods until `pods` exist.
pub(crate) async fn fill(server: &Server, pods: usize) -> Result<()> {
    let client = server.connect()?;
    let delete = Request::builder().method(Method::DELETE).uri(format!("{COLLECTION}?gracePeriodSeconds=0"));
    send(&client, delete.body(Bytes::new())?).await?;
    let mut clients = JoinSet::new();
    for number in 0..16 {
        let client = server.connect()?;
        clients.spawn(async move {
            for pod in (number..pods).step_by(16) {
                let (code, _) = send(&client, create(&format!("fill-{pod}"))?).await?;
                ensure!(code == 201, "pod {pod} got {code}");
            }
            anyhow::Ok(())
        });
    }
    while let Some(finished) = clients.join_next().await {
        finished??;
    }
    Ok(())
}

/// Lists all pods five times. Returns the best time.
pub(crate) async fn list(server: &Server) -> Result<(usize, Duration)> {
    let client = server.connect()?;
    let mut best = (0, Duration::MAX);
    for _ in 0..5 {
        let start = Instant::now();
        let (code, bytes) = send(&client, Request::get(COLLECTION).body(Bytes::new())?).await?;
        ensure!(code == 200, "the list got {code}");
        best = (bytes, best.1.min(start.elapsed()));
    }
    Ok(best)
}

/// Updates one object repeatedly. Each update waits until all watchers have received the previous one.
pub(crate) async fn fan_out(server: &Server, watchers: usize, time: Duration) -> Result<Measurement> {
    let (sender, mut heard) = mpsc::channel(watchers);
    let mut tasks = JoinSet::new();
    let path = "/api/v1/namespaces/default/configmaps?watch=1";
    for number in 0..watchers {
        // A hundred watches share a connection, as in a large client.
        let client = if number % 100 == 0 { server.connect()? } else { continue };
        for _ in 0..100.min(watchers - number) {
            let mut response = client.raw(Request::get(path).body(Bytes::new())?).await?.into_body();
            let sender = sender.clone();
            tasks.spawn(async move {
                while let Some(Ok(frame)) = response.frame().await {
                    if frame.data_ref().is_some_and(|data| !data.is_empty()) && sender.send(()).await.is_err() {
                        return;
                    }
                }
            });
        }
    }
    let client = server.connect()?;
    let body = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "told"}}"#;
    let create = Request::post("/api/v1/namespaces/default/configmaps").header("content-type", "application/json");
    let (code, _) = send(&client, create.body(Bytes::from_static(body.as_bytes()))?).await?;
    ensure!(matches!(code, 201 | 409), "the object got {code}");
    // The initial events of the watches are skipped.
    let counted = Arc::new(AtomicUsize::new(0));
    while let Ok(Some(())) = tokio::time::timeout(Duration::from_millis(500), heard.recv()).await {
        counted.fetch_add(1, Ordering::Relaxed);
    }
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        let patch = Request::builder()
            .method(Method::PATCH)
            .uri("/api/v1/namespaces/default/configmaps/told")
            .header("content-type", "application/merge-patch+json")
            .body(format!(r#"{{"data": {{"n": "{}"}}}}"#, times.len() + watchers * 10_000_000).into())?;
        let sent = Instant::now();
        let (code, _) = send(&client, patch).await?;
        ensure!(code == 200, "the change got {code}");
        for _ in 0..watchers {
            heard.recv().await.context("the watches ended")?;
        }
        times.push(sent.elapsed());
    }
    tasks.shutdown().await;
    summary(times, time)
}

fn create(name: &str) -> Result<Request<Bytes>> {
    let filler = "x".repeat(FILLER_BYTES);
    let body = format!(
        r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name}", "labels": {{"app": "load"}},
        "annotations": {{"filler": "{filler}"}}}}, "spec": {{"containers": [{{"name": "c", "image": "registry.example/image:1",
        "resources": {{"requests": {{"cpu": "100m", "memory": "64Mi"}}}}}}]}}}}"#
    );
    Ok(Request::post(COLLECTION).header("content-type", "application/json").body(body.into())?)
}

/// Returns the status code and the length of a response.
async fn send(client: &Client, request: Request<Bytes>) -> Result<(u16, usize)> {
    let response = client.raw(request).await?;
    let (code, mut body, mut bytes) = (response.status().as_u16(), response.into_body(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(anyhow::Error::from_boxed)?;
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    Ok((code, bytes))
}

fn summary(mut times: Vec<Duration>, time: Duration) -> Result<Measurement> {
    times.sort_unstable();
    let at = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1))).copied();
    #[expect(clippy::cast_precision_loss, reason = "printed for users, precision is not needed")]
    let per_second = times.len() as f64 / time.as_secs_f64();
    Ok(Measurement { per_second, p50: at(50).context("nothing was done")?, p99: at(99).context("nothing was done")? })
}
