//! `knarr logs`: the log of the components in the process of this host.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use clap::{ArgMatches, Args, FromArgMatches};

use crate::output::{self, out};
use crate::up::plan;

/// The log of a data directory.
pub(crate) const FILE: &str = "knarr.log";
/// Start of the names of rotated logs, which contain their time.
const ROTATED: &str = "knarr-";
/// Interval at which a followed log is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Print the log of the components on this host.
#[derive(Args, Debug)]
struct Logs {
    /// Component whose lines are printed [default: all].
    #[arg(value_parser = PossibleValuesParser::new(plan::ROWS.iter().map(|row| row.name)))]
    component: Option<String>,
    /// Print new lines until the command is interrupted.
    #[arg(short, long)]
    follow: bool,
    /// Number of recent lines to print, or "all".
    #[arg(long, value_name = "LINES", default_value = "1000", value_parser = line_count)]
    tail: LineCount,
    /// Data directory of the cluster or node.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
}

/// A number of lines. `usize::MAX` is all.
#[derive(Clone, Copy, Debug)]
struct LineCount(usize);

fn line_count(text: &str) -> Result<LineCount, String> {
    match text {
        "all" => Ok(LineCount(usize::MAX)),
        _ => text.parse().map(LineCount).map_err(|_| "use a number or all".to_owned()),
    }
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Logs::augment_args(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let Logs { component, follow, tail, data_dir } = Logs::from_arg_matches(matches)?;
    let path = data_dir.join(FILE);
    ensure!(path.exists(), "{} does not exist; name the data directory of a cluster with --data-dir", path.display());
    let mut filter = Filter::new(component.as_deref());
    let mut recent = VecDeque::new();
    for rotated in rotated(&data_dir)? {
        // The file may have been removed by another rotation.
        if let Ok(file) = File::open(rotated) {
            read(&mut BufReader::new(file), &mut filter, |line| keep(&mut recent, line, tail.0))?;
        }
    }
    let mut log = open(&path)?;
    read(&mut log, &mut filter, |line| keep(&mut recent, line, tail.0))?;
    recent.iter().for_each(|line| out!("{line}"));
    while follow && !output::is_closed() {
        std::thread::sleep(POLL_INTERVAL);
        read(&mut log, &mut filter, |line| out!("{line}"))?;
        if is_replaced(log.get_ref(), &path) {
            // Lines that were written between the last read and the rotation.
            read(&mut log, &mut filter, |line| out!("{line}"))?;
            log = open(&path)?;
        }
    }
    Ok(())
}

fn open(path: &Path) -> Result<BufReader<File>> {
    let file =
        File::open(path).with_context(|| format!("failed to read {}; run this command as root", path.display()))?;
    Ok(BufReader::new(file))
}

/// Returns the rotated logs of a data directory, the oldest first.
pub(crate) fn rotated(data_dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(data_dir);
    let entries =
        entries.with_context(|| format!("failed to list {}; run this command as root", data_dir.display()))?;
    let is_rotated = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(ROTATED) && name.ends_with(".log")
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_rotated).collect();
    found.sort();
    Ok(found)
}

/// Whether the path names another file than the one that is open.
fn is_replaced(open: &File, path: &Path) -> bool {
    let identity = |metadata: std::io::Result<std::fs::Metadata>| metadata.map(|it| (it.dev(), it.ino())).ok();
    // A log that is being rotated does not exist for a moment.
    let now = identity(std::fs::metadata(path));
    now.is_some() && now != identity(open.metadata())
}

fn keep(recent: &mut VecDeque<String>, line: String, count: usize) {
    recent.push_back(line);
    if recent.len() > count {
        recent.pop_front();
    }
}

/// Prints the complete lines up to the end of the log. An incomplete last line is read again later.
fn read(log: &mut (impl BufRead + SeekBack), filter: &mut Filter, mut print: impl FnMut(String)) -> Result<()> {
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let count = log.read_until(b'\n', &mut bytes).context("failed to read the log")?;
        if count == 0 {
            return Ok(());
        }
        if bytes.last() != Some(&b'\n') {
            return log.seek_back(count).context("failed to read the log");
        }
        let line = String::from_utf8_lossy(&bytes).into_owned();
        if filter.accepts(&line) {
            print(line);
        }
    }
}

