//! `knarr down`: stops the cluster of this machine, and with `--purge` leaves nothing of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ::cri::v1;
use ::kubelet::logs::Logs;
use anyhow::{Context, Result, ensure};
use clap::{ArgMatches, Args, FromArgMatches};
use net::namespace;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;

use crate::cri;
use crate::up::Instance;
use crate::up::nodes::{self, Nodes};

/// How long a pod may take to end.
const GRACE: Duration = Duration::from_secs(30);

/// The end of a cluster.
#[derive(Args, Debug)]
struct Down {
    /// The cluster's folder.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Remove everything that the cluster kept.
    #[arg(long)]
    purge: bool,
}

pub fn arguments(command: clap::Command) -> clap::Command {
    Down::augment_args(command)
}

/// Stops the process, then the pods, then forgets them if asked to.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let Down { data_dir, purge } = Down::from_arg_matches(matches)?;
    ensure!(data_dir.is_dir(), "there is no cluster in {}", data_dir.display());
    // Without symbolic links, as the kernel lists the mounts below it.
    let data_dir = data_dir.canonicalize().with_context(|| format!("failed to resolve {}", data_dir.display()))?;
    let shown = data_dir.display();
    ensure!(
        data_dir.join("knarr.lock").is_file(),
        "{shown} has never been the folder of a cluster, so nothing in it is touched"
    );
    match Instance::holder(&data_dir)? {
        None => println!("no process runs the cluster in {shown}"),
        Some(process) => {
            let id = i32::try_from(process).ok().and_then(Pid::from_raw).context("a process has a number")?;
            kill_process(id, Signal::TERM).with_context(|| format!("process {process} cannot be stopped"))?;
            Instance::wait_for_end(&data_dir)?;
            println!("stopped process {process}");
        }
    }
    let nodes = Nodes::open(&data_dir);
    for name in nodes.names()? {
        let folder = nodes.folder_of(&name);
        if folder.join("knarr.lock").is_file() {
            let down = Command::new(std::env::current_exe()?).args(["down", "--data-dir"]).arg(&folder).status()?;
            ensure!(down.success(), "node {name} does not go down");
        }
    }
    if !nodes.names()?.is_empty() {
        nodes.clean_up().context("take the network of the nodes away")?;
    }
    let netns = data_dir.join("netns");
    if namespace::is_namespace(&netns) {
        // A node of its own: its links and rules are inside.
        namespace::enter(&netns)?;
    }
    if data_dir.join("runtime").is_dir() {
        let executor = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let pods = executor.block_on(stop_pods(&data_dir))?;
        println!("stopped {pods} pods");
        let network = net::Routed::new(net::routed::Config::new(&data_dir.join("runtime").join("network")));
        network.clean_up().context("take the pod network away")?;
        net::mesh::apply(&[], &[], None).context("take the ways to other nodes away")?;
        proxy::follow::clean_up().context("take the rules of services away")?;
        proxy::policy::follow::clean_up().context("take the rules of policies away")?;
        unmount_inside(&data_dir.join("kubelet"))?;
        unmount_inside(&data_dir.join("runtime"))?;
        remove_groups(&nodes::group(&data_dir));
    }
    if purge {
        let folders = nodes.names()?.iter().map(|name| nodes.folder_of(name)).chain([data_dir.clone()]).collect();
        remove_logs(folders);
        remove_data(&data_dir).with_context(|| format!("{shown} cannot be removed"))?;
        println!("removed {shown}");
    }
    Ok(())
}

