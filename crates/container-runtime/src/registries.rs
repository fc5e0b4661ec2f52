//! Registry settings: a `registries.yaml` in k3s's schema, and a directory of hosts in containerd's schema.
//!
//! The files are read again when they change. A file that then is invalid leaves the settings as they were.

mod hosts_dir;
mod k3s;
mod pem;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use component_base::ReloadedValue;
use component_base::config_file::ConfigFileError;
use component_base::reload::Files;
use image_store::{Host, Registries};

/// Default path of `registries.yaml`.
pub const FILE: &str = "/etc/knarr/registries.yaml";
/// Default directory of hosts.
pub const HOSTS_DIR: &str = "/etc/knarr/certs.d";

/// The places of the registry settings.
#[derive(Clone, Debug)]
pub struct RegistryFiles {
    /// A file in k3s's schema. Only the default one may be missing.
    pub file: PathBuf,
    /// A directory in containerd's schema. Only the default one may be missing.
    pub hosts_dir: PathBuf,
    /// Mirrors by registry that are tried before those of the files.
    pub mirrors: Vec<(String, Host)>,
}

impl Default for RegistryFiles {
    fn default() -> RegistryFiles {
        RegistryFiles { file: FILE.into(), hosts_dir: HOSTS_DIR.into(), mirrors: Vec::new() }
    }
}

/// Registry settings that follow their files.
#[derive(Clone)]
pub struct RegistrySettings(Arc<ReloadedValue<Registries>>);

impl RegistrySettings {
    /// Reads the files for the first time; any failure is returned.
    pub fn open(files: RegistryFiles) -> Result<RegistrySettings, ConfigFileError> {
        let load = move |found: &mut Files| read(&files, found);
        Ok(RegistrySettings(Arc::new(ReloadedValue::of_found_files(load)?)))
    }

    /// Returns the current settings. Reads files.
    pub fn current(&self) -> Arc<Registries> {
        self.0.latest()
    }
}

fn read(files: &RegistryFiles, found: &mut Files) -> Result<Registries, ConfigFileError> {
    let mut registries = Registries::default();
    if check_presence(&files.hosts_dir, HOSTS_DIR, found)? {
        hosts_dir::read(&files.hosts_dir, found, &mut registries)?;
    }
    if check_presence(&files.file, FILE, found)? {
        k3s::read(&files.file, found, &mut registries)?;
    }
    for (registry, host) in files.mirrors.iter().rev() {
        registries.mirrors_mut(registry).hosts.insert(0, host.clone());
    }
    Ok(registries)
}

/// Whether a file exists. Fails if it is missing and not the default one.
fn check_presence(path: &Path, default: &str, found: &mut Files) -> Result<bool, ConfigFileError> {
    found.add(path);
    match std::fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && path == Path::new(default) => Ok(false),
        Err(source) => Err(ConfigFileError::Read { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests;
