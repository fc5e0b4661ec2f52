//! Wire tests of verbs, rejections, retries, timeouts and limits.

use std::sync::Arc;
use std::time::Duration;

use apimachinery::{Resource, Value, json, value};
use auth::User;
use bytes::Bytes;
use client::{
    Client, Config, DeleteOptions, Error, Event, Impersonate, InProcess, ListOptions, Patch, Settings, Target,
    TransportError, WatchOptions, WriteOptions, transport,
};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::server::{DEADLINE, Server, impatient};

pub(crate) static CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
static PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");

pub(crate) fn config_map(name: &str, version: u64) -> Value {
    let version = version.to_string();
    value!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "a", "name": name, "uid": "u", "resourceVersion": version}})
}

fn status(code: i64, reason: &str) -> String {
    value!({"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": "no"}).to_string()
}

/// Runs a request and the server's side concurrently.
macro_rules! meanwhile {
    ($request:expr, $server:expr) => {
        tokio::time::timeout(DEADLINE, async { tokio::join!(async { $request.await }, $server) })
            .await
            .expect("client and server finish in time")
    };
}

#[tokio::test]
async fn objects_are_read_and_written_over_one_http2_connection() {
    let mut server = Server::start().await;
    let client = server.client();
    let target = Target::named(&CONFIG_MAPS, "a", "x");
    let options = WriteOptions { field_manager: "test".into(), ..WriteOptions::default() };
    let (created, ()) =
        meanwhile!(client.create(&Target::within(&CONFIG_MAPS, "a"), &config_map("x", 0), &options), async {
            let call = server.next().await;
            assert_eq!((call.method.as_str(), call.path.as_str()), ("POST", "/api/v1/namespaces/a/configmaps"));
            assert_eq!((call.query.as_str(), call.version), ("fieldManager=test", Version::HTTP_2));
            assert_eq!(call.header("content-type"), "application/json");
            assert!(call.header("user-agent").starts_with("knarr/"));
            let sent = json::parse(&call.body).unwrap();
            call.respond(&sent);
        });
    assert_eq!(created.unwrap(), config_map("x", 0));
    let (read, ()) = meanwhile!(client.get_as::<ConfigMap>(&target), async {
        server.next().await.respond(&config_map("x", 7));
    });
    assert_eq!(read.unwrap().metadata.resource_version.as_deref(), Some("7"));
    let patches = [
        (Patch::Json(value!([])), "application/json-patch+json"),
        (Patch::Merge(value!({})), "application/merge-patch+json"),
        (Patch::Strategic(value!({})), "application/strategic-merge-patch+json"),
        (Patch::Apply(value!({})), "application/apply-patch+yaml"),
    ];
    for (patch, content_type) in patches {
        let (patched, ()) = meanwhile!(client.patch(&target, &patch, &WriteOptions::default()), async {
            let call = server.next().await;
            assert_eq!((call.method.clone(), call.header("content-type")), (Method::PATCH, content_type));
            call.respond(&config_map("x", 8));
        });
        patched.unwrap();
    }
    let (deleted, ()) = meanwhile!(client.delete(&target, &DeleteOptions::of("u")), async {
        let call = server.next().await;
        assert_eq!(json::parse(&call.body).unwrap()["preconditions"]["uid"], "u".into());
        call.respond(&value!({"kind": "Status", "status": "Success"}));
    });
    deleted.unwrap();
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn server_without_http2_gets_http1_requests() {
    let mut server = Server::start_with(&["http/1.1"]).await;
    let client = server.client();
    for _ in 0..3 {
        let (read, ()) = meanwhile!(client.get(&Target::named(&CONFIG_MAPS, "a", "x")), async {
            let call = server.next().await;
            assert_eq!(call.version, Version::HTTP_11);
            call.respond(&config_map("x", 1));
        });
        read.unwrap();
    }
    assert_eq!(server.connections(), 1, "the connection is used again");
}

#[tokio::test]
async fn list_items_get_their_kind_and_pages_are_joined() {
    let mut server = Server::start().await;
    let client = server.client();
    let options = ListOptions { limit: 1, ..ListOptions::default() };
    let target = Target::all(&CONFIG_MAPS);
    let (list, ()) = meanwhile!(client.list_all(&target, &options), async {
        let call = server.next().await;
        assert_eq!((call.path.as_str(), call.query.as_str()), ("/api/v1/configmaps", "limit=1"));
        call.respond(&value!({"kind": "ConfigMapList", "apiVersion": "v1",
            "metadata": {"resourceVersion": "9", "continue": "next", "remainingItemCount": 1},
            "items": [{"metadata": {"name": "x"}}]}));
        let call = server.next().await;
        assert_eq!(call.query, "continue=next&limit=1");
        call.respond(&value!({"kind": "ConfigMapList", "apiVersion": "v1",
            "metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "y"}}]}));
    });
    let list = list.unwrap();
    assert_eq!(list.resource_version, "9");
    let expect = |name: &str| value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    assert_eq!(list.items, [expect("x"), expect("y")]);
    assert_eq!(list.items_as::<ConfigMap>().unwrap()[1].metadata.name.as_deref(), Some("y"));
}

#[tokio::test]
async fn rejection_has_the_servers_or_upstreams_message() {
    let mut server = Server::start().await;
    let client = server.client();
    let target = Target::named(&PODS, "a", "x");
    let (result, ()) = meanwhile!(client.get(&target), async {
        server.next().await.respond_with(StatusCode::CONFLICT, &[], &status(409, "Conflict"));
    });
    let error = result.unwrap_err();
    assert!(error.is_conflict() && !error.is_not_found());
    assert_eq!(error.to_string(), "no");
    let (result, ()) = meanwhile!(client.get(&target), async {
        server.next().await.respond_with(StatusCode::NOT_FOUND, &[], "<html>nothing here</html>");
    });
    let error = result.unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), "the server could not find the requested resource (get pods x)");
    let (unreadable, ()) = meanwhile!(client.get(&target), async {
        server.next().await.respond_with(StatusCode::OK, &[], "<html>");
    });
    assert!(matches!(unreadable.unwrap_err(), Error::Response(_)));
}

#[tokio::test]
async fn retry_after_is_honoured_up_to_the_maximum_attempts() {
    let mut server = Server::start().await;
    let settings = Settings { attempts_max: 3, ..impatient() };
    let client = Client::connect(&server.config(), settings).unwrap();
    let target = Target::named(&CONFIG_MAPS, "a", "x");
    let busy = [("retry-after", "0")];
    let (read, ()) = meanwhile!(client.get(&target), async {
        server.next().await.respond_with(StatusCode::TOO_MANY_REQUESTS, &busy, &status(429, "TooManyRequests"));
        server.next().await.respond_with(StatusCode::SERVICE_UNAVAILABLE, &busy, "");
        server.next().await.respond(&config_map("x", 1));
    });
    read.unwrap();
    let (result, ()) = meanwhile!(client.get(&target), async {
        for _ in 0..3 {
            server.next().await.respond_with(StatusCode::TOO_MANY_REQUESTS, &busy, &status(429, "TooManyRequests"));
        }
    });
    assert_eq!(result.unwrap_err().status().unwrap().code, 429);
    let (result, ()) = meanwhile!(client.get(&target), async {
        let long = [("retry-after", "3600")];
        server.next().await.respond_with(StatusCode::TOO_MANY_REQUESTS, &long, &status(429, "TooManyRequests"));
    });
    assert_eq!(
        result.unwrap_err().retry_after(),
        Some(Duration::from_secs(3600)),
        "a Retry-After of an hour is left to the caller"
    );
}

#[tokio::test]
async fn unreachable_server_is_retried_up_to_the_maximum_attempts() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let client = Client::connect(&config, Settings { attempts_max: 4, ..impatient() }).unwrap();
    let error = client.get(&Target::named(&PODS, "a", "x")).await.unwrap_err();
    let Error::Transport(TransportError::Connect { server, .. }) = error else { panic!("{error:?}") };
    assert_eq!(server, format!("http://{address}/"));
}

#[tokio::test]
async fn unresponsive_server_times_out() {
    let mut server = Server::start().await;
    let timeout = Duration::from_millis(200);
    let client = Client::connect(&server.config(), Settings { request_timeout: timeout, ..impatient() }).unwrap();
    let target = Target::named(&PODS, "a", "x");
    let (silent, call) = meanwhile!(client.get(&target), server.next());
    assert!(matches!(silent.unwrap_err(), Error::Timeout(_)));
    drop(call);
    let (halted, stream) = meanwhile!(client.get(&target), async {
        let stream = server.next().await.stream();
        stream.send("{\"kind\":").await;
        stream
    });
    assert!(matches!(halted.unwrap_err(), Error::Timeout(_)));
    stream.abandoned().await;
}

#[tokio::test]
async fn oversized_response_is_aborted() {
    let mut server = Server::start().await;
    let client = Client::connect(&server.config(), Settings { response_bytes_max: 1 << 20, ..impatient() }).unwrap();
    let (result, ()) = meanwhile!(client.get(&Target::named(&PODS, "a", "x")), async {
        let stream = server.next().await.stream();
        let much = " ".repeat(64 << 10);
        for _ in 0..17 {
            stream.send(&much).await;
        }
        stream.abandoned().await;
    });
    assert_eq!(std::error::Error::source(&result.unwrap_err()).unwrap().to_string(), "larger than 1048576 bytes");
}

#[tokio::test]
async fn watch_receives_events_and_is_cancelled_on_drop() {
    let mut server = Server::start().await;
    let client = server.client();
    let target = Target::within(&CONFIG_MAPS, "a");
    let options = WatchOptions { resource_version: "5".into(), ..WatchOptions::default() };
    let (watch, stream) = meanwhile!(client.watch(&target, &options), async {
        let call = server.next().await;
        assert_eq!(call.query, "watch=true&resourceVersion=5");
        call.stream()
    });
    let mut watch = watch.unwrap();
    stream.send(&format!("{{\"type\":\"ADDED\",\"object\":{}", config_map("x", 6))).await;
    stream.send("}\n{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"8\"}}}").await;
    assert_eq!(watch.next().await.unwrap().unwrap(), Event::Added(config_map("x", 6)));
    let bookmark = Event::Bookmark { resource_version: "8".into(), initial_events_end: false };
    assert_eq!(watch.next().await.unwrap().unwrap(), bookmark);
    drop(watch);
    stream.abandoned().await;
}

#[tokio::test]
async fn watches_do_not_use_the_streams_of_other_requests() {
    let mut server = Server::start().await;
    let client = server.client();
    let mut watches = Vec::new();
    for _ in 0..170 {
        let (watch, stream) = meanwhile!(client.watch(&Target::all(&PODS), &WatchOptions::default()), async {
            server.next().await.stream()
        });
        watches.push((watch.unwrap(), stream));
    }
    let (read, ()) = meanwhile!(client.get(&Target::named(&CONFIG_MAPS, "a", "x")), async {
        server.next().await.respond(&config_map("x", 1));
    });
    read.unwrap();
    assert_eq!(server.connections(), 4, "three connections for 170 watches, one for other requests");
}

#[tokio::test]
async fn in_process_requests_carry_their_identity() {
    let user = User::authenticated("system:kube-controller-manager", []);
    let service = |request: Request<Bytes>| async move {
        let user = request.extensions().get::<User>().expect("an identity").name.clone();
        let path = request.uri().to_string();
        let response = value!({"kind": "Echo", "user": user, "path": path});
        Response::new(transport::body(Full::new(Bytes::from(json::to_vec(&response)))))
    };
    let client = Client::new(Arc::new(InProcess::new(user, service)), Settings::default()).unwrap();
    let response = client.get(&Target::named(&PODS, "a", "x").subresource("status")).await.unwrap();
    assert_eq!(response["user"], "system:kube-controller-manager".into());
    assert_eq!(response["path"], "/api/v1/namespaces/a/pods/x/status".into());
}

#[tokio::test]
async fn impersonation_headers_are_sent_also_with_raw_requests() {
    let mut server = Server::start().await;
    let mut config = server.config();
    config.impersonate = Some(Impersonate {
        user: "jane".into(),
        groups: vec!["a".into(), "b".into()],
        extra: vec![("example.org/x".into(), vec!["1".into()])],
        ..Impersonate::default()
    });
    let client = Client::connect(&config, impatient()).unwrap();
    let request = Request::builder().uri("/version").body(Bytes::new()).unwrap();
    let (response, ()) = meanwhile!(client.raw(request), async {
        let call = server.next().await;
        assert_eq!((call.path.as_str(), call.header("impersonate-user")), ("/version", "jane"));
        let groups: Vec<_> = call.headers.get_all("impersonate-group").iter().collect();
        assert_eq!(groups, ["a", "b"]);
        assert_eq!(call.header("impersonate-extra-example%2eorg%2fx"), "1");
        call.respond(&value!({}));
    });
    assert_eq!(response.unwrap().into_body().collect().await.unwrap().to_bytes(), "{}");
}
