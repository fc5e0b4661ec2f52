//! Transcript tests of the scheduler: commands and every resulting step. `UPDATE=1` rewrites the transcripts.
//!
//! A line with the prefix `>` is a command; the lines up to the next command are all its results. Bindings succeed and
//! the watch reports them immediately, together with the writes to ResourceClaims, unless `reject` precedes.
//!
//! ```text
//! > node NAME {cpu, labels, taints, …}     > pod NAME {cpu, labels, node, …spec}     > set KIND {object}
//! > delete pod|node|claim NAME             > after SECONDS                           > reject MESSAGE
//! > configure {KubeSchedulerConfiguration}, which starts over with an empty cluster
//! ```

#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::fmt::Write;
use std::path::Path;

use apimachinery::{Key, Object, Value, value, yaml};
use scheduler::devices::{self, Create, Reserve};
use scheduler::engine::{Kind, Step, Wait};
use scheduler::{Configuration, Engine, Pod};

struct Stage {
    engine: Engine,
    now: u64,
    rejection: Option<String>,
    /// Pods as reported by the watch.
    pods: Vec<Value>,
    /// ResourceClaims as reported by the watch.
    claims: Vec<Value>,
    out: String,
}

impl Stage {
    /// Creates an empty cluster; `configuration` omits apiVersion and kind.
    fn new(configuration: &str) -> Self {
        let mut configuration = Value::Object(parse(configuration));
        let fields = configuration.as_object_mut().unwrap();
        fields.insert("apiVersion", "kubescheduler.config.k8s.io/v1");
        fields.insert("kind", "KubeSchedulerConfiguration");
        let Configuration { profiles, queue, .. } = Configuration::read(&configuration.to_string()).unwrap();
        let engine = Engine::new(profiles, queue);
        Self { engine, now: 0, rejection: None, pods: Vec::new(), claims: Vec::new(), out: String::new() }
    }

    fn command(&mut self, line: &str) {
        let mut tokens = line.splitn(3, ' ');
        let (verb, name, rest) = (tokens.next().unwrap(), tokens.next().unwrap_or(""), tokens.next().unwrap_or("{}"));
        match verb {
            "node" => self.show(Kind::Nodes, &node(name, parse(rest))),
            "pod" => self.show(Kind::Pods, &pod(name, parse(rest))),
            "set" => {
                let kind = Kind::ALL.iter().find(|kind| kind.resource().to_string() == name).unwrap();
                self.show(*kind, &Value::Object(parse(rest)));
            }
            "delete" if name == "pod" => self.delete_pod(rest),
            "delete" if name == "claim" => {
                self.engine.observe(Kind::ResourceClaims, &Key::new("ns", rest), None, self.now).unwrap();
            }
            "delete" => self.engine.observe(Kind::Nodes, &Key::cluster(rest), None, self.now).unwrap(),
            "after" => self.now += name.parse::<u64>().unwrap() * 1000,
            "configure" => {
                *self = Self { out: std::mem::take(&mut self.out), ..Self::new(&line["configure ".len()..]) }
            }
            "reject" => self.rejection = Some(line["reject ".len()..].to_owned()),
            _ => panic!("no such command: {line}"),
        }
        while let Some(step) = self.engine.step(self.now) {
            self.execute_plan(step);
        }
    }

    fn show(&mut self, kind: Kind, object: &Value) {
        self.engine.observe(kind, &Key::of(object), Some(object), self.now).unwrap();
        let observed = match kind {
            Kind::Pods => &mut self.pods,
            Kind::ResourceClaims => &mut self.claims,
            _ => return,
        };
        observed.retain(|have| Key::of(have) != Key::of(object));
        observed.push(object.clone());
    }

    fn delete_pod(&mut self, name: &str) {
        let key = Key::new("ns", name);
        self.pods.retain(|have| Key::of(have) != key);
        self.engine.observe(Kind::Pods, &key, None, self.now).unwrap();
    }

    /// Shows a ResourceClaim with the allocation and reservation for a pod.
    fn reserve(&mut self, claim: &Reserve, pod: &Pod) {
        let mut object = self.claims.iter().find(|have| Key::of(have) == claim.key).unwrap().clone();
        let fields = object.as_object_mut().unwrap();
        let status = fields.get_or_insert_with("status", Value::object).as_object_mut().unwrap();
        if let Some(allocation) = &claim.allocation {
            status.insert("allocation", allocation.clone());
        }
        let user = value!({"resource": "pods", "name": (pod.name.as_str()), "uid": (pod.uid.as_str())});
        let users = status.get_or_insert_with("reservedFor", || Value::Array(Vec::new()));
        users.as_array_mut().unwrap().push(user);
        self.show(Kind::ResourceClaims, &object);
    }

    /// Shows the ResourceClaim created for a pod's extended resources.
    fn make(&mut self, claim: &Create, pod: &Pod) {
        let name = format!("{}-extended-resources", pod.name);
        let user = value!({"resource": "pods", "name": (pod.name.as_str()), "uid": (pod.uid.as_str())});
        let object = value!({"metadata": {"namespace": "ns", "name": (name.as_str()), "uid": name},
            "spec": {"devices": {"requests": (claim.requests.clone())}},
            "status": {"allocation": (claim.allocation.clone()), "reservedFor": [user]}});
        self.show(Kind::ResourceClaims, &object);
    }

