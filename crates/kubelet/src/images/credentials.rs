//! Registry credentials: those of image pull secrets, and the images that a credential is for.

use apimachinery::{Object, Value, json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use node_api::cri::v1;

use super::verification::{SecretUse, Source};
use crate::environment::secret_entries;
use crate::plugins::sha256_hex;

/// A registry credential.
#[derive(Clone, PartialEq)]
pub(super) struct Credential {
    pub auth: v1::AuthConfig,
    /// The object that the credential comes from. A credential without one is for all pods of the node.
    pub source: Option<Source>,
}

/// Returns the credentials of image pull secrets that match an image, the most specific first.
pub(super) fn of(secrets: &[Value], image: &str) -> Vec<Credential> {
    let (host, path) = parts(image);
    let mut found: Vec<(usize, Credential)> = Vec::new();
    for secret in secrets {
        let entries = secret_entries(secret);
        let modern = entries.get(".dockerconfigjson").and_then(|bytes| json::parse(bytes).ok());
        let modern = modern.and_then(|config| config.get("auths").cloned());
        let old = entries.get(".dockercfg").and_then(|bytes| json::parse(bytes).ok());
        for registries in modern.iter().chain(&old) {
            for (registry, entry) in registries.as_object().into_iter().flat_map(Object::iter) {
                if let Some(exactness) = fit(registry, &host, &path) {
                    let auth = read(entry);
                    found.push((exactness, Credential { source: Some(Source::Secret(used(secret, &auth))), auth }));
                }
            }
        }
    }
    found.sort_by_key(|(exactness, _)| std::cmp::Reverse(*exactness));
    found.into_iter().map(|(_, credential)| credential).collect()
}

fn used(secret: &Value, auth: &v1::AuthConfig) -> SecretUse {
    let text = |field: &str| secret.str_at(&["metadata", field]).unwrap_or_default().to_owned();
    let auth_fields = [&auth.username, &auth.password, &auth.identity_token].map(|part| Value::from(part.as_str()));
    let hash = sha256_hex(&json::to_string(&Value::Array(auth_fields.into())));
    SecretUse { uid: text("uid"), namespace: text("namespace"), name: text("name"), hash }
}

/// Returns how specific a pattern, such as `*.example.com/team`, is for an image that it matches.
pub(super) fn specificity(pattern: &str, image: &str) -> Option<usize> {
    let (host, path) = parts(image);
    fit(pattern, &host, &path)
}

/// Splits an image name into its registry and the rest.
fn parts(image: &str) -> (String, String) {
    match image.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host.to_owned(), path.to_owned()),
        _ => ("docker.io".to_owned(), image.to_owned()),
    }
}

/// Returns the length of the entry's path, as its specificity, if the entry matches a registry and path.
fn fit(entry: &str, host: &str, path: &str) -> Option<usize> {
    let entry = entry.trim_start_matches("https://").trim_start_matches("http://");
    let (of_host, of_path) = entry.split_once('/').unwrap_or((entry, ""));
    let docker = |host: &str| matches!(host, "docker.io" | "index.docker.io" | "registry-1.docker.io");
    let same = of_host == host || docker(of_host) && docker(host) || wildcard(of_host, host);
    let of_path = of_path.trim_end_matches('/');
    // Docker Hub's entry ends with its API version.
    let of_path = if matches!(of_path, "v1" | "v2") { "" } else { of_path };
    (same && path.starts_with(of_path)).then_some(of_path.len())
}

/// Whether a host matches a pattern: with the same port, and part by part of the name.
fn wildcard(pattern: &str, host: &str) -> bool {
    let split = |text: &str| -> (Vec<String>, String) {
        let (name, port) = text.rsplit_once(':').unwrap_or((text, ""));
        (name.split('.').map(str::to_owned).collect(), port.to_owned())
    };
    let ((pattern, pattern_port), (host, port)) = (split(pattern), split(host));
    let is_part = |(pattern, part): (&String, &String)| glob(pattern.as_bytes(), part.as_bytes());
    pattern_port == port && pattern.len() == host.len() && pattern.iter().zip(&host).all(is_part)
}

