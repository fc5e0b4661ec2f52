//! Reading: cumulative usage of a node and its containers, reported by a kubelet.

use std::collections::BTreeMap;

use apimachinery::time::Time;

/// Cumulative usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// CPU time since the start, in nanoseconds.
    pub cpu_nanos: i64,
    /// Working set.
    pub memory_bytes: i64,
}

/// The report of a node at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub at: Time,
    /// The node itself; none unless both CPU and memory are reported.
    pub node: Option<Spent>,
    /// Containers by name, per namespace and name of their pod.
    pub pods: BTreeMap<(String, String), BTreeMap<String, Spent>>,
}

/// CPU and memory, as far as reported.
type ReportedUsage = (Option<i64>, Option<i64>);

/// Maximum length of a label value; names are shorter.
const LABEL_BYTES_MAX: usize = 512;

impl Reading {
    /// Parses Prometheus text. Other metrics and malformed lines are ignored.
    pub fn parse(text: &str, at: Time) -> Self {
        let mut node = ReportedUsage::default();
        let mut containers: BTreeMap<(String, String, String), ReportedUsage> = BTreeMap::new();
        for line in text.lines() {
            let Some((name, labels, value)) = sample(line) else { continue };
            let nanos = || Some((value * 1e9) as i64);
            match name {
                "node_cpu_usage_seconds_total" => node.0 = nanos(),
                "node_memory_working_set_bytes" => node.1 = Some(value as i64),
                "container_cpu_usage_seconds_total" | "container_memory_working_set_bytes" => {
                    let Some(key) = container(labels) else { continue };
                    let usage = containers.entry(key).or_default();
                    if name == "container_cpu_usage_seconds_total" {
                        usage.0 = nanos();
                    } else {
                        usage.1 = Some(value as i64);
                    }
                }
                _ => {}
            }
        }
        let mut reading = Self { at, node: both(node), pods: BTreeMap::new() };
        for ((namespace, pod, name), usage) in containers {
            if let Some(spent) = both(usage) {
                reading.pods.entry((namespace, pod)).or_default().insert(name, spent);
            }
        }
        reading
    }
}

fn both((cpu, memory): ReportedUsage) -> Option<Spent> {
    Some(Spent { cpu_nanos: cpu?, memory_bytes: memory? })
}

/// Splits a line `name{labels} value timestamp` into name, labels and value. The timestamp is ignored; the time of the
/// request is used.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inner) => inner.split_at_checked(closing(inner)?).map(|(labels, rest)| (labels, &rest[1..]))?,
        None => ("", rest),
    };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((name, labels, value))
}

/// Returns the position of the closing brace outside of quotes.
fn closing(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Returns namespace, pod and name of a container.
fn container(labels: &str) -> Option<(String, String, String)> {
    let of = |name: &str| label(labels, name).filter(|text| !text.is_empty() && text.len() <= LABEL_BYTES_MAX);
    Some((of("namespace")?, of("pod")?, of("container")?))
}

fn label(labels: &str, label_name: &str) -> Option<String> {
    let mut rest = labels;
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        if name.trim_start_matches([',', ' ']) == label_name {
            return Some(value);
        }
        rest = &after[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_reading(text: &str) -> String {
        let reading = Reading::parse(text, Time::from_unix(0, 0));
        let spent = |spent: &Spent| format!("{}ns {}B", spent.cpu_nanos, spent.memory_bytes);
        let mut parts: Vec<String> = reading.node.iter().map(|node| format!("node {}", spent(node))).collect();
        for ((namespace, pod), containers) in &reading.pods {
            parts.extend(containers.iter().map(|(name, used)| format!("{namespace}/{pod}/{name} {}", spent(used))));
        }
        parts.join("; ")
    }

    #[test]
    fn kubelet_metrics_are_parsed() {
        let check = |text: &str, expect: &str| assert_eq!(format_reading(text), expect, "{text}");
        check(
            "# HELP x\nnode_cpu_usage_seconds_total 12.5 1700000000000\nnode_memory_working_set_bytes 1.5e+03",
            "node 12500000000ns 1500B",
        );
        check(
            "container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p\"} 0.25\n\
             container_memory_working_set_bytes{pod=\"p\", namespace=\"n\", container=\"c\"} 7\n",
            "n/p/c 250000000ns 7B",
        );
        check("node_cpu_usage_seconds_total 1", "");
        check("container_memory_working_set_bytes{pod=\"p\",namespace=\"n\",container=\"\"} 7", "");
    }

    #[test]
    fn labels_may_contain_any_text_and_malformed_lines_are_ignored() {
        assert_eq!(label(r#"a="x\"}\\\n",b="y""#, "b").as_deref(), Some("y"));
        assert_eq!(label(r#"a="x\"}\\\n",b="y""#, "a").as_deref(), Some("x\"}\\\n"));
        assert_eq!(sample(r#"m{a="}"} 3"#), Some(("m", r#"a="}""#, 3.0)));
        for line in ["", "m", "m{", "m{a=\"", "m{a=\"}", "m{} x", "m NaN", "m -1", "m{é", "{\u{fe0f}} 1e999"] {
            assert_eq!(sample(line), None, "{line}");
        }
        for labels in ["a", "a=", "a=\"", "a=\"\\", ",,,", "=\"\""] {
            assert_eq!(label(labels, "pod"), None, "{labels}");
        }
    }
}
