//! CNI: attaches sandboxes by calling plugins, with a configuration on their standard input.
//!
//! Implements specification 1.1: the plugins of a list are called in order, each with the previous result, and in
//! reverse order for removal. Configuration and result of each sandbox are stored, and removal uses them, even if the
//! configuration has changed.

mod config;

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::network::{Attachment, Network, NetworkError, NetworkFuture};
use crate::routed::INTERFACE;

use config::NetworkList;

/// Timeout of a plugin call.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(120);

/// The first network, by file name, of a configuration directory.
#[derive(Debug)]
pub struct Cni {
    conf_dir: PathBuf,
    bin_dirs: Vec<PathBuf>,
    /// Directory with stored configurations and results, one file per sandbox.
    results: PathBuf,
}

/// Stored configuration and result of an attached sandbox.
#[derive(Serialize, Deserialize)]
struct CachedAttachment {
    list: NetworkList,
    /// Result of the last plugin; `None` if ADD did not complete.
    result: Option<Value>,
}

/// One call of a plugin.
struct Call<'a> {
    verb: &'a str,
    sandbox: &'a Attachment,
    netns: Option<&'a Path>,
    input: Value,
}

impl Cni {
    /// Creates a network with configurations in `conf_dir`, plugins in `bin_dirs`, and stored results in `results`.
    pub fn new(conf_dir: &Path, bin_dirs: &[PathBuf], results: &Path) -> Cni {
        Cni { conf_dir: conf_dir.to_owned(), bin_dirs: bin_dirs.to_vec(), results: results.to_owned() }
    }

    /// Whether a valid configuration exists.
    pub fn is_configured(&self) -> bool {
        NetworkList::load(&self.conf_dir).is_ok()
    }

    /// Whether a sandbox was attached by plugins, completely or partially.
    pub fn has(&self, sandbox: &str) -> bool {
        self.results.join(sandbox).exists()
    }

    async fn add(&self, netns: &Path, sandbox: &Attachment) -> Result<Vec<IpAddr>, NetworkError> {
        let list = NetworkList::load(&self.conf_dir)?;
        // Stored before the call: an ADD that this process does not survive must be undone, too.
        self.keep(&sandbox.id, &CachedAttachment { list: list.clone(), result: None })?;
        let mut result = None;
        for plugin in &list.plugins {
            let input = list.input(plugin, result.as_ref(), sandbox);
            result = Some(self.call(plugin, Call { verb: "ADD", sandbox, netns: Some(netns), input }).await?);
        }
        let ips = addresses(result.as_ref().unwrap_or(&Value::Null));
        self.keep(&sandbox.id, &CachedAttachment { list, result })?;
        Ok(ips)
    }

    async fn delete(&self, netns: Option<&Path>, sandbox: &Attachment) -> Result<(), NetworkError> {
        let stored = match self.load_result(&sandbox.id) {
            Some(stored) => stored,
            None => CachedAttachment { list: NetworkList::load(&self.conf_dir)?, result: None },
        };
        for plugin in stored.list.plugins.iter().rev() {
            let input = stored.list.input(plugin, stored.result.as_ref(), sandbox);
            self.call(plugin, Call { verb: "DEL", sandbox, netns, input }).await?;
        }
        // An earlier attempt may have removed the file.
        let _ = fs::remove_file(self.results.join(&sandbox.id));
        Ok(())
    }

    async fn inspect(&self, netns: &Path, sandbox: &Attachment) -> Result<(), NetworkError> {
        let Some(CachedAttachment { list, result: Some(result) }) = self.load_result(&sandbox.id) else {
            return Err(NetworkError::Damaged("it was never attached".to_owned()));
        };
        if !list.can_check() {
            return Ok(());
        }
        for plugin in &list.plugins {
            let input = list.input(plugin, Some(&result), sandbox);
            self.call(plugin, Call { verb: "CHECK", sandbox, netns: Some(netns), input }).await?;
        }
        Ok(())
    }

    async fn status(&self) -> Result<(), NetworkError> {
        let list = NetworkList::load(&self.conf_dir)?;
        let no_attachment = Attachment::default();
        if list.has_status_and_gc() {
            for plugin in &list.plugins {
                let input = list.input(plugin, None, &no_attachment);
                self.call(plugin, Call { verb: "STATUS", sandbox: &no_attachment, netns: None, input }).await?;
            }
        }
        Ok(())
    }

