//! The generators against what kubectl 1.36 prints: `expected.txt` has command lines and the output of kubectl with
//! `--dry-run=client -o yaml`, `faults.txt` has command lines and kubectl's message.

use apimachinery::yaml;
use tempfile::TempDir;

use super::data::Registry;
use super::pod::Pod;
use super::rbac::{Rule, Subjects};
use super::service::{Service, ServiceType};
use super::sources::{self, Entry, Sources};
use super::*;

/// A command line: `create role reader --verb=get -- rest`.
struct Line {
    words: Vec<String>,
    flags: Vec<(String, String)>,
    rest: Vec<String>,
}

impl Line {
    fn parse(text: &str) -> Self {
        let mut line = Self { words: Vec::new(), flags: Vec::new(), rest: Vec::new() };
        let mut parts = text.split_whitespace();
        for part in parts.by_ref().take_while(|part| *part != "--") {
            match part.strip_prefix("--") {
                None => line.words.push(part.to_owned()),
                Some(flag) => {
                    let (name, value) = flag.split_once('=').unwrap_or((flag, "true"));
                    line.flags.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        line.rest = parts.map(str::to_owned).collect();
        line
    }

    fn all(&self, name: &str) -> Vec<String> {
        self.flags.iter().filter(|(have, _)| have == name).map(|(_, value)| value.clone()).collect()
    }

    fn list(&self, name: &str) -> Vec<String> {
        self.all(name).iter().flat_map(|value| value.split(',')).map(str::to_owned).collect()
    }

    fn text(&self, name: &str) -> &str {
        self.flags.iter().rfind(|(have, _)| have == name).map_or("", |(_, value)| value)
    }

    fn int(&self, name: &str, default: i64) -> i64 {
        self.text(name).parse().unwrap_or(default)
    }

    fn is(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    fn name(&self) -> Name<'_> {
        let namespace = Some(self.text("namespace")).filter(|namespace| !namespace.is_empty());
        Name { name: self.words.last().map_or("", String::as_str), namespace }
    }
}

/// Returns what a command line generates. Files are below `dir`.
fn generate(line: &Line, dir: &TempDir) -> Result<Vec<Value>, Error> {
    let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
    let one = match words[..] {
        ["create", "namespace", name] => namespace(name),
        ["create", "serviceaccount", _] => service_account(line.name()),
        ["create", "deployment" | "job" | "cronjob", _] => workload(line),
        ["create", "configmap", _] => data::config_map(line.name(), entries(line, dir, true), line.is("append-hash")),
        ["create", "secret", kind, _] => secret(line, kind, dir),
        ["create", "service", kind, _] => service(line, kind),
        ["create", "role" | "clusterrole", _] => role(line),
        ["create", "rolebinding" | "clusterrolebinding", _] => binding(line),
        ["create", "ingress", _] => ingress::ingress(ingress::Ingress {
            name: line.name(),
            class: line.text("class"),
            rules: &line.all("rule"),
            annotations: &line.all("annotation"),
            default_backend: line.text("default-backend"),
        }),
        ["create", "quota", _] => policy::quota(line.name(), line.text("hard"), line.text("scopes")),
        ["create", "poddisruptionbudget", _] => policy::disruption_budget(policy::DisruptionBudget {
            name: line.name(),
            selector: line.text("selector"),
            min_available: line.text("min-available"),
            max_unavailable: line.text("max-unavailable"),
        }),
        ["create", "priorityclass", name] => Ok(policy::priority_class(policy::PriorityClass {
            name,
            value: line.int("value", 0),
            global_default: line.is("global-default"),
            description: line.text("description"),
            preemption_policy: line.text("preemption-policy"),
        })),
        ["run", _] => return run(line),
        _ => panic!("unknown command: {words:?}"),
    };
    one.map(|object| vec![object])
}

fn workload(line: &Line) -> Result<Value, Error> {
    let name = line.name();
    match line.words[1].as_str() {
        "deployment" => {
            let (images, port, replicas) = (&line.list("image"), line.int("port", -1), line.int("replicas", 1));
            let options = workload::Deployment { name, images, command: &line.rest, port, replicas };
            workload::deployment(options, || "x4x5x".to_owned())
        }
        "job" => {
            let (image, from) = (line.text("image"), line.text("from"));
            workload::job(workload::Job { name, image, from, command: &line.rest })
        }
        _ => Ok(workload::cron_job(workload::CronJob {
            name,
            image: line.text("image"),
            schedule: line.text("schedule"),
            restart: line.text("restart"),
            command: &line.rest,
        })),
    }
}

fn entries(line: &Line, dir: &TempDir, files_first: bool) -> Vec<Result<Entry, Error>> {
    let place = |path: &String| match path.split_once('=') {
        Some((key, path)) if !key.is_empty() && !path.is_empty() => format!("{key}={}/{path}", dir.path().display()),
        Some(_) => path.clone(),
        None => format!("{}/{path}", dir.path().display()),
    };
    let flatten = |read: Result<Vec<Entry>, Error>| match read {
        Ok(entries) => entries.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    };
    let (literals, files, envs) = (line.all("from-literal"), line.list("from-file"), line.list("from-env-file"));
    if let Err(error) = (Sources { literals: &literals, files: &files, env_files: &envs }).validate() {
        return vec![Err(error)];
    }
    let mut literals: Vec<_> = literals.iter().map(|literal| sources::literal(literal)).collect();
    let mut files: Vec<_> = files.iter().flat_map(|file| flatten(sources::read_file(&place(file)))).collect();
    let envs = envs.iter().flat_map(|file| flatten(sources::read_env_file(&place(file), "config", |_| String::new())));
    if files_first {
        files.append(&mut literals);
        literals = files;
    } else {
        literals.append(&mut files);
    }
    literals.into_iter().chain(envs).collect()
}

fn secret(line: &Line, kind: &str, dir: &TempDir) -> Result<Value, Error> {
    if kind == "generic" {
        return data::secret(line.name(), line.text("type"), entries(line, dir, false), line.is("append-hash"));
    }
    let registry = Registry {
        server: "https://index.docker.io/v1/",
        username: line.text("docker-username"),
        password: line.text("docker-password"),
        email: line.text("docker-email"),
    };
    data::validate_registry(registry, false)?;
    let entries = [Ok(data::docker_config(registry))];
    data::secret(line.name(), "kubernetes.io/dockerconfigjson", entries, line.is("append-hash"))
}

fn service(line: &Line, kind: &str) -> Result<Value, Error> {
    let kind = match kind {
        "clusterip" => ServiceType::ClusterIp,
        "nodeport" => ServiceType::NodePort,
        "loadbalancer" => ServiceType::LoadBalancer,
        _ => ServiceType::ExternalName,
    };
    service::service(Service {
        name: line.name(),
        kind,
        tcp: &line.list("tcp"),
        cluster_ip: line.text("clusterip"),
        node_port: line.int("node-port", 0),
        external_name: line.text("external-name"),
    })
}

fn role(line: &Line) -> Result<Value, Error> {
    let find = |group: &str, resource: &str| match (group, resource) {
        ("", "pods" | "nodes" | "services") | ("apps", "replicasets") => Ok((group.to_owned(), resource.to_owned())),
        ("apps", "rs") => Ok(("apps".to_owned(), "replicasets".to_owned())),
        ("", "roles") => Ok((rbac::GROUP.to_owned(), "roles".to_owned())),
        _ => Err(Error::new(format!("the server doesn't have a resource type \"{resource}\""))),
    };
    let (verbs, resources) = (line.list("verb"), line.list("resource"));
    let rule = Rule::new(&verbs, &resources, &line.all("resource-name"), &line.list("non-resource-url"));
    if line.words[1] == "role" {
        return rbac::role(line.name(), &rule, find).map(|role| role.object);
    }
    let aggregation: Vec<(String, String)> = line
        .list("aggregation-rule")
        .iter()
        .filter_map(|pair| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())))
        .collect();
    rbac::cluster_role(line.name().name, &rule, &aggregation, find).map(|role| role.object)
}

fn binding(line: &Line) -> Result<Value, Error> {
    let subjects = Subjects {
        users: &line.all("user"),
        groups: &line.all("group"),
        service_accounts: &line.all("serviceaccount"),
    };
    if line.words[1] == "rolebinding" {
        rbac::role_binding(line.name(), line.text("clusterrole"), line.text("role"), subjects)
    } else {
        rbac::cluster_role_binding(line.name().name, line.text("clusterrole"), subjects)
    }
}

fn run(line: &Line) -> Result<Vec<Value>, Error> {
    pod::validate_image(line.text("image"))?;
    pod::restart_policy(line.text("restart"), line.is("stdin"))?;
    pod::validate_pull_policy(line.text("image-pull-policy"))?;
    let options = Pod {
        name: line.name().name,
        image: line.text("image"),
        image_pull_policy: line.text("image-pull-policy"),
        labels: line.text("labels"),
        annotations: &line.all("annotations"),
        env: &line.all("env"),
        port: line.text("port"),
        stdin: line.is("stdin"),
        leave_stdin_open: line.is("leave-stdin-open"),
        tty: line.is("tty"),
        privileged: line.is("privileged"),
        restart: line.text("restart"),
        args: &line.rest,
        command: line.is("command"),
    };
    let pod = overrides::apply(pod::pod(options)?, line.text("overrides"), line.text("override-type"))?;
    if line.is("expose") { Ok(vec![pod::service(options)?, pod]) } else { Ok(vec![pod]) }
}

/// Returns the commands of a transcript with what follows each.
fn cases(transcript: &str) -> Vec<(&str, String)> {
    let mut cases: Vec<(&str, String)> = Vec::new();
    for line in transcript.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => cases.push((command, String::new())),
            None => {
                let (_, output) = cases.last_mut().expect("a transcript starts with a command");
                output.push_str(line);
                output.push('\n');
            }
        }
    }
    cases
}

