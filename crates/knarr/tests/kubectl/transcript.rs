//! The form of a transcript.
//!
//! ```text
//! A preface.
//! $ kubectl create namespace shop
//! namespace/shop created
//! $ cat <<E
//! > a further line of the command
//! > E
//! a further line of the command
//! $1.36 kubectl run
//! error: required flag(s) "image" not set
//! [exit 1]
//! ```
//!
//! A command is a line of bash. `$1.36` means that older versions of kubectl print something else. Standard output and
//! standard error are one text, which ends with `\` if its last line has no end.

use std::fmt;

/// Commands with their output.
#[derive(Debug)]
pub(crate) struct Transcript {
    /// The lines before the first command.
    pub preface: String,
    pub steps: Vec<Step>,
}

/// A command with its output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    pub command: String,
    /// The minor version of the first kubectl that prints this.
    pub since: u32,
    pub output: String,
    /// The exit code.
    pub code: i32,
}

/// The end of an output whose last line has no line break.
const UNFINISHED: &str = "\\\n";

impl Transcript {
    pub(crate) fn parse(text: &str) -> Self {
        let mut transcript = Self { preface: String::new(), steps: Vec::new() };
        for line in text.lines() {
            if let Some((since, command)) = command(line) {
                transcript.steps.push(Step { command: command.to_owned(), since, ..Step::default() });
                continue;
            }
            let Some(step) = transcript.steps.last_mut() else {
                transcript.preface.push_str(&format!("{line}\n"));
                continue;
            };
            let code =
                line.strip_prefix("[exit ").and_then(|rest| rest.strip_suffix(']')).and_then(|code| code.parse().ok());
            if let Some(more) = line.strip_prefix("> ").filter(|_| step.output.is_empty()) {
                step.command.push_str(&format!("\n{more}"));
            } else if let Some(code) = code {
                step.code = code;
            } else {
                step.output.push_str(&format!("{line}\n"));
            }
        }
        for step in &mut transcript.steps {
            if let Some(text) = step.output.strip_suffix(UNFINISHED) {
                step.output = text.to_owned();
            }
        }
        transcript
    }
}

/// Parses `$ command` or `$1.36 command`.
fn command(line: &str) -> Option<(u32, &str)> {
    let (version, command) = line.strip_prefix('$')?.split_once(' ')?;
    match version.strip_prefix("1.") {
        Some(minor) => Some((minor.parse().ok()?, command)),
        None => version.is_empty().then_some((0, command)),
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.preface)?;
        self.steps.iter().try_for_each(|step| write!(out, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = if self.since == 0 { String::new() } else { format!("1.{}", self.since) };
        writeln!(out, "${since} {}", self.command.replace('\n', "\n> "))?;
        out.write_str(&self.output)?;
        if !self.output.is_empty() && !self.output.ends_with('\n') {
            out.write_str(UNFINISHED)?;
        }
        if self.code != 0 {
            writeln!(out, "[exit {}]", self.code)?;
        }
        Ok(())
    }
}

#[test]
fn transcript_is_written_as_it_is_read() {
    let text = "About it.\n$ a\n> b\nout\n$1.36 c\nx\\\n[exit 2]\n$ d\n";
    let parsed = Transcript::parse(text);
    assert_eq!(parsed.to_string(), text);
    let [first, second, third] = &parsed.steps[..] else { panic!("three commands") };
    assert_eq!((first.command.as_str(), first.output.as_str(), first.code), ("a\nb", "out\n", 0));
    assert_eq!((second.since, second.output.as_str(), second.code), (36, "x", 2));
    assert_eq!((third.command.as_str(), third.output.as_str()), ("d", ""));
}
