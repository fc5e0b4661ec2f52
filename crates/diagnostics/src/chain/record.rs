//! Stage records: steps on a node that no API object contains.
//!
//! A component makes a [`Record`] and the binary stores its [`line`](Record::line); [`Record::parse`] is the inverse.
//! Log messages are for operators and are never parsed.

use apimachinery::time::Time;
use apimachinery::{Value, json, value};

/// A stage that a component of a node has completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeStage {
    /// kube-proxy applied the rules of Services with these cluster IPs.
    ServiceRules { cluster_ips: Vec<String> },
}

/// A stage and the time of its completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub at: Time,
    pub stage: NodeStage,
}

/// The stage names in stored records. They are part of the format: a newer build reads the records of an older one.
const SERVICE_RULES: &str = "ServiceRules";

impl Record {
    /// Returns the record as a line of JSON with its line end.
    pub fn line(&self) -> String {
        let at = self.at.micro().to_string();
        let object = match &self.stage {
            NodeStage::ServiceRules { cluster_ips } => {
                let cluster_ips: Vec<Value> = cluster_ips.iter().map(|ip| Value::from(ip.as_str())).collect();
                value!({"at": at, "stage": SERVICE_RULES, "clusterIPs": cluster_ips})
            }
        };
        format!("{}\n", json::to_string(&object))
    }

    /// Parses a line. Returns `None` for an incomplete line, such as one that was written during a crash, and for a
    /// stage of another build.
    pub fn parse(line: &str) -> Option<Self> {
        let object = json::parse(line.as_bytes()).ok()?;
        let at = Time::parse_micro(object.str_at(&["at"])?).ok()?;
        let stage = match object.str_at(&["stage"])? {
            SERVICE_RULES => {
                let cluster_ips = object.get("clusterIPs")?.as_array()?;
                let cluster_ips: Option<Vec<String>> =
                    cluster_ips.iter().map(|ip| ip.as_str().map(str::to_owned)).collect();
                NodeStage::ServiceRules { cluster_ips: cluster_ips? }
            }
            _ => return None,
        };
        Some(Self { at, stage })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_back_from_its_line() {
        let at = Time::parse_micro("2026-11-16T12:00:02.700000Z").expect("a time");
        let record =
            Record { at, stage: NodeStage::ServiceRules { cluster_ips: vec!["10.96.0.10".into(), "fd00::a".into()] } };
        let line = record.line();
        assert_eq!(
            line,
            "{\"at\":\"2026-11-16T12:00:02.700000Z\",\"clusterIPs\":[\"10.96.0.10\",\"fd00::a\"],\"stage\":\"ServiceRules\"}\n"
        );
        assert_eq!(Record::parse(&line), Some(record));
    }

    #[test]
    fn incomplete_and_unknown_lines_are_ignored() {
        for line in [
            "",
            "{\"at\":\"2026-11-16T12:00:02.700000Z\",\"sta",
            "{\"at\":\"2026-11-16T12:00:02.700000Z\",\"stage\":\"Unknown\"}",
            "{\"at\":\"2026-11-16T12:00:02.700000Z\",\"stage\":\"ServiceRules\"}",
            "{\"at\":\"2026-11-16T12:00:02.700000Z\",\"stage\":\"ServiceRules\",\"clusterIPs\":[1]}",
            "{\"at\":\"noon\",\"stage\":\"ServiceRules\",\"clusterIPs\":[]}",
            "2026-11-16T12:00:02.700000Z  INFO kube_proxy::run: applied the rules services=\"10.96.3.4\" took=1ms",
        ] {
            assert_eq!(Record::parse(line), None, "{line}");
        }
    }
}
