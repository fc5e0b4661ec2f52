//! `knarr doctor --bundle`: an archive with the state of a host and its cluster for the analysis of a problem.
//!
//! Secrets are not collected. A part that cannot be collected is listed in `problems.txt`.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use apimachinery::{Object, Resource, Value, json, value};
use client::discovery::{self, ServedResource};
use client::{Client, ListOptions, Target};
use diagnostics::checkup;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::{admin_client, config, logs, settings, status};

/// Maximum number of bytes of a log, from its end.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// Time limit for each type of objects.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);
/// Logs in the data directory. The newest rotated log is added.
const LOGS: [&str; 3] = [logs::FILE, "up.out", "trace.log"];
/// Commands whose output describes the network of the host.
const COMMANDS: [(&str, &[&str]); 5] = [
    ("host/nft.txt", &["nft", "list", "ruleset"]),
    ("host/address.txt", &["ip", "-d", "address"]),
    ("host/route.txt", &["ip", "route", "show", "table", "all"]),
    ("host/route6.txt", &["ip", "-6", "route", "show", "table", "all"]),
    ("host/rule.txt", &["ip", "rule"]),
];
/// Files that describe the host.
const FILES: [(&str, &str); 4] = [
    ("host/mounts.txt", "/proc/self/mounts"),
    ("host/meminfo.txt", "/proc/meminfo"),
    ("host/os-release.txt", "/etc/os-release"),
    ("host/version.txt", "/proc/version"),
];

/// An archive that is being written.
struct Bundle {
    archive: tar::Builder<GzEncoder<File>>,
    count: usize,
    problems: Vec<String>,
}

/// Writes a bundle with the results of the checks, and returns the number of its files. Fails if the file exists.
pub(super) async fn write(path: &Path, data_dir: &Path, rows: &[checkup::Row]) -> Result<usize> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = file.with_context(|| format!("failed to create {}", path.display()))?;
    let archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    let mut bundle = Bundle { archive, count: 0, problems: Vec::new() };
    let collected = bundle.collect(data_dir, rows).await.and_then(|()| bundle.finish());
    if collected.is_err() {
        // An incomplete archive would be mistaken for a complete one.
        let _ = std::fs::remove_file(path);
    }
    collected.with_context(|| format!("failed to write {}", path.display()))
}

impl Bundle {
    async fn collect(&mut self, data_dir: &Path, rows: &[checkup::Row]) -> Result<()> {
        self.add("checks.txt", checkup::table(rows).as_bytes())?;
        self.add("checks.json", json::to_string_pretty(&checkup::json(rows)).as_bytes())?;
        self.add("versions.json", json::to_string_pretty(&versions()).as_bytes())?;
        for name in settings::RUN {
            let settings = config::table(&crate::cli(), name, Path::new(settings::FILE));
            self.add_found(&format!("settings/{name}.txt"), settings.map(String::into_bytes))?;
        }
        for (name, file) in FILES {
            self.add_found(name, std::fs::read(file).with_context(|| format!("failed to read {file}")))?;
        }
        for (name, words) in COMMANDS {
            self.add_found(name, output(words))?;
        }
        for name in LOGS {
            self.add_found(&format!("logs/{name}"), tail(&data_dir.join(name)))?;
        }
        if let Some(newest) = logs::rotated(data_dir).unwrap_or_default().pop() {
            self.add_found(&format!("logs/{}", file_name(&newest)), tail(&newest))?;
        }
        let mut report = Object::new();
        let observed = status::observe(data_dir, &mut report).await;
        self.add("status.json", json::to_string_pretty(&Value::Object(report)).as_bytes())?;
        if let Err(error) = observed {
            self.problems.push(format!("status.json: {error:#}"));
        }
        if data_dir.join("admin.kubeconfig").is_file() {
            let client = admin_client::config(data_dir).and_then(|config| admin_client::admin(&config));
            match client {
                Ok(client) => self.objects(&client).await?,
                Err(error) => self.problems.push(format!("objects: {error:#}")),
            }
        }
        Ok(())
    }

    /// Adds all objects that may be shown, one file per type.
    async fn objects(&mut self, client: &Client) -> Result<()> {
        let served = match tokio::time::timeout(LIST_TIMEOUT, discovery::discover(client)).await {
            Ok(Ok(discovered)) => discovered.served,
            Ok(Err(error)) => {
                self.problems.push(format!("objects: {error}"));
                return Ok(());
            }
            Err(_) => {
                self.problems.push("objects: the API server does not respond".to_owned());
                return Ok(());
            }
        };
        for ServedResource { resource, .. } in served.iter().filter(|served| is_collected(served)) {
            let name = file_of(resource);
            let (target, options) = (Target::all(resource), ListOptions::default());
            let listing = tokio::time::timeout(LIST_TIMEOUT, client.list_all(&target, &options)).await;
            let listed = listing.context("no response in time").and_then(|listed| Ok(listed?));
            let text = listed.map(|listed| {
                let items: Vec<Value> = listed.items.into_iter().map(without_managed_fields).collect();
                json::to_string_pretty(&Value::from(items)).into_bytes()
            });
            self.add_found(&name, text)?;
        }
        Ok(())
    }

