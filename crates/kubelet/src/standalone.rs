//! Standalone mode: a client without an API server. Watches report an empty list. POST and PUT return their object
//! without storing it. Other requests fail with NotFound.

use std::sync::Arc;

use apimachinery::{Value, json, value};
use bytes::Bytes;
use client::transport::{self, Body, ResponseFuture, Transport};
use client::{Client, Settings};
use futures_util::{StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Full, StreamBody};
use hyper::body::Frame;

/// Returns a client of an empty API.
pub fn client(settings: Settings) -> Result<Client, client::Error> {
    Client::new(Arc::new(EmptyApi), settings)
}

struct EmptyApi;

impl Transport for EmptyApi {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(async move { Ok(respond(&request)) })
    }
}

fn respond(request: &Request<Bytes>) -> Response<Body> {
    let watches = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch=")));
    let mut response = match *request.method() {
        Method::GET if watches => return Response::new(silence()),
        // A write returns its object, as if it had been stored.
        Method::POST | Method::PUT => return Response::new(transport::body(Full::new(request.body().clone()))),
        _ => Response::new(whole(&value!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "message": "this kubelet has no API server", "reason": "NotFound", "code": 404}))),
    };
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// Returns a watch that sends one bookmark as initial state and then nothing.
fn silence() -> Body {
    let all = value!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1",
        "annotations": {"k8s.io/initial-events-end": "true"}}}});
    let first = Ok::<_, std::io::Error>(Frame::data(Bytes::from(json::to_string(&all) + "\n")));
    transport::body(StreamBody::new(stream::once(async { first }).chain(stream::pending())))
}

fn whole(value: &Value) -> Body {
    transport::body(Full::new(Bytes::from(json::to_string(value))))
}

#[cfg(test)]
mod tests {
    use client::cache::{self, Source};
    use client::{Target, WriteOptions};
    use controller::kinds;

    use super::*;

    #[tokio::test]
    async fn empty_state_is_synced_immediately() {
        let client = client(Settings::default()).unwrap();
        let source = Source::all(client.clone(), kinds::PODS.clone());
        let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), |value: Value| value);
        let reflecting = tokio::spawn(reflector.run());
        reader.synced().await.unwrap();
        assert_eq!(reader.snapshot().objects.iter().count(), 0);
        reflecting.abort();
        let target = Target::within(&kinds::PODS, "default");
        let pod = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}});
        assert_eq!(client.create(&target, &pod, &WriteOptions::default()).await.unwrap(), pod);
        assert!(client.get(&Target::named(&kinds::PODS, "default", "p")).await.unwrap_err().is_not_found());
    }
}
