//! Log records of components with information that no object contains.

use apimachinery::time::Time;

/// The proxy's log message that the rules of services are installed.
const RULES: &str = "the rules are in place";
/// The field with the service addresses.
const SERVICES: &str = "services=\"";

/// Service rules that were installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub at: Time,
    /// Addresses of the services.
    pub addresses: Vec<String>,
    /// The node's proxy that logged the record.
    pub by: String,
}

/// Parses a log in order and ignores other lines.
pub fn records(log: &str, by: &str) -> Vec<Record> {
    log.lines().filter(|line| line.contains(RULES)).filter_map(|line| record(line, by)).collect()
}

fn record(line: &str, by: &str) -> Option<Record> {
    let at = Time::parse_micro(line.split_whitespace().next()?).ok()?;
    let (_, addresses) = line.split_once(SERVICES)?;
    let (addresses, _) = addresses.split_once('"')?;
    Some(Record { at, addresses: addresses.split(' ').map(str::to_owned).collect(), by: by.to_owned() })
}
