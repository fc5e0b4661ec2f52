//! Named network namespaces.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A network namespace that is deleted on drop.
pub(crate) struct Space {
    name: String,
}

impl Space {
    /// Creates a namespace with its loopback interface up.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let space = Self { name: format!("knarr-{}-{name}", std::process::id()) };
        run(&format!("ip netns add {}", space.name))?;
        space.run("ip link set lo up")?;
        Ok(space)
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// Runs a command in the namespace.
    pub(crate) fn run(&self, line: &str) -> Result<String> {
        run(&format!("ip netns exec {} {line}", self.name))
    }

    /// Calls a function in the namespace.
    pub(crate) fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R> {
        netlink::namespace::within(&self.path(), work).context("failed to enter a network namespace")
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = run(&format!("ip netns delete {}", self.name));
    }
}

fn run(line: &str) -> Result<String> {
    let mut tokens = line.split(' ');
    let program = tokens.next().context("a command has a name")?;
    let output = Command::new(program).args(tokens).output().with_context(|| format!("failed to start {program}"))?;
    ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
