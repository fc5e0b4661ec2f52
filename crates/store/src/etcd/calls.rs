//! gRPC server metrics: calls by method and status code, and transferred bytes.
//!
//! The methods are known at build time, so a call looks up its counters by path and uses only atomics.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::Code;
use tower::{Layer, Service};

/// A method of the protocol.
struct Method {
    path: &'static str,
    service: &'static str,
    name: &'static str,
    /// The gRPC type label: unary, client stream, server stream or bidirectional stream.
    kind: &'static str,
}

/// Sorted by path.
const METHODS: &[Method] = include!(concat!(env!("OUT_DIR"), "/methods.rs"));

/// Names of all status codes by number, in Go's spelling.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Formats a status like Go's gRPC: etcd uses this as the cancel reason of a watch.
pub(super) fn status_text(status: &tonic::Status) -> String {
    format!("rpc error: code = {} desc = {}", CODES[status.code() as usize], status.message())
}

const STATUS: &str = "grpc-status";

/// Counters since the start.
#[derive(Debug)]
pub(super) struct Calls {
    methods: Vec<Counts>,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Counts {
    started: AtomicU64,
    handled: [AtomicU64; CODES.len()],
}

/// A series: labels and value.
pub(super) type Series = (Vec<(&'static str, &'static str)>, u64);

impl Default for Calls {
    fn default() -> Self {
        let methods = METHODS.iter().map(|_| Counts::default()).collect();
        Self { methods, received_bytes: AtomicU64::new(0), sent_bytes: AtomicU64::new(0) }
    }
}

impl Calls {
    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of started calls per method.
    pub(super) fn started(&self) -> impl Iterator<Item = Series> {
        let counted = |(method, counts): (&Method, &Counts)| (labels(method), counts.started.load(Ordering::Relaxed));
        METHODS.iter().zip(&self.methods).map(counted)
    }

    /// Returns the number of finished calls per code. Codes other than OK are included only once they occurred.
    pub(super) fn handled(&self) -> impl Iterator<Item = Series> {
        METHODS.iter().zip(&self.methods).flat_map(|(method, counts)| {
            let by_code = CODES.iter().zip(&counts.handled).map(|(code, count)| (*code, count.load(Ordering::Relaxed)));
            let there = by_code.filter(|(code, count)| *code == CODES[0] || *count > 0);
            there.map(move |(code, count)| {
                let mut labels = labels(method);
                labels.insert(0, ("grpc_code", code));
                (labels, count)
            })
        })
    }
}

fn labels(method: &Method) -> Vec<(&'static str, &'static str)> {
    vec![("grpc_method", method.name), ("grpc_service", method.service), ("grpc_type", method.kind)]
}

/// A call in progress. Dropping it counts the call as cancelled.
struct Call {
    calls: Arc<Calls>,
    method: usize,
    finished: bool,
}

impl Call {
    fn start(calls: &Arc<Calls>, path: &str) -> Option<Self> {
        let method = METHODS.binary_search_by(|method| method.path.cmp(path)).ok()?;
        calls.methods[method].started.fetch_add(1, Ordering::Relaxed);
        Some(Self { calls: calls.clone(), method, finished: false })
    }

