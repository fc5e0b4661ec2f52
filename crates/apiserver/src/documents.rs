//! What is no resource: health, version, and the documents that describe the API.

use machinery::Value;
use machinery::value;
use registry::query::Query;

use crate::answer::{self, Answer};
use crate::state::State;

/// The version of Kubernetes whose behaviour this is.
pub const VERSION: &str = "v1.36.4";

/// The answer to a path that is no resource; `None` if nothing is there.
pub fn serve(state: &State, path: &str, query: &Query) -> Option<Answer> {
    match path.trim_end_matches('/') {
        "/version" => Some(answer::bytes(200, "application/json", machinery::json::to_vec(&version()))),
        "/healthz" | "/livez" | "/readyz" => Some(health(state, path.trim_end_matches('/'), query)),
        _ => None,
    }
}

fn version() -> Value {
    let mut version = machinery::Object::new();
    for (key, value) in [
        ("major", "1"),
        ("minor", "36"),
        ("gitVersion", VERSION),
        ("gitCommit", ""),
        ("gitTreeState", "clean"),
        ("buildDate", "1970-01-01T00:00:00Z"),
        ("goVersion", ""),
        ("compiler", "rustc"),
        ("platform", "linux/amd64"),
        ("emulationMajor", "1"),
        ("emulationMinor", "36"),
        ("minCompatibilityMajor", "1"),
        ("minCompatibilityMinor", "35"),
    ] {
        version.insert(key, value::Str::from(value));
    }
    Value::Object(version)
}

/// Health by named checks, each of which can be left out or shown.
fn health(state: &State, path: &str, query: &Query) -> Answer {
    let excluded = query.all("exclude");
    let checks = [("ping", true), ("etcd", state.cache.reached() > 0)];
    let failed = checks.iter().any(|(name, well)| !well && !excluded.contains(name));
    if !failed && !query.has("verbose") {
        return answer::text(200, "ok");
    }
    let mut lines: String = checks
        .iter()
        .map(|(name, well)| match (excluded.contains(name), well) {
            (true, _) => format!("[+]{name} excluded: ok\n"),
            (false, true) => format!("[+]{name} ok\n"),
            (false, false) => format!("[-]{name} failed: reason withheld\n"),
        })
        .collect();
    let name = path.trim_start_matches('/');
    lines.push_str(&format!("{name} check {}\n", if failed { "failed" } else { "passed" }));
    answer::text(if failed { 500 } else { 200 }, lines)
}
