//! `registries.yaml` in k3s's schema.
//!
//! ```text
//! mirrors:                       by registry; "*" for those that are not listed
//!   NAME:
//!     endpoint: [URL]            tried in order, then the registry itself
//!     rewrite: {PATTERN: TEXT}   of the repository, at the endpoints
//! configs:                       by host; "*" with tls only
//!   HOST:
//!     auth: {username, password, auth, identity_token}
//!     tls: {ca_file, cert_file, key_file, insecure_skip_verify}
//! ```

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use component_base::config_file::{ConfigFile, ConfigFileError, Node};
use component_base::reload::Files;
use image_store::{ANY, Credentials, Host, HostSettings, Mirrors, Registries, Rewrite, Tls};

use super::pem;

pub(super) fn read(path: &Path, found: &mut Files, registries: &mut Registries) -> Result<(), ConfigFileError> {
    let file = ConfigFile::read(path)?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let root = file.root().known(&["mirrors", "configs"])?;
    for mirror in entries(root.get("mirrors"))? {
        registries.set_mirrors(mirror.name(), mirrors(&mirror)?);
    }
    for config in entries(root.get("configs"))? {
        let fields = config.known(&["auth", "tls"])?;
        check_host(&config)?;
        let credentials = fields.get("auth").map(|auth| credentials(&config, auth)).transpose()?.unwrap_or_default();
        let tls = fields.get("tls").map(|node| tls(node, dir, found)).transpose()?;
        registries.set_host(config.name(), HostSettings { credentials, tls });
    }
    Ok(())
}

fn entries<'a>(node: Option<&Node<'a>>) -> Result<Vec<Node<'a>>, ConfigFileError> {
    node.map_or_else(|| Ok(Vec::new()), Node::entries)
}

fn mirrors(mirror: &Node<'_>) -> Result<Mirrors, ConfigFileError> {
    let fields = mirror.known(&["endpoint", "rewrite"])?;
    let rewrites = rewrites(fields.get("rewrite"))?;
    let mut hosts = Vec::new();
    if let Some(endpoints) = fields.get("endpoint") {
        for endpoint in endpoints.items()? {
            let host = Host::from_endpoint(endpoint.text()?).map_err(|problem| endpoint.error(problem))?;
            hosts.push(Host { rewrites: rewrites.clone(), ..host });
        }
    }
    Ok(Mirrors { hosts, ..Mirrors::default() })
}

/// Reads rules in the order of the text.
pub(super) fn rewrites(node: Option<&Node<'_>>) -> Result<Vec<Rewrite>, ConfigFileError> {
    let rule = |node: Node<'_>| {
        let rule = Rewrite::new(node.name(), node.text()?);
        rule.map_err(|error| {
            // The last line of the message has the problem; the lines before repeat the pattern.
            let problem = error.to_string().lines().last().unwrap_or_default().to_owned();
            node.error(format!("the key is not a regular expression: {problem}"))
        })
    };
    entries(node)?.into_iter().map(rule).collect()
}

/// Fails unless the key is a host name or address, with a port or without.
fn check_host(config: &Node<'_>) -> Result<(), ConfigFileError> {
    if config.name() == ANY {
        return Ok(());
    }
    match Host::from_endpoint(config.name()) {
        Ok(_) if !config.name().contains('/') => Ok(()),
        _ => Err(config.error("the key is not a host such as registry.example.com:5000")),
    }
}

fn credentials(config: &Node<'_>, auth: &Node<'_>) -> Result<Credentials, ConfigFileError> {
    let fields = auth.known(&["username", "password", "auth", "identity_token"])?;
    if fields.is_empty() {
        return Ok(Credentials::Anonymous);
    }
    auth.require_private()?;
    if config.name() == ANY {
        return Err(auth.error("credentials belong to one host; list it under `configs`"));
    }
    let text = |name: &str| fields.get(name).map(Node::text).transpose();
    match (text("username")?, text("password")?, text("auth")?, text("identity_token")?) {
        (Some(user), Some(password), None, None) => {
            Ok(Credentials::Basic { user: user.to_owned(), password: password.to_owned() })
        }
        (None, None, Some(encoded), None) => {
            decode(encoded).ok_or_else(|| fields["auth"].error("use the base64 form of USER:PASSWORD"))
        }
        (None, None, None, Some(token)) => Ok(Credentials::Identity(token.to_owned())),
        _ => Err(auth.error("set `username` and `password`, or `auth`, or `identity_token`")),
    }
}

fn decode(encoded: &str) -> Option<Credentials> {
    let text = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(Credentials::Basic { user: user.to_owned(), password: password.trim_end_matches('\0').to_owned() })
}

fn tls(node: &Node<'_>, dir: &Path, found: &mut Files) -> Result<Tls, ConfigFileError> {
    let fields = node.known(&["ca_file", "cert_file", "key_file", "insecure_skip_verify"])?;
    let mut tls = Tls::default();
    if let Some(ca) = fields.get("ca_file") {
        pem::trust(&mut tls, ca, dir, found)?;
    }
    match (fields.get("cert_file"), fields.get("key_file")) {
        (None, None) => {}
        (Some(certificate), Some(key)) => pem::identify(&mut tls, certificate, Some(key), dir, found)?,
        _ => return Err(node.error("set both `cert_file` and `key_file`")),
    }
    if let Some(skips) = fields.get("insecure_skip_verify")
        && skips.flag()?
    {
        tls.skip_verify();
    }
    Ok(tls)
}
