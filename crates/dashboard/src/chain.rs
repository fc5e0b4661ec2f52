//! The event chain of an object, live: the steps of `knarr trace`, computed again when one of their objects changes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::meta::Scope;
use apimachinery::{Key, Resource, Value, fields, json, value};
use bytes::Bytes;
use client::cache::{self, Reader, Source};
use client::{Body, Client, Target, transport};
use diagnostics::chain::{self, NodeRecords};
use http::StatusCode;
use http_body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument;

use crate::causes::with_causes;
use crate::rejection::Rejection;

/// Changes within this time are sent together.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Maximum number of steps that are sent; the oldest come first.
const STEPS_MAX: usize = 5_000;
/// Interval of empty lines while nothing changes, by which a disconnected browser is detected.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The permits of a chain, for the limits of its session and of the server. It holds them as long as it has copies of
/// objects.
pub(crate) type Permits = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// Reads the stage records of the nodes on this host. It may block.
pub type NodeRecordsSource = Arc<dyn Fn() -> Vec<NodeRecords> + Send + Sync>;

/// The object whose chain is requested.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Query {
    resource: Resource,
    key: Key,
}

impl Query {
    /// Parses `group`, `version`, `resource`, `kind`, `namespace` and `name`. Without a namespace, the object is
    /// cluster-scoped.
    pub(crate) fn parse(query: &str) -> Result<Self, Rejection> {
        let field = |name: &str| {
            let found = form_urlencoded::parse(query.as_bytes()).find(|(found, _)| found == name);
            found.map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        let required = |name: &str| match field(name) {
            value if value.is_empty() => Err(Rejection::Query(format!("the parameter {name:?} is missing"))),
            value => Ok(value),
        };
        let namespace = field("namespace");
        let scope = if namespace.is_empty() { Scope::Cluster } else { Scope::Namespaced };
        let resource = Resource {
            group: field("group").into(),
            version: required("version")?.into(),
            plural: required("resource")?.into(),
            kind: required("kind")?.into(),
            scope,
        };
        Ok(Self { resource, key: Key { namespace: namespace.into(), name: required("name")?.into() } })
    }

    /// Returns the namespace of the object's events.
    fn events_namespace(&self) -> &str {
        if self.key.namespace.is_empty() { chain::CLUSTER_EVENTS_NAMESPACE } else { &self.key.namespace }
    }
}

/// A watched kind.
struct WatchedKind {
    resource: Resource,
    reader: Reader<Value>,
}

/// Returns a stream of JSON lines, each with all steps of the chain. It ends when the browser disconnects. Kinds that
/// the user may not list are omitted and named in `missing`.
pub(crate) async fn follow(
    client: Client,
    query: Query,
    records: Option<NodeRecordsSource>,
    permits: Permits,
) -> Result<Body, Rejection> {
    let target = Target::object(&query.resource, &query.key);
    client.get(&target).await.map_err(|error| rejected(&error))?;
    let (sender, receiver) = mpsc::channel(1);
    let sending = async move {
        send_chain(client, query, records, sender).await;
        drop(permits);
    };
    tokio::spawn(sending.in_current_span());
    Ok(transport::body(Lines(receiver)))
}

fn rejected(error: &client::Error) -> Rejection {
    match error.status() {
        Some(status) => Rejection::Server {
            code: StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY),
            reason: status.reason.name().to_owned(),
            message: status.message.to_string(),
        },
        None => Rejection::Unreachable(with_causes(error)),
    }
}

