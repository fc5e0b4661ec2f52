//! Transcript tests of the scheduler with extenders over HTTP: their requests and the results for pods.
//!
//! `UPDATE=1` rewrites the transcripts.
//!
//! ```text
//! > cluster NUMBER                    starts over, with nodes n1, n2 and so on of four CPUs
//! > scheduler [{extender}, …]         starts this scheduler; each extender has a separate path: /0, /1, …
//! > respond PATH CODE|{response}      sets the response at this path
//! > respond PATH keep NODE            … for preemption: accept only the victims on this node
//! > respond PATH bind                 … by binding the pod
//! > pod NAME {cpu, wants, …spec}      creates a pod and waits until it has a node
//! > stuck NAME {cpu, wants, …spec}    creates a pod, waits until it is reported unschedulable, and deletes it
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use apimachinery::{Key, Object, Value, value, yaml};
use client::{Client, DeleteOptions, Target, WriteOptions};
use controller::{Objects, kinds};
use tokio::runtime::Handle;

use crate::cluster::{Cluster, Running, node_of};
use crate::condition;
use crate::extenders::Extender;

/// Response of an extender.
#[derive(Clone)]
enum ExtenderResponse {
    Fixed(u16, Value),
    Keep(String),
    Bind,
}

struct Stage {
    cluster: Cluster,
    server: Extender,
    responses: Arc<Mutex<BTreeMap<String, ExtenderResponse>>>,
    running: Option<Running>,
    out: String,
}

impl Stage {
    async fn new(nodes: usize) -> Self {
        let cluster = Cluster::start().await;
        for number in 1..=nodes {
            cluster.node(&format!("n{number}"), "a", "4").await;
        }
        let class = value!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
            "value": 1000});
        cluster.create(&kinds::PRIORITY_CLASSES, class).await;
        let responses: Arc<Mutex<BTreeMap<String, ExtenderResponse>>> = Arc::default();
        let (known, client) = (Arc::clone(&responses), cluster.admin());
        let server = Extender::start(move |path, args| {
            let response = known.lock().unwrap().get(path).cloned();
            respond(&client, response.unwrap_or(ExtenderResponse::Fixed(404, Value::Null)), args)
        });
        Self { cluster, server: server.await, responses, running: None, out: String::new() }
    }

    async fn command(&mut self, line: &str) {
        let mut tokens = line.splitn(3, ' ');
        let (verb, name, rest) = (tokens.next().unwrap(), tokens.next().unwrap_or(""), tokens.next().unwrap_or("{}"));
        match verb {
            "cluster" => {
                let out = std::mem::take(&mut self.out);
                *self = Self { out, ..Self::new(name.parse().unwrap()).await };
            }
            "scheduler" => self.schedule(&line["scheduler ".len()..]),
            "respond" => {
                let response = match (rest.parse::<u16>(), rest.split_once(' ')) {
                    (Ok(code), _) => ExtenderResponse::Fixed(code, Value::Null),
                    (_, Some(("keep", node))) => ExtenderResponse::Keep(node.to_owned()),
                    _ if rest == "bind" => ExtenderResponse::Bind,
                    _ => ExtenderResponse::Fixed(200, yaml::parse(rest).unwrap()),
                };
                self.responses.lock().unwrap().insert(name.to_owned(), response);
            }
            "pod" => {
                self.create(name, rest).await;
                let pods = self.cluster.until("placed", |pods| !node_of(pods, name).is_empty()).await;
                self.report_requests(name);
                writeln!(self.out, "{name} goes to {}", node_of(&pods, name)).unwrap();
            }
            "stuck" => {
                self.create(name, rest).await;
                let pods = self.cluster.until("told", |pods| condition(pods, name).is_some()).await;
                self.report_requests(name);
                self.report_condition(&pods, name);
                let target = Target::named(&kinds::PODS, "default", name);
                self.cluster.admin().delete(&target, &DeleteOptions::default()).await.unwrap();
            }
            _ => panic!("no such command: {line}"),
        }
    }

    fn schedule(&mut self, extenders: &str) {
        let mut list = yaml::parse(extenders).unwrap();
        for (number, extender) in list.as_array_mut().unwrap().iter_mut().enumerate() {
            let url = format!("http://{}/{number}", self.server.address);
            extender.as_object_mut().unwrap().insert("urlPrefix", url.as_str());
        }
        self.running = None;
        self.running = Some(self.cluster.schedule(&format!("extenders: {list}\n")));
    }

    async fn create(&self, name: &str, spec: &str) {
        let mut spec: Object = yaml::parse(spec).unwrap().as_object().unwrap().clone();
        let mut amounts = value!({"cpu": (spec.remove("cpu").unwrap_or_else(|| 1.into()))});
        if let Some(resource) = spec.remove("wants") {
            amounts.as_object_mut().unwrap().insert(resource.as_str().unwrap(), "1");
        }
        let resources = value!({"requests": (amounts.clone()), "limits": amounts});
        spec.insert("containers", value!([{"name": "c", "image": "i", "resources": resources}]));
        spec.insert("terminationGracePeriodSeconds", 0);
        let meta = value!({"name": name, "namespace": "default"});
        let pod = value!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec});
        self.cluster.create(&kinds::PODS, pod).await;
    }

    /// Writes the requests that extenders received about a pod. A retried pod repeats its requests.
    fn report_requests(&mut self, name: &str) {
        let requests = std::mem::take(&mut *self.server.requests.lock().unwrap());
        let mut lines = Vec::new();
        for (path, args) in &requests {
            let (pod, question) = summary(args);
            let line = format!("  {path} {question}");
            if pod == name && !lines.contains(&line) {
                writeln!(self.out, "{line}").unwrap();
                lines.push(line);
            }
        }
    }

    fn report_condition(&mut self, pods: &Objects, name: &str) {
        let pod_condition = condition(pods, name).unwrap();
        let text = |field: &str| pod_condition.text_at(&[field]).replace(&self.server.address, "HOST");
        let line = format!("{name} waits ({}): {}", text("reason"), text("message"));
        writeln!(self.out, "{line}").unwrap();
    }
}

