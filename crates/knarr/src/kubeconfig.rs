//! `knarr kubeconfig`: a kubeconfig for the cluster of this host, with the administrator's or a new client certificate.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use apimachinery::{Object, Value, value, yaml};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::{ArgMatches, Args, FromArgMatches};
use kubectl::Failure;
use kubectl::kubeconfig::{Entry, Files, Kubeconfig, Section};
use pki::{Pki, Subject};

use crate::component;
use crate::output::{out, outln};

/// Print a kubeconfig for the cluster on this host, or merge it into another one.
#[derive(Args, Debug, Default)]
struct KubeconfigArgs {
    /// Data directory of the cluster.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// User of a new client certificate [default: the administrator, with the existing certificate].
    #[arg(long)]
    user: Option<String>,
    /// Group of the user.
    #[arg(long, requires = "user")]
    group: Option<String>,
    /// Lifetime of the new certificate. It cannot be revoked.
    #[arg(long, requires = "user", default_value = "8760h", value_parser = component::duration)]
    ttl: Duration,
    /// Name of the context [default: the name of the cluster, or that of the user and the cluster].
    #[arg(long)]
    context: Option<String>,
    /// URL or host of the API server, for use on other hosts [default: that of the administrator on this host].
    #[arg(long)]
    server: Option<String>,
    /// Merge into a kubeconfig file and set its current context, instead of printing.
    #[arg(long)]
    merge: bool,
    /// File to merge into [default: the first one of KUBECONFIG, or ~/.kube/config].
    #[arg(long, requires = "merge")]
    file: Option<PathBuf>,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    KubeconfigArgs::augment_args(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let args = KubeconfigArgs::from_arg_matches(matches)?;
    let dir = args.data_dir.display();
    let file = args.data_dir.join("admin.kubeconfig");
    ensure!(
        file.is_file(),
        "{dir} has no cluster with an API server; start one with `knarr up`, or run this command on a server"
    );
    let admin = load(&file).with_context(|| format!("failed to read {}; run this command as root", file.display()))?;
    let identity = args.user.as_deref().map(|user| identity(&args, user)).transpose()?;
    let server = args.server.as_deref().map(|server| checked_server(&args.data_dir, &admin, server)).transpose()?;
    let made = compose(&admin, identity, server, args.context)?;
    if !args.merge {
        out!("{}", text(&made));
        return Ok(());
    }
    let target = args.file.or_else(default_file).context("HOME is not set; name the file with --file")?;
    merge(&made, &target)?;
    outln!("context {:?} is in {} and is its current context", made.current_context, target.display());
    Ok(())
}

fn load(file: &Path) -> Result<Kubeconfig> {
    Files { files: vec![file.to_owned()], explicit: true }.load().map_err(error_of)
}

fn error_of(failure: Failure) -> anyhow::Error {
    anyhow::Error::msg(failure.message)
}

/// A user with the fields of the kubeconfig that authenticate it.
struct Identity {
    user: String,
    fields: Object,
}

/// Issues a client certificate. Only servers have the key of the CA.
fn identity(args: &KubeconfigArgs, user: &str) -> Result<Identity> {
    ensure!(!user.is_empty(), "--user is empty");
    let pki = Pki::at(&args.data_dir.join("pki"));
    let subject = Subject::client("", user, args.group.as_deref().unwrap_or_default());
    let issued = pki.issue(&subject, SystemTime::now(), args.ttl);
    let (certificate, key) = issued.with_context(|| format!("failed to issue a certificate for {user}"))?;
    let fields = [
        ("client-certificate-data", Value::from(BASE64.encode(certificate))),
        ("client-key-data", Value::from(BASE64.encode(key))),
    ];
    Ok(Identity { user: user.to_owned(), fields: fields.into_iter().collect() })
}

/// Completes a server's URL and checks that the certificate of the API server is valid for its host.
fn checked_server(data_dir: &Path, admin: &Kubeconfig, server: &str) -> Result<String> {
    let known = used(admin, Section::Clusters)?.1.fields.get("server").and_then(Value::as_str).unwrap_or_default();
    let (url, host) = completed_url(server, known)?;
    let certificate = Pki::at(&data_dir.join("pki")).certificate_of("apiserver");
    if let Some(seen) = certificate
        && !seen.names.iter().any(|name| covers(name, &host))
    {
        bail!(
            "the certificate of the API server is not valid for {host}: start the cluster with `--tls-san {host}`; it is valid for {}",
            seen.names.join(", ")
        );
    }
    Ok(url)
}

/// Returns the URL of a server with scheme and port, and its host. `known` is another URL of the server.
fn completed_url(server: &str, known: &str) -> Result<(String, String)> {
    let wrong = || format!("--server {server:?} is neither a URL such as https://HOST:6443 nor a host");
    // An IPv6 address without brackets is not a valid authority.
    let authority = match server.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => server.to_owned(),
    };
    let full = if server.contains("://") { authority } else { format!("https://{authority}") };
    let uri: http::Uri = full.parse().with_context(wrong)?;
    ensure!(uri.scheme_str() == Some("https"), "--server {server:?}: the API server serves https only");
    let host = uri.host().with_context(wrong)?.to_owned();
    let known_port = known.parse::<http::Uri>().ok().and_then(|uri| uri.port_u16()).unwrap_or(443);
    let port = uri.port_u16().unwrap_or(known_port);
    let path = uri.path().trim_end_matches('/');
    let name = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    Ok((format!("https://{host}:{port}{path}"), name))
}