    /// Adds a file, or the reason why it could not be collected.
    fn add_found(&mut self, name: &str, content: Result<Vec<u8>>) -> Result<()> {
        match content {
            Ok(content) => self.add(name, &content),
            Err(error) => {
                self.problems.push(format!("{name}: {error:#}"));
                Ok(())
            }
        }
    }

    fn add(&mut self, name: &str, content: &[u8]) -> Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        self.archive.append_data(&mut header, Path::new("knarr-bundle").join(name), content)?;
        self.count += 1;
        Ok(())
    }

    fn finish(mut self) -> Result<usize> {
        let problems = self.problems.iter().map(|problem| format!("{problem}\n")).collect::<String>();
        self.add("problems.txt", problems.as_bytes())?;
        let count = self.count;
        self.archive.into_inner()?.finish()?.sync_all()?;
        Ok(count)
    }
}

/// Whether objects of a type are collected: all that can be listed but Secrets, in one version.
fn is_collected(served: &ServedResource) -> bool {
    let is_secret = served.resource.group.is_empty() && served.resource.plural == "secrets";
    served.preferred && !is_secret && served.verbs.iter().any(|verb| verb.as_str() == "list")
}

fn file_of(resource: &Resource) -> String {
    let group = if resource.group.is_empty() { "core" } else { resource.group.as_str() };
    format!("objects/{group}/{}.json", resource.plural)
}

fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

fn versions() -> Value {
    let host = rustix::system::uname();
    value!({
        "knarr": (env!("CARGO_PKG_VERSION")), "kubernetes": (kubectl::VERSION),
        "kernel": (host.release().to_string_lossy().into_owned()),
        "architecture": (host.machine().to_string_lossy().into_owned()),
    })
}

/// Returns the last bytes of a file.
fn tail(path: &Path) -> Result<Vec<u8>> {
    let context = || format!("failed to read {}", path.display());
    let mut file = File::open(path).with_context(context)?;
    let length = file.metadata().with_context(context)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES_MAX))).with_context(context)?;
    let mut content = Vec::new();
    file.take(LOG_BYTES_MAX).read_to_end(&mut content).with_context(context)?;
    Ok(content)
}

/// Returns the output of a command, whether it succeeds or not.
fn output(words: &[&str]) -> Result<Vec<u8>> {
    let (program, arguments) = words.split_first().context("the command is empty")?;
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("failed to run {program}"))?;
    Ok([output.stdout, output.stderr].concat())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_types_that_cannot_be_listed_are_not_collected() {
        let served = |resource: &Resource, verbs: &[&'static str], preferred| ServedResource {
            resource: resource.clone(),
            verbs: verbs.iter().map(|verb| (*verb).into()).collect(),
            preferred,
        };
        let pods = Resource::namespaced("", "v1", "pods", "Pod");
        let secrets = Resource::namespaced("", "v1", "secrets", "Secret");
        let foreign = Resource::namespaced("example.com", "v1", "secrets", "Secret");
        assert!(is_collected(&served(&pods, &["get", "list"], true)));
        assert!(!is_collected(&served(&secrets, &["get", "list"], true)));
        assert!(is_collected(&served(&foreign, &["list"], true)), "another group");
        assert!(!is_collected(&served(&pods, &["create"], true)));
        assert!(!is_collected(&served(&pods, &["list"], false)), "another version");
        assert_eq!(file_of(&pods), "objects/core/pods.json");
    }

    #[test]
    fn bundle_has_the_checks_and_the_reasons_for_missing_parts() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(logs::FILE), "a line\n").unwrap();
        let path = dir.path().join("bundle.tgz");
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let count = executor.block_on(write(&path, dir.path(), &[])).unwrap();
        let mut found = std::collections::BTreeMap::new();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&path).unwrap()));
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().strip_prefix("knarr-bundle").unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.insert(name, text);
        }
        assert_eq!(found.len(), count);
        assert_eq!(found["logs/knarr.log"], "a line\n");
        assert!(found["problems.txt"].contains("logs/up.out: failed to read"), "{}", found["problems.txt"]);
        assert!(found["problems.txt"].contains("no cluster runs in"), "{}", found["problems.txt"]);
        let error = executor.block_on(write(&path, dir.path(), &[])).unwrap_err();
        assert!(format!("{error:#}").contains("exists"), "{error:#}");
    }
}
