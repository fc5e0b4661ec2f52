//! Asking the cluster of a folder, as its administrator.

use std::path::Path;

use anyhow::{Context, Result};
use bytes::Bytes;
use client::config::Kubeconfig;
use client::{Client, Config, Settings};
use http::Request;
use http_body_util::BodyExt;
use machinery::Value;

/// The longest answer that is read of a path that has no objects.
const ANSWER_MAX: usize = 4 << 20;

/// How the cluster of a folder is reached.
pub fn config(data_dir: &Path) -> Result<Config> {
    let file = data_dir.join("admin.kubeconfig");
    let known = Kubeconfig::load(std::slice::from_ref(&file))
        .with_context(|| format!("{} cannot be read; run this as root", file.display()))?;
    Ok(known.config(None)?)
}

/// A client that may do everything and asks once.
pub fn admin(config: &Config) -> Result<Client> {
    Ok(Client::connect(config, Settings { attempts_max: 1, ..Settings::default() })?)
}

/// What the server says at a path, whatever its code.
pub async fn text(client: &Client, path: &str) -> Result<Bytes> {
    let answer = client.raw(Request::get(path).body(Bytes::new())?).await.context("the API server does not answer")?;
    let body = http_body_util::Limited::new(answer.into_body(), ANSWER_MAX);
    Ok(body.collect().await.map_err(anyhow::Error::from_boxed)?.to_bytes())
}

/// The checks of the server that fail.
pub async fn failed_checks(client: &Client) -> Result<Vec<String>> {
    let checks = String::from_utf8_lossy(&text(client, "/readyz?verbose").await?).into_owned();
    let failed = checks.lines().filter_map(|line| line.strip_prefix("[-]"));
    Ok(failed.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

/// Whether a node is ready; `None` if nothing was heard of it for long.
pub fn is_ready(node: &Value) -> Option<bool> {
    let conditions = node.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.str_at(&["type"]) == Some("Ready"))?;
    match ready.str_at(&["status"]) {
        Some("True") => Some(true),
        Some("False") => Some(false),
        _ => None,
    }
}
