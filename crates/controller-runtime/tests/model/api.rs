//! Model API server behind HTTP: `FakeCluster` with lagging watches and rejected requests.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::status::{GroupName, Reason, Status};
use apimachinery::time::Time;
use apimachinery::{Key, Resource, Value, json, value};
use bytes::Bytes;
use client::{Body, Client, InProcess, Settings, transport};
use controller::testing::{FakeCluster, WriteError};
use controller::{Action, Patch, Preconditions, kinds};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::Full;
use tokio::sync::mpsc;

/// The server. Clones share its state.
#[derive(Clone)]
pub(crate) struct Api(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// The delay of watch events.
    lag: Duration,
}

struct State {
    cluster: FakeCluster,
    watchers: Vec<(String, mpsc::UnboundedSender<Bytes>)>,
    /// Every write request, such as `POST pods`.
    writes: Vec<String>,
    reject: Option<Refuse>,
    /// Whether requests get no response.
    is_unreachable: bool,
    /// The duration of a write.
    write_time: Duration,
}

type Refuse = Box<dyn Fn(&Method, &str, &str) -> Option<Status> + Send>;

impl Api {
    pub(crate) fn new(lag: Duration) -> Self {
        let cluster = FakeCluster::new(Time::from_unix(1_000_000, 0));
        let state = State {
            cluster,
            watchers: Vec::new(),
            writes: Vec::new(),
            reject: None,
            is_unreachable: false,
            write_time: Duration::ZERO,
        };
        Self(Arc::new(Inner { state: Mutex::new(state), lag }))
    }

    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let serve = move |request: Request<Bytes>| {
            let api = api.clone();
            async move {
                let (is_unreachable, write_time) = {
                    let state = api.0.state.lock().unwrap();
                    (state.is_unreachable, state.write_time)
                };
                if is_unreachable {
                    return std::future::pending().await;
                }
                if request.method() != Method::GET {
                    tokio::time::sleep(write_time).await;
                }
                api.serve(&request)
            }
        };
        Client::new(Arc::new(InProcess::new((), serve)), Settings::default()).unwrap()
    }

    /// Changes the cluster as another client would.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut FakeCluster) -> R) -> R {
        let mut state = self.0.state.lock().unwrap();
        self.notify_after(&mut state, change)
    }

    /// Sets a function that may reject requests by method, kind with subresource, and name.
    pub(crate) fn reject_requests(&self, reject: impl Fn(&Method, &str, &str) -> Option<Status> + Send + 'static) {
        self.0.state.lock().unwrap().reject = Some(Box::new(reject));
    }

    /// Sets the duration of writes.
    pub(crate) fn slow_writes(&self, write_time: Duration) {
        self.0.state.lock().unwrap().write_time = write_time;
    }

    /// Stops responding to requests.
    pub(crate) fn go(&self) {
        self.0.state.lock().unwrap().is_unreachable = true;
    }

    pub(crate) fn accept_all(&self) {
        self.0.state.lock().unwrap().reject = None;
    }

    /// Returns the number of write requests such as `POST pods`, regardless of their outcome.
    pub(crate) fn writes(&self, which: &str) -> usize {
        self.0.state.lock().unwrap().writes.iter().filter(|write| *write == which).count()
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&FakeCluster) -> bool) {
        let reached = async {
            while !condition(&self.0.state.lock().unwrap().cluster) {
                // Time is virtual: sleeping lets all other tasks run first.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(3600), reached).await.is_err() {
            let state = self.0.state.lock().unwrap();
            panic!("never {what}:\n{}\n{}", state.cluster.picture().join("\n"), state.cluster.log.join("\n"));
        }
    }

    fn serve(&self, request: &Request<Bytes>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (resource, key, subresource) = read_path(&path).unwrap_or_else(|| panic!("no path: {path}"));
        let named = if subresource.is_empty() { resource.to_string() } else { format!("{resource}/{subresource}") };
        let mut state = self.0.state.lock().unwrap();
        if let Some(status) = state.reject.as_ref().and_then(|reject| reject(request.method(), &named, &key.name)) {
            state.writes.push(format!("{} {named}", request.method()));
            return json_response(status.code, &status.to_value());
        }
        if request.method() == Method::GET {
            return if query.contains("watch=true") {
                self.watch(&mut state, &resource, &query)
            } else {
                match state.cluster.get(&resource, &key) {
                    Some(object) => json_response(200, object),
                    None => error_response(&resource, &key, &WriteError::NotFound),
                }
            };
        }
        state.writes.push(format!("{} {named}", request.method()));
        let body = json::parse(request.body()).unwrap();
        if request.method() == Method::POST && subresource.is_empty() {
            let created = self.notify_after(&mut state, |cluster| cluster.create(&resource, body));
            return match created {
                Ok(key) => json_response(201, state.cluster.get(&resource, &key).unwrap()),
                Err(error) => error_response(&resource, &key, &error),
            };
        }
        let action = action(request.method(), &resource, &key, &subresource, body);
        match self.notify_after(&mut state, |cluster| cluster.execute(&action)) {
            Ok(()) => match state.cluster.get(&resource, &key) {
                Some(object) => json_response(200, object),
                None => json_response(200, &value!({"kind": "Status", "status": "Success"})),
            },
            Err(error) => error_response(&resource, &key, &error),
        }
    }

    fn watch(&self, state: &mut State, resource: &Resource, query: &str) -> Response<Body> {
        if !query.contains("sendInitialEvents=true") {
            let status = Status::failure(Reason::Expired, "the model keeps no history");
            return json_response(410, &status.to_value());
        }
        let (sender, events) = mpsc::unbounded_channel();
        for entry in state.cluster.of(resource).iter() {
            sender.send(event("ADDED", &entry.value)).unwrap();
        }
        let end = value!({"metadata": {"resourceVersion": (state.cluster.revision().to_string()),
            "annotations": {"k8s.io/initial-events-end": "true"}}});
        sender.send(event("BOOKMARK", &end)).unwrap();
        state.watchers.push((resource.to_string(), sender));
        Response::new(transport::body(Feed(events)))
    }

    /// Applies a change and sends its watch events after the lag.
    fn notify_after<R>(&self, state: &mut State, change: impl FnOnce(&mut FakeCluster) -> R) -> R {
        let kinds: Vec<String> = kinds::ALL.iter().map(ToString::to_string).collect();
        let before: Vec<_> = kinds.iter().map(|kind| state.cluster.of(kind)).collect();
        let result = change(&mut state.cluster);
        let mut events = Vec::new();
        for (kind, before) in kinds.iter().zip(before) {
            let after = state.cluster.of(kind);
            for entry in after.iter() {
                match before.entry(&entry.key) {
                    Some(old) if old.revision == entry.revision => {}
                    Some(_) => events.push((kind.clone(), event("MODIFIED", &entry.value))),
                    None => events.push((kind.clone(), event("ADDED", &entry.value))),
                }
            }
            for entry in before.iter().filter(|entry| after.entry(&entry.key).is_none()) {
                let mut last = entry.value.clone();
                MetaMut::of(&mut last).unwrap().set_resource_version(state.cluster.revision());
                events.push((kind.clone(), event("DELETED", &last)));
            }
        }
        for (kind, bytes) in events {
            state.watchers.retain(|(_, watcher)| !watcher.is_closed());
            for (_, watcher) in state.watchers.iter().filter(|(watched, _)| *watched == kind) {
                let (watcher, bytes, lag) = (watcher.clone(), bytes.clone(), self.0.lag);
                if lag.is_zero() {
                    drop(watcher.send(bytes));
                } else {
                    tokio::spawn(async move {
                        tokio::time::sleep(lag).await;
                        drop(watcher.send(bytes));
                    });
                }
            }
        }
        result
    }
}

