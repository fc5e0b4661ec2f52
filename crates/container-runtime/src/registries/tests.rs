use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;

/// Returns a directory with private files, by name.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = dir.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    dir
}

/// Reads `registries.yaml` and `certs.d` of a directory, as far as they exist.
fn settings(dir: &TempDir) -> Result<Registries, ConfigFileError> {
    let at = |name: &str, default: &str| {
        let path = dir.path().join(name);
        if path.exists() { path } else { default.into() }
    };
    let files =
        RegistryFiles { file: at("registries.yaml", FILE), hosts_dir: at("certs.d", HOSTS_DIR), ..Default::default() };
    read(&files, &mut Files::default())
}

/// Returns the message without the temporary directory.
fn problem(dir: &TempDir) -> String {
    let error = settings(dir).unwrap_err().to_string();
    error.replace(&format!("{}/", dir.path().display()), "")
}

#[test]
fn schemas_of_k3s_and_containerd_are_read() {
    let yaml = "mirrors:\n  docker.io:\n    endpoint: [\"https://a.example\", \"http://b.example:5000/hub\"]\n    \
        rewrite: {\"^library/(.*)\": \"mirror/$1\"}\n  \"*\":\n    endpoint: [c.example]\n  quay.io:\n\
        configs:\n  a.example:\n    auth: {username: me, password: 'secret'}\n    tls: {insecure_skip_verify: true}\n  \
        b.example:5000:\n    auth: {auth: bWU6c2VjcmV0}\n  c.example:\n    auth: {identity_token: secret}\n";
    let toml = "server = 'https://d.example'\n[host.'https://e.example']\ncapabilities = ['pull']\nskip_verify = true\n\
        dial_timeout = '2s'\n[host.'https://e.example'.header]\nx-a = 'b'\nx-c = ['d', 'e']\n";
    let dir = directory(&[("registries.yaml", yaml), ("certs.d/d.example_5000_/hosts.toml", toml)]);
    let found = format!("{:?}", settings(&dir).unwrap());
    for part in ["a.example", "b.example:5000", "/hub", "d.example:5000", "e.example", "Basic(…)", "Identity(…)", "x-c"]
    {
        assert!(found.contains(part), "{part} in {found}");
    }
    assert!(!found.contains("secret") && !found.contains("bWU6"), "{found}");
}

#[test]
fn errors_of_registries_yaml_name_line_key_and_the_nearest_key() {
    let check = |text: &str, expect: &str| {
        let found = problem(&directory(&[("registries.yaml", text)]));
        assert_eq!(found, format!("registries.yaml:{expect}"), "{text}");
        assert!(!found.contains("secret"), "{found}");
    };
    check("mirror: {}\n", "1: unknown key \"mirror\"; did you mean \"mirrors\"?");
    check("auths: {}\n", "1: unknown key \"auths\"; the keys are mirrors, configs");
    check(
        "mirrors:\n  a.example:\n    endpoints: []\n",
        "3: unknown key \"endpoints\" in mirrors.a.example; did you mean \"endpoint\"?",
    );
    check("mirrors:\n  a:\n    endpoint: b\n", "3: mirrors.a.endpoint: use a list");
    check(
        "mirrors:\n  a:\n    endpoint:\n    - https://me:secret@b.example\n",
        "4: mirrors.a.endpoint.0: the URL has a user name or password; credentials belong under `configs`",
    );
    check("mirrors:\n  a:\n    endpoint: ['ftp://b']\n", "3: mirrors.a.endpoint.0: use http:// or https://");
    check(
        "configs:\n  a:\n    auth:\n      user: secret\n",
        "4: unknown key \"user\" in configs.a.auth; did you mean \"username\"?",
    );
    check(
        "configs:\n  a:\n    auth: {username: me}\n",
        "3: configs.a.auth: set `username` and `password`, or `auth`, or `identity_token`",
    );
    check(
        "configs:\n  a:\n    auth: {username: me, password: 123}\n",
        "3: configs.a.auth.password: use a text; write the value in quotes",
    );
    check("configs:\n  a:\n    auth: {auth: secret}\n", "3: configs.a.auth.auth: use the base64 form of USER:PASSWORD");
    check(
        "configs:\n  '*':\n    auth: {auth: bWU6c2VjcmV0}\n",
        "3: configs.*.auth: credentials belong to one host; list it under `configs`",
    );
    check(
        "configs:\n  https://a/v2:\n    tls: {}\n",
        "2: configs.https://a/v2: the key is not a host such as registry.example.com:5000",
    );
    check(
        "configs:\n  a:\n    tls: {insecure_skip_verify: yes}\n",
        "3: configs.a.tls.insecure_skip_verify: use true or false",
    );
    check("configs:\n  a:\n    tls: {cert_file: a}\n", "3: configs.a.tls: set both `cert_file` and `key_file`");
    let rewrite = problem(&directory(&[("registries.yaml", "mirrors:\n  a:\n    rewrite:\n      '(': b\n")]));
    assert!(
        rewrite.starts_with("registries.yaml:4: mirrors.a.rewrite.(: the key is not a regular expression"),
        "{rewrite}"
    );
}

