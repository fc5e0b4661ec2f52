//! What components write into the cluster's log that no object says.

use machinery::time::Time;

/// How the proxy says that the kernel has the rules of services.
const RULES: &str = "the rules are in place";
/// How it names their addresses.
const SERVICES: &str = "services=\"";

/// Rules of services that came into place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When.
    pub at: Time,
    /// The addresses of the services.
    pub addresses: Vec<String>,
    /// Who says so: a node has a proxy of its own.
    pub by: String,
}

/// What a log says, in its order; lines that say something else are passed over.
pub fn records(log: &str, by: &str) -> Vec<Record> {
    log.lines().filter(|line| line.contains(RULES)).filter_map(|line| record(line, by)).collect()
}

fn record(line: &str, by: &str) -> Option<Record> {
    let at = Time::parse_micro(line.split_whitespace().next()?).ok()?;
    let (_, addresses) = line.split_once(SERVICES)?;
    let (addresses, _) = addresses.split_once('"')?;
    Some(Record { at, addresses: addresses.split(' ').map(str::to_owned).collect(), by: by.to_owned() })
}
