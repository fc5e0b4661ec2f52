//! The runtime as a kubelet uses it: CRI's clients, and what they say of a pod.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cri::v1;
use cri::v1::image_service_client::ImageServiceClient;
use cri::v1::runtime_service_client::RuntimeServiceClient;
use tonic::Status;
use tonic::transport::Channel;

use crate::blocking;
use crate::observed::{self, Container, RuntimePod, Sandbox, labels};

/// The largest answer of a runtime.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// The longest last word of a container.
const TERMINATION_BYTES_MAX: u64 = 4096;
/// How much of a log stands in for a last word.
const LOG_BYTES_MAX: u64 = 2048;
/// And how many lines of it.
const LOG_LINES_MAX: usize = 80;
/// How much of a log's file has all of that, with times and tags, after a first record that may be cut: one of 16 KiB, the longest.
const LOG_TAIL_BYTES: u64 = LOG_BYTES_MAX * 4 + (16 << 10);
/// Stopping takes a little longer than the time that a container is given.
const STOP_MARGIN: Duration = Duration::from_secs(120);

/// CRI's clients. Clones share the connection.
#[derive(Clone)]
pub struct Runtime {
    /// Sandboxes and containers.
    pub runtime: RuntimeServiceClient<Channel>,
    /// Images.
    pub images: ImageServiceClient<Channel>,
}

impl Runtime {
    /// Clients over a channel.
    pub fn new(channel: &Channel) -> Self {
        let runtime = RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let images = ImageServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Self { runtime, images }
    }

    /// What there is of a pod.
    pub async fn observe(&self, uid: &str) -> Result<RuntimePod, Status> {
        let mut client = self.runtime.clone();
        let label_selector = HashMap::from([(labels::POD_UID.to_owned(), uid.to_owned())]);
        let filter = Some(v1::PodSandboxFilter { label_selector, ..Default::default() });
        let listed = client.list_pod_sandbox(v1::ListPodSandboxRequest { filter }).await?.into_inner().items;
        let mut pod = RuntimePod::default();
        for sandbox in listed {
            let request = v1::PodSandboxStatusRequest { pod_sandbox_id: sandbox.id.clone(), verbose: false };
            let answer = match client.pod_sandbox_status(request).await {
                Ok(answer) => answer.into_inner(),
                // It went between the two questions.
                Err(status) if status.code() == tonic::Code::NotFound => continue,
                Err(status) => return Err(status),
            };
            // A runtime that sends events answers with the containers and the time of the answer; others are asked for them.
            let containers =
                if answer.timestamp > 0 { answer.containers_statuses } else { self.containers_of(&sandbox.id).await? };
            for status in containers {
                pod.containers.push(read(&sandbox.id, status).await);
            }
            pod.sandboxes.extend(answer.status.map(Sandbox::read));
        }
        pod.sort();
        Ok(pod)
    }

    async fn containers_of(&self, sandbox: &str) -> Result<Vec<v1::ContainerStatus>, Status> {
        let mut client = self.runtime.clone();
        let filter = Some(v1::ContainerFilter { pod_sandbox_id: sandbox.to_owned(), ..Default::default() });
        let listed = client.list_containers(v1::ListContainersRequest { filter }).await?.into_inner().containers;
        let mut statuses = Vec::with_capacity(listed.len());
        for container in listed {
            let request = v1::ContainerStatusRequest { container_id: container.id, verbose: false };
            match client.container_status(request).await {
                Ok(answer) => statuses.extend(answer.into_inner().status),
                Err(status) if status.code() == tonic::Code::NotFound => {}
                Err(status) => return Err(status),
            }
        }
        Ok(statuses)
    }

    /// Ends a container, by force when its time is over.
    pub async fn stop_container(&self, id: &str, grace_seconds: i64) -> Result<(), Status> {
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout: grace_seconds };
        let patience = Duration::from_secs(grace_seconds.max(0).unsigned_abs()) + STOP_MARGIN;
        let mut client = self.runtime.clone();
        let stopped = tokio::time::timeout(patience, client.stop_container(request)).await;
        match stopped {
            Ok(Err(status)) if status.code() == tonic::Code::NotFound => Ok(()),
            Ok(stopped) => stopped.map(drop),
            Err(_) => Err(Status::deadline_exceeded(format!("container {id} does not stop"))),
        }
    }

    /// Runs a command in a container: its exit code and what it printed.
    pub async fn exec(&self, id: &str, command: Vec<String>, timeout: Duration) -> Result<(i32, Vec<u8>), Status> {
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        let request = v1::ExecSyncRequest { container_id: id.to_owned(), cmd: command, timeout: seconds };
        let mut client = self.runtime.clone();
        let mut answer = client.exec_sync(request).await?.into_inner();
        answer.stdout.append(&mut answer.stderr);
        Ok((answer.exit_code, answer.stdout))
    }

    /// The memory that a container uses and that cannot be had back at will; nothing if the runtime does not say.
    pub async fn memory_used(&self, id: &str) -> u64 {
        let mut client = self.runtime.clone();
        let asked = client.container_stats(v1::ContainerStatsRequest { container_id: id.to_owned() }).await;
        let memory = asked.ok().and_then(|answer| answer.into_inner().stats?.memory);
        memory.and_then(|memory| memory.working_set_bytes).map_or(0, |bytes| bytes.value)
    }

    /// Stops and removes sandboxes with everything in them.
    pub async fn remove_sandbox(&self, id: &str) -> Result<(), Status> {
        let mut client = self.runtime.clone();
        client.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() }).await?;
        client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() }).await?;
        Ok(())
    }
}