async fn send_chain(client: Client, query: Query, records: Option<NodeRecordsSource>, sender: mpsc::Sender<Bytes>) {
    let mut reflectors = JoinSet::new();
    let mut watch = |resource: &Resource, namespace: &str, field_selector: String| {
        let source =
            Source { namespace: namespace.into(), field_selector, ..Source::all(client.clone(), resource.clone()) };
        let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), |object| object);
        reflectors.spawn(reflector.run().in_current_span());
        WatchedKind { resource: resource.clone(), reader }
    };
    let root =
        watch(&query.resource, &query.key.namespace, format!("metadata.name={}", fields::escape(&query.key.name)));
    let mut watched = vec![watch(chain::EVENTS, query.events_namespace(), String::new())];
    if query.resource.scope == Scope::Namespaced {
        watched.extend(chain::RELATED.iter().map(|kind| watch(kind, &query.key.namespace, String::new())));
    }
    let mut last = Bytes::new();
    let mut advances: Vec<Reader<Value>> =
        watched.iter().chain([&root]).map(|watched| watched.reader.clone()).collect();
    loop {
        if watched.iter().chain([&root]).all(is_known) {
            let node_records = read(records.clone()).await;
            let line = line(&root, &watched, &query.key, &node_records);
            if line != last {
                last = line.clone();
                if sender.send(line).await.is_err() {
                    return;
                }
            }
        }
        let changed = any_advanced(&mut advances);
        tokio::select! {
            () = changed => tokio::time::sleep_until(Instant::now() + DEBOUNCE).await,
            () = tokio::time::sleep(KEEP_ALIVE) => {
                if sender.send(Bytes::from_static(b"\n")).await.is_err() {
                    return;
                }
            }
            () = sender.closed() => return,
        }
    }
}

/// Whether the objects of a kind are known, or cannot be read.
fn is_known(watched: &WatchedKind) -> bool {
    let progress = watched.reader.progress();
    progress.synced || progress.failure.is_some()
}

/// Waits until one of the caches changes.
async fn any_advanced(readers: &mut [Reader<Value>]) {
    let mut waits: Vec<_> = readers.iter_mut().map(|reader| Box::pin(reader.advanced())).collect();
    std::future::poll_fn(|task| {
        let is_ready = waits.iter_mut().any(|wait| wait.as_mut().poll(task).is_ready());
        if is_ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

async fn read(records: Option<NodeRecordsSource>) -> Vec<NodeRecords> {
    let Some(records) = records else { return Vec::new() };
    tokio::task::spawn_blocking(move || records()).await.unwrap_or_default()
}

/// Returns the chain as one line of JSON.
fn line(root: &WatchedKind, watched: &[WatchedKind], key: &Key, records: &[NodeRecords]) -> Bytes {
    let snapshot = root.reader.snapshot();
    let found = snapshot.objects.entry(key).map(|entry| entry.value.clone());
    let missing: Vec<Value> = watched
        .iter()
        .filter(|watched| !watched.reader.progress().synced)
        .map(|watched| Value::from(watched.resource.to_string()))
        .collect();
    let all = |is_event: bool| {
        let kinds = watched.iter().filter(move |watched| (watched.resource == *chain::EVENTS) == is_event);
        let objects = kinds.map(|watched| watched.reader.snapshot().objects);
        objects.flat_map(|objects| objects.iter().map(|entry| entry.value.clone()).collect::<Vec<_>>())
    };
    let (objects, events): (Vec<Value>, Vec<Value>) = (all(false).collect(), all(true).collect());
    let is_gone = found.is_none();
    let steps = found.map(|root| chain::chain(&root, &objects, &events, records)).unwrap_or_default();
    let count = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    let steps: Vec<Value> = steps.iter().take(STEPS_MAX).map(chain::TraceEvent::to_value).collect();
    let mut line = json::to_vec(&value!({"steps": steps, "count": count, "missing": missing, "gone": is_gone}));
    line.push(b'\n');
    line.into()
}

/// A body of lines that another task sends.
struct Lines(mpsc::Receiver<Bytes>);

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        task: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(task).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_names_an_object() {
        let query = Query::parse("group=apps&version=v1&resource=deployments&kind=Deployment&namespace=a&name=web");
        let query = query.expect("a query");
        assert_eq!(query.resource, Resource::namespaced("apps", "v1", "deployments", "Deployment"));
        assert_eq!((query.key.clone(), query.events_namespace()), (Key::new("a", "web"), "a"));
        let node = Query::parse("version=v1&resource=nodes&kind=Node&name=n").expect("a query");
        assert_eq!((node.resource.scope, node.events_namespace()), (Scope::Cluster, "default"));
        assert!(matches!(Query::parse("version=v1&resource=nodes&kind=Node"), Err(Rejection::Query(_))));
    }
}
