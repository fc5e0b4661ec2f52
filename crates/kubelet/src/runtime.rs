//! The container runtime as the kubelet uses it: CRI clients and the observed state of a pod.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use node_api::cri::v1;
use node_api::cri::v1::image_service_client::ImageServiceClient;
use node_api::cri::v1::runtime_service_client::RuntimeServiceClient;
use tonic::Status;
use tonic::transport::Channel;

use crate::blocking;
use crate::runtime_status::{self, Container, RuntimePod, Sandbox, labels};

/// Maximum size of a CRI response.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Maximum bytes read from a termination message file (upstream: 4096).
const TERMINATION_BYTES_MAX: u64 = 4096;
/// Maximum bytes of a log used as fallback termination message.
const LOG_BYTES_MAX: u64 = 2048;
/// Maximum lines of a log used as fallback termination message.
const LOG_LINES_MAX: usize = 80;
/// Bytes read from the end of a log: enough for these lines with timestamps and tags, after a truncated record of at
/// most 16 KiB.
const LOG_TAIL_BYTES: u64 = LOG_BYTES_MAX * 4 + (16 << 10);
/// Time that the runtime may need in addition to a container's grace period.
const STOP_MARGIN: Duration = Duration::from_secs(120);

/// CRI clients. Clones share the connection.
#[derive(Clone)]
pub struct Runtime {
    pub runtime: RuntimeServiceClient<Channel>,
    pub images: ImageServiceClient<Channel>,
}

impl Runtime {
    /// Creates clients over a channel.
    pub fn new(channel: &Channel) -> Self {
        let runtime = RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let images = ImageServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Self { runtime, images }
    }

    /// Returns the sandboxes and containers of a pod.
    pub async fn observe(&self, uid: &str) -> Result<RuntimePod, Status> {
        let mut client = self.runtime.clone();
        let label_selector = HashMap::from([(labels::POD_UID.to_owned(), uid.to_owned())]);
        let filter = Some(v1::PodSandboxFilter { label_selector, ..Default::default() });
        let listed = client.list_pod_sandbox(v1::ListPodSandboxRequest { filter }).await?.into_inner().items;
        let mut pod = RuntimePod::default();
        for sandbox in listed {
            let request = v1::PodSandboxStatusRequest { pod_sandbox_id: sandbox.id.clone(), verbose: false };
            let response = match client.pod_sandbox_status(request).await {
                Ok(response) => response.into_inner(),
                // The sandbox was removed between the two calls.
                Err(status) if status.code() == tonic::Code::NotFound => continue,
                Err(status) => return Err(status),
            };
            // A runtime with an event stream includes containers and a timestamp; others need another call.
            let containers = if response.timestamp > 0 {
                response.containers_statuses
            } else {
                self.containers_of(&sandbox.id).await?
            };
            for status in containers {
                pod.containers.push(read(&sandbox.id, status).await);
            }
            pod.sandboxes.extend(response.status.map(Sandbox::read));
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
                Ok(response) => statuses.extend(response.into_inner().status),
                Err(status) if status.code() == tonic::Code::NotFound => {}
                Err(status) => return Err(status),
            }
        }
        Ok(statuses)
    }

    /// Stops a container; the runtime kills it after the grace period.
    pub async fn stop_container(&self, id: &str, grace_seconds: i64) -> Result<(), Status> {
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout: grace_seconds };
        let timeout = Duration::from_secs(grace_seconds.max(0).unsigned_abs()) + STOP_MARGIN;
        let mut client = self.runtime.clone();
        let stopped = tokio::time::timeout(timeout, client.stop_container(request)).await;
        match stopped {
            Ok(Err(status)) if status.code() == tonic::Code::NotFound => Ok(()),
            Ok(stopped) => stopped.map(drop),
            Err(_) => Err(Status::deadline_exceeded(format!("container {id} does not stop"))),
        }
    }

    /// Runs a command in a container. Returns its exit code and output.
    pub async fn exec(&self, id: &str, command: Vec<String>, timeout: Duration) -> Result<(i32, Vec<u8>), Status> {
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        let request = v1::ExecSyncRequest { container_id: id.to_owned(), cmd: command, timeout: seconds };
        let mut client = self.runtime.clone();
        let mut response = client.exec_sync(request).await?.into_inner();
        response.stdout.append(&mut response.stderr);
        Ok((response.exit_code, response.stdout))
    }

    /// Returns the working set of a container in bytes; zero if the runtime does not report it.
    pub async fn memory_used(&self, id: &str) -> u64 {
        let mut client = self.runtime.clone();
        let result = client.container_stats(v1::ContainerStatsRequest { container_id: id.to_owned() }).await;
        let memory = result.ok().and_then(|response| response.into_inner().stats?.memory);
        memory.and_then(|memory| memory.working_set_bytes).map_or(0, |bytes| bytes.value)
    }

    /// Stops and removes a sandbox with its containers.
    pub async fn remove_sandbox(&self, id: &str) -> Result<(), Status> {
        let mut client = self.runtime.clone();
        client.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() }).await?;
        client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() }).await?;
        Ok(())
    }
}

/// Converts a container status, and reads the termination message of an exited container.
async fn read(sandbox: &str, status: v1::ContainerStatus) -> Container {
    let annotation = |key: &str| status.annotations.get(key).map_or("", String::as_str);
    let path = annotation(labels::TERMINATION_PATH);
    let file = status.mounts.iter().find(|mount| !path.is_empty() && mount.container_path == path);
    let (file, log) = (file.map(|mount| PathBuf::from(&mount.host_path)), PathBuf::from(&status.log_path));
    let by_log = annotation(labels::TERMINATION_POLICY) == "FallbackToLogsOnError";
    let mut container = Container::read(sandbox, status);
    if let runtime_status::State::Exited(exit) = &mut container.state {
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

/// Returns the termination message, or the end of `log` if the file is empty or unreadable. The container may have
/// replaced the file by anything.
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

/// Reads the end of a file as text.
fn tail(path: &Path, bytes_max: u64) -> io::Result<String> {
    match sys::tail_container_file(path, bytes_max) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

/// Returns the last lines of a CRI log without timestamps and tags.
fn last_lines(log: &str) -> String {
    let text = |record: &str| {
        let mut parts = record.splitn(4, ' ').skip(2);
        let (tag, text) = (parts.next()?, parts.next()?);
        // A partial record does not end its line.
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

    /// The FIFO never has a writer: a thread that opens it for reading would block forever.
    #[test]
    fn fifo_as_termination_log_does_not_block() {
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
        let message = is_done.recv_timeout(Duration::from_secs(30)).expect("the FIFO does not block the executor");
        assert_eq!(message.as_deref(), Some(""));
    }

    #[tokio::test]
    async fn symlink_as_termination_log_is_not_followed() {
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
    fn end_of_log_is_the_fallback_termination_message() {
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