/// The body of a watch.
struct Feed(mpsc::UnboundedReceiver<Bytes>);

impl http_body::Body for Feed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        self.0.poll_recv(task).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn event(kind: &str, object: &Value) -> Bytes {
    json::to_vec(&value!({"type": kind, "object": (object.clone())})).into()
}

fn json_response(code: u16, value: &Value) -> Response<Body> {
    let mut response = Response::new(transport::body(Full::new(Bytes::from(json::to_vec(value)))));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn error_response(resource: &Resource, key: &Key, error: &WriteError) -> Response<Body> {
    let name = GroupName { group: &resource.group, name: &resource.plural };
    let status = match error {
        WriteError::NotFound => Status::not_found(name, &key.name),
        WriteError::AlreadyExists => Status::already_exists(name, &key.name),
        WriteError::Conflict => Status::conflict(name, &key.name, "the object has been modified"),
        WriteError::Invalid(message) => Status::bad_request(message.as_str()),
    };
    json_response(status.code, &status.to_value())
}

fn read_path(path: &str) -> Option<(Resource, Key, String)> {
    let mut parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let group = if parts.remove(0) == "api" { "" } else { parts.remove(0) };
    parts.remove(0);
    let mut key = Key::default();
    if parts[0] == "namespaces" && parts.len() > 2 {
        parts.remove(0);
        key.namespace = parts.remove(0).into();
    }
    let plural = parts.remove(0);
    let name = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    let mut rest = parts.into_iter();
    key.name = rest.next().unwrap_or_default().into();
    Some((api::resources::by_name(&name)?.clone(), key, rest.next().unwrap_or_default().to_owned()))
}

fn action(method: &Method, resource: &Resource, key: &Key, subresource: &str, body: Value) -> Action {
    let resource = resource.clone();
    let text = |value: &Value, path: &[&str]| value.str_at(path).map(Into::into);
    match *method {
        Method::PUT if subresource == "status" => Action::UpdateStatus { resource, object: body },
        Method::PUT => Action::Update { resource, object: body, result_event: None },
        Method::DELETE => Action::Delete {
            resource,
            key: key.clone(),
            only_if: Preconditions {
                uid: text(&body, &["preconditions", "uid"]),
                resource_version: text(&body, &["preconditions", "resourceVersion"]),
            },
            propagation: None,
            grace_seconds: None,
            result_event: None,
        },
        Method::PATCH => Action::Patch {
            resource,
            key: key.clone(),
            subresource: "",
            only_if: Preconditions {
                uid: text(&body, &["metadata", "uid"]),
                resource_version: text(&body, &["metadata", "resourceVersion"]),
            },
            patch: Patch::Merge(body),
        },
        _ => panic!("the model does not implement {method}"),
    }
}

/// Returns the names of all objects of a kind.
pub(crate) fn names(cluster: &FakeCluster, kind: &str) -> Vec<String> {
    cluster.of(kind).iter().map(|entry| Meta::of(&entry.value).name().to_owned()).collect()
}
