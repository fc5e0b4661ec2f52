//! `/containerLogs`: container logs with tailLines, sinceTime, timestamps and follow.

use std::io::SeekFrom;
use std::path::{Path, PathBuf};

use apimachinery::time::{Duration, Time};
use bytes::Bytes;
use component_base::inotify::Changes;
use http::{Response, StatusCode};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tracing::Instrument;

use super::{Body, ParsedRequest, Server, streamed, text};
use crate::blocking;
use crate::pod::Pod;
use crate::runtime::Runtime;

/// Maximum line length; longer lines are split.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of buffered chunks per response.
const PIECES_MAX: usize = 16;
/// Bytes per read.
const BLOCK: usize = 64 << 10;
/// Interval for checking whether a silent container still runs: some runtimes close the log before they report the
/// exit.
const STATE_PERIOD: std::time::Duration = std::time::Duration::from_secs(1);

/// The options of a log request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LogOptions {
    follow: bool,
    timestamps: bool,
    since: Option<Time>,
    tail_lines: Option<u64>,
    limit_bytes: Option<u64>,
    stream: Option<&'static str>,
}

impl Server {
    pub(super) async fn container_logs(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        parsed: &ParsedRequest<'_>,
    ) -> Response<Body> {
        let options = match parse_options(parsed, component_base::clock::now()) {
            Ok(options) => options,
            Err(problem) => return text(StatusCode::UNPROCESSABLE_ENTITY, &problem),
        };
        let Some(known) = self.known.find(namespace, pod) else {
            return text(StatusCode::NOT_FOUND, &format!("pod \"{pod}\" does not exist"));
        };
        let runtime = match self.observe(Pod(&known).uid()).await {
            Ok(runtime) => runtime,
            Err(response) => return response,
        };
        if Pod(&known).container(container).is_none() {
            return text(StatusCode::NOT_FOUND, &format!("container \"{container}\" not found in pod \"{pod}\""));
        }
        let mut all = runtime.of(container);
        let found = if parsed.flag("previous") { all.nth(1) } else { all.next() };
        let Some(found) = found else {
            let kind = if parsed.flag("previous") { "previous terminated container" } else { "container" };
            let message = match parsed.flag("previous") {
                true => format!("{kind} \"{container}\" in pod \"{pod}\" not found"),
                false => format!("{kind} \"{container}\" in pod \"{pod}\" is waiting to start: ContainerCreating"),
            };
            return text(StatusCode::BAD_REQUEST, &message);
        };
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let reader = Reader {
            path: PathBuf::from(&found.log_path),
            id: found.id.clone(),
            runtime: self.context.runtime.clone(),
            left: options.limit_bytes,
            options,
            output_state: OutputState::default(),
            sender,
        };
        tokio::spawn(reader.run().in_current_span());
        streamed(ReceiverStream::new(pieces))
    }
}

fn parse_options(parsed: &ParsedRequest<'_>, now: Time) -> Result<LogOptions, String> {
    let number = |name: &str| match parsed.value(name) {
        "" => Ok(None),
        text => text
            .parse::<u64>()
            .map(Some)
            .map_err(|_| format!("{name}: Invalid value: \"{text}\": must be a positive number")),
    };
    let since = match (number("sinceSeconds")?, parsed.value("sinceTime")) {
        (Some(_), time) if !time.is_empty() => {
            return Err("at most one of `sinceTime` or `sinceSeconds` may be specified".to_owned());
        }
        (Some(seconds), _) => Some(now.plus(Duration::from_seconds(-i64::try_from(seconds).unwrap_or(i64::MAX)))),
        (None, "") => None,
        (None, time) => Some(Time::parse(time).map_err(|_| format!("sinceTime: Invalid value: \"{time}\""))?),
    };
    let stream = match parsed.value("stream") {
        "" | "All" => None,
        "Stdout" => Some("stdout"),
        "Stderr" => Some("stderr"),
        other => {
            return Err(format!(
                "stream: Unsupported value: \"{other}\": supported values: \"All\", \"Stderr\", \"Stdout\""
            ));
        }
    };
    Ok(LogOptions {
        follow: parsed.flag("follow"),
        timestamps: parsed.flag("timestamps"),
        since,
        tail_lines: number("tailLines")?,
        limit_bytes: number("limitBytes")?,
        stream,
    })
}

