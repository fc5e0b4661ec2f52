//! Runs the iptables binaries.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use netlink::nft::Family;

/// Rules could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{program} is not installed: install iptables, or use another --proxy-mode")]
    NotInstalled {
        /// Name of the missing binary.
        program: String,
    },
    #[error("failed to run {program}")]
    Run {
        program: String,
        #[source]
        source: io::Error,
    },
    /// The binary exited with an error.
    #[error("{program} failed: {stderr}")]
    Failed {
        program: String,
        /// Its standard error output.
        stderr: String,
    },
    /// The sysctl route_localnet could not be set.
    #[error("failed to set the sysctl route_localnet")]
    Localhost(#[source] io::Error),
}

/// Whether the host supports the address family.
pub(super) fn is_there(family: Family) -> bool {
    family == Family::Ip || Path::new("/proc/thread-self/net/if_inet6").exists()
}

/// Returns the content of a table.
pub(super) fn save(family: Family, table: &str) -> Result<String, Error> {
    run(&name(family, "save"), &["-t", table], "")
}

/// Changes the declared chains atomically, and no others.
pub(super) fn restore(family: Family, text: &str) -> Result<(), Error> {
    run(&name(family, "restore"), &["-w", "5", "--noflush"], text).map(drop)
}

fn name(family: Family, what: &str) -> String {
    match family {
        Family::Ip => format!("iptables-{what}"),
        Family::Ip6 => format!("ip6tables-{what}"),
    }
}

fn run(program: &str, arguments: &[&str], input: &str) -> Result<String, Error> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => Error::NotInstalled { program: program.to_owned() },
        _ => Error::Run { program: program.to_owned(), source },
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let output = std::thread::scope(|scope| {
        // Input is written by a separate thread, because the output may exceed the pipe buffer. A write error is
        // ignored: the binary's error output has the reason.
        let writer = scope.spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output();
        drop(writer.join());
        output
    });
    let output = output.map_err(failed)?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Failed { program: program.to_owned(), stderr });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
