//! API client of `knarr` commands: connects to the cluster of a data directory as its administrator.

use std::path::Path;

use anyhow::{Context, Result};
use api::view::condition_status;
use apimachinery::Value;
use bytes::Bytes;
use client::config::Kubeconfig;
use client::{Client, Config, Settings};
use http::Request;
use http_body_util::BodyExt;

/// Maximum size of a response body that is not an API object, in bytes.
const RESPONSE_BYTES_MAX: usize = 4 << 20;

/// Reads the admin kubeconfig of a data directory.
pub(crate) fn config(data_dir: &Path) -> Result<Config> {
    let file = data_dir.join("admin.kubeconfig");
    let known = Kubeconfig::load(std::slice::from_ref(&file))
        .with_context(|| format!("failed to read {}; run this command as root", file.display()))?;
    Ok(known.config(None)?)
}

/// Returns an admin client that does not retry.
pub(crate) fn admin(config: &Config) -> Result<Client> {
    Ok(Client::connect(config, Settings { attempts_max: 1, ..Settings::default() })?)
}

/// Returns the response body of a GET, whatever the status code.
pub(crate) async fn text(client: &Client, path: &str) -> Result<Bytes> {
    let response =
        client.raw(Request::get(path).body(Bytes::new())?).await.context("the API server does not respond")?;
    let body = http_body_util::Limited::new(response.into_body(), RESPONSE_BYTES_MAX);
    Ok(body.collect().await.map_err(anyhow::Error::from_boxed)?.to_bytes())
}

/// Returns the names of the failed `/readyz` checks.
pub(crate) async fn failed_checks(client: &Client) -> Result<Vec<String>> {
    let checks = String::from_utf8_lossy(&text(client, "/readyz?verbose").await?).into_owned();
    let failed = checks.lines().filter_map(|line| line.strip_prefix("[-]"));
    Ok(failed.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

/// Whether the node is ready; `None` if the condition is missing or unknown.
pub(crate) fn is_ready(node: &Value) -> Option<bool> {
    match condition_status(node, "Ready") {
        Some("True") => Some(true),
        Some("False") => Some(false),
        _ => None,
    }
}