struct Reader {
    path: PathBuf,
    id: String,
    runtime: Runtime,
    options: LogOptions,
    output_state: OutputState,
    left: Option<u64>,
    sender: mpsc::Sender<Result<Bytes, std::io::Error>>,
}

impl Reader {
    async fn run(mut self) {
        if let Err(error) = self.read().await {
            // The client may have disconnected.
            let _ = self.sender.send(Err(error)).await;
        }
    }

    async fn read(&mut self) -> std::io::Result<()> {
        // The watch starts before the first read, so that no change is missed.
        let changes = self.options.follow.then(|| Changes::of(&self.path)).transpose()?;
        let mut file = open(&self.path).await?;
        if let Some(lines) = self.options.tail_lines {
            let start = tail_start(&mut file, lines).await?;
            file.seek(SeekFrom::Start(start)).await?;
        }
        let mut rest = Vec::new();
        loop {
            if !self.drain(&mut file, &mut rest).await? {
                return Ok(());
            }
            let Some(changes) = &changes else { return Ok(()) };
            let running = self.is_running().await;
            // The container may have written between the first read and the state check.
            if !self.drain(&mut file, &mut rest).await? || !running {
                return Ok(());
            }
            tokio::select! {
                changed = changes.next() => changed?,
                () = tokio::time::sleep(STATE_PERIOD) => {}
                () = self.sender.closed() => return Ok(()),
            }
            if let Some(rotated) = reopened(&file, &self.path).await {
                self.drain(&mut file, &mut rest).await?;
                file = rotated;
            }
        }
    }

    /// Sends everything up to the end of the file. Returns false if the client has disconnected or `limitBytes` is
    /// reached.
    async fn drain(&mut self, file: &mut File, rest: &mut Vec<u8>) -> std::io::Result<bool> {
        let mut block = vec![0; BLOCK];
        loop {
            let count = file.read(&mut block).await?;
            if count == 0 {
                return Ok(true);
            }
            rest.extend_from_slice(&block[..count]);
            let mut out = Vec::new();
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                self.output_state.add(&self.options, &line, &mut out);
            }
            if rest.len() > LINE_BYTES_MAX {
                self.output_state.add(&self.options, &std::mem::take(rest), &mut out);
            }
            if let Some(left) = &mut self.left {
                out.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= out.len() as u64;
            }
            if !out.is_empty() && self.sender.send(Ok(out.into())).await.is_err() || self.left == Some(0) {
                return Ok(false);
            }
        }
    }

    async fn is_running(&self) -> bool {
        let request = node_api::cri::v1::ContainerStatusRequest { container_id: self.id.clone(), verbose: false };
        let response = self.runtime.runtime.clone().container_status(request).await;
        let status = response.ok().and_then(|response| response.into_inner().status);
        status.is_some_and(|status| status.state() == node_api::cri::v1::ContainerState::ContainerRunning)
    }
}

/// Whether the last output left a line unfinished.
#[derive(Default)]
struct OutputState {
    within_line: bool,
}

impl OutputState {
    /// Appends the requested parts of a CRI log line: `time stream tag text`.
    fn add(&mut self, options: &LogOptions, line: &[u8], out: &mut Vec<u8>) {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let (Some(time), Some(stream), Some(tag), Some(text)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return;
        };
        if options.stream.is_some_and(|options| options.as_bytes() != stream) {
            return;
        }
        if let Some(since) = options.since {
            let at = std::str::from_utf8(time).ok().and_then(|text| Time::parse(text).ok());
            if at.is_some_and(|at| at < since) {
                return;
            }
        }
        // Parts of a line share one timestamp.
        if options.timestamps && !self.within_line {
            out.extend_from_slice(time);
            out.push(b' ');
        }
        // A partial record does not end its line.
        let text = if tag == b"P" { text.strip_suffix(b"\n").unwrap_or(text) } else { text };
        out.extend_from_slice(text);
        self.within_line = !text.is_empty() && !text.ends_with(b"\n");
    }
}

