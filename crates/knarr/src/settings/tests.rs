use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// A directory with configuration files, by name.
fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(DROP_INS)).unwrap();
    for (name, text) in files {
        let file = dir.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    dir
}

fn read(files: &[(&str, &str)]) -> Result<Settings> {
    let dir = directory(files);
    configured(&crate::cli(), &dir.path().join("config.yaml"))
}

/// Returns the arguments after the command that settings and a command line give.
fn merged(name: &str, settings: &Settings, typed: &[&str]) -> Vec<String> {
    let cli = crate::cli();
    let args: Vec<OsString> = ["knarr", name].iter().chain(typed).map(OsString::from).collect();
    let (path, at) = subcommand(&cli, &args);
    let args = insert(&path, args, at, settings.clone()).args;
    args[2..].iter().map(|arg| arg.to_str().unwrap().to_owned()).collect()
}

#[test]
fn file_keys_are_flags_and_lists_repeat_them() {
    let text = "nodes: 3\nstatic-pods: true\nbind-address: 127.0.0.1\ndisable: [dns, ingress]\nkubelet-arg:\n- max-pods=50\n- v=4\n";
    let settings = read(&[("config.yaml", text)]).unwrap();
    let expect = [
        "--bind-address=127.0.0.1",
        "--disable=dns",
        "--disable=ingress",
        "--kubelet-arg=max-pods=50",
        "--kubelet-arg=v=4",
        "--nodes=3",
        "--static-pods",
    ];
    assert_eq!(merged("up", &settings, &[]), expect);
    assert_eq!(merged("agent", &settings, &[]), &expect[1..5], "an agent has fewer flags");
}

#[test]
fn drop_in_files_override_the_main_file_in_order_and_null_restores_the_default() {
    let files = [
        ("config.yaml", "nodes: 2\nnode-name: a\nsecure-port: 7443\n"),
        ("config.d/20-b.yaml", "node-name: c\nsecure-port: null\n"),
        ("config.d/10-a.yaml", "node-name: b\n"),
        ("config.d/ignored.txt", "nodes: 9\n"),
    ];
    let settings = read(&files).unwrap();
    assert_eq!(merged("up", &settings, &[]), ["--node-name=c", "--nodes=2"]);
}

#[test]
fn command_line_overrides_settings_and_those_that_conflict_with_it() {
    let settings = read(&[("config.yaml", "nodes: 2\nkubelet-arg: [v=2]\ntoken-file: /run/token\n")]).unwrap();
    let typed = ["--nodes=5", "--kubelet-arg", "v=9", "--token", "t"];
    assert_eq!(merged("server", &settings, &typed), typed);
    assert_eq!(merged("up", &settings, &["--nodes", "5"]), ["--kubelet-arg=v=2", "--nodes", "5"]);
    assert_eq!(merged("up", &settings, &["--", "--nodes=5"])[..2], ["--kubelet-arg=v=2", "--nodes=2"]);
}

#[test]
fn environment_overrides_files() {
    let cli = crate::cli();
    let up = cli.find_subcommand("up").unwrap();
    let variable = |name: &str| match name {
        "KNARR_NODES" => Some("4".into()),
        "KNARR_STATIC_PODS" => Some("1".into()),
        "KNARR_NODE_NAME" => Some("".into()),
        // A flag of a single call is not a setting.
        "KNARR_BACKGROUND" => Some("true".into()),
        _ => None,
    };
    let mut settings = read(&[("config.yaml", "nodes: 2\nnode-name: a\n")]).unwrap();
    settings.extend(from_environment(flags(&[up]), variable).unwrap());
    assert_eq!(merged("up", &settings, &[]), ["--node-name=a", "--nodes=4", "--static-pods"]);
    let error = from_environment(flags(&[up]), |name| (name == "KNARR_STATIC_PODS").then(|| "on".into())).unwrap_err();
    assert_eq!(error.to_string(), "KNARR_STATIC_PODS=\"on\" is invalid: use true or false");
}