/// Whether a subject alternative name covers a host.
fn covers(name: &str, host: &str) -> bool {
    match (name.strip_prefix("*."), host.split_once('.')) {
        (Some(parent), Some((label, rest))) => !label.is_empty() && parent.eq_ignore_ascii_case(rest),
        (Some(_), None) => false,
        (None, _) => name.eq_ignore_ascii_case(host),
    }
}

/// Returns the entry that the current context uses, with its name.
fn used(config: &Kubeconfig, section: Section) -> Result<(String, &Entry)> {
    let context = config.contexts.get(&config.current_context).context("the kubeconfig has no current context")?;
    let name = context.fields.get(section.key()).and_then(Value::as_str).unwrap_or_default();
    let entry = config.entries(section).get(name);
    Ok((name.to_owned(), entry.with_context(|| format!("the kubeconfig has no {} {name:?}", section.key()))?))
}

/// Returns a kubeconfig with one cluster, user and context. Users carry the name of the cluster, so that kubeconfigs of
/// several clusters can be merged.
fn compose(
    admin: &Kubeconfig,
    identity: Option<Identity>,
    server: Option<String>,
    context: Option<String>,
) -> Result<Kubeconfig> {
    let (cluster, entry) = used(admin, Section::Clusters)?;
    let (user, credentials) = used(admin, Section::Users)?;
    let mut cluster_fields = entry.fields.clone();
    if let Some(server) = server {
        cluster_fields.insert("server", server);
    }
    let (user, user_fields, default_context) = match identity {
        Some(Identity { user, fields }) => (format!("{user}@{cluster}"), fields, format!("{user}@{cluster}")),
        None => (format!("{user}@{cluster}"), credentials.fields.clone(), cluster.clone()),
    };
    let context = context.unwrap_or(default_context);
    let context_fields: Object = [("cluster", cluster.as_str()), ("user", user.as_str())].into_iter().collect();
    let entry = |fields| Entry { fields, origin: None };
    let mut made = Kubeconfig { current_context: context.clone(), ..Kubeconfig::default() };
    made.clusters.insert(cluster, entry(cluster_fields));
    made.users.insert(user, entry(user_fields));
    made.contexts.insert(context, entry(context_fields));
    Ok(made)
}

fn text(config: &Kubeconfig) -> String {
    let list = |section: Section| -> Value {
        let entries = config.entries(section).iter();
        let item = |(name, entry): (&String, &Entry)| {
            let fields = [("name", Value::from(name.as_str())), (section.key(), Value::from(entry.fields.clone()))];
            Value::Object(fields.into_iter().collect())
        };
        Value::from(entries.map(item).collect::<Vec<_>>())
    };
    yaml::to_string(&value!({
        "apiVersion": "v1", "kind": "Config", "current-context": (config.current_context.as_str()),
        "clusters": (list(Section::Clusters)), "users": (list(Section::Users)), "contexts": (list(Section::Contexts)),
    }))
}

