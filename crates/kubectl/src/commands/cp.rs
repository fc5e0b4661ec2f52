//! `kubectl cp`: copies files to and from containers with `tar` in the container.

mod archive;
mod paths;

use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use apimachinery::Value;
use apimachinery::go;
use bytes::Bytes;
use client::Target;
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::exec::execute_with;
use crate::command::{Command, Flag, Group};
use crate::pods::{self, PODS};
use crate::stream::remote::Streams;
use crate::{Context, Failure, Invocation};
use archive::{Unpacking, pack, unpack};
use paths::{FileSpec, archive_prefix, base, clean, dir, join, parse_spec};

pub(super) static COMMAND: Command = Command {
    name: "cp",
    group: Group::Troubleshooting,
    summary: "Copy files between this machine and a container",
    description: "Copy a file or a directory from this machine to a container or back. The remote side is written \
         as [NAMESPACE/]POD:PATH, and the image of the container must have the tar program. To copy symbolic \
         links, wildcards or exact file modes, run tar with 'kubectl exec' instead.",
    examples: "  # Copy the local directory ./site into the pod web
  kubectl cp ./site web:/srv/site

  # Copy a file into the container proxy of the pod web, without its owner and permissions
  kubectl cp proxy.conf web:/etc/proxy/proxy.conf -c proxy --no-preserve

  # Fetch a dump from the pod db in the namespace data, with up to 3 more attempts if the connection breaks
  kubectl cp data/db:/var/backups/dump.sql ./dump.sql --retries=3

  # Fetch a directory with its symbolic links
  kubectl exec worker -- tar cf - -C /var/lib jobs | tar xf -",
    usage: "kubectl cp <file-spec-src> <file-spec-dest> [options]",
    flags: &[FLAGS],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::text(
        "container",
        "",
        "Container to use; if omitted, the one named by the kubectl.kubernetes.io/default-container annotation, or \
         else the first of the pod.",
    )
    .short('c'),
    Flag::bool("no-preserve", "Do not keep the owner and the permissions of the files in the container."),
    Flag::int(
        "retries",
        "0",
        "Number of times to resume an interrupted copy from a container; 0 means none, a negative number no limit.",
    ),
];

/// Time to find out whether the destination is a directory.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);
const BLOCK_BYTES: usize = 32 << 10;

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let [source, destination] = invocation.args.as_slice() else {
        return Err(Failure::new("source and destination are required"));
    };
    let source = parse_spec(source).map_err(Failure::new)?;
    let destination = parse_spec(destination).map_err(Failure::new)?;
    if !source.pod.is_empty() && !destination.pod.is_empty() {
        return Err(Failure::new("one of src or dest must be a local file specification"));
    }
    if source.file.is_empty() || destination.file.is_empty() {
        return Err(Failure::new("filepath can not be empty"));
    }
    match (source.pod.is_empty(), destination.pod.is_empty()) {
        (false, _) => copy_from_pod(context, invocation, &source, &destination.file).await,
        (true, false) => copy_to_pod(context, invocation, &source.file, &destination).await,
        (true, true) => Err(Failure::new("one of src or dest must be a remote file specification")),
    }
}

/// Returns the pod and the container of a specification, and the notice if the container was not given.
async fn find(
    context: &Context,
    invocation: &Invocation,
    spec: &FileSpec,
) -> Result<(Value, String, Option<String>), Failure> {
    let namespace = if spec.namespace.is_empty() { context.namespace()?.name } else { spec.namespace.clone() };
    let pod = context.client()?.get(&Target::named(&PODS, namespace.as_str(), spec.pod.as_str())).await?;
    if let phase @ ("Succeeded" | "Failed") = pods::phase(&pod) {
        let problem = format!("cannot exec into a container in a completed pod; current phase is {phase}");
        return Err(Failure::new(problem));
    }
    let choice = pods::choose_container(&pod, invocation.text("container")).map_err(Failure::new)?;
    let (container, notice) = (choice.container.name().to_owned(), choice.notice);
    Ok((pod, container, notice))
}

