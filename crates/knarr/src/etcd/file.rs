//! etcd's configuration file. It has the same settings as the flags and replaces them.

use std::path::Path;

use anyhow::{Context, Result, bail};
use apimachinery::{Value, yaml};

/// Sections of the file, and the prefix of their flags.
const SECURITY: &[(&str, &str)] = &[("client-transport-security", ""), ("peer-transport-security", "peer-")];
/// Settings of these sections whose flags have another name.
const RENAMED: &[(&str, &str)] = &[("ca-file", "trusted-ca-file")];

/// Returns the flags that are equivalent to the file.
pub(super) fn flags(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    of(&text).with_context(|| format!("{} is not a valid etcd configuration", path.display()))
}

fn of(text: &str) -> Result<Vec<String>> {
    let tree = yaml::parse(text)?;
    let Some(fields) = tree.as_object() else { bail!("the document is not a map") };
    let mut flags = Vec::new();
    for (key, value) in fields.iter() {
        match SECURITY.iter().find(|(group, _)| *group == key) {
            None => push(&mut flags, key, value)?,
            Some((_, prefix)) => {
                for (key, value) in value.as_object().with_context(|| format!("{key} is not a map"))?.iter() {
                    let name = RENAMED.iter().find(|(old, _)| *old == key).map_or(key, |(_, new)| *new);
                    // One setting of the peer section already has the prefix.
                    let name = if prefix.is_empty() || name.starts_with(prefix) {
                        name.to_owned()
                    } else {
                        format!("{prefix}{name}")
                    };
                    push(&mut flags, &name, value)?;
                }
            }
        }
    }
    Ok(flags)
}

fn push(flags: &mut Vec<String>, name: &str, value: &Value) -> Result<()> {
    let scalar = |value: &Value| match value {
        Value::Object(_) | Value::Array(_) => None,
        Value::String(text) => Some(text.to_string()),
        other => Some(other.to_string()),
    };
    let text = match value {
        Value::Null => return Ok(()),
        Value::Array(items) => items.iter().map(scalar).collect::<Option<Vec<_>>>().map(|items| items.join(",")),
        other => scalar(other),
    };
    let text = text.with_context(|| format!("{name} is neither a scalar nor a list of scalars"))?;
    flags.push(format!("--{name}={text}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_file_is_converted_to_flags() {
        let text = "
name: m1
data-dir: /var/lib/etcd
heartbeat-interval: 100
strict-reconfig-check: true
log-outputs: [stderr]
discovery:
client-transport-security:
  cert-file: /pki/server.crt
  client-cert-auth: true
  trusted-ca-file: /pki/ca.crt
peer-transport-security:
  cert-file: /pki/peer.crt
  ca-file: /pki/ca.crt
";
        let expect = [
            "--client-cert-auth=true",
            "--cert-file=/pki/server.crt",
            "--trusted-ca-file=/pki/ca.crt",
            "--data-dir=/var/lib/etcd",
            "--heartbeat-interval=100",
            "--log-outputs=stderr",
            "--name=m1",
            "--peer-cert-file=/pki/peer.crt",
            "--peer-trusted-ca-file=/pki/ca.crt",
            "--strict-reconfig-check=true",
        ];
        let (mut expect, mut given) = (expect.map(str::to_owned).to_vec(), of(text).unwrap());
        expect.sort();
        given.sort();
        assert_eq!(given, expect);
    }

    #[test]
    fn invalid_config_file_is_rejected() {
        let check = |text: &str, expect: &str| assert!(of(text).unwrap_err().to_string().contains(expect), "{text}");
        check("- a", "the document is not a map");
        check("name: {a: b}", "name is neither a scalar nor a list of scalars");
        check("client-transport-security: x", "client-transport-security is not a map");
    }
}
