//! A directory of hosts in containerd's schema: `<directory>/<registry>/hosts.toml`.
//!
//! The directory of a registry with a port is named `host:port` or `host_port_`, that of all other registries
//! `_default`. Without a `hosts.toml`, its `*.crt` files are CA certificates, and a `*.cert` file with the `*.key` file
//! of the same name is the client certificate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use apimachinery::time;
use component_base::config_file::{ConfigFile, ConfigFileError, Node};
use component_base::reload::Files;
use http::{HeaderName, HeaderValue};
use image_store::{ANY, Host, Mirrors, Registries, Tls};

use super::{k3s, pem};

/// Maximum number of registries.
const REGISTRIES_MAX: usize = 1000;
/// Keys of a host.
const HOST: &[&str] =
    &["capabilities", "ca", "client", "skip_verify", "header", "override_path", "dial_timeout", "rewrite"];
/// Keys of the file.
const ROOT: &[&str] =
    &["server", "host", "capabilities", "ca", "client", "skip_verify", "header", "override_path", "dial_timeout"];
/// Parts of the names of headers with a secret value.
const SECRET_HEADERS: [&str; 6] = ["authorization", "cookie", "token", "secret", "password", "key"];

type Fields<'a> = BTreeMap<&'static str, Node<'a>>;

pub(super) fn read(dir: &Path, found: &mut Files, registries: &mut Registries) -> Result<(), ConfigFileError> {
    for subdirectory in list(dir)? {
        let name = subdirectory.file_name().and_then(|name| name.to_str());
        let Some(name) = name.filter(|_| subdirectory.is_dir()) else { continue };
        found.add(&subdirectory);
        let registry = registry(name);
        let file = subdirectory.join("hosts.toml");
        found.add(&file);
        let mirrors = if file.exists() {
            mirrors(&ConfigFile::read(&file)?, &registry, &subdirectory, found)?
        } else {
            certificates(&subdirectory, found)?
        };
        registries.set_mirrors(&registry, mirrors);
    }
    Ok(())
}

/// Returns the sorted entries of a directory.
fn list(dir: &Path) -> Result<Vec<PathBuf>, ConfigFileError> {
    let failed = |source| ConfigFileError::Read { path: dir.to_owned(), source };
    let entries = std::fs::read_dir(dir).map_err(failed)?.take(REGISTRIES_MAX + 1);
    let paths: std::io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths.map_err(failed)?;
    if paths.len() > REGISTRIES_MAX {
        let problem = format!(" has more than {REGISTRIES_MAX} entries");
        return Err(ConfigFileError::File { path: dir.to_owned(), problem });
    }
    paths.sort();
    Ok(paths)
}

/// Returns the registry of a directory name.
fn registry(name: &str) -> String {
    if name == "_default" {
        return ANY.to_owned();
    }
    let port = name.strip_suffix('_').and_then(|rest| rest.rsplit_once('_'));
    match port.filter(|(_, port)| port.parse::<u16>().is_ok()) {
        Some((host, port)) => format!("{host}:{port}"),
        None => name.to_owned(),
    }
}

fn mirrors(file: &ConfigFile, registry: &str, dir: &Path, found: &mut Files) -> Result<Mirrors, ConfigFileError> {
    let root = file.root().known(ROOT)?;
    let mut hosts = Vec::new();
    for node in root.get("host").map_or_else(|| Ok(Vec::new()), Node::entries)? {
        let fields = node.known(HOST)?;
        let host = server(&node, node.name(), &fields)?;
        hosts.push(complete(host, &fields, dir, found)?);
    }
    let own = root.get("server").map(|node| server(node, node.text()?, &root)).transpose()?;
    if let Some(own) = own {
        return Ok(Mirrors { hosts, server: Some(complete(own, &root, dir, found)?), tls: None });
    }
    if let Some(unusable) = root.get("override_path") {
        return Err(unusable.error("set `server` too"));
    }
    if let Some(needs_host) = root.get("header").or_else(|| root.get("dial_timeout")) {
        if registry == ANY {
            return Err(needs_host.error("set `server` too"));
        }
        let own = complete(Host::of(registry), &root, dir, found)?;
        return Ok(Mirrors { hosts, server: Some(own), tls: None });
    }
    Ok(Mirrors { hosts, server: None, tls: tls(&root, dir, found)? })
}

fn server(node: &Node<'_>, url: &str, fields: &Fields<'_>) -> Result<Host, ConfigFileError> {
    let overrides_path = fields.get("override_path").map(Node::flag).transpose()?.unwrap_or_default();
    Host::from_server(url, overrides_path).map_err(|problem| node.error(problem))
}

