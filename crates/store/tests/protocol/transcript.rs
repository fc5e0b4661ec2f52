//! Parses and runs scenarios and compares their output.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Maximum duration of a step: `check perf` alone takes a minute.
const DEADLINE: Duration = Duration::from_secs(180);

/// The servers that a scenario runs against.
pub(crate) trait Servers {
    /// Returns the initial endpoint of etcdctl.
    fn endpoint(&self) -> String;

    /// Returns the scenario's names for values that differ between runs.
    fn names(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Starts the member that was added under this name; `added` is the output of etcdctl.
    async fn join(&mut self, name: &str, _added: &str) -> Result<()> {
        bail!("{name} cannot join a single server")
    }
}

/// A real etcd with its own data directory and ports, which is killed when dropped.
pub(crate) struct Etcd {
    pub endpoint: String,
    _child: Child,
    _dir: tempfile::TempDir,
}

impl Servers for Etcd {
    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }
}

impl Etcd {
    pub(crate) async fn start() -> Result<Self> {
        let (endpoint, peer) = (free_url()?, free_url()?);
        let etcd = Self::spawn("default", &endpoint, &peer, &["--initial-cluster", &format!("default={peer}")])?;
        etcd.ready().await?;
        Ok(etcd)
    }

    /// Starts a process, which may need other members before it is ready.
    pub(crate) fn spawn(name: &str, endpoint: &str, peer: &str, cluster: &[&str]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let child = Command::new("etcd")
            .args(["--data-dir", &dir.path().to_string_lossy(), "--name", name])
            .args(["--listen-client-urls", endpoint, "--advertise-client-urls", endpoint])
            .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
            .args(["--logger", "zap", "--log-level", "error"])
            .args(cluster)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot run etcd: install the Debian package etcd-server")?;
        Ok(Self { endpoint: endpoint.to_owned(), _child: child, _dir: dir })
    }

    pub(crate) async fn ready(&self) -> Result<()> {
        let healthy = async {
            loop {
                let health = etcdctl(&self.endpoint).args(["endpoint", "health"]).output().await;
                if health.context("cannot run etcdctl: install the Debian package etcd-client")?.status.success() {
                    return Ok(());
                }
            }
        };
        timeout(DEADLINE, healthy).await.context("etcd did not become healthy")?
    }
}

/// Returns a URL with a port that was free just now. etcd does not report its port for port 0.
pub(crate) fn free_url() -> Result<String> {
    Ok(format!("http://{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?))
}

fn etcdctl(endpoint: &str) -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", endpoint).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A parsed scenario.
pub(crate) struct Scenario {
    blots: Vec<(Regex, String)>,
    steps: Vec<(usize, Step)>,
    /// Whether the order of output lines is ignored.
    sorted: bool,
}

enum Step {
    Run { arguments: String, input: String },
    Retry { arguments: String },
    At { endpoint: String },
    Join { name: String },
    Let { name: String, pattern: Regex },
    Start { name: String, arguments: String },
    Until { name: String, pattern: String },
    Stop { name: String },
}

/// The output of one step, with its line in the scenario.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StepOutput {
    line: usize,
    command: String,
    output: String,
}

impl Scenario {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let mut scenario = Self { blots: Vec::new(), steps: Vec::new(), sorted: false };
        for (line, text) in (1..).zip(std::fs::read_to_string(path)?.lines()) {
            scenario.read_line(line, text).with_context(|| format!("{}:{line}: {text}", path.display()))?;
        }
        Ok(scenario)
    }

    fn read_line(&mut self, line: usize, text: &str) -> Result<()> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let named = || rest.split_once(' ').context("a name and something after it");
        let step = match word {
            "" | "#" => return Ok(()),
            "blot" => {
                let (pattern, replacement) = rest.split_once(" => ").context("=> is missing")?;
                self.blots.push((Regex::new(pattern)?, replacement.to_owned()));
                return Ok(());
            }
            ">" => {
                let Some((_, Step::Run { input, .. })) = self.steps.last_mut() else {
                    bail!("input without a command")
                };
                input.push_str(rest);
                input.push('\n');
                return Ok(());
            }
            "$" => Step::Run { arguments: rest.to_owned(), input: String::new() },
            "+" => Step::Retry { arguments: rest.to_owned() },
            "at" => Step::At { endpoint: rest.to_owned() },
            "join" => Step::Join { name: rest.to_owned() },
            "sorted" => {
                self.sorted = true;
                return Ok(());
            }
            "let" => Step::Let { name: named()?.0.to_owned(), pattern: Regex::new(named()?.1)? },
            "&" => Step::Start { name: named()?.0.to_owned(), arguments: named()?.1.to_owned() },
            "until" => Step::Until { name: named()?.0.to_owned(), pattern: named()?.1.to_owned() },
            "stop" => Step::Stop { name: rest.to_owned() },
            _ => bail!("unknown line"),
        };
        self.steps.push((line, step));
        Ok(())
    }

    /// Runs all commands and returns their output after `blot` replacements.
    pub(crate) async fn run(&self, servers: &mut impl Servers) -> Result<Vec<StepOutput>> {
        let dir = tempfile::tempdir()?;
        let endpoint = servers.endpoint();
        let named = [("folder", dir.path().to_string_lossy().into_owned())].into_iter().chain(servers.names());
        let mut run = Run {
            endpoint: endpoint.clone(),
            names: named.map(|(name, value)| (name.to_owned(), value)).collect(),
            servers,
            background: BTreeMap::new(),
            last: String::new(),
        };
        let mut printed = Vec::new();
        for (line, step) in &self.steps {
            let output =
                timeout(DEADLINE, run.step(step)).await.with_context(|| format!("line {line} took too long"))?;
            let Some((command, output)) = output.with_context(|| format!("line {line} against {endpoint}"))? else {
                continue;
            };
            let mut output = self.blot(&run.unname(&output));
            if self.sorted {
                let mut lines: Vec<_> = output.lines().collect();
                lines.sort_unstable();
                output = lines.join("\n");
            }
            printed.push(StepOutput { line: *line, command, output });
        }
        Ok(printed)
    }

    fn blot(&self, output: &str) -> String {
        self.blots
            .iter()
            .fold(output.to_owned(), |output, (pattern, text)| pattern.replace_all(&output, &**text).into_owned())
    }
}

