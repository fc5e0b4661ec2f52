//! HTTP endpoints: health checks, version and metrics.

use std::fmt::Write as _;

use axum::Router;
use axum::extract::{RawQuery, State as Shared};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use mvcc::Alarm;

use super::{CLUSTER_VERSION, Server, VERSION};
use crate::backend::Backend;

/// A health check. The names are etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    DataCorruption,
    LinearizableRead,
    NonLearner,
    SerializableRead,
}

const LIVE: &[Check] = &[Check::SerializableRead];
const READY: &[Check] = &[Check::DataCorruption, Check::LinearizableRead, Check::NonLearner, Check::SerializableRead];

/// Returns the health and metrics endpoints.
pub(super) fn observation<B: Backend>(server: Server<B>) -> Router {
    let mut router = Router::new().route("/health", get(health::<B>)).route("/metrics", get(metrics::<B>));
    for (path, checks) in [("/livez", LIVE), ("/readyz", READY)] {
        let all = move |server, query| probe::<B>(server, query, checks);
        router = router.route(path, get(all));
        for check in checks {
            let one = move |server, query| probe::<B>(server, query, std::slice::from_ref(check));
            router = router.route(&format!("{path}/{}", check.name()), get(one));
        }
    }
    router.with_state(server)
}

pub(super) fn version() -> Router {
    Router::new().route("/version", get(version_text))
}

impl Check {
    const fn name(self) -> &'static str {
        match self {
            Self::DataCorruption => "data_corruption",
            Self::LinearizableRead => "linearizable_read",
            Self::NonLearner => "non_learner",
            Self::SerializableRead => "serializable_read",
        }
    }

    /// Runs the check and returns the reason of a failure.
    async fn failure<B: Backend>(self, server: &Server<B>) -> Option<String> {
        match self {
            Self::DataCorruption => {
                let corrupt = server.backend.view(|state| state.has_alarm(Alarm::Corrupt));
                corrupt.then(|| "alarm activated: CORRUPT".to_owned())
            }
            Self::LinearizableRead => server.backend.read_index().await.err().map(|error| error.to_string()),
            Self::NonLearner => server.backend.status().learner.then(|| "not supported for learner".to_owned()),
            // Access to the state is the check: if the state is blocked, there is no response.
            Self::SerializableRead => {
                let _: mvcc::Revision = server.backend.view(mvcc::State::revision);
                None
            }
        }
    }
}

/// Reports failed checks, or all checks if `verbose` is set.
async fn probe<B: Backend>(
    Shared(server): Shared<Server<B>>,
    RawQuery(query): RawQuery,
    checks: &'static [Check],
) -> Response {
    let (excluded, allowed) = (values(query.as_deref(), "exclude"), values(query.as_deref(), "allowlist"));
    let named = |names: &[&str], check: Check| names.contains(&check.name());
    let selected =
        checks.iter().filter(|check| !named(&excluded, **check) && (allowed.is_empty() || named(&allowed, **check)));
    let (mut report, mut well) = (String::new(), true);
    for check in selected {
        let failure = check.failure(&server).await;
        well &= failure.is_none();
        let _ = match failure {
            None => writeln!(report, "[+]{} ok", check.name()),
            Some(reason) => writeln!(report, "[-]{} failed: {reason}", check.name()),
        };
    }
    let verbose = query.as_deref().is_some_and(|query| parts(query).any(|(key, _)| key == "verbose"));
    match (well, verbose) {
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, report).into_response(),
        (true, true) => format!("{report}ok\n").into_response(),
        (true, false) => "ok\n".into_response(),
    }
}

async fn health<B: Backend>(Shared(server): Shared<Server<B>>, RawQuery(query): RawQuery) -> impl IntoResponse {
    let excluded = values(query.as_deref(), "exclude");
    let local = values(query.as_deref(), "serializable") == ["true"];
    let (code, body) = match unhealthy(&server, &excluded, local).await {
        None => (StatusCode::OK, r#"{"health":"true","reason":""}"#.to_owned()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!(r#"{{"health":"false","reason":"{reason}"}}"#)),
    };
    (code, [(header::CONTENT_TYPE, "application/json")], body)
}

/// Returns the reason that the member is unhealthy, except for excluded alarms. `local` checks this member only. The
/// messages are etcd's and need no escaping.
async fn unhealthy<B: Backend>(server: &Server<B>, excluded: &[&str], local: bool) -> Option<String> {
    let full = server.backend.view(mvcc::State::is_full);
    let corrupt = server.backend.view(|state| state.has_alarm(Alarm::Corrupt));
    for (raised, name) in [(full, "NOSPACE"), (corrupt, "CORRUPT")] {
        if raised && !excluded.contains(&name) {
            return Some(format!("ALARM {name}"));
        }
    }
    if local {
        return None;
    }
    if server.backend.status().leader == 0 {
        return Some("RAFT NO LEADER".to_owned());
    }
    server.backend.read_index().await.err().map(|error| format!("RANGE ERROR:{error}"))
}

/// Returns all values of a query parameter.
fn values<'a>(query: Option<&'a str>, key: &str) -> Vec<&'a str> {
    parts(query.unwrap_or_default()).filter(|(have, _)| *have == key).map(|(_, value)| value).collect()
}

fn parts(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|part| part.split_once('=').unwrap_or((part, "")))
}

async fn version_text() -> impl IntoResponse {
    let body = format!(r#"{{"etcdserver":"{VERSION}","etcdcluster":"{CLUSTER_VERSION}"}}"#);
    ([(header::CONTENT_TYPE, "application/json")], body)
}

async fn metrics<B: Backend>(Shared(server): Shared<Server<B>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], super::metrics::text(&server))
}
