//! Static pods from a URL, which is polled since it cannot be watched.

use std::sync::Arc;
use std::time::Duration;

use apimachinery::{Key, Value, json, yaml};
use bytes::Bytes;
use client::{Client, Config, Settings};
use http::{HeaderName, HeaderValue, Request, Uri};
use http_body_util::BodyExt;
use tokio::sync::watch;

use super::{MANIFEST_BYTES_MAX, StaticPods, completed, hash, publish};

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The source of manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifests {
    /// Serves one pod or a list of pods.
    pub url: Uri,
    /// Additional request headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Polling interval.
    pub every: Duration,
}

/// Polls the URL. While requests fail, the last pods stay.
pub(crate) fn follow(manifests: Manifests, node: String) -> (StaticPods, impl Future<Output = ()> + Send) {
    let (sender, receiver) = watch::channel(Vec::new());
    let work = async move {
        loop {
            let result = tokio::time::timeout(TIMEOUT, fetch(&manifests)).await;
            let result = result.unwrap_or_else(|_| Err(format!("no response within {TIMEOUT:?}")));
            match result.and_then(|text| pods(&text, &node)) {
                Ok(pods) => publish(&sender, pods),
                Err(problem) => tracing::warn!(url = %manifests.url, problem, "failed to load static pods"),
            }
            tokio::time::sleep(manifests.every).await;
        }
    };
    (StaticPods(vec![receiver]), work)
}

async fn fetch(manifests: &Manifests) -> Result<String, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let mut server = manifests.url.clone().into_parts();
    let path = server.path_and_query.replace(http::uri::PathAndQuery::from_static("/"));
    let server = Uri::from_parts(server).map_err(|error| text(&error))?;
    let settings = Settings { attempts_max: 1, ..Settings::default() };
    let client = Client::connect(&Config::new(server), settings).map_err(|error| text(&error))?;
    let mut request = Request::get(path.as_ref().map_or("/", |path| path.as_str()));
    for (name, value) in &manifests.headers {
        request = request.header(name, value);
    }
    let request = request.body(Bytes::new()).map_err(|error| text(&error))?;
    let response = client.raw(request).await.map_err(|error| text(&error))?;
    if !response.status().is_success() {
        return Err(format!("{}: {}", manifests.url, response.status()));
    }
    let (mut body, mut bytes) = (response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
        bytes.extend_from_slice(&data);
        if bytes.len() as u64 > MANIFEST_BYTES_MAX {
            return Err(format!("it is larger than {MANIFEST_BYTES_MAX} bytes"));
        }
    }
    if bytes.is_empty() {
        return Err(format!("zero-length data received from {}", manifests.url));
    }
    String::from_utf8(bytes).map_err(|error| text(&error))
}

/// Parses the pods of a document, without duplicates.
fn pods(text: &str, node: &str) -> Result<Vec<Arc<Value>>, String> {
    let document = yaml::parse(text).map_err(|error| error.to_string())?;
    let all = match document.str_at(&["kind"]) {
        Some("PodList" | "List") => document["items"].as_array().unwrap_or_default().to_vec(),
        _ => vec![document],
    };
    let one = |mut pod: Value| {
        // Items of a PodList lack apiVersion and kind.
        if let Some(pod) = pod.as_object_mut() {
            pod.get_or_insert_with("kind", || "Pod".into());
            pod.get_or_insert_with("apiVersion", || "v1".into());
        }
        let hash = hash(&json::to_string(&pod));
        completed(pod, &hash, "http", node).map(Arc::new)
    };
    let mut pods = all.into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
    pods.sort_by_key(|pod| Key::of(pod));
    pods.dedup_by_key(|pod| Key::of(pod));
    Ok(pods)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::Pod;

    #[test]
    fn single_pod_or_pod_list_is_read() {
        let check = |text: &str, expect: Result<&str, &str>| {
            let found = pods(text, "n")
                .map(|pods| pods.iter().map(|pod| Key::of(pod).to_string()).collect::<Vec<_>>().join(" "));
            assert_eq!(found.as_deref().map_err(String::as_str), expect, "{text}");
        };
        let pod = "{kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}";
        check(pod, Ok("default/a-n"));
        check(
            &format!(
                "{{kind: PodList, items: [{}, {pod}]}}",
                pod.replace("kind: Pod, ", "").replace("name: a", "name: b")
            ),
            Ok("default/a-n default/b-n"),
        );
        check("{kind: PodList, items: []}", Ok(""));
        check("kind: Service", Err("it is not a Pod"));
        check("kind: PodList\nitems: [{kind: Pod, metadata: {}, spec: {}}]", Err("it has no containers"));
        assert!(pods("{", "n").is_err());
        let made = pods(pod, "n").unwrap();
        assert!(
            Pod(&made[0]).is_static()
                && made[0]["metadata"]["annotations"]["kubernetes.io/config.source"] == Value::from("http")
        );
    }
}
