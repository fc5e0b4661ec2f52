//! `--static-pods`: the control plane in static pods of this host's kubelet, as kubeadm has it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use apimachinery::json;
use diagnostics::static_pods::{Alive, Component, Mount, MountKind, manifest};
use pki::Pki;

use super::Options;
use super::plan::{self, Layout, Placement, path};

/// The image of this binary.
const IMAGE: &str = "knarr.local/knarr";
/// Path of the binary in the image.
const PROGRAM: &str = "/knarr";
/// URLs of the store, reachable only from this host.
const STORE: &str = "https://127.0.0.1:2379";
const STORE_PEERS: &str = "https://127.0.0.1:2380";
const STORE_HEALTH: &str = "http://127.0.0.1:2381";

/// Settings of a component in a pod: liveness probe, resource requests and additional flags.
struct PodSettings {
    name: &'static str,
    alive: Alive,
    cpu_milli: u32,
    flags: fn(&Layout) -> Vec<String>,
}

const PODDED: &[PodSettings] = &[
    PodSettings {
        name: "kube-apiserver",
        // The port is set by --secure-port.
        alive: Alive { scheme: "HTTPS", port: 0, path: "/livez" },
        cpu_milli: 100,
        flags: |layout| {
            let file = |name: &str| path(layout.pki().join(name));
            vec![
                format!("etcd-servers={STORE}"),
                format!("etcd-cafile={}", file("etcd-ca.crt")),
                format!("etcd-certfile={}", file("apiserver-etcd-client.crt")),
                format!("etcd-keyfile={}", file("apiserver-etcd-client.key")),
            ]
        },
    },
    PodSettings {
        name: "kube-controller-manager",
        alive: Alive { scheme: "HTTPS", port: 10257, path: "/healthz" },
        cpu_milli: 50,
        flags: |_| alone(10257),
    },
    PodSettings {
        name: "kube-scheduler",
        alive: Alive { scheme: "HTTPS", port: 10259, path: "/healthz" },
        cpu_milli: 50,
        flags: |_| alone(10259),
    },
];

/// Whether a component runs in a static pod.
pub(super) fn has(name: &str) -> bool {
    PODDED.iter().any(|podded| podded.name == name)
}

/// Returns the directory of the static pod manifests. The objects of `manifests` are applied through the API instead.
pub(super) fn manifests_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("static-pods")
}

/// Moves the static pod manifests of earlier versions, which were in `manifests`. `etcd` is the store of such a cluster.
pub(super) fn move_earlier(data_dir: &Path) -> Result<()> {
    let (earlier, dir) = (data_dir.join("manifests"), manifests_dir(data_dir));
    if dir.exists() || !earlier.join("etcd.yaml").is_file() || !data_dir.join("etcd").is_dir() {
        return Ok(());
    }
    std::fs::rename(&earlier, &dir)
        .with_context(|| format!("failed to move {} to {}", earlier.display(), dir.display()))
}

/// Fails if `--static-pods` differs from the first start: the objects are in one store, embedded or separate.
pub(super) fn check(options: &Options) -> Result<()> {
    let dir = options.data_dir.display();
    let embedded = options.data_dir.join("store").is_dir();
    let apart = manifests_dir(&options.data_dir).join("etcd.yaml").is_file();
    ensure!(!options.static_pods || !embedded, "the cluster in {dir} has an embedded store: omit --static-pods");
    ensure!(
        options.static_pods || !apart,
        "the cluster in {dir} has its control plane in static pods: add --static-pods"
    );
    ensure!(
        !options.static_pods || !options.disable.iter().any(|part| part == "kubelet"),
        "--static-pods needs the kubelet, but --disable excludes it"
    );
    Ok(())
}

/// Writes the manifests. An unchanged manifest is not rewritten, so that its pod keeps running.
pub(super) fn write(options: &Options, layout: &Layout, pki: &Pki) -> Result<()> {
    ensure!(options.store == plan::Store::Embedded, "--static-pods works only with `knarr up` and its own store");
    let dir = manifests_dir(&layout.data_dir);
    sys::create_dirs(&dir, 0o700).with_context(|| format!("failed to create {}", dir.display()))?;
    for component in components(options, layout, pki) {
        let text = json::to_string_pretty(&manifest(&component));
        // JSON is YAML, and `.yaml` is the usual extension of manifests.
        let file = dir.join(format!("{}.yaml", component.name));
        if std::fs::read_to_string(&file).is_ok_and(|there| there == text) {
            continue;
        }
        // Replaced atomically, so that the kubelet never reads a partial manifest.
        sys::replace_file(&file, text.as_bytes(), 0o600)
            .with_context(|| format!("failed to write {}", file.display()))?;
    }
    Ok(())
}