    fn end(&mut self, code: Code) {
        if !self.finished {
            self.finished = true;
            self.calls.methods[self.method].handled[code as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Finishes the call if the headers or trailers contain a status.
    fn end_by(&mut self, headers: &HeaderMap) {
        if let Some(status) = headers.get(STATUS) {
            self.end(Code::from_bytes(status.as_bytes()));
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}

/// Counts received messages.
struct CountedRequestBody {
    body: Body,
    calls: Arc<Calls>,
}

impl HttpBody for CountedRequestBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        count(frame.as_ref(), &self.calls.received_bytes);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Counts sent messages and the end of the call.
pub(super) struct CountedResponseBody {
    body: Body,
    call: Option<Call>,
}

impl HttpBody for CountedResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(call) = &mut self.call {
            count(frame.as_ref(), &call.calls.sent_bytes);
            match &frame {
                Some(Ok(frame)) => {
                    if let Some(trailers) = frame.trailers_ref() {
                        call.end_by(trailers);
                    }
                }
                Some(Err(_)) | None => call.end(Code::Unknown),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn count(frame: Option<&Result<Frame<Bytes>, axum::Error>>, bytes: &AtomicU64) {
    if let Some(Ok(frame)) = frame
        && let Some(data) = frame.data_ref()
    {
        bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
    }
}

/// Layer that counts the calls of services.
#[derive(Clone)]
pub(super) struct Counting(pub(super) Arc<Calls>);

/// Services whose calls are counted.
#[derive(Clone)]
pub(super) struct CountedService<S> {
    calls: Arc<Calls>,
    inner: S,
}

impl<S> Layer<S> for Counting {
    type Service = CountedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CountedService { calls: self.0.clone(), inner }
    }
}

impl<S> Service<Request<Body>> for CountedService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<CountedResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<CountedResponseBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut call = Call::start(&self.calls, request.uri().path());
        let calls = self.calls.clone();
        let pending = self.inner.call(request.map(|body| Body::new(CountedRequestBody { body, calls })));
        Box::pin(async move {
            let response = pending.await?;
            if let Some(call) = &mut call {
                call.end_by(response.headers());
            }
            Ok(response.map(|body| CountedResponseBody { body, call }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handled(calls: &Calls) -> Vec<(&'static str, &'static str, u64)> {
        let label = |labels: &[(&str, &'static str)], name: &str| {
            labels.iter().find(|(have, _)| *have == name).map_or("", |label| label.1)
        };
        let counted = calls.handled().filter(|(_, count)| *count > 0);
        counted.map(|(labels, count)| (label(&labels, "grpc_method"), label(&labels, "grpc_code"), count)).collect()
    }

    #[test]
    fn methods_are_found_by_path_and_codes_by_number() {
        assert!(METHODS.is_sorted_by_key(|method| method.path));
        let calls = Arc::new(Calls::default());
        for method in METHODS {
            assert!(Call::start(&calls, method.path).is_some_and(|call| METHODS[call.method].path == method.path));
        }
        assert!(calls.started().all(|(_, count)| count == 1));
        assert!(Call::start(&calls, "/etcdserverpb.KV/Nothing").is_none());
        let kind = |path: &str| METHODS.iter().find(|method| method.path == path).map(|method| method.kind);
        assert_eq!(kind("/etcdserverpb.KV/Range"), Some("unary"));
        assert_eq!(kind("/etcdserverpb.Watch/Watch"), Some("bidi_stream"));
        assert_eq!(kind("/etcdserverpb.Maintenance/Snapshot"), Some("server_stream"));
        for (number, name) in CODES.iter().enumerate() {
            let code = Code::from_bytes(number.to_string().as_bytes());
            let actual = format!("{code:?}").to_lowercase().replace("cancelled", "canceled");
            assert_eq!((code as usize, actual), (number, name.to_lowercase()));
        }
    }

    #[test]
    fn call_is_counted_exactly_once_regardless_of_its_end() {
        let calls = Arc::new(Calls::default());
        let path = "/etcdserverpb.KV/Put";
        let call = || Call::start(&calls, path).expect("it is a method");
        drop(call());
        let mut failed_call = call();
        failed_call.end_by(&HeaderMap::from_iter([(STATUS.parse().expect("a name"), http::HeaderValue::from(9))]));
        failed_call.end(Code::Unknown);
        drop(failed_call);
        let mut done = call();
        done.end_by(&HeaderMap::new());
        done.end(Code::Ok);
        drop(done);
        assert_eq!(handled(&calls), [("Put", "OK", 1), ("Put", "Canceled", 1), ("Put", "FailedPrecondition", 1)]);
    }
}