    /// Detaches sandboxes that no longer exist, and calls GC of plugins that support it.
    async fn sweep(&self, alive: &[String]) -> Result<(), NetworkError> {
        let entries = fs::read_dir(&self.results).into_iter().flatten().flatten();
        let known: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let mut first_failure = None;
        for id in known.into_iter().filter(|id| !alive.contains(id)) {
            let stale = Attachment { id, ..Attachment::default() };
            if let Err(error) = self.delete(None, &stale).await {
                first_failure.get_or_insert(error);
            }
        }
        let no_attachment = Attachment::default();
        // Without a configuration no plugin can be called.
        let Ok(list) = NetworkList::load(&self.conf_dir) else { return first_failure.map_or(Ok(()), Err) };
        let gc_plugins = if list.may_collect() { list.plugins.as_slice() } else { &[] };
        for plugin in gc_plugins {
            let mut input = list.input(plugin, None, &no_attachment);
            let valid = |id: &String| json!({"containerID": id, "ifname": INTERFACE});
            input["cni.dev/valid-attachments"] = alive.iter().map(valid).collect();
            if let Err(error) =
                self.call(plugin, Call { verb: "GC", sandbox: &no_attachment, netns: None, input }).await
            {
                first_failure.get_or_insert(error);
            }
        }
        first_failure.map_or(Ok(()), Err)
    }

    fn keep(&self, id: &str, stored: &CachedAttachment) -> Result<(), NetworkError> {
        let path = self.results.join(id);
        let failed = |source| NetworkError::Configuration { path: path.clone(), source };
        fs::create_dir_all(&self.results).map_err(failed)?;
        let text = serde_json::to_vec(stored).map_err(|error| failed(error.into()))?;
        fs::write(&path, text).map_err(failed)
    }

    fn load_result(&self, id: &str) -> Option<CachedAttachment> {
        serde_json::from_slice(&fs::read(self.results.join(id)).ok()?).ok()
    }

    async fn call(&self, plugin: &Value, call: Call<'_>) -> Result<Value, NetworkError> {
        let name = plugin["type"].as_str().unwrap_or_default().to_owned();
        let failed = |message: String| NetworkError::Plugin { plugin: name.clone(), message };
        if name.is_empty() || name.contains('/') {
            return Err(failed("the plugin type is not a file name".to_owned()));
        }
        let program = self.bin_dirs.iter().map(|dir| dir.join(&name)).find(|path| path.exists());
        let program = program.ok_or_else(|| failed(format!("executable not found in {:?}", self.bin_dirs)))?;
        let mut child = Command::new(program)
            .envs(environment(&call, &self.bin_dirs))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let mut stdin = child.stdin.take().expect("its input is a pipe");
        let text = call.input.to_string();
        let run = async {
            // A plugin that does not read its input reports the reason in its result.
            let _ = stdin.write_all(text.as_bytes()).await;
            drop(stdin);
            child.wait_with_output().await
        };
        let output = tokio::time::timeout(PLUGIN_TIMEOUT, run)
            .await
            .map_err(|_| failed("timed out".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        let response: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if output.status.success() {
            return Ok(response);
        }
        let details = response["details"].as_str().filter(|text| !text.is_empty());
        let plugin_message = response["msg"].as_str().map(|msg| match details {
            Some(details) => format!("{msg}: {details}"),
            None => msg.to_owned(),
        });
        Err(failed(plugin_message.unwrap_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())))
    }
}

impl Network for Cni {
    fn ready(&self) -> NetworkFuture<'_, ()> {
        Box::pin(self.status())
    }

    fn attach<'a>(&'a self, netns: &'a Path, sandbox: &'a Attachment) -> NetworkFuture<'a, Vec<IpAddr>> {
        Box::pin(self.add(netns, sandbox))
    }

    fn detach<'a>(&'a self, netns: Option<&'a Path>, sandbox: &'a Attachment) -> NetworkFuture<'a, ()> {
        Box::pin(self.delete(netns, sandbox))
    }

    fn check<'a>(&'a self, netns: &'a Path, sandbox: &'a Attachment) -> NetworkFuture<'a, ()> {
        Box::pin(self.inspect(netns, sandbox))
    }

    fn collect<'a>(&'a self, alive: &'a [String]) -> NetworkFuture<'a, ()> {
        Box::pin(self.sweep(alive))
    }

    fn set_pod_cidr(&self, _cidr: &str) {}
}

/// Returns the environment variables of a plugin call.
fn environment(call: &Call<'_>, bin_dirs: &[PathBuf]) -> Vec<(&'static str, String)> {
    let sandbox = call.sandbox;
    let search: Vec<String> = bin_dirs.iter().map(|dir| dir.display().to_string()).collect();
    let mut environment = vec![("CNI_COMMAND", call.verb.to_owned()), ("CNI_PATH", search.join(":"))];
    if !sandbox.id.is_empty() {
        let netns = call.netns.map(|path| path.display().to_string()).unwrap_or_default();
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
            sandbox.namespace, sandbox.name, sandbox.id, sandbox.uid
        );
        environment.extend([("CNI_CONTAINERID", sandbox.id.clone()), ("CNI_NETNS", netns)]);
        environment.extend([("CNI_IFNAME", INTERFACE.to_owned()), ("CNI_ARGS", args)]);
    }
    environment
}