/// Reads a container, and its termination message if it has exited.
async fn read(sandbox: &str, status: v1::ContainerStatus) -> Container {
    let annotation = |key: &str| status.annotations.get(key).map_or("", String::as_str);
    let path = annotation(labels::TERMINATION_PATH);
    let file = status.mounts.iter().find(|mount| !path.is_empty() && mount.container_path == path);
    let (file, log) = (file.map(|mount| PathBuf::from(&mount.host_path)), PathBuf::from(&status.log_path));
    let by_log = annotation(labels::TERMINATION_POLICY) == "FallbackToLogsOnError";
    let mut container = Container::read(sandbox, status);
    if let observed::State::Exited(exit) = &mut container.state {
        let log = (by_log && exit.code != 0).then_some(log);
        if file.is_some() || log.is_some() {
            let message = blocking::within_deadline(move || termination_message(file.as_deref(), log.as_deref())).await;
            match message {
                Ok(Some(message)) => exit.message = message,
                Ok(None) => {}
                Err(error) => tracing::debug!(id = container.id, %error, "failed to read the termination message"),
            }
        }
    }
    container
}

/// What a container wrote about its end, or else what it printed last. A container may have put anything in place of its file.
fn termination_message(file: Option<&Path>, log: Option<&Path>) -> io::Result<Option<String>> {
    let written = match file.map(|file| tail(file, TERMINATION_BYTES_MAX)).transpose() {
        Err(error) if log.is_none() => return Err(error),
        written => written.ok().flatten().filter(|text| !text.is_empty()),
    };
    match (written, log) {
        (Some(written), _) => Ok(Some(written)),
        (None, Some(log)) => Ok(Some(last_lines(&tail(log, LOG_TAIL_BYTES)?))),
        (None, None) => Ok(None),
    }
}

/// The end of a file as text.
fn tail(path: &Path, bytes_max: u64) -> io::Result<String> {
    match sys::tail_container_file(path, bytes_max) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

/// The last lines of a CRI log, without times and tags.
fn last_lines(log: &str) -> String {
    let text = |record: &str| {
        let mut parts = record.splitn(4, ' ').skip(2);
        let (tag, text) = (parts.next()?, parts.next()?);
        // A part of a line has its end elsewhere, or nowhere.
        Some(format!("{text}{}", if tag == "P" { "" } else { "\n" }))
    };
    let cut = log.len() as u64 >= LOG_TAIL_BYTES;
    let lines: Vec<String> = log.lines().skip(usize::from(cut)).filter_map(text).collect();
    let text: String = lines[lines.len().saturating_sub(LOG_LINES_MAX)..].concat();
    let start = text.len().saturating_sub(LOG_BYTES_MAX as usize);
    text[text.ceil_char_boundary(start)..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(host_path: &Path) -> v1::ContainerStatus {
        let path = "/dev/termination-log".to_owned();
        v1::ContainerStatus {
            state: v1::ContainerState::ContainerExited.into(),
            annotations: HashMap::from([(labels::TERMINATION_PATH.to_owned(), path.clone())]),
            mounts: vec![v1::Mount {
                container_path: path,
                host_path: host_path.display().to_string(),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    /// Nobody ever writes to the FIFO: a thread that opens it for reading waits for ever.
    #[test]
    fn a_fifo_as_termination_log_blocks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let container = executor.block_on(read("s", exited(&fifo)));
            done.send(container.exit().map(|exit| exit.message.clone())).unwrap();
        });
        let message = is_done.recv_timeout(Duration::from_secs(30)).expect("the FIFO blocks the executor");
        assert_eq!(message.as_deref(), Some(""));
    }

    #[tokio::test]
    async fn a_termination_log_that_leads_elsewhere_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (secret, link, file) = (dir.path().join("secret"), dir.path().join("link"), dir.path().join("file"));
        std::fs::write(&secret, "of the host").unwrap();
        std::fs::write(&file, "a last word").unwrap();
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        for (path, expect) in [(&file, "a last word"), (&link, "")] {
            let container = read("s", exited(path)).await;
            assert_eq!(container.exit().map(|exit| exit.message.as_str()), Some(expect));
        }
    }

    #[test]
    fn the_end_of_a_log_stands_in_for_a_last_word() {
        let log = "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stderr F two words\n";
        assert_eq!(last_lines(log), "one\ntwo words\n");
        assert_eq!(last_lines("t stdout P DONE\n"), "DONE");
        assert_eq!(last_lines("t stdout P long \nt stdout F line\n"), "long line\n");
        let whole = format!("t stdout F {}\n", "x y ".repeat(8000));
        let cut = &whole[whole.len() - LOG_TAIL_BYTES as usize + 12..];
        assert_eq!(last_lines(&format!("{cut}t stderr F end\n")), "end\n");
        let long: String = (0..5000).map(|n| format!("t stdout F line {n}\n")).collect();
        let end = last_lines(&long);
        assert!(end.len() <= 2048 && end.lines().count() <= 80 && end.ends_with("line 4999\n"), "{end}");
    }
}