/// Returns the offset of the last `lines` lines.
async fn tail_start(file: &mut File, lines: u64) -> std::io::Result<u64> {
    let mut at = file.seek(SeekFrom::End(0)).await?;
    let end = at;
    let mut seen = 0;
    let mut block = vec![0; BLOCK];
    while at > 0 {
        let size = at.min(BLOCK as u64);
        at -= size;
        file.seek(SeekFrom::Start(at)).await?;
        let part = &mut block[..size as usize];
        file.read_exact(part).await?;
        for (offset, _) in part.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let next = at + offset as u64 + 1;
            // The newline of the last line does not start another one.
            if next == end {
                continue;
            }
            seen += 1;
            if seen == lines {
                return Ok(next);
            }
        }
    }
    Ok(if lines == 0 { end } else { 0 })
}

/// Opens the file that replaced the one being read, if any.
async fn reopened(file: &File, path: &Path) -> Option<File> {
    use std::os::unix::fs::MetadataExt;
    let (old, new) = (file.metadata().await.ok()?, tokio::fs::symlink_metadata(path).await.ok()?);
    if old.ino() == new.ino() {
        return None;
    }
    open(path).await.ok()
}

/// Opens a log. A pod that mounts the node's log directory can replace a log by anything.
// DEVIATION: symlinks in place of logs are not followed; upstream follows them for runtimes that keep logs elsewhere.
async fn open(path: &Path) -> std::io::Result<File> {
    let path = path.to_owned();
    let opened = blocking::within_deadline(move || sys::open_container_file(&path, sys::Access::Read)).await;
    opened.map(File::from_std)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-01-01T00:00:00.5Z stdout F one\n2026-01-01T00:00:01Z stderr F two\n\
        2026-01-01T00:00:02Z stdout P thr\n2026-01-01T00:00:02Z stdout F ee\n";

    fn render(options: &LogOptions) -> String {
        let (mut output_state, mut out) = (OutputState::default(), Vec::new());
        LOG.split_inclusive('\n').for_each(|line| output_state.add(options, line.as_bytes(), &mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn log_options_select_and_format_lines() {
        let check = |options: LogOptions, expect: &str| assert_eq!(render(&options), expect, "{options:?}");
        check(LogOptions::default(), "one\ntwo\nthree\n");
        check(LogOptions { stream: Some("stderr"), ..LogOptions::default() }, "two\n");
        check(
            LogOptions { since: Some(Time::parse("2026-01-01T00:00:02Z").unwrap()), ..LogOptions::default() },
            "three\n",
        );
        let stamped = LogOptions { timestamps: true, stream: Some("stderr"), ..LogOptions::default() };
        check(stamped, "2026-01-01T00:00:01Z two\n");
        let parts = LogOptions { timestamps: true, stream: Some("stdout"), ..LogOptions::default() };
        check(parts, "2026-01-01T00:00:00.5Z one\n2026-01-01T00:00:02Z three\n");
    }

    #[tokio::test]
    async fn log_that_is_not_a_file_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (log, link, fifo) = (dir.path().join("0.log"), dir.path().join("link"), dir.path().join("fifo"));
        std::fs::write(&log, LOG).unwrap();
        std::os::unix::fs::symlink(&log, &link).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(open(&log).await.is_ok());
        assert!(open(&link).await.is_err());
        assert_eq!(open(&fifo).await.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }

    #[tokio::test]
    async fn tail_lines_are_found_from_the_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), LOG).unwrap();
        for (lines, expect) in [(0, 4), (1, 3), (2, 2), (9, 0)] {
            let mut opened = File::open(file.path()).await.unwrap();
            let start = tail_start(&mut opened, lines).await.unwrap();
            assert_eq!(LOG[..start as usize].lines().count(), expect, "{lines}");
        }
    }
}