fn files() -> TempDir {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(path("dir/sub")).unwrap();
    std::fs::write(path("dir/a.txt"), "a text\n").unwrap();
    std::fs::write(path("dir/b.bin"), b"\xff\x00bin").unwrap();
    std::fs::write(path("dir/sub/c"), "x\n").unwrap();
    std::os::unix::fs::symlink("a.txt", path("dir/link")).unwrap();
    std::fs::write(path("app.env"), "\u{feff}# comment\nA=1\n  B=two words \n\nHOME_OF\r\nC=x=y\n").unwrap();
    std::fs::write(path("bad.env"), "a b=1\n").unwrap();
    dir
}

#[test]
fn generated_objects_are_those_of_kubectl() {
    let dir = files();
    for (command, expected) in cases(include_str!("tests/expected.txt")) {
        let objects = generate(&Line::parse(command), &dir).unwrap_or_else(|error| panic!("{command}: {error}"));
        let documents: Vec<String> = objects.iter().map(yaml::to_string).collect();
        // `run --expose` separates its two objects twice.
        assert_eq!(documents.join("---\n---\n"), expected, "{command}");
    }
}

#[test]
fn messages_about_wrong_options_are_those_of_kubectl() {
    let dir = files();
    let place = format!("{}/", dir.path().display());
    for (command, expected) in cases(include_str!("tests/faults.txt")) {
        let error = generate(&Line::parse(command), &dir).expect_err(command);
        assert_eq!(error.to_string().replace(&place, ""), expected.trim_end(), "{command}");
    }
}

