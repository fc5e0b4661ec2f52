//! Child processes in the workspace root, and installation of the Debian packages that contain them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::root;

/// A program, by name or absolute path, and the Debian package that contains it.
pub(crate) type Package = (&'static str, &'static str);

/// Installs the packages whose program is missing and prints their names.
pub(crate) fn install_missing(packages: &[Package]) -> anyhow::Result<()> {
    let missing: BTreeSet<&str> =
        packages.iter().filter(|(program, _)| !on_path(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing Debian packages: {}", missing.iter().copied().collect::<Vec<_>>().join(" "));
    exec("apt-get", &["update", "-qq"], &[])?;
    let mut install = vec!["install", "-y", "-qq", "--no-install-recommends"];
    install.extend(&missing);
    exec("apt-get", &install, &[("DEBIAN_FRONTEND", "noninteractive")])
}

/// Whether the program is in `PATH`, or exists if it is an absolute path.
pub(crate) fn on_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Whether the program can be started and exits with 0. Its output is discarded.
pub(crate) fn succeeds(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

/// Runs a program in the workspace root and returns its output; errors are printed. Fails unless it exits with 0.
pub(crate) fn output(program: &str, args: &[&str]) -> anyhow::Result<String> {
    let line = format!("{program} {}", args.join(" "));
    println!("$ {line}");
    let output = Command::new(program)
        .args(args)
        .current_dir(root())
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed invalid UTF-8"))
}

/// Runs cargo; see [`exec`].
pub(crate) fn cargo(args: &[&str], vars: &[(&str, &str)]) -> anyhow::Result<()> {
    exec("cargo", args, vars)
}

/// Prints the command line and runs it in the workspace root. Fails unless it exits with 0.
pub(crate) fn exec(program: &str, args: &[&str], vars: &[(&str, &str)]) -> anyhow::Result<()> {
    let line = format!("{program} {}", args.join(" "));
    println!("$ {line}");
    let status = Command::new(program)
        .args(args)
        .envs(vars.iter().copied())
        .current_dir(root())
        .status()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Returns cargo's target directory, found by the path of this program.
pub(crate) fn target_dir() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find the path of this executable")?;
    Ok(this.ancestors().nth(2).map_or_else(|| root().join("target"), Path::to_path_buf))
}
