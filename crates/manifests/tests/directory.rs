//! A manifests directory beside an API server: objects follow the files.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use apimachinery::meta::Meta;
use apimachinery::{Key, Resource, Value, json, value};
use client::{DeleteOptions, Target};
use component_base::election;
use controller::Objects;
use controller::kinds::{CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, EVENTS, NAMESPACES};
use manifests::Config;
use testkit::Cluster;
use tokio::task::JoinHandle;

/// A manifests directory, and the component that applies it. Stopped on drop.
struct Server {
    name: &'static str,
    dir: tempfile::TempDir,
    running: JoinHandle<()>,
}

impl Server {
    fn start(cluster: &Cluster, name: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let running = run(cluster, name, dir.path().join("manifests"));
        let server = Self { name, dir, running };
        fs::create_dir_all(server.path("")).unwrap();
        server
    }

    /// Stops the component, and starts it again after `meanwhile`.
    async fn restart(&mut self, cluster: &Cluster, meanwhile: impl FnOnce(&Self)) {
        self.running.abort();
        let _ = (&mut self.running).await;
        meanwhile(self);
        self.running = run(cluster, self.name, self.path(""));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("manifests").join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    fn report(&self, objects: &Objects) -> Value {
        let parent = objects.get(&Key::new("kube-system", self.name));
        let text = parent.map(|parent| parent.text_at(&["data", manifests::REPORT]).to_owned());
        json::parse(text.unwrap_or_default().as_bytes()).unwrap_or_default()
    }

    /// Waits until this number of objects is applied and the problems contain these texts.
    async fn until(&self, cluster: &Cluster, count: i64, problems: &[&str]) -> Value {
        let what = format!("had {count} objects and the problems {problems:?}");
        let is_reported = |report: &Value| {
            let found = report.list_at(&["problems"]);
            let matches = found.iter().zip(problems).all(|(found, expect)| found.to_string().contains(expect));
            report.int_at(&["objects"]) == Some(count) && found.len() == problems.len() && matches
        };
        let objects = cluster.until(&CONFIG_MAPS, &what, |objects| is_reported(&self.report(objects))).await;
        self.report(&objects)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running.abort();
    }
}

fn run(cluster: &Cluster, name: &str, directory: PathBuf) -> JoinHandle<()> {
    let mut election = election::Settings::new(Key::new("kube-system", "knarr-manifests"), name);
    election.retry_period = std::time::Duration::from_millis(50);
    let config = Config { directory, name: name.to_owned(), election: Some(election) };
    tokio::spawn(manifests::run(cluster.admin(), config))
}

fn config_map(name: &str, value: &str) -> String {
    format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{key: '{value}'}}\n")
}

async fn until_data(cluster: &Cluster, name: &str, value: Option<&str>) -> Option<Value> {
    let key = Key::new("default", name);
    let is_there =
        |objects: &Objects| objects.get(&key).map(|it| it.text_at(&["data", "key"]).to_owned()).as_deref() == value;
    let objects = cluster.until(&CONFIG_MAPS, &format!("had {name} with {value:?}"), is_there).await;
    objects.get(&key).cloned()
}