#[test]
fn saved_configuration_is_in_the_order_of_the_type() {
    let mut object = namespace("shop").unwrap();
    last_applied::save(&mut object);
    let saved = object.str_at(&["metadata", "annotations", last_applied::ANNOTATION]);
    let expected =
        "{\"kind\":\"Namespace\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"shop\"},\"spec\":{},\"status\":{}}\n";
    assert_eq!(saved, Some(expected));
    last_applied::save(&mut object);
    assert_eq!(object.str_at(&["metadata", "annotations", last_applied::ANNOTATION]), Some(expected));
}

#[test]
fn container_names_from_invalid_image_names_get_a_suffix() {
    let options = workload::Deployment {
        name: Name { name: "d", namespace: None },
        images: &["example.com/my_app.v1:2".to_owned()],
        command: &[],
        port: -1,
        replicas: 1,
    };
    let object = workload::deployment(options, || "x4x5x".to_owned()).unwrap();
    assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["name"], Value::from("my-app-v1-x4x5x"));
}

#[test]
fn key_pairs_must_belong_together() {
    let pair = || {
        let made = rcgen::generate_simple_self_signed(vec!["example.com".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    };
    let (certificate, key) = pair();
    let (_, other) = pair();
    let check = |certificate: &str, key: &str| {
        key_pair::validate(certificate.as_bytes(), key.as_bytes()).map_err(|error| error.to_string())
    };
    assert_eq!(check(&certificate, &key), Ok(()));
    let fault = |text: &str| Err(text.to_owned());
    assert_eq!(check(&certificate, &other), fault("tls: private key does not match public key"));
    assert_eq!(check("", &key), fault("tls: failed to find any PEM data in certificate input"));
    assert_eq!(check(&certificate, ""), fault("tls: failed to find any PEM data in key input"));
    let swapped = "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM \
                   inputs may have been switched";
    assert_eq!(check(&key, &certificate), fault(swapped));
    let certificate_as_key = "tls: found a certificate rather than a key in the PEM for the private key";
    assert_eq!(check(&certificate, &certificate), fault(certificate_as_key));
}