/// Computes the response to a request; binds the pod if configured.
fn respond(client: &Client, response: ExtenderResponse, args: &Value) -> (u16, Value) {
    let text = |field: &str| args.text_at(&[field]);
    match response {
        ExtenderResponse::Fixed(code, value) => (code, value),
        ExtenderResponse::Keep(node) => {
            let victims = |map: &str| args.at(&[map, node.as_str()]).filter(|it| !it.is_null());
            let all = victims("NodeNameToVictims").or_else(|| victims("NodeNameToMetaVictims")).unwrap();
            let uid =
                |pod: &Value| pod.str_at(&["UID"]).or_else(|| pod.str_at(&["metadata", "uid"])).unwrap().to_owned();
            let pods = all["Pods"].as_array().unwrap().iter().map(|pod| value!({"UID": (uid(pod).as_str())}));
            let mut accepted = Object::new();
            accepted.insert(node.as_str(), value!({"Pods": (pods.collect::<Vec<_>>())}));
            (200, value!({"NodeNameToMetaVictims": accepted}))
        }
        ExtenderResponse::Bind => {
            let key = Key::new(text("PodNamespace"), text("PodName"));
            let target = Target::named(&kinds::PODS, key.namespace.clone(), key.name.clone()).subresource("binding");
            let binding = value!({"apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": (text("PodName")), "namespace": (text("PodNamespace"))},
                "target": {"kind": "Node", "name": (text("Node"))}});
            let options = WriteOptions::default();
            let bound = client.create(&target, &binding, &options);
            tokio::task::block_in_place(|| Handle::current().block_on(bound)).unwrap();
            (200, value!({"Error": ""}))
        }
    }
}

/// Returns the pod of a request and a summary of the request.
fn summary(args: &Value) -> (String, String) {
    if let (Some(node), Some(pod)) = (args.str_at(&["Node"]), args.str_at(&["PodName"])) {
        return (pod.to_owned(), format!("{pod} to {node}"));
    }
    let pod = args.str_at(&["Pod", "metadata", "name"]).unwrap();
    let mut parts = Vec::new();
    for name in args["NodeNames"].as_array().unwrap_or_default() {
        parts.push(name.as_str().unwrap().to_owned());
    }
    for node in args["Nodes"]["items"].as_array().unwrap_or_default() {
        parts.push(format!("Node {}", node.str_at(&["metadata", "name"]).unwrap()));
    }
    for (field, form) in [("NodeNameToVictims", "Pod"), ("NodeNameToMetaVictims", "UID")] {
        for (node, victims) in args[field].as_object().into_iter().flat_map(Object::iter) {
            let pods = victims["Pods"].as_array().unwrap();
            let has = |pod: &Value| pod.get("UID").is_some() == (form == "UID");
            assert!(pods.iter().all(has));
            parts.push(format!("{} {form} of {node}", pods.len()));
        }
    }
    parts.sort();
    (pod.to_owned(), format!("{pod}: {}", parts.join(", ")))
}

async fn play(text: &str) -> String {
    let mut stage = Stage::new(0).await;
    for line in text.lines().filter(|line| line.starts_with(['>', '#']) || line.is_empty()) {
        writeln!(stage.out, "{line}").unwrap();
        if let Some(command) = line.strip_prefix("> ") {
            stage.command(command).await;
        }
    }
    stage.out
}

#[tokio::test(flavor = "multi_thread")]
async fn extender_requests_match_the_transcripts() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/extenders.txt");
    let text = std::fs::read_to_string(&file).unwrap();
    let played = play(&text).await;
    if std::env::var("UPDATE").is_ok() {
        std::fs::write(&file, played).unwrap();
    } else {
        assert_eq!(played, text, "{}", file.display());
    }
}
