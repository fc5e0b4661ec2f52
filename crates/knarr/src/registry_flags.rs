//! Flags of the registry settings, for every command that pulls images or runs a component that does.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Args, value_parser};
use container_runtime::registries::{FILE, HOSTS_DIR, RegistryFiles, RegistrySettings};
use image_store::Host;

/// Names of the flags.
pub(crate) const PRIVATE_REGISTRY: &str = "private-registry";
pub(crate) const CONFIG_DIR: &str = "registry-config-dir";
const MIRROR: &str = "registry-mirror";

/// Files with the settings of registries.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegistryArgs {
    /// File with mirrors, credentials and TLS settings of registries, in the schema of k3s [default:
    /// /etc/knarr/registries.yaml].
    #[arg(long, value_name = "FILE")]
    pub private_registry: Option<PathBuf>,
    /// Directory with the hosts of registries, in the schema of containerd [default: /etc/knarr/certs.d].
    #[arg(long, value_name = "DIR")]
    pub registry_config_dir: Option<PathBuf>,
}

impl RegistryArgs {
    /// Reads the files, and returns the first problem.
    pub(crate) fn check(&self) -> Result<()> {
        RegistrySettings::open(self.files())?;
        Ok(())
    }

    fn files(&self) -> RegistryFiles {
        let path = |given: &Option<PathBuf>, default: &str| given.clone().unwrap_or_else(|| default.into());
        RegistryFiles {
            file: path(&self.private_registry, FILE),
            hosts_dir: path(&self.registry_config_dir, HOSTS_DIR),
            mirrors: Vec::new(),
        }
    }

    /// Returns the flags for a component. Its working directory may be another one.
    pub(crate) fn flags(&self) -> Vec<String> {
        let pairs = [(PRIVATE_REGISTRY, &self.private_registry), (CONFIG_DIR, &self.registry_config_dir)];
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let given = pairs.into_iter().filter_map(|(name, path)| Some((name, path.as_deref()?)));
        given.map(|(name, path)| format!("--{name}={}", absolute(path).display())).collect()
    }
}

/// Returns the flags of commands that pull images.
pub(crate) fn arguments() -> [Arg; 3] {
    let path = |name: &'static str| Arg::new(name).long(name).value_parser(value_parser!(PathBuf));
    [
        path(PRIVATE_REGISTRY)
            .value_name("FILE")
            .default_value(FILE)
            .help("File with mirrors, credentials and TLS settings of registries, in the schema of k3s"),
        path(CONFIG_DIR)
            .value_name("DIR")
            .default_value(HOSTS_DIR)
            .help("Directory with the hosts of registries, in the schema of containerd"),
        Arg::new(MIRROR)
            .long(MIRROR)
            .value_name("REGISTRY=HOST")
            .action(ArgAction::Append)
            .help("Mirror to try before the registry (http://host for plain HTTP); * is for every registry"),
    ]
}

/// Reads the settings of the flags.
pub(crate) fn open(matches: &ArgMatches) -> Result<RegistrySettings> {
    let path = |name: &str| matches.get_one::<PathBuf>(name).expect("it has a default").clone();
    let mirror = |text: &String| -> Result<(String, Host)> {
        let (registry, host) =
            text.split_once('=').with_context(|| format!("--{MIRROR} {text}: not of the form REGISTRY=HOST"))?;
        let host = Host::from_endpoint(host).with_context(|| format!("--{MIRROR} of {registry}"))?;
        Ok((registry.to_owned(), host))
    };
    let mirrors = matches.get_many::<String>(MIRROR).into_iter().flatten().map(mirror).collect::<Result<_>>()?;
    Ok(RegistrySettings::open(RegistryFiles { file: path(PRIVATE_REGISTRY), hosts_dir: path(CONFIG_DIR), mirrors })?)
}