fn complete(host: Host, fields: &Fields<'_>, dir: &Path, found: &mut Files) -> Result<Host, ConfigFileError> {
    let mut host = Host { tls: tls(fields, dir, found)?, ..host };
    if let Some(node) = fields.get("capabilities") {
        (host.pulls, host.resolves) = (false, false);
        for capability in node.items()? {
            match capability.text()?.to_lowercase().as_str() {
                "pull" => host.pulls = true,
                "resolve" => host.resolves = true,
                "push" | "referrers" => {}
                _ => return Err(capability.error("use pull, resolve, push or referrers")),
            }
        }
    }
    if let Some(node) = fields.get("header") {
        host.headers = headers(node)?;
    }
    if let Some(node) = fields.get("dial_timeout") {
        let duration = node.text()?.parse::<time::Duration>().ok();
        let nanos = duration.and_then(|duration| u64::try_from(duration.nanos()).ok()).filter(|nanos| *nanos > 0);
        host.connect = Some(Duration::from_nanos(nanos.ok_or_else(|| node.error("use a duration such as 5s"))?));
    }
    host.rewrites = k3s::rewrites(fields.get("rewrite"))?;
    Ok(host)
}

fn tls(fields: &Fields<'_>, dir: &Path, found: &mut Files) -> Result<Option<Tls>, ConfigFileError> {
    let mut tls = Tls::default();
    if let Some(node) = fields.get("ca") {
        node.one_or_more()?.iter().try_for_each(|ca| pem::trust(&mut tls, ca, dir, found))?;
    }
    if let Some(node) = fields.get("client") {
        let client = node.one_or_more()?;
        let [client] = client.as_slice() else {
            return Err(node.error("only one client certificate is supported"));
        };
        match client.items().as_deref() {
            Err(_) => pem::identify(&mut tls, client, None, dir, found)?,
            Ok([certificate]) => pem::identify(&mut tls, certificate, None, dir, found)?,
            Ok([certificate, key]) => {
                let key = Some(key).filter(|key| key.value().as_str() != Some(""));
                pem::identify(&mut tls, certificate, key, dir, found)?;
            }
            Ok(_) => return Err(client.error("use a file, or a pair of certificate and key")),
        }
    }
    let skips = fields.get("skip_verify").map(Node::flag).transpose()?;
    if skips == Some(true) {
        tls.skip_verify();
    }
    let is_set = fields.contains_key("ca") || fields.contains_key("client") || skips.is_some();
    Ok(is_set.then_some(tls))
}

fn headers(node: &Node<'_>) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigFileError> {
    let mut headers = Vec::new();
    for header in node.entries()? {
        let name = HeaderName::from_bytes(header.name().as_bytes());
        let name = name.map_err(|_| header.error("the key is not the name of a header"))?;
        if SECRET_HEADERS.iter().any(|part| name.as_str().contains(part)) {
            header.require_private()?;
        }
        for value in header.one_or_more()? {
            let mut text = HeaderValue::from_str(value.text()?).map_err(|_| value.error("use printable characters"))?;
            text.set_sensitive(true);
            headers.push((name.clone(), text));
        }
    }
    Ok(headers)
}

/// Reads the certificates of a directory without a `hosts.toml`.
fn certificates(dir: &Path, found: &mut Files) -> Result<Mirrors, ConfigFileError> {
    let mut tls = None;
    for path in list(dir)? {
        let settings: &mut Option<Tls> = &mut tls;
        let read = match path.extension().and_then(|extension| extension.to_str()) {
            Some("crt") => pem::trust_file(settings.get_or_insert_default(), &path, found),
            Some("cert") => {
                let key = path.with_extension("key");
                let key = Some(key.as_path()).filter(|key| key.exists());
                pem::identify_files(settings.get_or_insert_default(), &path, key, found)
            }
            _ => Ok(()),
        };
        read.map_err(|problem| ConfigFileError::File { path: dir.to_owned(), problem: format!(": {problem}") })?;
    }
    Ok(Mirrors { tls, ..Mirrors::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_are_those_of_containerd() {
        let check = |name: &str, expect: &str| assert_eq!(registry(name), expect, "{name}");
        check("docker.io", "docker.io");
        check("_default", "*");
        check("10.0.0.1:5000", "10.0.0.1:5000");
        check("10.0.0.1_5000_", "10.0.0.1:5000");
        check("odd_name_", "odd_name_");
    }
}