async fn copy_to_pod(
    context: &Context,
    invocation: &Invocation,
    source: &str,
    destination: &FileSpec,
) -> Result<(), Failure> {
    if std::fs::metadata(source).is_err() {
        return Err(Failure::new(format!("{source} doesn't exist in local filesystem")));
    }
    let (pod, container, notice) = find(context, invocation, destination).await?;
    let mut file = destination.file.clone();
    if is_directory(context, &pod, &container, &file).await? {
        file = join(&file, &base(source));
    }
    if let Some(notice) = notice {
        writeln!(context.err(), "{notice}")?;
    }
    let mut command: Vec<String> = vec!["tar".to_owned()];
    if invocation.bool("no-preserve") {
        command.extend(["--no-same-permissions".to_owned(), "--no-same-owner".to_owned()]);
    }
    command.extend(["-xmf", "-", "-C"].map(str::to_owned));
    command.push(dir(&file));
    let (to, stdin) = mpsc::channel(4);
    let (path, name) = (PathBuf::from(clean(source)), base(&clean(&file)));
    let packed =
        tokio::task::spawn_blocking(move || pack(&path, &name, BufWriter::with_capacity(BLOCK_BYTES, Chunks(to))));
    let streams = Streams {
        stdin: Some(stdin),
        stdout: Some(Box::new(tokio::io::stdout())),
        stderr: Some(Box::new(tokio::io::stderr())),
        ..Streams::default()
    };
    tokio::select! {
        outcome = execute_with(context, &pod, &container, &command, streams) => outcome,
        failure = failure_of(packed) => Err(failure),
    }
}