const LIST: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"key": "1"}},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"key": "1"}}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn objects_follow_files_documents_and_subdirectories() {
    let cluster = Cluster::start(&[&CONFIG_MAPS, &EVENTS]).await;
    let server = Server::start(&cluster, "one");
    server.put("app.yaml", &(config_map("a", "1") + &config_map("b", "1")));
    server.put("team/list.json", LIST);
    server.until(&cluster, 4, &[]).await;
    let made = until_data(&cluster, "a", Some("1")).await.unwrap();
    assert_eq!(Meta::of(&made).annotation("knarr.io/manifest-file"), Some("app.yaml"));
    assert!(Meta::of(&made).label("applyset.kubernetes.io/part-of").unwrap().starts_with("applyset-"));
    server.put("app.yaml", &config_map("a", "2"));
    let changed = until_data(&cluster, "a", Some("2")).await.unwrap();
    assert_eq!(Meta::of(&changed).uid(), Meta::of(&made).uid());
    until_data(&cluster, "b", None).await;
    fs::remove_dir_all(server.path("team")).unwrap();
    until_data(&cluster, "c", None).await;
    until_data(&cluster, "d", None).await;
    server.remove("app.yaml");
    until_data(&cluster, "a", None).await;
    server.until(&cluster, 0, &[]).await;
    let said = |text: &str| {
        let text = text.to_owned();
        move |objects: &Objects| objects.iter().any(|entry| entry.value.text_at(&["message"]).contains(&text))
    };
    cluster.until(&EVENTS, "reported the apply", said("applied 2 objects of team/list.json")).await;
    cluster.until(&EVENTS, "reported the deletion", said("deleted ConfigMap default/b")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_file_keeps_its_objects_also_across_a_restart() {
    let cluster = Cluster::start(&[&CONFIG_MAPS, &EVENTS]).await;
    let mut server = Server::start(&cluster, "one");
    server.put("a.yaml", &config_map("a", "1"));
    server.put("b.yaml", &(config_map("b", "1") + &config_map("gone", "1")));
    server.until(&cluster, 3, &[]).await;
    server.put("a.yaml", "apiVersion: v1\nkind: [broken\n");
    server.put("b.yaml", &(config_map("b", "2") + &config_map("gone", "1")));
    let report = server.until(&cluster, 2, &["the objects that the file had are kept"]).await;
    let problem = &report["problems"].as_array().unwrap()[0];
    assert_eq!(problem.str_at(&["file"]), Some("a.yaml"));
    assert!(problem.int_at(&["line"]).unwrap() > 1, "{problem}");
    until_data(&cluster, "b", Some("2")).await;
    until_data(&cluster, "a", Some("1")).await;
    let warned = |objects: &Objects| {
        let of =
            |event: &Value| event.text_at(&["type"]) == "Warning" && event.text_at(&["message"]).contains("a.yaml:");
        objects.iter().any(|entry| of(&entry.value))
    };
    cluster.until(&EVENTS, "had a Warning about a.yaml", warned).await;
    server.restart(&cluster, |server| server.put("b.yaml", &config_map("b", "3"))).await;
    until_data(&cluster, "gone", None).await;
    until_data(&cluster, "b", Some("3")).await;
    until_data(&cluster, "a", Some("1")).await;
    // A failed command leaves an empty file.
    server.put("a.yaml", "");
    server.until(&cluster, 1, &["delete the file to delete the objects"]).await;
    until_data(&cluster, "a", Some("1")).await;
    server.put("a.yaml", &config_map("a", "2"));
    server.until(&cluster, 2, &[]).await;
}

const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
    metadata: {name: crons.example.com}\nspec:\n  group: example.com\n  scope: Namespaced\n  names: {plural: crons, kind: Cron}\n  \
    versions:\n  - name: v1\n    served: true\n    storage: true\n    \
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}\n";

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_applied_when_their_types_and_namespaces_exist() {
    let cluster = Cluster::start(&[&CONFIG_MAPS, &CUSTOM_RESOURCE_DEFINITIONS]).await;
    let server = Server::start(&cluster, "one");
    let cron =
        "apiVersion: example.com/v1\nkind: Cron\nmetadata: {name: nightly, namespace: shop}\nspec: {at: night}\n";
    server.put("a.yaml", cron);
    server.until(&cluster, 0, &["the server has no Cron of example.com/v1"]).await;
    server.put("b.yaml", DEFINITION);
    server.until(&cluster, 1, &["namespaces \\\"shop\\\" not found"]).await;
    server.put("c.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n");
    server.until(&cluster, 3, &[]).await;
    let crons = Resource::namespaced("example.com", "v1", "crons", "Cron");
    let made = cluster.admin().get(&Target::named(&crons, "shop", "nightly")).await.unwrap();
    assert_eq!(made.text_at(&["spec", "at"]), "night");
    // All three in one file, in the wrong order, and deleted together.
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    server.put("b.yaml", &format!("{cron}---\n{namespace}---\n{DEFINITION}"));
    server.until(&cluster, 1, &["the object is also in", "the object is also in"]).await;
    for name in ["a.yaml", "c.yaml"] {
        server.remove(name);
    }
    server.until(&cluster, 3, &[]).await;
    server.remove("b.yaml");
    server.until(&cluster, 0, &[]).await;
    let gone = cluster.admin().get(&Target::named(&crons, "shop", "nightly")).await;
    assert!(gone.is_err_and(|error| error.is_not_found()));
    let is_gone = |objects: &Objects| objects.get(&Key::cluster("crons.example.com")).is_none();
    cluster.until(&CUSTOM_RESOURCE_DEFINITIONS, "was deleted", is_gone).await;
    let is_deleting =
        |objects: &Objects| objects.get(&Key::cluster("shop")).is_none_or(|it| Meta::of(it).is_deleting());
    cluster.until(&NAMESPACES, "was deleted", is_deleting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parent_names_all_kinds_before_objects_are_applied() {
    let cluster = Cluster::start(&[&CONFIG_MAPS]).await;
    let server = Server::start(&cluster, "one");
    // The namespace does not exist, so that the object is never applied.
    server.put("a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: none}\n");
    server.until(&cluster, 0, &["namespaces \\\"none\\\" not found"]).await;
    let objects = cluster.reader(&CONFIG_MAPS).snapshot().objects;
    let parent = objects.get(&Key::new("kube-system", "one")).unwrap();
    let annotation =
        |name: &str| Meta::of(parent).annotation(&format!("applyset.kubernetes.io/{name}")).unwrap().to_owned();
    assert_eq!(annotation("contains-group-kinds"), "Secret");
    assert_eq!(annotation("additional-namespaces"), "none");
    assert!(annotation("tooling").starts_with("knarr/v"));
    server.remove("a.yaml");
    server.until(&cluster, 0, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn object_in_two_files_and_invalid_objects_are_reported() {
    let cluster = Cluster::start(&[&CONFIG_MAPS]).await;
    let server = Server::start(&cluster, "one");
    server.put("a.yaml", &config_map("a", "1"));
    server.until(&cluster, 1, &[]).await;
    server.put("b.yaml", &config_map("a", "2"));
    let report = server.until(&cluster, 0, &["the object is also in a.yaml:2"]).await;
    assert_eq!(report["problems"].as_array().unwrap()[0].str_at(&["file"]), Some("b.yaml"));
    until_data(&cluster, "a", Some("1")).await;
    server.remove("a.yaml");
    until_data(&cluster, "a", Some("2")).await;
    server.put("c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndta: {}\n");
    server.until(&cluster, 1, &["dta"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_files_that_other_users_cannot_change_are_applied() {
    let cluster = Cluster::start(&[&CONFIG_MAPS]).await;
    let server = Server::start(&cluster, "one");
    let path = server.path("open.yaml");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    fs::write(&path, config_map("a", "1")).unwrap();
    fs::write(server.dir.path().join("outside.yaml"), config_map("b", "1")).unwrap();
    symlink(server.dir.path().join("outside.yaml"), server.path("link.yaml")).unwrap();
    let fifo = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, server.path("fifo.yaml"), fifo.0, fifo.1, 0).unwrap();
    let problems = ["it is not a regular file", "symbolic links are not followed", "run `chmod go-w` on it"];
    server.until(&cluster, 0, &problems).await;
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    server.until(&cluster, 1, &problems[..2]).await;
    fs::set_permissions(server.path(""), Permissions::from_mode(0o777)).unwrap();
    server.until(&cluster, 0, &["the directory is not read"]).await;
    until_data(&cluster, "a", Some("1")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_is_applied_after_it_was_written_completely() {
    let cluster = Cluster::start(&[&CONFIG_MAPS]).await;
    let server = Server::start(&cluster, "one");
    server.put("a.yaml", &(config_map("a", "1") + &config_map("b", "1")));
    server.put("other.yaml", &config_map("other", "1"));
    server.until(&cluster, 3, &[]).await;
    let mut writer = fs::File::create(server.path("a.yaml")).unwrap();
    writer.write_all(config_map("a", "2").as_bytes()).unwrap();
    server.put("new.yaml", &config_map("new", "1"));
    server.remove("other.yaml");
    // Deletions wait for the whole directory, because the object may have moved into the file that is being written.
    until_data(&cluster, "new", Some("1")).await;
    server.until(&cluster, 1, &["a process is writing the file"]).await;
    for (name, value) in [("a", "1"), ("b", "1"), ("other", "1")] {
        until_data(&cluster, name, Some(value)).await;
    }
    writer.write_all(config_map("other", "2").as_bytes()).unwrap();
    drop(writer);
    until_data(&cluster, "b", None).await;
    until_data(&cluster, "other", Some("2")).await;
    server.until(&cluster, 3, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_directory_keeps_objects_and_an_empty_one_deletes_them() {
    let cluster = Cluster::start(&[&CONFIG_MAPS]).await;
    let server = Server::start(&cluster, "one");
    server.put("a.yaml", &config_map("a", "1"));
    server.until(&cluster, 1, &[]).await;
    fs::rename(server.path(""), server.dir.path().join("aside")).unwrap();
    server.until(&cluster, 0, &["the directory is missing"]).await;
    until_data(&cluster, "a", Some("1")).await;
    fs::create_dir(server.path("")).unwrap();
    until_data(&cluster, "a", None).await;
    server.put("a.yaml", &config_map("a", "2"));
    until_data(&cluster, "a", Some("2")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_object_is_taken_over_and_released() {
    let cluster = Cluster::start(&[&CONFIG_MAPS]).await;
    let existing = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
        "data": {"key": "before", "own": "1"}});
    let existing = cluster.create(&CONFIG_MAPS, &existing).await;
    let server = Server::start(&cluster, "one");
    server.put("a.yaml", &config_map("a", "1"));
    until_data(&cluster, "a", Some("1")).await;
    server.until(&cluster, 1, &[]).await;
    server.remove("a.yaml");
    server.until(&cluster, 0, &[]).await;
    let released = |objects: &Objects| {
        let object = objects.get(&Key::new("default", "a")).unwrap();
        Meta::of(object).label("applyset.kubernetes.io/part-of").is_none()
    };
    let objects = cluster.until(&CONFIG_MAPS, "was released", released).await;
    let object = objects.get(&Key::new("default", "a")).unwrap();
    assert_eq!(object["data"], value!({"key": "1", "own": "1"}));
    assert_eq!(Meta::of(object).annotations(), None);
    assert_eq!(Meta::of(object).uid(), Meta::of(&existing).uid());
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_of_two_servers_do_not_delete_each_others_objects() {
    let cluster = Cluster::start(&[&CONFIG_MAPS]).await;
    let (one, two) = (Server::start(&cluster, "one"), Server::start(&cluster, "two"));
    one.put("app.yaml", &(config_map("same", "1") + &config_map("first", "1")));
    one.until(&cluster, 2, &[]).await;
    two.put("app.yaml", &(config_map("same", "2") + &config_map("second", "1")));
    let report = two.until(&cluster, 1, &[]).await;
    assert_eq!(report["claims"], value!(["ConfigMap default/same"]));
    let before = until_data(&cluster, "same", Some("1")).await.unwrap();
    // The file goes on one server after the other, as configuration management does it.
    one.remove("app.yaml");
    until_data(&cluster, "first", None).await;
    let after = until_data(&cluster, "same", Some("2")).await.unwrap();
    assert_eq!(Meta::of(&after).uid(), Meta::of(&before).uid(), "it was handed over");
    two.until(&cluster, 2, &[]).await;
    // A lost server no longer applies its objects. Its parent is deleted with it.
    one.put("late.yaml", &config_map("late", "1"));
    one.until(&cluster, 1, &[]).await;
    two.put("late.yaml", &config_map("late", "2"));
    two.until(&cluster, 2, &[]).await;
    drop(one);
    let parent = Target::named(&CONFIG_MAPS, "kube-system", "one");
    cluster.admin().delete(&parent, &DeleteOptions::default()).await.unwrap();
    until_data(&cluster, "late", Some("2")).await;
    two.until(&cluster, 3, &[]).await;
    two.remove("late.yaml");
    two.remove("app.yaml");
    for name in ["same", "second", "late"] {
        until_data(&cluster, name, None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_appears_in_two_directories_at_once_belongs_to_one_of_them() {
    let cluster = Cluster::start(&[&CONFIG_MAPS]).await;
    let servers = [Server::start(&cluster, "one"), Server::start(&cluster, "two"), Server::start(&cluster, "three")];
    let names: Vec<String> = (0..20).map(|number| format!("same-{number}")).collect();
    let text: String = names.iter().map(|name| config_map(name, "1")).collect();
    servers.iter().for_each(|server| server.put("app.yaml", &text));
    let are_shared = |objects: &Objects| {
        let reports: Vec<Value> = servers.iter().map(|server| server.report(objects)).collect();
        let applied: i64 = reports.iter().filter_map(|report| report.int_at(&["objects"])).sum();
        let claimed: usize = reports.iter().map(|report| report.list_at(&["claims"]).len()).sum();
        applied == 20 && claimed == 40
    };
    cluster.until(&CONFIG_MAPS, "had one owner for each object", are_shared).await;
}
