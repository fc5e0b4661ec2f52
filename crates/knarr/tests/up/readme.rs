//! The commands of the README in order on an empty host: each prints the documented output.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout};

use super::*;

const README: &str = include_str!("../../../../README.md");
/// Wildcard in the documented output.
const ANYTHING: char = '…';

/// A command of the README and its expected output.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadmeCommand {
    pub command: String,
    pub prints: Vec<String>,
}

/// Returns the commands of the shell blocks under a heading. Lines that start with `#` are the output of the command
/// before.
pub(crate) fn steps(readme: &str, heading: &str) -> Vec<ReadmeCommand> {
    let section = readme.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut all: Vec<ReadmeCommand> = Vec::new();
    for line in blocks.flat_map(str::lines) {
        match line.strip_prefix("# ") {
            Some(printed) => all.last_mut().unwrap().prints.push(printed.to_owned()),
            None => all.push(ReadmeCommand { command: line.to_owned(), prints: Vec::new() }),
        }
    }
    all
}

/// Whether a line matches the README's line, which may contain wildcards.
pub(crate) fn matches_line(line: &str, documented: &str) -> bool {
    let mut parts = documented.split(ANYTHING);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(offset) = rest.find(part) else { return false };
        rest = &rest[offset + part.len()..];
    }
    rest.ends_with(last)
}

/// A shell on a host.
struct Terminal {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

const MARK: &str = "-- ended with ";

impl Terminal {
    /// Opens a shell in the mount namespace of a process, or in a new one.
    fn open(machine: &Machine, beside: Option<u32>) -> Self {
        let shell = match beside {
            Some(process) => format!("nsenter --mount=/proc/{process}/ns/mnt sh"),
            None => "unshare --mount sh".to_owned(),
        };
        let mut command = machine.command(&shell);
        command.env_remove("KUBECONFIG").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let (input, output) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        let mut terminal = Self { shell, input, output };
        let dir = machine.dir.path().display().to_string();
        terminal.types(&format!("cd {dir} && exec 2>&1 && export PATH={dir}/bin:$PATH"));
        terminal
    }

    fn types(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn next_line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the shell has ended");
        line.trim_end().to_owned()
    }

    /// Runs a command and returns its output.
    fn run(&mut self, line: &str) -> Vec<String> {
        self.types(&format!("{line}\necho \"{MARK}$?\""));
        let mut printed = Vec::new();
        loop {
            let next = self.next_line();
            if let Some((rest, code)) = next.split_once(MARK) {
                printed.extend((!rest.is_empty()).then(|| rest.to_owned()));
                assert_eq!(code, "0", "{line} printed {printed:?}");
                return printed;
            }
            printed.push(next);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn readme_commands_and_outputs_are_parsed() {
    let text =
        "# A\n\n## Run\n\n```sh\nfirst\n# one\n# two\nsecond\n```\nand\n```sh\nthird\n```\n\n## More\n```sh\nno\n```\n";
    let documented = steps(text, "Run");
    let row = |command: &str, prints: &[&str]| ReadmeCommand {
        command: command.to_owned(),
        prints: prints.iter().map(|line| (*line).to_owned()).collect(),
    };
    assert_eq!(documented, [row("first", &["one", "two"]), row("second", &[]), row("third", &[])]);
    for (line, documented, expect) in [
        ("Hello from web-1", "Hello from web-…", true),
        ("Hello from web-1", "Hello from …-1", true),
        ("ready in 1.2 s, at once", "ready in … s, …", true),
        ("Hello", "Hello from …", false),
        ("same", "same", true),
        ("same as", "same", false),
    ] {
        assert_eq!(matches_line(line, documented), expect, "{line} as {documented}");
    }
}

#[test]
fn readme_commands_print_the_documented_output() {
    let exists = Path::new("/var/lib/knarr").exists();
    assert!(
        !exists,
        "the README's cluster has the data directory /var/lib/knarr, which exists; remove that cluster first"
    );
    let machine = Machine::new();
    let dir = machine.dir.path();
    std::fs::create_dir_all(dir.join("target/release")).unwrap();
    std::fs::create_dir_all(dir.join("bin")).unwrap();
    std::os::unix::fs::symlink(KNARR, dir.join("target/release/knarr")).unwrap();
    std::os::unix::fs::symlink(KNARR, dir.join("bin/knarr")).unwrap();
    // The README uses no kubectl but that of the binary.
    std::os::unix::fs::symlink("/bin/false", dir.join("bin/kubectl")).unwrap();
    // A replacement for sudo, which root does not need and which may not be installed.
    std::os::unix::fs::symlink("/usr/bin/env", dir.join("bin/sudo")).unwrap();

    let commands = steps(README, "Run");
    let [build, up, tour @ ..] = commands.as_slice() else { panic!("{commands:?}") };
    assert!(build.command.starts_with("cargo build --release"), "the first command builds: {build:?}");
    let mut first = Terminal::open(&machine, None);
    first.run("mount -t tmpfs tmpfs /var/lib");
    first.types(&up.command);
    let [ready] = up.prints.as_slice() else { panic!("{up:?} must print when it is ready") };
    loop {
        let line = first.next_line();
        assert!(!line.starts_with("Error") && !line.starts_with("knarr up:"), "{line}");
        if matches_line(&line, ready) {
            break;
        }
    }
    let mut second = Terminal::open(&machine, Some(first.shell.id()));
    for ReadmeCommand { command, prints } in tour {
        let printed = second.run(command);
        let is_documented =
            |lines: &[String]| lines.iter().zip(prints).all(|(line, documented)| matches_line(line, documented));
        let is_somewhere = prints.is_empty() || printed.windows(prints.len()).any(is_documented);
        assert!(is_somewhere, "{command}: the README has {prints:?}, the command printed {printed:?}");
    }
    second.run("knarr down --purge");
    let mut rest = String::new();
    first.types("exit");
    first.output.read_to_string(&mut rest).unwrap();
    assert_eq!(second.run("ls -A /var/lib"), Vec::<String>::new(), "nothing is left; the last output is {rest}");
}
