//! Registry settings and credential providers: mirrors, TLS, passwords and tokens, with real pods.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use apimachinery::{Resource, Value, value};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::cluster::*;
use crate::registry::{LAYER, Registry};

/// The password of the user `me`.
const PASSWORD: &str = "Tr0ub4dor";
/// User and password, as HTTP sends them.
const LOGIN: &str = "Basic bWU6VHIwdWI0ZG9y";

static ACCOUNTS: Resource = Resource::namespaced("", "v1", "serviceaccounts", "ServiceAccount");
static ROLES: Resource = Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole");
static BINDINGS: Resource =
    Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding");

/// Adds an image with a static busybox.
fn add_image(registry: &mut Registry, repository: &str) {
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_path_with_name("/bin/busybox", "bin/busybox").unwrap();
    let tar = tar.into_inner().unwrap();
    registry.add_image(repository, LAYER, tar.clone(), &tar);
}

fn runs(name: &str, image: &str) -> Value {
    let mut pod = pod(name, "");
    set_container(&mut pod, "image", image);
    set_container(&mut pod, "command", value!(["/bin/busybox", "sleep", "1000"]));
    pod
}

/// Writes a file that only its owner can read.
fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Returns a CA, and the TLS settings of a registry with a certificate of it.
fn tls() -> (String, Arc<ServerConfig>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
    (ca.pem(), Arc::new(config))
}

#[tokio::test(flavor = "multi_thread")]
async fn registries_yaml_gives_mirrors_tls_and_passwords_and_is_read_again_when_it_changes() {
    let start = cluster_without_kubelet().await;
    assert!(!start.is_on_containerd(), "containerd has its own registry settings");
    let (ca, tls) = tls();
    let mut registry = Registry {
        tls: Some(tls),
        tokens: true,
        token_authorization: Some(LOGIN),
        authorization: Some("Bearer given"),
        ..Registry::default()
    };
    for image in ["one", "two", "three"] {
        add_image(&mut registry, &format!("mirrored/{image}"));
    }
    let address = registry.start();
    let broken = Registry { fails: true, ..Registry::default() }.start();
    let file = start.machine.path("registries.yaml");
    fs::write(start.machine.path("ca.crt"), ca).unwrap();
    let settings = |password: &str| {
        format!(
            "mirrors:\n  registry.invalid:\n    endpoint: [\"http://{broken}\", \"https://{address}\"]\n    \
             rewrite: {{\"^team/(.*)$\": \"mirrored/$1\"}}\nconfigs:\n  {address}:\n    \
             auth: {{username: me, password: {password}}}\n    tls: {{ca_file: ca.crt}}\n"
        )
    };
    write(&file, &settings(PASSWORD));
    let cluster = start.kubelet(&["--private-registry", file.to_str().unwrap()], "");
    cluster.run(&runs("one", "registry.invalid/team/one:1"), "ready", is_ready).await;

    write(&file, "mirrors: [\n");
    cluster.run(&runs("two", "registry.invalid/team/two:1"), "ready", is_ready).await;
    cluster.log_line("failed to reload changed files; keeping the previous contents").await;

    write(&file, &settings("wrong"));
    let image = "registry.invalid/team/three:1";
    cluster.create(&PODS, &runs("three", image)).await;
    let event = format!(
        "Failed: Failed to pull image \"{image}\": cannot pull {image}: {broken}: 503 Service Unavailable; \
        {address}: 401 Unauthorized; the credentials were rejected: check `auth` of {address} in registries.yaml; \
        registry.invalid: "
    );
    cluster.event(&event).await;
    write(&file, &settings(PASSWORD));
    cluster.wait(&PODS, "three", "ready", is_ready).await;
    assert!(!cluster.machine.log.lock().unwrap().contains(PASSWORD), "no password is logged");
    cluster.finish().await;
}

/// Writes the configuration of a credential provider and the provider, which appends its requests to a file.
fn write_provider(dir: &Path, host: &str) {
    let auth = format!("{{\"{host}\": {{\"username\": \"me\", \"password\": \"{PASSWORD}\"}}}}");
    let script = format!(
        "#!/bin/sh\nrequest=$(cat)\necho \"$request\" >> {0}/requests\n\
         case $request in *'\"serviceAccountToken\":\"ey'*) ;; *) echo no token >&2; exit 1;; esac\n\
         echo '{{\"kind\": \"CredentialProviderResponse\", \"apiVersion\": \"credentialprovider.kubelet.k8s.io/v1\", \
         \"cacheKeyType\": \"Registry\", \"auth\": {auth}}}'\n",
        dir.display()
    );
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("provider"), script).unwrap();
    fs::set_permissions(dir.join("provider"), fs::Permissions::from_mode(0o755)).unwrap();
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: provider\n  \
         matchImages: ['{host}']\n  defaultCacheDuration: 10m\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  \
         tokenAttributes:\n    serviceAccountTokenAudience: registry.test\n    cacheType: ServiceAccount\n    \
         requireServiceAccount: true\n    requiredServiceAccountAnnotationKeys: [registry.test/role]\n"
    );
    write(&dir.join("config.yaml"), &config);
}

