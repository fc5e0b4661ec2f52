//! Scrapes kubelets and keeps their latest readings.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use apimachinery::Value;
use bytes::Bytes;
use client::cache::{self, Reader, Source};
use client::{Client, Config, Settings};
use component_base::clock;
use controller::kinds;
use http::{Request, Uri};
use http_body_util::BodyExt;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument;

use crate::history::{History, Usage};
use crate::reading::Reading;

/// Maximum number of concurrent scrapes.
const AT_ONCE: usize = 32;
/// Minimum interval of scrapes for missing data.
const AGAIN: Duration = Duration::from_secs(1);
/// Scrape interval without requests: short enough for a window, long enough to cause no load.
const UNASKED: Duration = Duration::from_secs(60);
/// Maximum size of a response: a container takes about 300 bytes.
const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// A node with its reading or the scrape error.
type ScrapeResult = (String, Result<Reading, String>);

/// Connection settings of kubelets.
#[derive(Clone, Debug)]
pub struct Kubelets {
    /// Client identity and trusted CAs. The server URL is not used.
    pub config: Config,
    /// Address types in order of preference.
    pub address_types: Vec<String>,
    /// The port; if absent, the port in each node's status.
    pub port: Option<u16>,
    pub timeout: Duration,
}

/// Scraped readings. Clones share them.
#[derive(Clone)]
pub struct Scraper(Arc<Inner>);

struct Inner {
    kubelets: Kubelets,
    resolution: Duration,
    nodes: Reader<Option<Uri>>,
    clients: Mutex<HashMap<Uri, Client>>,
    histories: Mutex<BTreeMap<String, History>>,
    /// The time of the last scrape. The scraping task holds the lock, so that other requests wait for the same result.
    last_scrape: tokio::sync::Mutex<Option<Instant>>,
}

impl Scraper {
    /// Watches the nodes. The returned future scrapes their kubelets while it is polled.
    pub fn start(client: Client, kubelets: Kubelets, resolution: Duration) -> (Self, impl Future<Output = ()> + Send) {
        let (types, port) = (kubelets.address_types.clone(), kubelets.port);
        let source = Source::all(client, kinds::NODES.clone());
        let (reflector, nodes) =
            cache::new(source, cache::Settings::default(), Vec::new(), move |node| kubelet_url(&node, &types, port));
        let scraper = Self(Arc::new(Inner {
            kubelets,
            resolution,
            nodes,
            clients: Mutex::default(),
            histories: Mutex::default(),
            last_scrape: tokio::sync::Mutex::default(),
        }));
        let asking = scraper.clone();
        let work = async move {
            tokio::select! {
                () = reflector.run() => {}
                () = asking.keep() => {}
            }
        };
        (scraper, work)
    }

    pub fn node(&self, name: &str) -> Option<Usage> {
        self.histories().get(name)?.node()
    }

    /// Calls `then` with the usage of each container of a pod, if known.
    pub fn pod<T>(&self, namespace: &str, name: &str, then: impl FnOnce(&BTreeMap<&str, Usage>) -> T) -> Option<T> {
        let histories = self.histories();
        // The node of the pod is unknown here; the pod is on only one, and a node has few readings.
        let found = histories.values().find_map(|history| history.pod(namespace, name))?;
        Some(then(&found))
    }

    /// Scrapes kubelets if the data is older than the resolution.
    pub async fn refresh(&self) {
        self.scrape_if_older(self.0.resolution).await;
    }

    /// Scrapes kubelets because of missing data, unless they were just scraped.
    pub async fn complete(&self) {
        self.scrape_if_older(AGAIN.min(self.0.resolution)).await;
    }

    async fn keep(&self) {
        // A cache that is no longer updated ends together with this future.
        let _ = self.0.nodes.synced().await;
        loop {
            self.scrape_if_older(self.0.resolution).await;
            tokio::time::sleep(UNASKED.max(self.0.resolution)).await;
        }
    }

    async fn scrape_if_older(&self, age: Duration) {
        let mut last_scrape = self.0.last_scrape.lock().await;
        if last_scrape.is_none_or(|at| at.elapsed() >= age) {
            self.scrape_all().await;
            *last_scrape = Some(Instant::now());
        }
    }

