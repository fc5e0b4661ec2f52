//! The cluster's nodes on this host. Each has its own image store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::kubelet::bootstrap::Purpose;
use anyhow::{Context, Result, bail};
use image_store::{Image, Store};
use tokio::task::JoinSet;

use crate::up::nodes::Nodes;
use crate::up::preflight;

pub(super) struct Node {
    pub name: String,
    /// Directory of the node's container runtime.
    pub root: PathBuf,
    pub store: Arc<Store>,
}

/// Opens the image stores of all nodes of a data directory, or only of the node `only`. Returns at least one.
pub(super) fn open(data_dir: &Path, only: Option<&str>) -> Result<Vec<Node>> {
    let further = Nodes::open(data_dir);
    let mut all = vec![(machine(data_dir), data_dir.to_owned())];
    all.extend(further.names()?.into_iter().map(|name| (name.clone(), further.node_dir(&name))));
    if let Some(only) = only {
        let known: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
        all.retain(|(name, _)| name == only);
        if all.is_empty() {
            bail!("no node {only} on this host; it has {}", known.join(", "));
        }
    }
    let open = |(name, data_dir): (String, PathBuf)| {
        let root = data_dir.join("runtime");
        std::fs::create_dir_all(&root).with_context(|| format!("failed to create {}", root.display()))?;
        let store = Arc::new(Store::open(&root.join("images"))?);
        Ok(Node { name, root, store })
    };
    all.into_iter().map(open).collect()
}

/// Returns the name of the host's own node, from its kubelet's certificate.
fn machine(data_dir: &Path) -> String {
    let of_server = data_dir.join("pki").join("kubelet.crt");
    let of_agent = Purpose::Client.file(&data_dir.join("kubelet").join("pki"));
    let seen = pki::seen(&of_server).or_else(|| pki::seen(&of_agent));
    let name = seen.and_then(|seen| seen.common_name.strip_prefix("system:node:").map(str::to_owned));
    name.unwrap_or_else(preflight::host_name)
}

/// Copies an image from the first node to all others and pins it on each, because an imported image cannot be pulled
/// again.
pub(super) async fn spread(nodes: &[Node], image: &Image) -> Result<()> {
    let (first, others) = nodes.split_first().context("there is a node")?;
    first.store.pin(image)?;
    let image = Arc::new(Image { pinned: true, ..image.clone() });
    let mut copies = JoinSet::new();
    for node in others {
        let (name, from, to) = (node.name.clone(), Arc::clone(&first.store), Arc::clone(&node.store));
        let image = Arc::clone(&image);
        copies.spawn(async move {
            to.take_from(&from, &image).await.with_context(|| format!("failed to copy the image to node {name}"))
        });
    }
    while let Some(copied) = copies.join_next().await {
        copied??;
    }
    Ok(())
}

/// Returns the names of nodes for messages.
pub(super) fn names(nodes: &[Node]) -> String {
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    format!("{} {}", if names.len() == 1 { "node" } else { "nodes" }, names.join(", "))
}

#[cfg(test)]
mod tests {
    use image_store::{Name, Recipe};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn imported_image_is_copied_to_every_node_and_pinned() {
        let dir = tempfile::tempdir().unwrap();
        let further = Nodes::open(dir.path());
        further.add("second").unwrap();
        further.add("third").unwrap();
        let nodes = open(dir.path(), None).unwrap();
        assert_eq!(nodes[1..].iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["second", "third"]);
        let recipe = Recipe { files: vec![("/a".into(), b"a".to_vec(), 0o644)], ..Recipe::default() };
        let image = nodes[0].store.build(&Name::parse("tool:1").unwrap(), &recipe).await.unwrap();
        spread(&nodes, &image).await.unwrap();
        for node in open(dir.path(), None).unwrap() {
            assert!(node.store.find("tool:1").is_some_and(|image| image.pinned), "{}", node.name);
        }
        assert_eq!(open(dir.path(), Some("third")).unwrap().len(), 1);
        let error = open(dir.path(), Some("fourth")).err().unwrap().to_string();
        assert!(error.contains("second, third"), "{error}");
    }
}
