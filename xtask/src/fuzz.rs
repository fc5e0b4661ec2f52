//! `cargo xtask fuzz`: runs the fuzz targets for a limited time. cargo-fuzz keeps findings in `fuzz/artifacts`.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::root;

/// Default run time per target.
const SECONDS: u32 = 60;

/// Runs `[--seconds N] [target…]`; all targets by default.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let FuzzOptions { seconds, targets } = FuzzOptions::of(args)?;
    ensure!(has_cargo_fuzz(), "cargo-fuzz is not installed; run `cargo install cargo-fuzz`");
    let targets = if targets.is_empty() { all()? } else { targets };
    let mut found = Vec::new();
    for target in &targets {
        println!("{target}: {seconds} s");
        if !fuzz(target, seconds)? {
            found.push(target.as_str());
        }
    }
    ensure!(found.is_empty(), "findings in: {}", found.join(", "));
    println!("no findings in {} targets", targets.len());
    Ok(())
}

#[derive(Debug, PartialEq)]
struct FuzzOptions {
    seconds: u32,
    targets: Vec<String>,
}

impl FuzzOptions {
    fn of(args: &[String]) -> anyhow::Result<Self> {
        let mut options = Self { seconds: SECONDS, targets: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--seconds" => {
                    let value = args.next().context("--seconds needs a number")?;
                    options.seconds = value.parse().with_context(|| format!("invalid --seconds {value}"))?;
                }
                flag if flag.starts_with('-') => bail!("unknown flag {flag}"),
                target => options.targets.push(target.to_owned()),
            }
        }
        Ok(options)
    }
}

fn has_cargo_fuzz() -> bool {
    let quiet = Command::new("cargo").args(["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// Returns the names of the files in `fuzz/fuzz_targets`.
fn all() -> anyhow::Result<Vec<String>> {
    let dir = root().join("fuzz/fuzz_targets");
    let mut targets = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            targets.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    targets.sort();
    Ok(targets)
}

/// Runs a target. Returns whether it ran without a finding.
fn fuzz(target: &str, seconds: u32) -> anyhow::Result<bool> {
    // libFuzzer writes new inputs into the first directory; the committed corpus is only read.
    let (made, committed) = (format!("fuzz/target/corpus/{target}"), format!("fuzz/corpus/{target}"));
    fs::create_dir_all(root().join(&made)).with_context(|| made.clone())?;
    let mut command = Command::new("cargo");
    command.args(["fuzz", "run", target, &made]);
    if root().join(&committed).is_dir() {
        command.arg(&committed);
    }
    command.args(["--", &format!("-max_total_time={seconds}"), "-timeout=10"]);
    // Sanitizer instrumentation is an unstable compiler flag on any toolchain.
    command.env("RUSTC_BOOTSTRAP", "1").current_dir(root());
    Ok(command.status().context("failed to start cargo")?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_run_a_minute_by_default() {
        let read = |args: &[&str]| FuzzOptions::of(&args.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&[]).unwrap(), FuzzOptions { seconds: 60, targets: vec![] });
        let expect = FuzzOptions { seconds: 5, targets: vec!["json".to_owned()] };
        assert_eq!(read(&["json", "--seconds", "5"]).unwrap(), expect);
        assert!(read(&["--seconds"]).is_err() && read(&["--second", "5"]).is_err());
    }

    #[test]
    fn every_target_file_has_a_binary() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        let targets = all().unwrap();
        assert!(!targets.is_empty());
        for target in targets {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target} is no [[bin]]");
        }
    }
}
