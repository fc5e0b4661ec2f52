use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn files(directory: &Path, names: &[&str]) -> Files {
    Files { files: names.iter().map(|name| directory.join(name)).collect(), explicit: false }
}

fn cluster(server: &str) -> Entry {
    let mut entry = Entry::new();
    entry.set("server", server);
    entry
}

#[test]
fn empty_configuration_has_kubectls_form() {
    let text = apimachinery::yaml::to_string(&Kubeconfig::default().to_value());
    assert_eq!(
        text,
        "apiVersion: v1\nclusters: null\ncontexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n"
    );
}

#[test]
fn new_files_can_be_read_by_their_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path(), &["sub/config"]);
    let old = files.load().unwrap();
    let mut new = old.clone();
    new.clusters.insert("a".to_owned(), cluster("https://a"));
    files.save(&old, &new, true).unwrap();
    let file = directory.path().join("sub/config");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(files.load().unwrap().clusters["a"].text("server"), "https://a");
    assert!(!directory.path().join("sub/config.lock").exists());
}

#[test]
fn changes_go_to_the_file_that_defines_the_entry() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path(), &["one", "two"]);
    fs::write(&files.files[0], "clusters:\n- name: a\n  cluster: {server: x, unknown: [1]}\n").unwrap();
    fs::write(&files.files[1], "current-context: c\nclusters:\n- name: b\n  cluster: {server: y}\n").unwrap();
    let old = files.load().unwrap();
    let mut new = old.clone();
    new.clusters.get_mut("b").unwrap().set("server", "z");
    new.contexts.insert("new".to_owned(), Entry::new());
    new.current_context.clear();
    files.save(&old, &new, true).unwrap();
    let one = fs::read_to_string(&files.files[0]).unwrap();
    let two = fs::read_to_string(&files.files[1]).unwrap();
    assert!(one.contains("unknown:\n    - 1"), "{one}");
    assert!(one.contains("name: new") && !one.contains("server: z"), "{one}");
    assert!(two.contains("server: z") && two.contains("current-context: \"\""), "{two}");
}

#[test]
fn first_file_defines_an_entry() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path(), &["one", "two"]);
    fs::write(&files.files[0], "clusters:\n- name: a\n  cluster: {server: x}\n").unwrap();
    fs::write(&files.files[1], "clusters:\n- name: a\n  cluster: {server: y, proxy-url: z}\n").unwrap();
    let merged = files.load().unwrap();
    assert_eq!(merged.clusters["a"].text("server"), "x");
    assert_eq!(merged.clusters["a"].text("proxy-url"), "");
}

#[test]
fn paths_are_relative_to_their_file() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path(), &["config"]);
    fs::write(&files.files[0], "clusters:\n- name: a\n  cluster: {certificate-authority: pki/ca.crt}\n").unwrap();
    let old = files.load().unwrap();
    let mut new = old.clone();
    let absolute = directory.path().join("pki/new.crt").display().to_string();
    new.clusters.get_mut("a").unwrap().set("certificate-authority", absolute);
    files.save(&old, &new, true).unwrap();
    assert!(fs::read_to_string(&files.files[0]).unwrap().contains("certificate-authority: pki/new.crt"));
}

#[test]
fn locked_file_is_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path(), &["config"]);
    let _lock = Lock::new(&files.files[0]).unwrap();
    let old = Kubeconfig::default();
    let new = Kubeconfig { current_context: "a".to_owned(), ..Kubeconfig::default() };
    let failure = files.save(&old, &new, true).unwrap_err();
    assert!(failure.message.ends_with("config.lock: file exists"), "{failure}");
}

#[test]
fn properties_are_set_by_path() {
    let mut config = Kubeconfig::default();
    let mut set = |path: &str, value: &str| {
        let result = set_property(&mut config, path, Property::Set(value));
        result.map_or_else(|failure| failure.message, |()| apimachinery::json::to_string(&config.to_value()))
    };
    assert!(
        set("clusters.10.0.0.1.server", "https://x")
            .contains(r#"{"cluster":{"server":"https://x"},"name":"10.0.0.1"}"#)
    );
    assert!(set("clusters.10.0.0.1.insecure-skip-tls-verify", "true").contains(r#""insecure-skip-tls-verify":true"#));
    assert!(set("users.u.act-as", "me").contains(r#"{"name":"u","user":{"as":"me"}}"#));
    assert!(set("preferences.colors", "true").contains(r#""preferences":{"colors":true}"#));
    assert_eq!(set("clusters.a.foo", "1"), "can't set a map to a value: map[10.0.0.1]");
    assert_eq!(set("foo", "1"), "unable to parse foo after [] at api.Config");
    assert_eq!(
        set("users.u.auth-provider.x", "1"),
        "unable to parse one or more field values of users.u.auth-provider.x"
    );
    assert_eq!(
        set("clusters.a.certificate-authority-data", "!"),
        "error decoding input value: illegal base64 data at input byte 0"
    );
    assert_eq!(set("clusters.a.disable-compression", "maybe"), "strconv.ParseBool: parsing \"maybe\": invalid syntax");
}

#[test]
fn properties_are_removed_by_path() {
    let mut config = Kubeconfig::default();
    config.clusters.insert("a".to_owned(), cluster("x"));
    set_property(&mut config, "clusters.a.server", Property::Unset).unwrap();
    assert_eq!(config.clusters["a"].text("server"), "");
    set_property(&mut config, "clusters.a", Property::Unset).unwrap();
    assert!(config.clusters.is_empty());
    let failure = set_property(&mut config, "contexts.zz.cluster", Property::Unset).unwrap_err();
    assert_eq!(failure.message, "current map key `zz` is invalid");
}

#[test]
fn secrets_are_hidden() {
    let mut config = Kubeconfig::default();
    let mut user = Entry::new();
    for key in ["token", "password", "client-key-data", "client-certificate-data"] {
        user.set(key, "x");
    }
    config.users.insert("u".to_owned(), user);
    config.redact();
    let user = &config.users["u"];
    assert_eq!([user.text("token"), user.text("password")], ["REDACTED"; 2]);
    assert_eq!([user.text("client-key-data"), user.text("client-certificate-data")], ["DATA+OMITTED"; 2]);
}