fn components(options: &Options, layout: &Layout, pki: &Pki) -> Vec<Component> {
    let mut components = vec![store(layout)];
    for (row, flags) in plan::of(&[Placement::Server], options, layout, pki) {
        let Some(podded) = PODDED.iter().find(|podded| podded.name == row.name) else { continue };
        let own = options.own_flags.get(row.name).into_iter().flatten();
        let flags = plan::overridden(flags, (podded.flags)(layout).iter());
        let flags = plan::overridden(flags, own);
        let mut mounts = vec![mount(layout.pki(), MountKind::Directory)];
        if row.name != "kube-apiserver" {
            mounts.push(mount(layout.kubeconfig(row.kubeconfig), MountKind::File));
        }
        let mut alive = podded.alive.clone();
        if alive.port == 0 {
            alive.port = layout.port;
        }
        components.push(component(row.name, flags, mounts, alive, podded.cpu_milli));
    }
    components
}

fn store(layout: &Layout) -> Component {
    let data = layout.data_dir.join("etcd");
    let file = |name: &str| path(layout.pki().join(name));
    let flags = plan::flags(&[
        ("name", layout.node_name.clone()),
        ("data-dir", path(data.clone())),
        ("listen-client-urls", STORE.to_owned()),
        ("advertise-client-urls", STORE.to_owned()),
        ("listen-peer-urls", STORE_PEERS.to_owned()),
        ("initial-advertise-peer-urls", STORE_PEERS.to_owned()),
        ("initial-cluster", format!("{}={STORE_PEERS}", layout.node_name)),
        ("listen-metrics-urls", STORE_HEALTH.to_owned()),
        ("cert-file", file("etcd-server.crt")),
        ("key-file", file("etcd-server.key")),
        ("trusted-ca-file", file("etcd-ca.crt")),
        ("client-cert-auth", "true".to_owned()),
        ("peer-cert-file", file("etcd-peer.crt")),
        ("peer-key-file", file("etcd-peer.key")),
        ("peer-trusted-ca-file", file("etcd-ca.crt")),
    ]);
    let mounts = vec![mount(data, MountKind::WritableDirectory), mount(layout.pki(), MountKind::Directory)];
    component("etcd", flags, mounts, Alive { scheme: "HTTP", port: 2381, path: "/health" }, 100)
}

/// Returns the flags of components with leader election. Their secure ports listen on the loopback interface only.
fn alone(port: u16) -> Vec<String> {
    vec!["leader-elect=true".to_owned(), "bind-address=127.0.0.1".to_owned(), format!("secure-port={port}")]
}

fn component(name: &str, flags: Vec<String>, mounts: Vec<Mount>, alive: Alive, cpu_milli: u32) -> Component {
    let mut command = vec![PROGRAM.to_owned(), name.to_owned()];
    command.extend(flags);
    Component { name: name.to_owned(), image: IMAGE.to_owned(), command, mounts, alive, cpu_milli }
}

fn mount(at: PathBuf, kind: MountKind) -> Mount {
    Mount { path: path(at), kind }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn static_pod_manifests_of_earlier_versions_are_moved_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("manifests/etcd.yaml"), dir.path().join("static-pods/etcd.yaml"));
        fs::create_dir(dir.path().join("manifests")).unwrap();
        fs::write(&old, "old").unwrap();
        // Without a store in a pod, the file is one of the user.
        move_earlier(dir.path()).unwrap();
        assert!(old.exists() && !new.exists());
        fs::create_dir(dir.path().join("etcd")).unwrap();
        move_earlier(dir.path()).unwrap();
        assert!(!old.exists() && new.exists());
        fs::create_dir(dir.path().join("manifests")).unwrap();
        fs::write(&old, "new").unwrap();
        move_earlier(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(&new).unwrap(), "old");
        assert!(old.exists());
    }
}