/// Returns the failure of packing; the end of the input is left to the command. Input that the command does not read is
/// not a failure.
async fn failure_of(packed: JoinHandle<io::Result<()>>) -> Failure {
    match packed.await {
        Ok(Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => error.into(),
        _ => std::future::pending().await,
    }
}

/// Checks in the container whether a path is a directory. Returns false if the check fails.
async fn is_directory(context: &Context, pod: &Value, container: &str, path: &str) -> Result<bool, Failure> {
    let command = ["test", "-d", path].map(str::to_owned);
    let streams = Streams {
        stdout: Some(Box::new(tokio::io::sink())),
        stderr: Some(Box::new(tokio::io::sink())),
        ..Streams::default()
    };
    match tokio::time::timeout(PROBE_TIMEOUT, execute_with(context, pod, container, &command, streams)).await {
        Ok(outcome) => Ok(outcome.is_ok()),
        Err(_) => Err(Failure::new("context deadline exceeded")),
    }
}

async fn copy_from_pod(
    context: &Context,
    invocation: &Invocation,
    source: &FileSpec,
    destination: &str,
) -> Result<(), Failure> {
    let (pod, container, notice) = find(context, invocation, source).await?;
    let mut out = context.out();
    if let Some(notice) = notice {
        writeln!(out, "{notice}")?;
        out.flush()?;
    }
    let (mut sender, reader) = pipe();
    let unpacked = start_unpacking(reader, source, destination);
    let tries_max = invocation.int("retries");
    let mut tries = 0;
    loop {
        let (near, far) = tokio::io::duplex(2 * BLOCK_BYTES);
        let streams =
            Streams { stdout: Some(Box::new(near)), stderr: Some(Box::new(tokio::io::stdout())), ..Streams::default() };
        let command = archive_command(&source.file, tries_max != 0, sender.sent + u64::from(tries > 0));
        let failed = async {
            match execute_with(context, &pod, &container, &command, streams).await {
                Ok(()) => std::future::pending().await,
                Err(failure) => failure,
            }
        };
        // DEVIATION: the exit code of `tar` counts. kubectl exits with success if it reads the end of the archive
        // before it receives the exit code.
        let needs_more = tokio::select! {
            failure = failed => return Err(failure),
            needs_more = sender.fill(far) => needs_more,
        };
        if !needs_more {
            break;
        }
        if tries_max >= 0 && tries >= tries_max {
            writeln!(out, "Dropping out copy after {tries} retries")?;
            sender.end();
            break;
        }
        tries += 1;
        writeln!(out, "Resuming copy at {} bytes, retry {tries}/{tries_max}", sender.sent)?;
        out.flush()?;
    }
    match unpacked.await {
        Ok(outcome) => outcome.map_err(Failure::new),
        Err(_) => Err(Failure::new("the archive cannot be read")),
    }
}

fn start_unpacking(reader: Reader, source: &FileSpec, destination: &str) -> JoinHandle<Result<(), String>> {
    let alternative = format!(
        "kubectl exec -n {} {} -- tar cf - {} | tar xf -",
        go::quote(&source.namespace),
        go::quote(&source.pod),
        go::quote(&source.file)
    );
    let (prefix, destination) = (archive_prefix(&source.file), destination.to_owned());
    tokio::task::spawn_blocking(move || {
        let unpacking = Unpacking { prefix: &prefix, destination: &destination, alternative: &alternative };
        unpack(reader, &unpacking, |warning| {
            let _ = writeln!(io::stderr().lock(), "{warning}");
        })
    })
}

/// Returns the command that writes an archive, from the given byte on if the copy may be resumed.
fn archive_command(file: &str, resumable: bool, from: u64) -> Vec<String> {
    if !resumable {
        return ["tar", "cf", "-", file].map(str::to_owned).to_vec();
    }
    let escaped = file.replace('\'', "'\\''");
    vec!["sh".to_owned(), "-c".to_owned(), format!("tar cf - '{escaped}' | tail -c+{from}")]
}

/// A writer into the input of a command.
struct Chunks(mpsc::Sender<Bytes>);

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.blocking_send(Bytes::copy_from_slice(bytes)) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The sending side of a pipe. The reader requests each piece, so the sender knows whether the reader needs more.
struct DemandSender {
    requests: mpsc::Receiver<()>,
    pieces: Option<mpsc::Sender<Bytes>>,
    /// Whether a request of the reader is pending.
    is_requested: bool,
    /// Bytes that were sent.
    sent: u64,
}

/// The reading side, in another thread.
struct Reader {
    requests: mpsc::Sender<()>,
    pieces: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

fn pipe() -> (DemandSender, Reader) {
    let ((request_sender, requests), (piece_sender, pieces)) = (mpsc::channel(1), mpsc::channel(1));
    let sender = DemandSender { requests, pieces: Some(piece_sender), is_requested: false, sent: 0 };
    (sender, Reader { requests: request_sender, pieces, rest: Bytes::new() })
}

impl DemandSender {
    /// Sends everything from a stream, and returns whether the reader needs more.
    async fn fill(&mut self, mut from: DuplexStream) -> bool {
        let mut buffer = vec![0; BLOCK_BYTES];
        loop {
            let count = from.read(&mut buffer).await.unwrap_or(0);
            if !self.is_requested && self.requests.recv().await.is_none() {
                return false;
            }
            self.is_requested = count == 0;
            if count == 0 {
                return true;
            }
            self.sent += count as u64;
            if let Some(pieces) = &self.pieces {
                let _ = pieces.send(Bytes::copy_from_slice(&buffer[..count])).await;
            }
        }
    }

    /// Ends the stream for the reader.
    fn end(&mut self) {
        self.pieces = None;
    }
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            if self.requests.blocking_send(()).is_err() {
                return Ok(0);
            }
            match self.pieces.blocking_recv() {
                Some(piece) => self.rest = piece,
                None => return Ok(0),
            }
        }
        let count = into.len().min(self.rest.len());
        into[..count].copy_from_slice(&self.rest.split_to(count));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[test]
    fn resumable_copy_starts_at_a_byte() {
        assert_eq!(archive_command("/a b", false, 0), ["tar", "cf", "-", "/a b"]);
        assert_eq!(archive_command("/it's", true, 5), ["sh", "-c", "tar cf - '/it'\\''s' | tail -c+5"]);
    }

    #[tokio::test]
    async fn sender_knows_whether_the_reader_needs_more() {
        let (mut sender, mut reader) = pipe();
        let reading = tokio::task::spawn_blocking(move || {
            let mut all = vec![0; 6];
            reader.read_exact(&mut all).map(|()| all)
        });
        for (piece, needs_more) in [(b"abc", true), (b"def", false)] {
            let (mut near, far) = tokio::io::duplex(64);
            near.write_all(piece).await.unwrap();
            drop(near);
            assert_eq!(sender.fill(far).await, needs_more);
        }
        assert_eq!((reading.await.unwrap().unwrap(), sender.sent), (b"abcdef".to_vec(), 6));
    }
}