/// Returns the addresses of a result in order, without prefix lengths and duplicates.
fn addresses(result: &Value) -> Vec<IpAddr> {
    let list = result["ips"].as_array().map_or(&[][..], Vec::as_slice);
    let texts = list.iter().filter_map(|ip| ip["address"].as_str());
    let mut ips: Vec<IpAddr> = Vec::new();
    for ip in texts.filter_map(|text| text.split('/').next()?.parse().ok()) {
        if !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    ips
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const LIST: &str = r#"{"name":"n","cniVersion":"1.1.0","plugins":[{"type":"one"},{"type":"two"}]}"#;

    struct Fixture {
        directory: tempfile::TempDir,
        cni: Cni,
    }

    impl Fixture {
        /// Creates two plugins that record their calls.
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let at = |name: &str| directory.path().join(name);
            for name in ["conf", "bin"] {
                fs::create_dir(at(name)).unwrap();
            }
            let script = format!(
                "#!/bin/sh\ninput=$(cat)\necho $(basename $0) $CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME >>{log}\n\
                 case \"$CNI_COMMAND $input\" in GC*valid-attachments*x*) echo valid >>{log};; esac\n\
                 echo '{{\"ips\":[{{\"address\":\"10.1.2.3/24\"}}]}}'\n",
                log = at("log").display()
            );
            for name in ["one", "two"] {
                fs::write(at("bin").join(name), &script).unwrap();
                fs::set_permissions(at("bin").join(name), PermissionsExt::from_mode(0o755)).unwrap();
            }
            let cni = Cni::new(&at("conf"), &[at("bin")], &at("results"));
            Self { cni, directory }
        }

        fn configure(&self, list: &str) {
            fs::write(self.directory.path().join("conf/10-net.conflist"), list).unwrap();
        }

        fn log(&self) -> String {
            let log = self.directory.path().join("log");
            let text = fs::read_to_string(&log).unwrap_or_default();
            let _ = fs::remove_file(log);
            text
        }
    }

    fn sandbox(id: &str) -> Attachment {
        Attachment { id: id.into(), ..Attachment::default() }
    }

    #[tokio::test]
    async fn plugins_run_in_order_and_in_reverse_for_removal() {
        let fixture = Fixture::new();
        let cni = &fixture.cni;
        assert!(matches!(cni.ready().await, Err(NetworkError::NotConfigured(_))));
        fixture.configure(LIST);
        cni.ready().await.unwrap();
        assert_eq!(fixture.log(), "one STATUS\ntwo STATUS\n");
        let netns = Path::new("/proc/self/ns/net");
        assert_eq!(cni.attach(netns, &sandbox("abc")).await.unwrap(), [IpAddr::from([10, 1, 2, 3])]);
        cni.check(netns, &sandbox("abc")).await.unwrap();
        cni.detach(None, &sandbox("abc")).await.unwrap();
        let expect = "one ADD abc eth0\ntwo ADD abc eth0\none CHECK abc eth0\ntwo CHECK abc eth0\n\
                      two DEL abc eth0\none DEL abc eth0\n";
        assert_eq!(fixture.log(), expect);
        assert!(!fixture.cni.results.join("abc").exists());
    }

    #[tokio::test]
    async fn removal_uses_the_stored_configuration() {
        let fixture = Fixture::new();
        fixture.configure(LIST);
        fixture.cni.attach(Path::new("/proc/self/ns/net"), &sandbox("abc")).await.unwrap();
        fixture.log();
        fixture.configure(r#"{"name":"n","plugins":[{"type":"other"}]}"#);
        fixture.cni.detach(None, &sandbox("abc")).await.unwrap();
        assert_eq!(fixture.log(), "two DEL abc eth0\none DEL abc eth0\n");
    }

    #[tokio::test]
    async fn leftovers_of_deleted_sandboxes_are_removed() {
        let fixture = Fixture::new();
        fixture.configure(LIST);
        for id in ["gone", "x"] {
            fixture.cni.attach(Path::new("/proc/self/ns/net"), &sandbox(id)).await.unwrap();
        }
        fixture.log();
        fixture.cni.collect(&["x".to_owned()]).await.unwrap();
        assert_eq!(fixture.log(), "two DEL gone eth0\none DEL gone eth0\none GC\nvalid\ntwo GC\nvalid\n");
    }
}
