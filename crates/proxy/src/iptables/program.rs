//! The programs of iptables.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use net::nft::Family;

/// Why rules could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is not there.
    #[error("{program} is not installed: install iptables, or use another --proxy-mode")]
    NotInstalled {
        /// Which one.
        program: String,
    },
    /// The program could not be run.
    #[error("{program} cannot be run")]
    Run {
        /// Which one.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The program refused.
    #[error("{program} refuses: {said}")]
    Refused {
        /// Which one.
        program: String,
        /// Its words.
        said: String,
    },
    /// The ports of the loopback interface cannot be had.
    #[error("cannot let packets of the loopback interface out")]
    Localhost(#[source] io::Error),
}

/// Whether this machine has the family at all.
pub fn is_there(family: Family) -> bool {
    family == Family::Ip || Path::new("/proc/thread-self/net/if_inet6").exists()
}

/// What a table has.
pub fn save(family: Family, table: &str) -> Result<String, Error> {
    run(&name(family, "save"), &["-t", table], "")
}

/// Changes chains at once: those that are declared, and no others.
pub fn restore(family: Family, text: &str) -> Result<(), Error> {
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
    let mut stdin = child.stdin.take().expect("it is piped");
    let output = std::thread::scope(|scope| {
        // What it says may be more than a pipe holds, while it is still told something. If it does not listen, its words say why.
        let told = scope.spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output();
        drop(told.join());
        output
    });
    let output = output.map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Refused { program: program.to_owned(), said });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