struct Run<'a, S> {
    endpoint: String,
    servers: &'a mut S,
    names: BTreeMap<String, String>,
    background: BTreeMap<String, Background>,
    last: String,
}

struct Background {
    command: String,
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
    seen: Vec<String>,
}

impl<S: Servers> Run<'_, S> {
    async fn step(&mut self, step: &Step) -> Result<Option<(String, String)>> {
        match step {
            Step::Run { arguments, input } => {
                let output = self.run(arguments, input).await?;
                self.last.clone_from(&output);
                return Ok(Some((arguments.clone(), output)));
            }
            Step::Retry { arguments } => {
                self.last = loop {
                    let output = self.run(arguments, "").await?;
                    if output.ends_with("exit 0") {
                        break output;
                    }
                };
                return Ok(Some((arguments.clone(), self.last.clone())));
            }
            Step::At { endpoint } => self.endpoint = self.named(endpoint),
            Step::Join { name } => {
                self.servers.join(name, &self.last).await?;
                let started = format!("started, {name},");
                while !self.run("member list", "").await?.contains(&started) {}
            }
            Step::Let { name, pattern } => {
                let found =
                    pattern.captures(&self.last).with_context(|| format!("{pattern} is not in:\n{}", self.last))?;
                self.names.insert(name.clone(), found[1].to_owned());
            }
            Step::Start { name, arguments } => {
                let background = self.start(arguments)?;
                self.background.insert(name.clone(), background);
            }
            Step::Until { name, pattern } => {
                let pattern = Regex::new(&self.named(pattern))?;
                let background = self.background.get_mut(name).context("nothing runs by that name")?;
                while !background.seen.last().is_some_and(|line| pattern.is_match(line)) {
                    let line = background.lines.recv().await;
                    background.seen.push(line.with_context(|| format!("it ended after {:?}", background.seen))?);
                }
            }
            Step::Stop { name } => {
                let mut background = self.background.remove(name).context("nothing runs by that name")?;
                background.child.kill().await?;
                return Ok(Some((background.command, background.seen.join("\n"))));
            }
        }
        Ok(None)
    }

    async fn run(&self, arguments: &str, input: &str) -> Result<String> {
        let mut child = etcdctl(&self.endpoint).args(self.split_args(arguments)?).stdin(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("standard input is piped")?;
        // A command that does not read its input may have exited already.
        let _ = stdin.write_all(self.named(input).as_bytes()).await;
        drop(stdin);
        let output = child.wait_with_output().await?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let code = output.status.code().map_or("a signal".to_owned(), |code| code.to_string());
        Ok(format!("{out}{err}exit {code}"))
    }

    fn start(&self, arguments: &str) -> Result<Background> {
        let mut child = etcdctl(&self.endpoint).args(self.split_args(arguments)?).spawn()?;
        let (sender, lines) = mpsc::unbounded_channel();
        let mut out = BufReader::new(child.stdout.take().context("standard output is piped")?).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = out.next_line().await {
                let _ = sender.send(line);
            }
        });
        Ok(Background { command: arguments.to_owned(), child, lines, seen: Vec::new() })
    }

    fn named(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }

    fn unname(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(value, &format!("{{{name}}}")))
    }

    /// Splits a line into arguments; quotes keep spaces, and `\0` stands for a zero byte, which no argument can
    /// contain.
    fn split_args(&self, line: &str) -> Result<Vec<String>> {
        let mut args = Vec::new();
        let mut word: Option<String> = None;
        let mut quote = None;
        for character in self.named(line).chars() {
            match (quote, character) {
                (Some(open), _) if character == open => quote = None,
                (None, '\'' | '"') => {
                    quote = Some(character);
                    word.get_or_insert_default();
                }
                (None, ' ') => args.extend(word.take()),
                _ => word.get_or_insert_default().push(character),
            }
        }
        ensure!(quote.is_none(), "a quote is open in {line}");
        args.extend(word);
        Ok(args)
    }
}

/// Formats a run for reading.
pub(crate) fn text(file: &Path, printed: &[StepOutput]) -> String {
    let blocks = printed
        .iter()
        .map(|step| format!("{}:{}: etcdctl {}\n{}\n", file.display(), step.line, step.command, step.output));
    blocks.collect()
}

/// Formats the differences between two runs of a scenario.
pub(crate) fn differences(file: &Path, expected: &[StepOutput], found: &[StepOutput]) -> Vec<String> {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let differ = expected.iter().zip(found).filter(|(expected, found)| expected != found);
    differ
        .map(|(expected, found)| {
            format!(
                "{name}:{}: etcdctl {}\n--- etcd\n{}\n--- this store\n{}\n",
                expected.line, expected.command, expected.output, found.output
            )
        })
        .collect()
}
