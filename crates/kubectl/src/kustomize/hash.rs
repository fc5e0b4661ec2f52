//! The content hash in the names of generated ConfigMaps and Secrets.

use apimachinery::{Object, Value, json};
use sha2::{Digest, Sha256};

use super::resource::Resource;

/// Returns ten characters that depend on the kind and content of a resource.
pub(super) fn hash(resource: &Resource) -> String {
    let digest = Sha256::digest(encode(resource));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    // Vowels and look-alikes are replaced, so that no words appear.
    let safe = |digit| match digit {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        other => other,
    };
    hex.chars().take(10).map(safe).collect()
}

fn encode(resource: &Resource) -> Vec<u8> {
    let field = |name: &str| resource.object.get(name).cloned().unwrap_or_else(|| "".into());
    let mut content = Object::new();
    content.insert("kind", resource.kind());
    // Kustomize reads the name from a field that does not exist, so the hash does not depend on it.
    content.insert("name", "");
    content.insert("data", field("data"));
    let extra = if resource.kind() == "Secret" {
        content.insert("type", field("type"));
        "stringData"
    } else {
        "binaryData"
    };
    if let Some(Value::Object(map)) = resource.object.get(extra) {
        content.insert(extra, map.clone());
    }
    let mut out = Vec::new();
    json::Encoder::new(|_, _| None).write(&content.into(), &mut out);
    out
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn hashes_equal_those_of_kustomize() {
        let check = |object: Value, expect: &str| assert_eq!(hash(&Resource::new(object)), expect);
        check(value!({"kind": "ConfigMap", "metadata": {"name": ""}}), "6ct58987ht");
        check(value!({"kind": "ConfigMap", "metadata": {"name": ""}, "data": {"one": ""}}), "9g67k2htb6");
        check(value!({"kind": "Secret", "metadata": {"name": ""}, "type": "my-type"}), "5gmgkf8578");
    }
}
