//! What controllers are told at start, from the flags.

use std::path::Path;

use anyhow::{Context, Result};
use client::Config;
use client::config::Pem;
use controllers::{endpointslice, root_ca};
use reconcile::Configs;

use super::flags::Flags;

/// One line for each controller that has something to be told.
pub fn of(flags: &Flags, config: &Config) -> Result<Configs> {
    Ok(Configs::default()
        .with(endpointslice::Config { slice_max: usize::try_from(flags.max_endpoints_per_slice)? })
        .with(root_ca::Config(root_certificates(flags, config)?)))
}

/// What pods check the API server with: the file that a flag names, or what this process itself checks it with.
fn root_certificates(flags: &Flags, config: &Config) -> Result<String> {
    if let Some(file) = &flags.root_ca_file {
        return read(file, "--root-ca-file");
    }
    match &config.tls.certificate_authority {
        Some(Pem::File(file)) => read(file, "the kubeconfig's certificate-authority"),
        Some(Pem::Inline(bytes)) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        None => Ok(String::new()),
    }
}

fn read(file: &Path, named_by: &str) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("{named_by}: {} cannot be read", file.display()))
}