    async fn scrape_all(&self) {
        let snapshot = self.0.nodes.snapshot();
        let places: Vec<(String, Uri)> = snapshot
            .objects
            .iter()
            .filter_map(|entry| Some((entry.key.name.to_string(), entry.value.clone()?)))
            .collect();
        self.histories().retain(|name, _| places.iter().any(|(node, _)| node == name));
        self.clients().retain(|known, _| places.iter().any(|(_, url)| url == known));
        let mut running = JoinSet::new();
        for (node, url) in places {
            if running.len() >= AT_ONCE {
                self.record_result(running.join_next().await);
            }
            let scraper = self.clone();
            let task = async move {
                let reading = scraper.scrape_node(&url).await;
                (node, reading)
            };
            running.spawn(task.in_current_span());
        }
        while let Some(result) = running.join_next().await {
            self.record_result(Some(result));
        }
    }

    fn record_result(&self, result: Option<Result<ScrapeResult, tokio::task::JoinError>>) {
        match result {
            Some(Ok((node, Ok(reading)))) => {
                let resolution = i64::try_from(self.0.resolution.as_nanos()).unwrap_or(i64::MAX);
                let resolution = apimachinery::time::Duration::from_nanos(resolution);
                self.histories().entry(node).or_default().add(reading, resolution);
            }
            Some(Ok((node, Err(problem)))) => tracing::warn!(node, problem, "failed to scrape a kubelet"),
            _ => {}
        }
    }

    async fn scrape_node(&self, url: &Uri) -> Result<Reading, String> {
        let client = self.client(url)?;
        let request = Request::get("/metrics/resource").body(Bytes::new()).map_err(|error| error.to_string())?;
        let asking = async {
            let response = client.raw(request).await.map_err(|error| chain(&error))?;
            if !response.status().is_success() {
                return Err(format!("it responds with {}", response.status()));
            }
            let (mut body, mut bytes) = (response.into_body(), Vec::new());
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
                bytes.extend_from_slice(&data);
                if bytes.len() > RESPONSE_BYTES_MAX {
                    return Err(format!("its response is larger than {RESPONSE_BYTES_MAX} bytes"));
                }
            }
            Ok(bytes)
        };
        let result = tokio::time::timeout(self.0.kubelets.timeout, asking).await;
        let bytes = result.map_err(|_| format!("no response in {:?}", self.0.kubelets.timeout))??;
        Ok(Reading::parse(&String::from_utf8_lossy(&bytes), clock::now()))
    }

    fn client(&self, url: &Uri) -> Result<Client, String> {
        let mut clients = self.clients();
        if let Some(known) = clients.get(url) {
            return Ok(known.clone());
        }
        let config = Config { server: url.clone(), ..self.0.kubelets.config.clone() };
        let settings = Settings { user_agent: "metrics-server".to_owned(), attempts_max: 1, ..Settings::default() };
        let made = Client::connect(&config, settings).map_err(|error| chain(&error))?;
        clients.insert(url.clone(), made.clone());
        Ok(made)
    }

    fn histories(&self) -> MutexGuard<'_, BTreeMap<String, History>> {
        self.0.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Uri, Client>> {
        self.0.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the URL of a node's kubelet; none before the node reports its address.
fn kubelet_url(node: &Value, types: &[String], port: Option<u16>) -> Option<Uri> {
    let addresses = node.list_at(&["status", "addresses"]);
    let of_type = |ty: &String| addresses.iter().find(|address| address.str_at(&["type"]) == Some(ty.as_str()));
    let address = types.iter().find_map(of_type)?.str_at(&["address"])?;
    let reported_port = node.int_at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"]);
    let port = port.map(i64::from).or(reported_port).filter(|port| *port > 0)?;
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    format!("https://{host}:{port}").parse().ok()
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn kubelet_url_is_taken_from_the_node_status() {
        let node = value!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}, "addresses": [
            {"type": "Hostname", "address": "a"}, {"type": "InternalIP", "address": "fd00::1"}]}});
        let check = |node: &Value, types: &[&str], port: Option<u16>, expect: Option<&str>| {
            let types: Vec<String> = types.iter().map(|ty| (*ty).to_owned()).collect();
            assert_eq!(kubelet_url(node, &types, port).map(|url| url.to_string()).as_deref(), expect);
        };
        check(&node, &["InternalIP", "Hostname"], None, Some("https://[fd00::1]:10250/"));
        check(&node, &["ExternalIP", "Hostname"], Some(7), Some("https://a:7/"));
        check(&node, &["ExternalIP"], None, None);
        check(&value!({}), &["Hostname"], Some(7), None);
    }
}
