//! Runs every fuzz target for a while; what one finds is kept in `fuzz/artifacts` by cargo-fuzz and said here.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::root;

/// How long each target runs if nobody says.
const SECONDS: u32 = 60;

/// Runs `[--seconds N] [target…]`; all targets if none is named.
pub fn run(args: &[String]) -> anyhow::Result<()> {
    let Asked { seconds, targets } = Asked::of(args)?;
    ensure!(has_cargo_fuzz(), "cargo-fuzz is not installed: `cargo install cargo-fuzz` puts it beside cargo");
    let targets = if targets.is_empty() { all()? } else { targets };
    let mut found = Vec::new();
    for target in &targets {
        println!("{target}: {seconds} s");
        if !fuzz(target, seconds)? {
            found.push(target.as_str());
        }
    }
    ensure!(found.is_empty(), "something was found: {}", found.join(", "));
    println!("nothing was found in {} targets", targets.len());
    Ok(())
}

#[derive(Debug, PartialEq)]
struct Asked {
    seconds: u32,
    targets: Vec<String>,
}

impl Asked {
    fn of(args: &[String]) -> anyhow::Result<Self> {
        let mut asked = Self { seconds: SECONDS, targets: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--seconds" => {
                    let value = args.next().context("--seconds needs a number")?;
                    asked.seconds = value.parse().with_context(|| format!("--seconds: {value}"))?;
                }
                flag if flag.starts_with('-') => bail!("there is no flag {flag}"),
                target => asked.targets.push(target.to_owned()),
            }
        }
        Ok(asked)
    }
}

fn has_cargo_fuzz() -> bool {
    let quiet = Command::new("cargo").args(["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// The targets are the files of their folder.
fn all() -> anyhow::Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let mut targets = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            targets.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    targets.sort();
    Ok(targets)
}

/// Whether a target came through.
fn fuzz(target: &str, seconds: u32) -> anyhow::Result<bool> {
    // libFuzzer writes what it finds into the first directory; the committed corpus is only read.
    let (made, committed) = (format!("fuzz/target/corpus/{target}"), format!("fuzz/corpus/{target}"));
    fs::create_dir_all(root().join(&made)).with_context(|| made.clone())?;
    let mut command = Command::new("cargo");
    command.args(["fuzz", "run", target, &made]);
    if root().join(&committed).is_dir() {
        command.arg(&committed);
    }
    command.args(["--", &format!("-max_total_time={seconds}"), "-timeout=10"]);
    // Instrumenting is an unstable flag of the compiler, whichever toolchain it is.
    command.env("RUSTC_BOOTSTRAP", "1").current_dir(root());
    Ok(command.status().context("cargo could not be started")?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_runs_a_minute_unless_somebody_says_otherwise() {
        let read = |words: &[&str]| Asked::of(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&[]).unwrap(), Asked { seconds: 60, targets: vec![] });
        let expect = Asked { seconds: 5, targets: vec!["json".to_owned()] };
        assert_eq!(read(&["json", "--seconds", "5"]).unwrap(), expect);
        assert!(read(&["--seconds"]).is_err() && read(&["--second", "5"]).is_err());
    }

    #[test]
    fn a_target_is_a_file_and_a_program() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        let targets = all().unwrap();
        assert!(!targets.is_empty());
        for target in targets {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target} is no [[bin]]");
        }
    }
}
