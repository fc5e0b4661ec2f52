//! Networks by CNI plug-ins: programs that are told on their standard input what to do.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::{Attachment, Network, NetworkError, NetworkFuture};

/// A plug-in that says nothing for so long is stuck.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(120);
const INTERFACE: &str = "eth0";

/// The first network, by name, of a directory of configurations.
#[derive(Debug)]
pub struct Cni {
    conf_dir: PathBuf,
    bin_dirs: Vec<PathBuf>,
    /// What was answered, by sandbox: removal wants it back.
    results: PathBuf,
}

impl Cni {
    /// Configurations in `conf_dir`, programs in `bin_dirs`, answers kept in `results`.
    pub fn new(conf_dir: &Path, bin_dirs: &[PathBuf], results: &Path) -> Cni {
        Cni { conf_dir: conf_dir.to_owned(), bin_dirs: bin_dirs.to_vec(), results: results.to_owned() }
    }

    fn configuration(&self) -> Result<Value, NetworkError> {
        let none = || NetworkError::NotConfigured(self.conf_dir.clone());
        let mut files: Vec<PathBuf> =
            fs::read_dir(&self.conf_dir).map_err(|_| none())?.flatten().map(|entry| entry.path()).collect();
        files.sort();
        let known = |path: &&PathBuf| {
            path.extension().and_then(|end| end.to_str()).is_some_and(|end| ["conflist", "conf", "json"].contains(&end))
        };
        let path = files.iter().find(known).ok_or_else(none)?;
        let failed = |source| NetworkError::Configuration { path: path.clone(), source };
        let text = fs::read(path).map_err(failed)?;
        let value: Value = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
        // A single plug-in is a list of one.
        Ok(if value.get("plugins").is_some() {
            value
        } else {
            json!({"name": value["name"], "cniVersion": value["cniVersion"], "plugins": [value]})
        })
    }

    async fn add(&self, netns: &Path, sandbox: &Attachment) -> Result<Vec<IpAddr>, NetworkError> {
        let list = self.configuration()?;
        let mut previous = None;
        for plugin in plugins(&list) {
            let input = input(&list, plugin, previous.as_ref(), sandbox);
            previous = Some(self.call("ADD", plugin, &input, Some(netns), sandbox).await?);
        }
        let result = previous.unwrap_or_default();
        let path = self.results.join(&sandbox.id);
        let failed = |source| NetworkError::Configuration { path: path.clone(), source };
        fs::create_dir_all(&self.results).map_err(failed)?;
        fs::write(&path, result.to_string()).map_err(failed)?;
        Ok(addresses(&result))
    }

    async fn delete(&self, netns: Option<&Path>, sandbox: &Attachment) -> Result<(), NetworkError> {
        let list = self.configuration()?;
        let kept = self.results.join(&sandbox.id);
        let previous: Option<Value> = fs::read(&kept).ok().and_then(|text| serde_json::from_slice(&text).ok());
        for plugin in plugins(&list).iter().rev() {
            let input = input(&list, plugin, previous.as_ref(), sandbox);
            self.call("DEL", plugin, &input, netns, sandbox).await?;
        }
        // It may be gone from an earlier attempt.
        let _ = fs::remove_file(kept);
        Ok(())
    }

    async fn call(
        &self,
        verb: &str,
        plugin: &Value,
        input: &Value,
        netns: Option<&Path>,
        sandbox: &Attachment,
    ) -> Result<Value, NetworkError> {
        let name = plugin["type"].as_str().unwrap_or_default().to_owned();
        let failed = |message: String| NetworkError::Plugin { plugin: name.clone(), message };
        if name.is_empty() || name.contains('/') {
            return Err(failed("the plug-in's type is not a program's name".to_owned()));
        }
        let program = self.bin_dirs.iter().map(|dir| dir.join(&name)).find(|path| path.exists());
        let program = program.ok_or_else(|| failed(format!("no such program in {:?}", self.bin_dirs)))?;
        let search: Vec<String> = self.bin_dirs.iter().map(|dir| dir.display().to_string()).collect();
        let mut child = Command::new(program)
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", &sandbox.id)
            .env("CNI_NETNS", netns.unwrap_or(Path::new("")))
            .env("CNI_IFNAME", INTERFACE)
            .env("CNI_PATH", search.join(":"))
            .env(
                "CNI_ARGS",
                format!(
                    "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
                    sandbox.namespace, sandbox.name, sandbox.id, sandbox.uid
                ),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let mut stdin = child.stdin.take().expect("its input is a pipe");
        let text = input.to_string();
        let run = async {
            // A plug-in that does not read its input says why in its answer.
            let _ = stdin.write_all(text.as_bytes()).await;
            drop(stdin);
            child.wait_with_output().await
        };
        let output = tokio::time::timeout(PLUGIN_TIMEOUT, run)
            .await
            .map_err(|_| failed("it did not answer in time".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if output.status.success() {
            return Ok(answer);
        }
        let said = answer["msg"].as_str().map(str::to_owned);
        Err(failed(said.unwrap_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())))
    }
}

impl Network for Cni {
    fn ready(&self) -> Result<(), NetworkError> {
        self.configuration().map(|_| ())
    }

    fn attach<'a>(&'a self, netns: &'a Path, sandbox: &'a Attachment) -> NetworkFuture<'a, Vec<IpAddr>> {
        Box::pin(self.add(netns, sandbox))
    }