/// Stops and removes every sandbox, by the runtime itself: its shims outlive the process that started them.
async fn stop_pods(data_dir: &Path) -> Result<usize> {
    let command = cri::arguments(clap::Command::new("cri").no_binary_name(true));
    let matches =
        command.try_get_matches_from([format!("--data-dir={}", data_dir.display()), "--network=auto".into()])?;
    let runtime = runtime::Runtime::open(cri::config(&matches)?).await?;
    let socket = data_dir.join("down.sock");
    let (told, ready) = tokio::sync::oneshot::channel();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let place = socket.clone();
    let serving = tokio::spawn(async move {
        let stop = async {
            let _ = ended.await;
        };
        runtime::serve(
            runtime,
            &place,
            || {
                let _ = told.send(());
            },
            stop,
        )
        .await
    });
    ready.await.context("the runtime does not start")?;
    let channel = ::cri::connect(&socket.display().to_string()).await?;
    let mut client = v1::runtime_service_client::RuntimeServiceClient::new(channel);
    let sandboxes = client.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.into_inner().items;
    let count = sandboxes.len();
    let mut ends = JoinSet::new();
    for sandbox in sandboxes {
        let mut client = client.clone();
        ends.spawn(async move {
            let pod_sandbox_id = sandbox.id;
            let stop = v1::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
            tokio::time::timeout(GRACE, client.stop_pod_sandbox(stop)).await??;
            client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id }).await?;
            anyhow::Ok(())
        });
    }
    while let Some(ended) = ends.join_next().await {
        ended?.context("a pod does not end")?;
    }
    drop(client);
    let _ = end.send(());
    serving.await??;
    Ok(count)
}

/// Removes what the containers of these nodes printed: of a pod that was here its kubelet has a folder.
fn remove_logs(folders: Vec<PathBuf>) {
    let pods =
        folders.into_iter().flat_map(|folder| std::fs::read_dir(folder.join("kubelet/pods"))).flatten().flatten();
    let uids: BTreeSet<String> = pods.filter_map(|pod| pod.file_name().into_string().ok()).collect();
    Logs::new(&::kubelet::Config::new("").pod_logs_dir).remove_strangers(&uids);
}

/// Unmounts what is mounted inside a directory, but not the directory itself: that it is a mount is somebody else's doing.
fn unmount_inside(folder: &Path) -> Result<()> {
    for place in sys::mounts_below(folder)?.iter().rev().filter(|place| *place != folder) {
        rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW)
            .with_context(|| format!("{} cannot be unmounted", place.display()))?;
    }
    Ok(())
}

/// Removes the data directory. What is mounted in it still is not entered, and fails the removal.
fn remove_data(data_dir: &Path) -> std::io::Result<()> {
    sys::remove_contents(data_dir)?;
    match std::fs::remove_dir(data_dir) {
        // A disk of its own stays mounted, and empty.
        Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => Ok(()),
        removed => removed,
    }
}

/// Removes a node's control groups in every hierarchy; what still has a process stays.
fn remove_groups(name: &str) {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    for hierarchy in hierarchies.chain([root.to_owned()]) {
        remove_group(&hierarchy.join(name.trim_start_matches('/')));
    }
}

fn remove_group(group: &Path) {
    for entry in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_group(&entry.path());
        }
    }
    // It is not there in most hierarchies.
    let _ = std::fs::remove_dir(group);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_purge_keeps_the_content_of_what_is_mounted() {
        let top = tempfile::tempdir().unwrap();
        let (data, precious) = (top.path().join("data"), top.path().join("precious"));
        let volume = data.join("kubelet/pods/uid/volumes/kubernetes.io~nfs/v");
        let disk = data.join("disk");
        for dir in [&volume, &disk, &precious] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::write(precious.join("data"), "x").unwrap();
        let purged = sys::apart(|| {
            for place in [&volume, &disk] {
                rustix::mount::mount_bind_recursive(&precious, place).unwrap();
            }
            unmount_inside(&data.join("kubelet")).unwrap();
            let refused = remove_data(&data).unwrap_err().to_string();
            assert!(refused.contains("is a mount point"), "{refused}");
            assert!(precious.join("data").exists());
            rustix::mount::unmount(&disk, rustix::mount::UnmountFlags::DETACH).unwrap();
            remove_data(&data).unwrap();
        });
        match purged {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => println!("skipped: this needs root"),
            purged => purged.unwrap(),
        }
        assert!(precious.join("data").exists() && !data.exists());
    }

    #[test]
    fn a_data_directory_that_is_a_disk_of_its_own_is_emptied() {
        let top = tempfile::tempdir().unwrap();
        let purged = sys::apart(|| {
            rustix::mount::mount("tmpfs", top.path(), "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
            fs::create_dir(top.path().join("store")).unwrap();
            remove_data(top.path()).unwrap();
            assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
        });
        match purged {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => println!("skipped: this needs root"),
            purged => purged.unwrap(),
        }
    }
}