fn default_file() -> Option<PathBuf> {
    let listed = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty());
    let first = listed.and_then(|list| std::env::split_paths(&list).find(|path| !path.as_os_str().is_empty()));
    first.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".kube/config")))
}

/// Merges a kubeconfig into a file and keeps its other entries. The file keeps its owner, also if root merges.
fn merge(made: &Kubeconfig, target: &Path) -> Result<()> {
    let target = &std::path::absolute(target)?;
    let owner = target.ancestors().find_map(|path| std::fs::metadata(path).ok());
    let owner = owner.with_context(|| format!("failed to find the owner of {}", target.display()))?;
    let created: Vec<&Path> = target.ancestors().take_while(|path| !path.exists()).collect();
    let files = Files { files: vec![target.clone()], explicit: false };
    let old = files.load().map_err(error_of).with_context(|| format!("failed to read {}", target.display()))?;
    let new = merged(&old, made).with_context(|| format!("failed to merge into {}", target.display()))?;
    let saved = files.save(&old, &new, false).map_err(error_of);
    saved.with_context(|| format!("failed to write {}", target.display()))?;
    // The file was replaced, so it belongs to the user of this process.
    for path in created.into_iter().chain([target.as_path()]) {
        let found = std::fs::metadata(path)?;
        if (found.uid(), found.gid()) != (owner.uid(), owner.gid()) {
            chown(path, Some(owner.uid()), Some(owner.gid()))
                .with_context(|| format!("failed to change the owner of {}", path.display()))?;
        }
    }
    Ok(())
}