#[test]
fn errors_of_hosts_toml_name_line_and_key() {
    let check = |text: &str, expect: &str| {
        let found = problem(&directory(&[("certs.d/a.example/hosts.toml", text)]));
        assert_eq!(found, format!("certs.d/a.example/hosts.toml:{expect}"), "{text}");
    };
    check("servers = 'a'\n", "1: unknown key \"servers\"; did you mean \"server\"?");
    check(
        "[host.'https://b']\nskip-verify = true\n",
        "2: unknown key \"skip-verify\" in host.https://b; did you mean \"skip_verify\"?",
    );
    check(
        "\n[host.'https://b']\ncapabilities = ['pull', 'walk']\n",
        "3: host.https://b.capabilities.1: use pull, resolve, push or referrers",
    );
    check("[host.'ftp://b']\n", "1: host.ftp://b: use http:// or https://");
    check("override_path = true\n", "1: override_path: set `server` too");
    check("client = ['a', 'b']\n", "1: client: only one client certificate is supported");
    check("server = 'https://a'\ndial_timeout = 'soon'\n", "2: dial_timeout: use a duration such as 5s");
}

#[test]
fn files_with_secrets_must_be_private() {
    let open = |dir: &TempDir, name: &str| {
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o644)).unwrap();
        problem(dir)
    };
    let dir = directory(&[("registries.yaml", "configs:\n  a:\n    auth: {username: me, password: secret}\n")]);
    let found = open(&dir, "registries.yaml");
    assert!(found.starts_with("registries.yaml:3: other users can read configs.a.auth; run `chmod 600"), "{found}");
    let name = "certs.d/a/hosts.toml";
    let dir = directory(&[(name, "server = 'https://a'\n[header]\nAuthorization = 'Basic secret'\n")]);
    let found = open(&dir, name);
    assert!(found.contains("hosts.toml:3: other users can read header.Authorization"), "{found}");
    let dir = directory(&[("registries.yaml", "mirrors:\n  a:\n    endpoint: [b.example]\n")]);
    fs::set_permissions(dir.path().join("registries.yaml"), fs::Permissions::from_mode(0o644)).unwrap();
    settings(&dir).unwrap();
}

#[test]
fn certificates_and_keys_are_checked_when_they_are_read() {
    let certified = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    let (certificate, key) = (certificate.as_str(), key.as_str());
    let yaml =
        "configs:\n  a.example:\n    tls:\n      ca_file: ca.pem\n      cert_file: c.pem\n      key_file: k.pem\n";
    let files = [("registries.yaml", yaml), ("ca.pem", certificate), ("c.pem", certificate), ("k.pem", key)];
    let dir = directory(&files);
    settings(&dir).unwrap();
    fs::set_permissions(dir.path().join("k.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    let found = problem(&dir);
    assert_eq!(
        found,
        "registries.yaml:6: configs.a.example.tls.key_file: other users can read the key k.pem; run `chmod 600 k.pem`"
    );
    fs::write(dir.path().join("ca.pem"), "none").unwrap();
    assert_eq!(
        problem(&dir),
        "registries.yaml:4: configs.a.example.tls.ca_file: ca.pem: the file has no PEM certificate"
    );
    fs::remove_file(dir.path().join("ca.pem")).unwrap();
    assert!(problem(&dir).contains("ca_file: failed to read ca.pem"), "{}", problem(&dir));
    let docker = [("certs.d/a/ca.crt", certificate), ("certs.d/a/me.cert", certificate), ("certs.d/a/me.key", key)];
    let found = format!("{:?}", settings(&directory(&docker)).unwrap());
    assert!(found.contains("Tls { ca: 1, identity: true, skip_verify: false }"), "{found}");
}

#[test]
fn only_default_files_may_be_missing() {
    let dir = tempfile::tempdir().unwrap();
    let missing = RegistryFiles { file: dir.path().join("registries.yaml"), ..Default::default() };
    let error = read(&missing, &mut Files::default()).unwrap_err().to_string();
    assert!(error.starts_with("failed to read "), "{error}");
}