#[test]
fn errors_name_file_line_and_the_nearest_key() {
    let check = |text: &str, expect: &str| {
        let error = format!("{:#}", read(&[("config.yaml", text)]).unwrap_err());
        let (_, error) = error.split_once("config.yaml").unwrap();
        assert_eq!(error, expect, "{text}");
    };
    check("# cluster\nnode-nam: a\n", ":2: unknown key \"node-nam\"; did you mean \"node-name\"?");
    check("xyzzy: 1\n", ":1: unknown key \"xyzzy\"; the keys are the flags of `knarr up`, `server` and `agent`");
    check(
        "config: /etc/other.yaml\n",
        ":1: unknown key \"config\"; the keys are the flags of `knarr up`, `server` and `agent`",
    );
    check("static-pods: maybe\n", ":1: static-pods: use true or false");
    check("nodes: 1\nnode-name: [a, b]\n", ":2: node-name: the flag takes one value, not a list");
    check("node-name: {a: b}\n", ":1: node-name: use a text, a number or a list of them");
    check("nodes: 1\nnodes: 2\n", " is invalid: line 2: key \"nodes\" already set in map");
    check("- nodes\n", " is invalid: the file must be a mapping from flags to values");
    check("nodes: 1\n---\nnodes: 2\n", " is invalid: the file has more than one document");
}

#[test]
fn file_with_a_token_must_be_readable_only_by_its_owner() {
    let dir = directory(&[("config.yaml", "server: https://192.0.2.1:6443\ntoken: secret\n")]);
    let file = dir.path().join("config.yaml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let error = configured(&crate::cli(), &file).unwrap_err().to_string();
    assert!(error.contains(":2: other users can read token; run `chmod 600"), "{error}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(configured(&crate::cli(), &file).unwrap().len(), 2);
}

#[test]
fn file_that_other_users_can_change_is_rejected() {
    let dir = directory(&[("config.yaml", "nodes: 2\n"), ("config.d/a.yaml", "nodes: 3\n")]);
    let (file, drop_in) = (dir.path().join("config.yaml"), dir.path().join(DROP_INS).join("a.yaml"));
    for writable in [&file, &drop_in] {
        fs::set_permissions(writable, fs::Permissions::from_mode(0o666)).unwrap();
        let error = configured(&crate::cli(), &file).unwrap_err().to_string();
        assert!(error.contains(writable.to_str().unwrap()) && error.contains("run `chmod go-w`"), "{error}");
        fs::set_permissions(writable, fs::Permissions::from_mode(0o644)).unwrap();
    }
    assert_eq!(configured(&crate::cli(), &file).unwrap().len(), 1);
}

#[test]
fn named_file_must_exist_be_regular_and_small() {
    let cli = crate::cli();
    let dir = directory(&[("large.yaml", &"#".repeat(2 << 20))]);
    let check = |name: &str, expect: &str| {
        let error = format!("{:#}", configured(&cli, &dir.path().join(name)).unwrap_err());
        assert!(error.contains(expect), "{error}");
    };
    check("absent.yaml", "failed to read");
    check(DROP_INS, "is not a regular file");
    check("large.yaml", "is larger than 1048576 bytes");
    assert!(configured(&cli, Path::new("")).unwrap().is_empty());
}

#[test]
fn other_commands_use_only_the_data_directory() {
    let dir = directory(&[("config.yaml", "data-dir: /srv/knarr\nnodes: 3\n")]);
    let file = dir.path().join("config.yaml");
    let cli = crate::cli();
    let args = |typed: &[&str]| typed.iter().map(OsString::from).collect::<Vec<_>>();
    let settings = configured(&cli, &file).unwrap();
    let (path, at) = subcommand(&cli, &args(&["knarr", "token", "create"]));
    let completed = insert(&path, args(&["knarr", "token", "create"]), at, shared_by_all(settings));
    assert_eq!(completed.args, args(&["knarr", "token", "create", "--data-dir=/srv/knarr"]));
}

#[test]
fn configuration_file_is_named_by_the_flag() {
    let check = |typed: &[&str], expect: &str| {
        assert_eq!(file_path(&typed.iter().map(OsString::from).collect::<Vec<_>>()), Path::new(expect));
    };
    check(&["--config", "/a.yaml"], "/a.yaml");
    check(&["--nodes=2", "--config=/b.yaml"], "/b.yaml");
}