    fn execute_plan(&mut self, step: Step) {
        match step {
            Step::Bind { pod, node, volumes, devices } => {
                let promised = volumes.bind.iter().map(|(volume, claim)| format!(", {volume} for {}", claim.name));
                let made = volumes.provision.iter().map(|claim| format!(", a new volume for {}", claim.name));
                let all: String = promised.chain(made).chain(given(&devices)).collect();
                writeln!(self.out, "bind {} to {node}{all}", pod.name).unwrap();
                if let Some(message) = self.rejection.take() {
                    let next_step = self.engine.unbound(&pod, message, self.now);
                    next_step.into_iter().for_each(|step| self.execute_plan(step));
                    return;
                }
                devices.reserve.iter().for_each(|claim| self.reserve(claim, &pod));
                devices.create.iter().for_each(|claim| self.make(claim, &pod));
                self.engine.bound(&pod);
                let key = Key::new("ns", pod.name.clone());
                let mut object = self.pods.iter().find(|have| Key::of(have) == key).unwrap().clone();
                object.get_mut("spec").unwrap().as_object_mut().unwrap().insert("nodeName", node);
                self.show(Kind::Pods, &object);
            }
            Step::Wait(Wait { pod, reason, message, preemption, .. }) => {
                writeln!(self.out, "{} waits ({reason:?}): {message}", pod.name).unwrap();
                if let Some(it) = preemption {
                    let victims: Vec<_> = it.victims.iter().map(|victim| victim.name.as_str()).collect();
                    writeln!(self.out, "  evict {} from {}", victims.join(" "), it.node).unwrap();
                    for key in it.outbid {
                        writeln!(self.out, "  {} no longer waits for {}", key.name, it.node).unwrap();
                    }
                }
            }
            Step::CallExtenders { .. } => panic!("there are no extenders"),
            Step::Skip { pod } => writeln!(self.out, "skip {}", pod.name).unwrap(),
        }
    }
}

/// Returns the devices allocated to claims.
fn given(plan: &devices::Plan) -> Vec<String> {
    let names = |allocation: &Value| {
        let results = allocation.at(&["devices", "results"]).and_then(Value::as_array).unwrap();
        results.iter().map(|it| it.str_at(&["device"]).unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    let claims = plan.reserve.iter().filter_map(|it| Some((it.allocation.as_ref()?, it.key.name.as_str())));
    let made = plan.create.iter().map(|it| (&it.allocation, "its resources"));
    claims.chain(made).map(|(allocation, to)| format!(", {} for {to}", names(allocation))).collect()
}

fn parse(text: &str) -> Object {
    yaml::parse(text).unwrap().as_object().unwrap().clone()
}

fn node(name: &str, mut fields: Object) -> Value {
    let mut labels = value!({"kubernetes.io/hostname": name});
    for (key, value) in fields.remove("labels").iter().filter_map(Value::as_object).flat_map(Object::iter) {
        labels.as_object_mut().unwrap().insert(key, value.clone());
    }
    let cpu = fields.remove("cpu").unwrap_or_else(|| 4.into());
    let allocatable = value!({"cpu": cpu, "memory": "16Gi", "pods": 110});
    value!({"metadata": {"name": name, "labels": labels}, "spec": fields, "status": {"allocatable": allocatable}})
}

fn pod(name: &str, mut spec: Object) -> Value {
    let labels = spec.remove("labels").unwrap_or_else(Value::object);
    let cpu = spec.remove("cpu").unwrap_or_else(|| 1.into());
    if let Some(node) = spec.remove("node") {
        spec.insert("nodeName", node);
    }
    let deleted = spec.remove("deleted").map(|_| "2026-01-01T00:00:00Z");
    spec.insert("containers", value!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]));
    spec.get_or_insert_with("schedulerName", || "default-scheduler".into());
    let mut meta = value!({"namespace": "ns", "name": name, "uid": name, "labels": labels});
    if let Some(deleted) = deleted {
        meta.as_object_mut().unwrap().insert("deletionTimestamp", deleted);
    }
    value!({"metadata": meta, "spec": spec})
}

fn play(text: &str) -> String {
    let mut stage = Stage::new("{}");
    for line in text.lines().filter(|line| line.starts_with(['>', '#']) || line.is_empty()) {
        writeln!(stage.out, "{line}").unwrap();
        if let Some(command) = line.strip_prefix("> ") {
            stage.command(command);
        }
    }
    stage.out
}

#[test]
#[expect(clippy::disallowed_methods, reason = "UPDATE=1 rewrites the transcripts")]
fn transcripts_are_as_written() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let played = play(&text);
        if std::env::var("UPDATE").is_ok() {
            std::fs::write(&file, played).unwrap();
        } else {
            assert_eq!(played, text, "{}", file.display());
        }
    }
}
