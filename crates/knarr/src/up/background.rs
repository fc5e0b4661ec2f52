//! A cluster that goes on when whoever started it has gone.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Instance;

/// How often it is looked whether the cluster is ready: a file of another process has nothing to wait on.
const LOOK: Duration = Duration::from_millis(20);

/// Starts this program again, apart from the terminal, and waits until its cluster can be used.
pub fn start(data_dir: &Path) -> Result<()> {
    if let Some(holder) = Instance::holder(data_dir)? {
        bail!("a cluster already runs as process {holder}; stop it with `knarr down`");
    }
    std::fs::create_dir_all(data_dir).with_context(|| {
        format!("{} cannot be made; run this as root, or choose another with --data-dir", data_dir.display())
    })?;
    let output = data_dir.join("up.out");
    let file = OpenOptions::new().create(true).write(true).truncate(true).open(&output)?;
    let this = std::env::current_exe().context("this program has no path")?;
    let arguments = std::env::args_os().skip(1).filter(|argument| argument != "-d" && argument != "--background");
    let mut child = Command::new(this)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .process_group(0)
        .spawn()?;
    while !Instance::is_ready(data_dir) || Instance::holder(data_dir)? != Some(child.id()) {
        if child.try_wait()?.is_some() {
            bail!("{}", std::fs::read_to_string(&output).unwrap_or_default().trim());
        }
        std::thread::sleep(LOOK);
    }
    print!("{}", std::fs::read_to_string(&output)?);
    Ok(())
}

/// Prints a unit for systemd that does what was typed.
pub fn print_unit() -> Result<()> {
    print!("{}", unit(&std::env::current_exe()?, std::env::args().skip(1)));
    Ok(())
}

/// A unit for systemd that does what was typed.
fn unit(program: &Path, arguments: impl Iterator<Item = String>) -> String {
    let (program, of_now) = (program.display(), ["--systemd-unit", "-d", "--background"]);
    let arguments: Vec<String> =
        arguments.filter(|argument| !of_now.contains(&argument.as_str())).map(quoted).collect();
    let arguments = arguments.join(" ");
    format!(
        "[Unit]
Description=Knarr, a Kubernetes cluster
After=network-online.target
Wants=network-online.target

[Service]
ExecStart={program} {arguments}
Restart=always
RestartSec=1
# Pods are kept by processes of their own and go on while this one is started anew.
KillMode=process
Delegate=yes
LimitNOFILE=1048576
TasksMax=infinity

[Install]
WantedBy=multi-user.target
"
    )
}

/// A word as systemd reads it.
fn quoted(word: String) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,=@+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word;
    }
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_does_what_was_typed() {
        let typed = ["server", "--join", "https://192.0.2.1:6443", "--systemd-unit", "--kubelet-arg", "a<5%"];
        let unit = unit(Path::new("/bin/knarr"), typed.into_iter().map(str::to_owned));
        let start = "ExecStart=/bin/knarr server --join https://192.0.2.1:6443 --kubelet-arg \"a<5%%\"\n";
        assert!(unit.contains(start), "{unit}");
    }
}
