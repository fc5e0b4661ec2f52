//! Certificates and keys that registry settings name.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use component_base::config_file::{ConfigFileError, Node};
use component_base::reload::Files;
use image_store::{PemError, Tls};

/// Maximum size of a PEM file.
const BYTES_MAX: u64 = 1 << 20;

/// Adds the certificates of a file to those that are trusted. A relative path is below `dir`.
pub(super) fn trust(tls: &mut Tls, node: &Node<'_>, dir: &Path, found: &mut Files) -> Result<(), ConfigFileError> {
    trust_file(tls, &dir.join(node.text()?), found).map_err(|problem| node.error(problem))
}

pub(super) fn trust_file(tls: &mut Tls, path: &Path, found: &mut Files) -> Result<(), String> {
    let (pem, _) = read(path, found)?;
    tls.trust(&pem).map_err(|error| format!("{}: {error}", path.display()))
}

/// Presents a client certificate. Without a second file, the first one has the key too.
pub(super) fn identify(
    tls: &mut Tls,
    certificate: &Node<'_>,
    key: Option<&Node<'_>>,
    dir: &Path,
    found: &mut Files,
) -> Result<(), ConfigFileError> {
    let key_path = key.map(|key| Ok::<_, ConfigFileError>(dir.join(key.text()?))).transpose()?;
    let identified = identify_files(tls, &dir.join(certificate.text()?), key_path.as_deref(), found);
    identified.map_err(|problem| key.unwrap_or(certificate).error(problem))
}

pub(super) fn identify_files(
    tls: &mut Tls,
    certificate: &Path,
    key: Option<&Path>,
    found: &mut Files,
) -> Result<(), String> {
    let (mut pem, mut mode) = read(certificate, found)?;
    if let Some(key) = key {
        let (key_pem, key_mode) = read(key, found)?;
        pem.push(b'\n');
        pem.extend(key_pem);
        mode = key_mode;
    }
    let of_key = key.unwrap_or(certificate).display();
    if mode & 0o077 != 0 {
        return Err(format!("other users can read the key {of_key}; run `chmod 600 {of_key}`"));
    }
    tls.identify(&pem).map_err(|error: PemError| format!("{}: {error}", certificate.display()))
}

/// Returns the content of a file and its mode.
fn read(path: &Path, found: &mut Files) -> Result<(Vec<u8>, u32), String> {
    found.add(path);
    let failed = |error: std::io::Error| format!("failed to read {}: {error}", path.display());
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(format!("{} is not a regular file", path.display()));
    }
    let mut pem = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut pem).map_err(failed)?;
    if pem.len() as u64 > BYTES_MAX {
        return Err(format!("{} is larger than {BYTES_MAX} bytes", path.display()));
    }
    Ok((pem, metadata.mode()))
}
