//! Termination of a node's pods through the runtime: its shims outlive the process that started them.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use ::kubelet::Runtime;
use ::kubelet::terminate::{self, Running, TerminatedContainer};
use ::node_api::cri::v1;
use anyhow::{Context, Result};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::cri;
use crate::output::{self, outln};

/// Time limit for stopping a sandbox after its containers have exited.
const SANDBOX_TIMEOUT: Duration = Duration::from_secs(30);

/// Termination mode of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TerminationMode {
    /// PreStop hooks and SIGTERM, then SIGKILL after the grace period, or after this many seconds.
    Graceful { seconds_max: i64 },
    /// Immediate SIGKILL.
    Immediate,
}

/// Stops every pod of a node and returns their count. Their records stay, so that a restarted kubelet knows restart
/// counts and log paths.
pub(super) async fn stop(data_dir: &Path, manner: TerminationMode, prefix: &str) -> Result<usize> {
    let command = cri::arguments(clap::Command::new("cri").no_binary_name(true));
    let matches =
        command.try_get_matches_from([format!("--data-dir={}", data_dir.display()), "--network=auto".into()])?;
    let runtime = container_runtime::Runtime::open(cri::config(&matches)?).await?;
    let socket = data_dir.join("down.sock");
    let (notify_ready, ready) = oneshot::channel();
    let (end, stopped) = oneshot::channel::<()>();
    let listen_on = socket.clone();
    let serving = tokio::spawn(async move {
        let notify_ready = || {
            let _ = notify_ready.send(());
        };
        let stop = async {
            let _ = stopped.await;
        };
        container_runtime::serve(runtime, &listen_on, notify_ready, stop).await
    });
    ready.await.context("failed to start the runtime")?;
    let runtime = Runtime::new(&::node_api::cri::connect(&socket.display().to_string()).await?);
    if let TerminationMode::Graceful { seconds_max } = manner {
        stop_containers(&runtime, seconds_max, prefix).await?;
    }
    let count = stop_sandboxes(&runtime).await?;
    drop(runtime);
    let _ = end.send(());
    serving.await??;
    Ok(count)
}

async fn stop_containers(runtime: &Runtime, seconds_max: i64, prefix: &str) -> Result<()> {
    let mut running = terminate::running(runtime).await.context("failed to list containers")?;
    for container in &mut running {
        container.grace_seconds = container.grace_seconds.min(seconds_max);
    }
    let mut progress = Progress::start(&running, prefix);
    terminate::end_all(runtime, running, |exit| progress.record_exit(&exit)).await;
    progress.finish();
    Ok(())
}

async fn stop_sandboxes(runtime: &Runtime) -> Result<usize> {
    let mut client = runtime.runtime.clone();
    let sandboxes = client.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.into_inner().items;
    let is_ready = |sandbox: &&v1::PodSandbox| sandbox.state() == v1::PodSandboxState::SandboxReady;
    let count = sandboxes.iter().filter(is_ready).count();
    let mut ends = JoinSet::new();
    for sandbox in sandboxes {
        let mut client = client.clone();
        ends.spawn(async move {
            let stop = v1::StopPodSandboxRequest { pod_sandbox_id: sandbox.id };
            tokio::time::timeout(SANDBOX_TIMEOUT, client.stop_pod_sandbox(stop)).await??;
            anyhow::Ok(())
        });
    }
    while let Some(result) = ends.join_next().await {
        result?.context("failed to stop a pod")?;
    }
    Ok(count)
}

/// Reports the number of exited containers, on a terminal as a line that is updated.
struct Progress<'a> {
    prefix: &'a str,
    count: usize,
    exited: usize,
    live: bool,
}

impl<'a> Progress<'a> {
    fn start(running: &[Running], prefix: &'a str) -> Self {
        let seconds = running.iter().map(|container| container.grace_seconds).max().unwrap_or_default();
        if !running.is_empty() {
            outln!(
                "{prefix}stopping {} containers, for up to {seconds} s (use --now to kill them immediately)",
                running.len()
            );
        }
        // Nodes stop concurrently and would overwrite each other's lines.
        let live = std::io::stderr().is_terminal() && prefix.is_empty();
        Self { prefix, count: running.len(), exited: 0, live }
    }

    fn record_exit(&mut self, exit: &TerminatedContainer) {
        self.exited += 1;
        if let Some(problem) = &exit.problem {
            self.clear();
            output::error_line(format_args!("{}container {}: {problem}", self.prefix, exit.name));
        }
        if self.live {
            let _ = write!(std::io::stderr(), "\r{} of {} containers have exited\x1b[K", self.exited, self.count);
        }
    }

    fn finish(&self) {
        self.clear();
    }

    fn clear(&self) {
        if self.live {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