/// A reader that can be moved backwards.
trait SeekBack {
    fn seek_back(&mut self, bytes: usize) -> std::io::Result<()>;
}

impl<R: std::io::Read + std::io::Seek> SeekBack for BufReader<R> {
    fn seek_back(&mut self, bytes: usize) -> std::io::Result<()> {
        self.seek_relative(-i64::try_from(bytes).map_err(std::io::Error::other)?)
    }
}

/// Selects the lines of one component.
struct Filter {
    /// The span of the component in a line.
    span: Option<String>,
    is_shown: bool,
}

impl Filter {
    fn new(component: Option<&str>) -> Self {
        let span = component.map(|name| format!("component{{name=\"{name}\"}}"));
        Self { is_shown: span.is_none(), span }
    }

    /// Whether a line belongs to the component. Lines without a time continue the previous entry.
    fn accepts(&mut self, line: &str) -> bool {
        if let Some(span) = &self.span
            && line.starts_with(|letter: char| letter.is_ascii_digit())
        {
            // The span precedes the message, which may quote another line.
            let at = line.find("component{name=");
            self.is_shown = at.is_some_and(|at| line[at..].starts_with(span.as_str()));
        }
        self.is_shown
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const LOG: &str = "2026-11-19T00:00:01Z  INFO component{name=\"kubelet\"}: kubelet::pods: first\n\
        2026-11-19T00:00:02Z  INFO component{name=\"dns\"}: dns: says component{name=\"kubelet\"}\n\
        2026-11-19T00:00:03Z ERROR component{name=\"kubelet\"}: a panic:\n  at line 1\n\
        2026-11-19T00:00:04Z  INFO knarr: no component\n";

    fn lines(component: Option<&str>, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut reader = BufReader::new(Cursor::new(text.as_bytes().to_vec()));
        read(&mut reader, &mut Filter::new(component), |line| found.push(line)).unwrap();
        found
    }

    #[test]
    fn lines_of_a_component_are_printed_with_their_continuations() {
        let kubelet = lines(Some("kubelet"), LOG).concat();
        assert!(kubelet.contains("first") && kubelet.contains("  at line 1\n"), "{kubelet}");
        assert!(!kubelet.contains("name=\"dns\"") && !kubelet.contains("no component"), "{kubelet}");
        assert_eq!(lines(Some("dns"), LOG).len(), 1);
        assert_eq!(lines(None, LOG).concat(), LOG);
    }

    #[test]
    fn incomplete_line_is_read_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut filter = Filter::new(None);
        std::fs::write(&path, "1 first\n1 sec").unwrap();
        let mut log = open(&path).unwrap();
        let mut found = Vec::new();
        read(&mut log, &mut filter, |line| found.push(line)).unwrap();
        assert_eq!(found, ["1 first\n"]);
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, b"ond\n").unwrap();
        read(&mut log, &mut filter, |line| found.push(line)).unwrap();
        assert_eq!(found, ["1 first\n", "1 second\n"]);
        assert!(!is_replaced(log.get_ref(), &path));
        std::fs::rename(&path, dir.path().join("knarr-1.log")).unwrap();
        assert!(!is_replaced(log.get_ref(), &path), "the new file does not exist yet");
        std::fs::write(&path, "").unwrap();
        assert!(is_replaced(log.get_ref(), &path));
        assert_eq!(rotated(dir.path()).unwrap(), [dir.path().join("knarr-1.log")]);
    }

    #[test]
    fn tail_keeps_the_most_recent_lines() {
        let mut recent = VecDeque::new();
        for line in ["a", "b", "c"] {
            keep(&mut recent, line.to_owned(), 2);
        }
        assert_eq!(recent, ["b", "c"]);
        assert_eq!(line_count("all").unwrap().0, usize::MAX);
        assert!(line_count("-1").is_err());
    }
}