    fn detach<'a>(&'a self, netns: Option<&'a Path>, sandbox: &'a Attachment) -> NetworkFuture<'a, ()> {
        Box::pin(self.delete(netns, sandbox))
    }

    fn set_pod_cidr(&self, _cidr: &str) {}
}

fn plugins(list: &Value) -> &[Value] {
    list["plugins"].as_array().map_or(&[], Vec::as_slice)
}

/// One plug-in's input: its own part, the list's name and version, the answer so far, and what it can do at run time.
fn input(list: &Value, plugin: &Value, previous: Option<&Value>, sandbox: &Attachment) -> Value {
    let mut input = plugin.clone();
    input["name"] = list["name"].clone();
    input["cniVersion"] = list.get("cniVersion").cloned().unwrap_or_else(|| json!("1.0.0"));
    if let Some(previous) = previous {
        input["prevResult"] = previous.clone();
    }
    let can = |name: &str| plugin["capabilities"][name].as_bool() == Some(true);
    let mut wishes = serde_json::Map::new();
    if can("portMappings") {
        let one = |port: &cri::v1::PortMapping| {
            json!({"hostPort": port.host_port, "containerPort": port.container_port,
                   "protocol": port.protocol().as_str_name().to_lowercase(), "hostIP": port.host_ip})
        };
        let ports: Vec<Value> = sandbox.ports.iter().filter(|port| port.host_port > 0).map(one).collect();
        wishes.insert("portMappings".to_owned(), Value::Array(ports));
    }
    if can("io.kubernetes.cri.pod-annotations") {
        wishes.insert("io.kubernetes.cri.pod-annotations".to_owned(), json!(sandbox.annotations));
    }
    if !wishes.is_empty() {
        input["runtimeConfig"] = Value::Object(wishes);
    }
    if let Some(fields) = input.as_object_mut() {
        fields.remove("capabilities");
    }
    input
}

/// Addresses in the order the plug-ins gave them, without their masks.
fn addresses(result: &Value) -> Vec<IpAddr> {
    let mut seen = BTreeMap::new();
    let list = result["ips"].as_array().cloned().unwrap_or_default();
    let texts = list.iter().filter_map(|ip| ip["address"].as_str());
    let ips = texts.filter_map(|text| text.split('/').next()?.parse().ok());
    ips.filter(|ip: &IpAddr| seen.insert(*ip, ()).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_told_its_part_the_answer_so_far_and_the_ports_it_can_map() {
        let list = json!({"name": "net", "cniVersion": "1.0.0", "plugins": [
            {"type": "portmap", "capabilities": {"portMappings": true}, "x": 1}]});
        let port = cri::v1::PortMapping { host_port: 80, container_port: 8080, ..Default::default() };
        let sandbox = Attachment { ports: vec![port], ..Attachment::default() };
        let told = input(&list, &plugins(&list)[0], Some(&json!({"ips": []})), &sandbox);
        let expect = json!({
            "name": "net", "cniVersion": "1.0.0", "type": "portmap", "x": 1, "prevResult": {"ips": []},
            "runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "tcp", "hostIP": ""}]},
        });
        assert_eq!(told, expect);
    }

    #[tokio::test]
    async fn plugins_run_in_order_and_back() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("conf")).unwrap();
        fs::create_dir(at("bin")).unwrap();
        let log = at("log");
        let script = format!(
            "#!/bin/sh\ncat >/dev/null\necho $(basename $0) $CNI_COMMAND $CNI_IFNAME >>{}\necho '{{\"ips\":[{{\"address\":\"10.1.2.3/24\"}}]}}'\n",
            log.display()
        );
        for name in ["one", "two"] {
            fs::write(at("bin").join(name), &script).unwrap();
            fs::set_permissions(at("bin").join(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let cni = Cni::new(&at("conf"), &[at("bin")], &at("results"));
        assert!(matches!(cni.ready(), Err(NetworkError::NotConfigured(_))));
        fs::write(at("conf/10-net.conflist"), r#"{"name":"n","plugins":[{"type":"one"},{"type":"two"}]}"#).unwrap();
        let sandbox = Attachment { id: "abc".into(), ..Attachment::default() };
        let ips = cni.attach(Path::new("/proc/self/ns/net"), &sandbox).await.unwrap();
        assert_eq!(ips, [IpAddr::from([10, 1, 2, 3])]);
        cni.detach(None, &sandbox).await.unwrap();
        let expect = "one ADD eth0\ntwo ADD eth0\ntwo DEL eth0\none DEL eth0\n";
        assert_eq!(fs::read_to_string(log).unwrap(), expect);
        assert!(!at("results/abc").exists());
    }
}
