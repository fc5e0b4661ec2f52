use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use apimachinery::{Value, value};
use tempfile::TempDir;

use super::*;

const IMAGE: &str = "r.example/team/app:1";

/// Returns a directory with a configuration and a plugin, which appends its request to the file `requests`.
fn plugin(script: &str, more: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    let file = dir.path().join("plugin");
    fs::write(&file, format!("#!/bin/sh\ncat >> {at}/requests; echo >> {at}/requests\n{script}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    write_config(dir.path(), more);
    dir
}

fn write_config(dir: &Path, more: &str) {
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: plugin\n  \
         matchImages: ['*.example']\n  defaultCacheDuration: 1h\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n{more}"
    );
    fs::write(dir.join("config.yaml"), text).unwrap();
    fs::set_permissions(dir.join("config.yaml"), fs::Permissions::from_mode(0o644)).unwrap();
}

fn read(dir: &TempDir) -> Result<Vec<ProviderConfig>, String> {
    let read = config::read(&dir.path().join("config.yaml"), dir.path());
    read.map_err(|error| error.to_string().replace(&format!("{}/", dir.path().display()), ""))
}

fn providers(dir: &TempDir) -> Providers {
    let client = crate::standalone::client(client::Settings::default()).unwrap();
    Providers::new(client, &read(dir).unwrap())
}

fn requests(dir: &TempDir) -> Vec<String> {
    let text = fs::read_to_string(dir.path().join("requests")).unwrap_or_default();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn answer(fields: &str) -> String {
    format!(
        "echo '{{\"kind\": \"CredentialProviderResponse\", \"apiVersion\": \"credentialprovider.kubelet.k8s.io/v1\", {fields}}}'"
    )
}

fn pod() -> Value {
    value!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}})
}

async fn users(providers: &Providers, image: &str) -> Vec<String> {
    let credentials = providers.credentials(image, Pod(&pod())).await;
    credentials
        .into_iter()
        .map(|credential| format!("{}:{}", credential.auth.username, credential.auth.password))
        .collect()
}

#[tokio::test]
async fn plugin_gets_a_request_and_its_credentials_are_used_for_the_images_that_they_match() {
    let auth = r#""cacheKeyType": "Registry", "auth": {"r.example": {"username": "wide", "password": "$SECRET"},
        "r.example/team": {"username": "team", "password": "two"}, "other.example": {"username": "x", "password": "y"}}"#;
    let script = format!("test \"$*\" = 'get --now' || exit 3\n{}", answer(auth).replace("$SECRET", "'$SECRET'"));
    let dir = plugin(&script, "  args: [get, --now]\n  env: [{name: SECRET, value: one}]\n");
    let providers = providers(&dir);
    assert_eq!(users(&providers, IMAGE).await, ["team:two", "wide:one"]);
    let expect = r#"{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"r.example/team/app"}"#;
    let sorted = |text: &str| apimachinery::json::parse(text.as_bytes()).unwrap();
    assert_eq!(sorted(&requests(&dir)[0]), sorted(expect));
    assert_eq!(users(&providers, "r.example/other").await, ["wide:one"], "cached for the registry");
    assert_eq!(requests(&dir).len(), 1);
    assert!(users(&providers, "r.elsewhere/app").await.is_empty());
    assert_eq!(requests(&dir).len(), 1, "no plugin matches the image");
}

#[tokio::test]
async fn concurrent_requests_for_an_image_share_one_call_without_a_cache() {
    let auth = answer(
        r#""cacheKeyType": "Image", "cacheDuration": "0s", "auth": {"r.example": {"username": "a", "password": "b"}}"#,
    );
    // The call does not end before all have asked, as long as one call is enough.
    let dir = plugin(&format!("while [ ! -e \"$0.go\" ]; do :; done\n{auth}"), "");
    let providers = providers(&dir);
    let go = async {
        while requests(&dir).is_empty() {
            tokio::task::yield_now().await;
        }
        fs::write(dir.path().join("plugin.go"), "").unwrap();
    };
    let (one, two, three, ()) =
        tokio::join!(users(&providers, IMAGE), users(&providers, IMAGE), users(&providers, IMAGE), go);
    assert_eq!([one, two, three], [["a:b"], ["a:b"], ["a:b"]]);
    assert_eq!(requests(&dir).len(), 1);
    assert_eq!(users(&providers, IMAGE).await, ["a:b"]);
    assert_eq!(requests(&dir).len(), 2, "a duration of zero means that the response is not cached");
}

#[tokio::test]
async fn failures_of_a_plugin_give_no_credentials_and_are_not_cached() {
    let check = async |script: &str, expect: &str| {
        let dir = plugin(script, "");
        let configs = read(&dir).unwrap();
        let request = Request { image: "r.example/a", token: None, annotations: None };
        let error = exec::run(&configs[0], &request).await.unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
        let providers = providers(&dir);
        assert!(users(&providers, IMAGE).await.is_empty() && users(&providers, IMAGE).await.is_empty());
        assert_eq!(requests(&dir).len(), 3, "{script}");
    };
    check("echo no >&2; exit 1", "exit status: 1: no").await;
    check("head -c 2000000 /dev/zero", "larger than 1048576 bytes").await;
    check("echo secret", "is not valid JSON").await;
}

#[test]
fn errors_of_the_configuration_name_line_and_key() {
    let check = |more: &str, expect: &str| {
        let dir = plugin("", more);
        assert_eq!(read(&dir).unwrap_err(), format!("config.yaml:{expect}"), "{more}");
    };
    check("  matchImage: []\n", "8: unknown key \"matchImage\" in providers.0; did you mean \"matchImages\"?");
    check("  args: x\n", "8: providers.0.args: use a list");
    check("  env: [{name: A}]\n", "8: providers.0.env.0: value is missing");
    let token = "  tokenAttributes:\n    serviceAccountTokenAudience: a\n    requireServiceAccount: false\n";
    check(token, "8: providers.0.tokenAttributes: cacheType is missing");
    check(
        &format!("{token}    cacheType: Pod\n"),
        "11: providers.0.tokenAttributes.cacheType: use ServiceAccount or Token",
    );
    check(
        &format!("{token}    cacheType: Token\n    requiredServiceAccountAnnotationKeys: [a.example/b]\n"),
        "8: providers.0.tokenAttributes: requiredServiceAccountAnnotationKeys needs requireServiceAccount: true",
    );
    check("- name: plugin\n", "8: providers.1: apiVersion is missing");
    check("- name: a/b\n", "8: providers.1.name: use the name of an executable, without `/` and spaces");
    check("- name: absent\n", "8: providers.1.name: absent is not an executable file");
    let twice = "- {name: plugin, matchImages: [a], defaultCacheDuration: 0s, apiVersion: credentialprovider.kubelet.k8s.io/v1}\n";
    check(twice, "8: providers.1: another provider has the name plugin");
    let dir = plugin("", "");
    fs::write(dir.path().join("config.yaml"), "kind: Config\n").unwrap();
    assert_eq!(read(&dir).unwrap_err(), "config.yaml:1: kind: use CredentialProviderConfig");
}
