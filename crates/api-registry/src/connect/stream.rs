//! Options of exec, attach and port-forward.

use apimachinery::Value;
use apimachinery::meta::Meta;
use apimachinery::status::Status;

use super::{choose, encode};
use crate::query::Query;

/// PodExecOptions or PodAttachOptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessOptions {
    /// The container, empty for the only one.
    pub container: String,
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
    command: Vec<String>,
}

/// PodPortForwardOptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardOptions {
    ports: Vec<i64>,
}

impl ProcessOptions {
    /// Parses the options. Absent streams are off, as in upstream, although the API documentation states other
    /// defaults.
    pub fn of(query: &Query) -> Self {
        Self {
            container: query.text("container").to_owned(),
            stdin: query.flag("stdin"),
            stdout: query.flag("stdout"),
            stderr: query.flag("stderr"),
            tty: query.flag("tty"),
            command: query.all("command").into_iter().map(str::to_owned).collect(),
        }
    }

    /// Returns the pod's node and the path and query of the kubelet request; `action` is `exec` or `attach`.
    pub fn target<'p>(&self, pod: &'p Value, action: &str) -> Result<(&'p str, String), Status> {
        let container = choose(pod, &self.container)?;
        let node = assigned(pod)?;
        let meta = Meta::of(pod);
        let (namespace, name) = (meta.namespace(), meta.name());
        let switches = [("input", self.stdin), ("output", self.stdout), ("error", self.stderr), ("tty", self.tty)];
        let mut pairs: Vec<(&str, String)> =
            switches.iter().filter(|(_, on)| *on).map(|(name, _)| (*name, "1".to_owned())).collect();
        if action == "exec" {
            pairs.extend(self.command.iter().map(|word| ("command", word.clone())));
        }
        Ok((node, format!("/{action}/{namespace}/{name}/{container}?{}", encode(pairs))))
    }
}

impl ForwardOptions {
    /// Parses the options.
    pub fn of(query: &Query) -> Result<Self, Status> {
        let mut ports = Vec::new();
        for text in query.all("ports").into_iter().flat_map(|text| text.split(',')).filter(|text| !text.is_empty()) {
            ports.extend(Query::parse(&format!("port={text}")).int("port")?);
        }
        Ok(Self { ports })
    }

    /// Returns the pod's node and the path and query of the kubelet request.
    pub fn target<'p>(&self, pod: &'p Value) -> Result<(&'p str, String), Status> {
        let node = assigned(pod)?;
        let meta = Meta::of(pod);
        let ports: Vec<String> = self.ports.iter().map(ToString::to_string).collect();
        let pairs = if ports.is_empty() { Vec::new() } else { vec![("port", ports.join(","))] };
        Ok((node, format!("/portForward/{}/{}?{}", meta.namespace(), meta.name(), encode(pairs))))
    }
}

fn assigned(pod: &Value) -> Result<&str, Status> {
    let name = Meta::of(pod).name();
    super::log::node_of(pod).ok_or_else(|| Status::bad_request(format!("pod {name} does not have a host assigned")))
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn pod(node: &str) -> Value {
        value!({
            "metadata": {"name": "p", "namespace": "n"},
            "spec": {"nodeName": node, "containers": [{"name": "c"}]},
        })
    }

    #[test]
    fn exec_options_become_a_kubelet_request() {
        let check = |query: &str, action: &str, expect: &str| {
            let pod = pod("one");
            assert_eq!(
                ProcessOptions::of(&Query::parse(query)).target(&pod, action).unwrap(),
                ("one", expect.to_owned())
            );
        };
        check(
            "command=sh&command=-c&command=echo+a%26b&stdin=true&stdout=1&tty=true",
            "exec",
            "/exec/n/p/c?command=sh&command=-c&command=echo+a%26b&input=1&output=1&tty=1",
        );
        check("command=sh&stdout=1&stderr=1&stdin=false", "attach", "/attach/n/p/c?error=1&output=1");
    }

    #[test]
    fn unscheduled_pod_has_no_streams() {
        let pod = pod("");
        let error = ProcessOptions::default().target(&pod, "exec").unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (400, "pod p does not have a host assigned"));
        assert_eq!(ForwardOptions::default().target(&pod).unwrap_err().code, 400);
    }

    #[test]
    fn port_forward_ports_must_be_numbers() {
        let forward = ForwardOptions::of(&Query::parse("ports=80&ports=443,8080")).unwrap();
        assert_eq!(forward.target(&pod("one")).unwrap().1, "/portForward/n/p?port=80%2C443%2C8080");
        assert_eq!(ForwardOptions::of(&Query::parse("ports=x")).unwrap_err().code, 400);
    }
}