#[tokio::test(flavor = "multi_thread")]
async fn credential_provider_gets_a_token_of_the_service_account_and_its_password_pulls_the_image() {
    let start = cluster_without_kubelet().await;
    let mut registry = Registry { authorization: Some(LOGIN), ..Registry::default() };
    add_image(&mut registry, "private/one");
    add_image(&mut registry, "private/two");
    let host = registry.start();
    let dir = start.machine.path("providers");
    write_provider(&dir, &host);
    let (config, dir_flag) = (dir.join("config.yaml"), dir.to_str().unwrap().to_owned());
    let flags = [
        "--image-credential-provider-config",
        config.to_str().unwrap(),
        "--image-credential-provider-bin-dir",
        &dir_flag,
    ];
    let cluster = start.kubelet(&flags, "");
    cluster
        .create(
            &ACCOUNTS,
            &value!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "puller",
            "namespace": "default", "annotations": {"registry.test/role": "reader"}}}),
        )
        .await;
    // Nodes may request only audiences that they are allowed to.
    cluster
        .create(
            &ROLES,
            &value!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "audience"}, "rules": [{"apiGroups": [""], "resources": ["registry.test"],
            "verbs": ["request-serviceaccounts-token-audience"]}]}),
        )
        .await;
    cluster
        .create(
            &BINDINGS,
            &value!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "audience"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "audience"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]}),
        )
        .await;
    let with_account = |name: &str, image: &str| {
        let mut pod = runs(name, image);
        set(&mut pod, "serviceAccountName", "puller");
        pod
    };
    let (one, two) = (format!("{host}/private/one:1"), format!("{host}/private/two:1"));
    cluster.run(&with_account("one", &one), "ready", is_ready).await;
    cluster.run(&with_account("two", &two), "ready", is_ready).await;
    let requests = fs::read_to_string(dir.join("requests")).unwrap();
    assert_eq!(requests.lines().count(), 1, "the second image uses the cached response of the registry");
    let expect = format!("\"image\":\"{host}/private/one\"");
    assert!(requests.contains(&expect) && requests.contains("\"registry.test/role\":\"reader\""), "{requests}");
    // The image is present, but the default service account did not pull it.
    cluster.create(&PODS, &runs("other", &one)).await;
    cluster.event(&format!("Failed: Failed to pull image \"{one}\": ")).await;
    let mut again = with_account("again", &one);
    set_container(&mut again, "imagePullPolicy", "IfNotPresent");
    cluster.run(&again, "ready", is_ready).await;
    cluster.finish().await;
}

#[test]
fn image_pull_uses_the_registry_settings_and_reports_their_errors() {
    let dir = tempfile::tempdir().unwrap();
    let mut registry = Registry { authorization: Some(LOGIN), ..Registry::default() };
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o644);
    tar.append_data(&mut header, "file", &b"text"[..]).unwrap();
    let tar = tar.into_inner().unwrap();
    registry.add_image("team/app", LAYER, tar.clone(), &tar);
    let address = registry.start();
    let file = dir.path().join("registries.yaml");
    let pull = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_knarr"));
        command.env("KNARR_CONFIG", "").args(["image", "pull", "--data-dir"]).arg(dir.path().join("data"));
        let output =
            command.arg("--private-registry").arg(&file).arg(format!("{address}/team/app:1")).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let settings =
        |password: &str| format!("configs:\n  {address}:\n    auth: {{username: me, password: {password}}}\n");
    write(&file, &settings("wrong"));
    let (ok, error) = pull();
    assert!(!ok && error.contains(&format!("check `auth` of {address} in registries.yaml")), "{error}");
    write(&file, "mirror: {}\n");
    let (ok, error) = pull();
    let expect = format!("{}:1: unknown key \"mirror\"; did you mean \"mirrors\"?", file.display());
    assert!(!ok && error.contains(&expect), "{error}");
    let agent = Command::new(env!("CARGO_BIN_EXE_knarr"))
        .env("KNARR_CONFIG", "")
        .args(["agent", "--server", "https://127.0.0.1:1", "--data-dir"])
        .arg(dir.path().join("cluster"))
        .arg("--private-registry")
        .arg(&file)
        .output()
        .unwrap();
    assert!(!agent.status.success() && String::from_utf8(agent.stderr).unwrap().contains(&expect));
    assert!(!dir.path().join("cluster").exists(), "a start that fails leaves nothing");
    write(&file, &settings(PASSWORD));
    let (ok, error) = pull();
    assert!(ok, "{error}");
}