/// Whether a text matches a pattern with `*` for any characters and `?` for one.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut retry) = ((0, 0), None);
    loop {
        match (pattern.get(at.0), text.get(at.1)) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                retry = Some(at);
                at.0 += 1;
                continue;
            }
            (Some(expected), Some(found)) if *expected == b'?' || expected == found => {
                at = (at.0 + 1, at.1 + 1);
                continue;
            }
            _ => {}
        }
        // The last `*` takes one more character.
        match retry {
            Some((star, from)) if from < text.len() => {
                retry = Some((star, from + 1));
                at = (star + 1, from + 1);
            }
            _ => return false,
        }
    }
}

fn read(entry: &Value) -> v1::AuthConfig {
    let text = |field: &str| entry.str_at(&[field]).unwrap_or_default().to_owned();
    let mut auth = v1::AuthConfig {
        username: text("username"),
        password: text("password"),
        identity_token: text("identitytoken"),
        // The server address stays empty, since matching was done here: containerd cannot parse a host with a port and
        // would ignore the credential.
        ..Default::default()
    };
    let decoded = STANDARD.decode(text("auth")).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some((user, password)) = decoded.as_deref().and_then(|text| text.split_once(':')) {
        (auth.username, auth.password) = (user.to_owned(), password.to_owned());
    }
    auth
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn most_specific_registry_entry_comes_first() {
        let config = r#"{"auths": {"r.example": {"username": "a", "password": "p"}, "r.example/team": {"auth": "YjpxOnI="},
            "*.example": {"username": "w"}, "https://index.docker.io/v1/": {"username": "d"}}}"#;
        let secret = value!({"data": {".dockerconfigjson": (STANDARD.encode(config))}});
        let users = |image: &str| -> Vec<String> {
            of(std::slice::from_ref(&secret), image).into_iter().map(|one| one.auth.username).collect()
        };
        assert_eq!(users("r.example/team/app:1")[0], "b");
        assert_eq!(of(std::slice::from_ref(&secret), "r.example/team/app")[0].auth.password, "q:r");
        assert!(
            users("r.example/other").contains(&"a".to_owned()) && !users("r.example/other").contains(&"b".to_owned())
        );
        assert_eq!(users("x.example/app"), ["w"]);
        assert_eq!(users("busybox"), ["d"]);
        assert_eq!(users("other.org/app"), [""; 0]);
        let hash = |image: &str| match of(std::slice::from_ref(&secret), image)[0].source.clone() {
            Some(Source::Secret(secret)) => secret.hash,
            _ => panic!("a pull secret is the source"),
        };
        assert_eq!(hash("r.example/team/app"), hash("r.example/team/other"));
        assert_ne!(hash("r.example/team/app"), hash("r.example/other"), "each login has a hash of its own");
    }

    #[test]
    fn patterns_match_hosts_part_by_part_and_paths_by_prefix() {
        let check = |pattern: &str, image: &str, expect: bool| {
            assert_eq!(specificity(pattern, image).is_some(), expect, "{pattern} {image}");
        };
        check("123.dkr.example", "123.dkr.example/a", true);
        check("*.azurecr.io", "team.azurecr.io/a", true);
        check("*.azurecr.io", "a.team.azurecr.io/a", false);
        check("*.*.azurecr.io", "a.team.azurecr.io/a", true);
        check("*.dkr.*.example", "1.dkr.eu-1.example/a", true);
        check("app*.k8s.io", "app2.k8s.io/a", true);
        check("a*b*c.io", "aXbYc.io/a", true);
        check("a*b*c.io", "aXcYb.io/a", false);
        check("r?.example", "r1.example/a", true);
        check("r.example:8080/path", "r.example:8080/path/a", true);
        check("r.example:8080/path", "r.example:8080/other", false);
        check("*.example", "r.example:8080/a", false);
        check("*.example:8080", "r.example:8080/a", true);
        check("*.*", "r.example:8080/a", false);
        check("docker.io", "docker.io/library/a", true);
    }
}
