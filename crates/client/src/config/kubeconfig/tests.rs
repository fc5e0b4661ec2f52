use super::*;

const WHOLE: &str = r"
apiVersion: v1
kind: Config
current-context: dev
clusters:
- name: dev
  cluster:
    server: https://127.0.0.1:6443
    certificate-authority: pki/ca.crt
    tls-server-name: kubernetes
    proxy-url: http://proxy:3128
    extensions:
    - name: client.authentication.k8s.io/exec
      extension: {audience: x}
contexts:
- name: dev
  context: {cluster: dev, user: dev, namespace: team}
- name: plugged
  context: {cluster: dev, user: plugged}
users:
- name: dev
  user:
    client-certificate-data: YQ==
    client-key: /abs/key.pem
    token: t
    tokenFile: token
    as: jane
    as-groups: [a, b]
    as-user-extra: {scopes: [view]}
- name: plugged
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: ./bin/plugin
      args: [get, token]
      env: [{name: A, value: b}]
      interactiveMode: Never
      provideClusterInfo: true
";

fn parse(text: &str) -> Kubeconfig {
    Kubeconfig::parse(text, Path::new("/home/me/.kube/config")).unwrap()
}

#[test]
fn context_combines_cluster_and_user_with_paths_relative_to_the_file() {
    let config = parse(WHOLE).config(None).unwrap();
    assert_eq!(config.server, "https://127.0.0.1:6443");
    assert_eq!(config.namespace, "team");
    assert_eq!(config.tls.certificate_authority, Some(Pem::File("/home/me/.kube/pki/ca.crt".into())));
    assert_eq!(config.tls.server_name.as_deref(), Some("kubernetes"));
    let pair = (Pem::Inline("a".into()), Pem::File("/abs/key.pem".into()));
    assert_eq!(config.tls.client, Some(pair));
    assert_eq!(config.proxy.unwrap(), "http://proxy:3128");
    let Credential::TokenFile { path, fallback } = config.credential else { panic!("a token file") };
    assert_eq!(path, Path::new("/home/me/.kube/token"));
    assert_eq!(fallback.unwrap().reveal(), "t");
    let expect = Impersonate {
        user: "jane".into(),
        uid: String::new(),
        groups: vec!["a".into(), "b".into()],
        extra: vec![("scopes".into(), vec!["view".into()])],
    };
    assert_eq!(config.impersonate, Some(expect));
}

#[test]
fn plugin_gets_the_exec_extension_of_its_cluster() {
    let config = parse(WHOLE).config(Some("plugged")).unwrap();
    let Credential::Exec(exec) = config.credential else { panic!("a plug-in") };
    assert_eq!(exec.command, Path::new("/home/me/.kube/./bin/plugin"));
    assert_eq!(exec.args, ["get", "token"]);
    assert_eq!(exec.env, [("A".to_owned(), "b".to_owned())]);
    assert_eq!(exec.cluster_config.to_string(), r#"{"audience":"x"}"#);
    assert_eq!(exec.interactive, Interactive::Never);
}

#[test]
fn earlier_files_take_precedence() {
    let mut merged = parse(
        "{contexts: [{name: a, context: {cluster: one}}], clusters: [{name: one, cluster: {server: 'https://one'}}]}",
    );
    merged.merge(parse(
        "{current-context: a, clusters: [{name: one, cluster: {server: 'https://two'}}], contexts: [{name: b, context: {}}]}",
    ));
    assert_eq!(merged.config(None).unwrap().server, "https://one/");
    assert_eq!(merged.contexts().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn errors_name_file_and_field() {
    let check = |text: &str, expected: &str| {
        let error = Kubeconfig::parse(text, Path::new("/f")).and_then(|it| it.config(Some("c"))).unwrap_err();
        assert_eq!(error.to_string(), expected, "{text}");
    };
    let with_user = |user: &str| {
        format!(
            "{{clusters: [{{name: k, cluster: {{server: 'https://a'}}}}], \
              contexts: [{{name: c, context: {{cluster: k, user: u}}}}], users: [{{name: u, user: {user}}}]}}"
        )
    };
    let with_cluster = |cluster: &str| {
        format!("{{clusters: [{{name: k, cluster: {cluster}}}], contexts: [{{name: c, context: {{cluster: k}}}}]}}")
    };
    check("[]", "/f: : must be a mapping, is a array");
    check("clusters: 3", "/f: clusters: must be a list, is a number");
    check("clusters: [{}]", "/f: clusters[0].name: is missing");
    check("users: [{name: a}, {name: a}]", "/f: users[1].name: duplicate name \"a\"");
    check("{}", "context \"c\" does not exist");
    check("contexts: [{name: c, context: {cluster: k}}]", "cluster \"k\" does not exist");
    check(&with_cluster("{}"), "/f: clusters[0].cluster.server: is missing");
    check(
        &with_cluster("{server: 'ftp://a'}"),
        "/f: clusters[0].cluster.server: \"ftp://a\" does not start with https:// or http://",
    );
    check(
        &with_cluster("{server: 'https://a', proxy-url: 'socks5://p'}"),
        "/f: clusters[0].cluster.proxy-url: \"socks5://p\" does not start with http://",
    );
    check(
        &with_cluster("{server: 'https://a', insecure-skip-tls-verify: true, certificate-authority: x}"),
        "/f: clusters[0].cluster.insecure-skip-tls-verify: cannot be set together with a certificate authority",
    );
    check(&with_user("{token: 3}"), "/f: users[0].user.token: must be a string, is a number");
    check(&with_user("{client-key: a}"), "/f: users[0].user.client-certificate: is missing");
    check(
        &with_user("{as-groups: [a]}"),
        "/f: users[0].user.as: must be set to act on behalf of a uid, groups or extra",
    );
    check(
        &with_user("{exec: {apiVersion: v1, command: a}}"),
        "/f: users[0].user.exec.apiVersion: \"v1\" is not supported",
    );
    check(
        &with_user("{exec: {apiVersion: client.authentication.k8s.io/v1, command: a}}"),
        "interactiveMode must be specified for u to use exec authentication plugin",
    );
    check("apiVersion: v-1", "no kind \"Config\" is registered for version \"v-1\"");
    check("kind: Pod", "no kind \"Pod\" is registered for version \"v1\"");
    check(
        &with_user("{auth-provider: {name: gcp}}"),
        "/f: users[0].user.auth-provider: was removed from Kubernetes; use exec instead",
    );
    assert!(
        Kubeconfig::parse(&with_user("{client-key-data: '!'}"), Path::new("/f")).unwrap().config(Some("c")).is_err()
    );
}

#[test]
fn secrets_are_not_printed() {
    let rendered = format!("{:?}", parse(WHOLE).config(None).unwrap());
    assert!(!rendered.contains("\"t\""), "{rendered}");
}