/// Adds the entries of `made`. Entries with the same name are replaced; fails if they belong to another cluster.
fn merged(old: &Kubeconfig, made: &Kubeconfig) -> Result<Kubeconfig> {
    let mut new = old.clone();
    for (name, entry) in &made.clusters {
        // On every host the server has the same loopback address, so the CAs are compared.
        let ca = |entry: &Entry| entry.fields.get("certificate-authority-data").cloned();
        let is_same = |other: &Entry| ca(other) == ca(entry);
        if old.clusters.get(name).is_some_and(|other| !is_same(other)) {
            bail!(
                "it has another cluster with the name {name:?}; remove it with `kubectl config delete-cluster {name}`, \
                 or start this cluster with another --cluster-name"
            );
        }
    }
    for section in Section::ALL {
        for (name, entry) in made.entries(section) {
            let origin = old.entries(section).get(name).and_then(|entry| entry.origin.clone());
            new.entries_mut(section).insert(name.clone(), Entry { origin, ..entry.clone() });
        }
    }
    new.current_context.clone_from(&made.current_context);
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the kubeconfig of the administrator of a new cluster, and its data directory.
    fn cluster(name: &str) -> (tempfile::TempDir, Kubeconfig) {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(&dir.path().join("pki")).unwrap();
        let now = SystemTime::now();
        let pair = pki.certificate(&Subject::client("admin", "kubernetes-admin", "system:masters"), now).unwrap();
        let server = Subject {
            usage: pki::Usage::Server,
            names: vec!["localhost".to_owned(), "192.0.2.1".to_owned(), "*.example.com".to_owned()],
            ..Subject::client("apiserver", "kube-apiserver", "")
        };
        pki.certificate(&server, now).unwrap();
        let file = dir.path().join("admin.kubeconfig");
        pki::kubeconfig(&pki, &file, name, "https://127.0.0.1:7443", "kubernetes-admin", &pair).unwrap();
        let admin = load(&file).unwrap();
        (dir, admin)
    }

    #[test]
    fn names_of_clusters_users_and_contexts_carry_the_name_of_the_cluster() {
        let (_dir, admin) = cluster("prod");
        let made = compose(&admin, None, None, None).unwrap();
        let names = |entries: &kubectl::kubeconfig::Entries| entries.keys().cloned().collect::<Vec<_>>().join(" ");
        let check = |made: &Kubeconfig, expect: [&str; 4]| {
            let found = [&made.clusters, &made.users, &made.contexts].map(names);
            assert_eq!([found[0].as_str(), &found[1], &found[2], &made.current_context], expect);
        };
        check(&made, ["prod", "kubernetes-admin@prod", "prod", "prod"]);
        let jane = || Some(Identity { user: "jane".to_owned(), fields: Object::new() });
        check(&compose(&admin, jane(), None, None).unwrap(), ["prod", "jane@prod", "jane@prod", "jane@prod"]);
        check(&compose(&admin, jane(), None, Some("c".to_owned())).unwrap(), ["prod", "jane@prod", "c", "c"]);
        let text = text(&made);
        assert!(text.contains("\n    server: https://127.0.0.1:7443\n"), "{text}");
    }

    #[test]
    fn servers_are_completed_and_must_be_in_the_certificate() {
        let (dir, admin) = cluster("knarr");
        let check = |server: &str| checked_server(dir.path(), &admin, server).map_err(|error| error.to_string());
        assert_eq!(check("192.0.2.1").unwrap(), "https://192.0.2.1:7443");
        assert_eq!(check("https://api.example.com").unwrap(), "https://api.example.com:7443");
        assert_eq!(check("https://API.example.com:443/").unwrap(), "https://API.example.com:443");
        for server in ["a.b.example.com", "example.com", "192.0.2.2", "2001:db8::1"] {
            let error = check(server).unwrap_err();
            assert!(
                error.contains(&format!("`--tls-san {server}`")) && error.contains("valid for localhost"),
                "{error}"
            );
        }
        assert!(check("http://192.0.2.1").unwrap_err().contains("https only"));
        assert!(check("https://").unwrap_err().contains("neither a URL"));
    }

    #[test]
    fn new_certificate_has_user_and_group_and_expires() {
        let (dir, _) = cluster("knarr");
        let args = KubeconfigArgs {
            data_dir: dir.path().to_owned(),
            group: Some("dev".to_owned()),
            ttl: Duration::from_secs(3600),
            ..KubeconfigArgs::default()
        };
        let Identity { fields, .. } = identity(&args, "jane").unwrap();
        let file = dir.path().join("jane.crt");
        let data = fields.get("client-certificate-data").and_then(Value::as_str).unwrap();
        std::fs::write(&file, BASE64.decode(data).unwrap()).unwrap();
        let seen = pki::seen(&file).unwrap();
        assert_eq!((seen.common_name.as_str(), seen.organization.as_str()), ("jane", "dev"));
        assert!(seen.not_after <= SystemTime::now() + Duration::from_secs(3600));
        std::fs::remove_file(dir.path().join("pki/ca.key")).unwrap();
        let error = identity(&args, "jane").err().unwrap();
        assert!(format!("{error:#}").contains("ca.key"), "{error:#}");
    }

    #[test]
    fn merge_keeps_other_entries_and_refuses_another_cluster_of_the_same_name() {
        let (dir, admin) = cluster("prod");
        let target = dir.path().join("home/.kube/config");
        let made = compose(&admin, None, None, None).unwrap();
        merge(&made, &target).unwrap();
        let (_other_dir, other) = cluster("test");
        merge(&compose(&other, None, None, None).unwrap(), &target).unwrap();
        // Again, with another context.
        merge(
            &compose(&admin, None, Some("https://192.0.2.1:7443".to_owned()), Some("p".to_owned())).unwrap(),
            &target,
        )
        .unwrap();
        let found = load(&target).unwrap();
        assert_eq!(found.contexts.keys().collect::<Vec<_>>(), ["p", "prod", "test"]);
        assert_eq!(found.current_context, "p");
        assert_eq!(found.clusters["prod"].fields.get("server").unwrap().as_str(), Some("https://192.0.2.1:7443"));
        let (_impostor_dir, impostor) = cluster("prod");
        let error = merge(&compose(&impostor, None, None, None).unwrap(), &target).unwrap_err();
        assert!(format!("{error:#}").contains("another cluster with the name \"prod\""), "{error:#}");
        assert_eq!(load(&target).unwrap(), found);
    }
}
