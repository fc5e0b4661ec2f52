//! ServiceAccount: sets the service account of a pod and mounts its token.

use api::resources::{PODS, SERVICE_ACCOUNTS};
use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{Object, Value, value};

use super::pods::{containers, list_mut, references_secrets, spec, spec_mut};
use super::{Attributes, CachedObject, Notes, Operation, Plugin, View};

/// The mount path of the token, the CA of the API server and the namespace.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Prefix of the volume name.
const VOLUME_PREFIX: &str = "kube-api-access-";
/// One hour plus seven seconds, by which upstream recognizes tokens that it extends for old clients.
const EXPIRATION_SECONDS: i64 = 60 * 60 + 7;
const ENFORCE_MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

pub(crate) struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn admit(
        &self,
        attributes: &Attributes<'_>,
        pod: &mut Value,
        view: &dyn View,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        if !attributes.creates(PODS) {
            return Ok(());
        }
        if Pod(pod).is_mirror() {
            return self.validate(attributes, pod, view, notes);
        }
        if spec(pod).text_at(&["serviceAccountName"]).is_empty()
            && let Some(fields) = spec_mut(pod)
        {
            fields.insert("serviceAccountName", "default");
            fields.insert("serviceAccount", "default");
        }
        let account = account_of(attributes, pod, view)?;
        if automounts(pod, &account) {
            mount(pod, attributes.suffix);
        }
        let secrets = account.list_at(&["imagePullSecrets"]);
        if spec(pod).list_at(&["imagePullSecrets"]).is_empty()
            && !secrets.is_empty()
            && let Some(fields) = spec_mut(pod)
        {
            fields.insert("imagePullSecrets", secrets.to_vec());
        }
        self.validate(attributes, pod, view, notes)
    }

    fn validate(&self, attributes: &Attributes<'_>, pod: &Value, view: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !attributes.is(PODS) {
            return Ok(());
        }
        match (attributes.operation, attributes.subresource) {
            (Operation::Create, "") if Pod(pod).is_mirror() => validate_mirror_pod(attributes, pod),
            (Operation::Create, "") => {
                if spec(pod).text_at(&["serviceAccountName"]).is_empty() {
                    let (namespace, name) = (attributes.namespace, Meta::of(pod).name());
                    let message = format!("no service account specified for pod {namespace}/{name}");
                    return Err(attributes.forbidden(pod, message));
                }
                let account = account_of(attributes, pod, view)?;
                limit(attributes, pod, &account, &["initContainers", "containers"])
            }
            (Operation::Update, "ephemeralcontainers") => {
                let account = account_of(attributes, pod, view)?;
                limit(attributes, pod, &account, &["ephemeralContainers"])
            }
            _ => Ok(()),
        }
    }
}

fn account_of(attributes: &Attributes<'_>, pod: &Value, view: &dyn View) -> Result<CachedObject, Status> {
    let (namespace, name) = (attributes.namespace, spec(pod).text_at(&["serviceAccountName"]));
    let missing = || {
        let message = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        attributes.forbidden(pod, message)
    };
    view.object(SERVICE_ACCOUNTS, namespace, name).ok_or_else(missing)
}

/// Whether a token is mounted. The pod's setting takes precedence over the account's; the default is true.
fn automounts(pod: &Value, account: &Value) -> bool {
    let automount = |of: &Value| of.get("automountServiceAccountToken").and_then(Value::as_bool);
    automount(spec(pod)).or_else(|| automount(account)).unwrap_or(true)
}

/// Adds the token volume, and mounts it in containers that have no other mount at its path.
fn mount(pod: &mut Value, suffix: &str) {
    let volumes = spec(pod).list_at(&["volumes"]).iter().map(|volume| volume.text_at(&["name"]));
    let existing = volumes.into_iter().find(|name| name.starts_with(VOLUME_PREFIX)).map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| format!("{VOLUME_PREFIX}{suffix}"));
    let Some(fields) = spec_mut(pod) else { return };
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let listed = fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in listed.filter_map(Value::as_object_mut) {
            needed |= mount_in(container, &name);
        }
    }
    if needed && existing.is_none() {
        list_mut(fields, "volumes").push(volume(&name));
    }
}

fn mount_in(container: &mut Object, name: &str) -> bool {
    let mounts = list_mut(container, "volumeMounts");
    if mounts.iter().any(|mount| mount.text_at(&["mountPath"]) == MOUNT_PATH) {
        return false;
    }
    mounts.push(value!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
    true
}

fn volume(name: &str) -> Value {
    value!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": EXPIRATION_SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{
                    "path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
                }]}}
            ]
        }
    })
}

/// Rejects a mirror pod that references a service account or Secrets, or projects a service account token.
fn validate_mirror_pod(attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
    let spec = spec(pod);
    let volumes = spec.list_at(&["volumes"]);
    let projects_token = |volume: &Value| {
        let sources = volume.get("projected").map(|projected| projected.list_at(&["sources"])).unwrap_or_default();
        sources.iter().any(|source| source.get("serviceAccountToken").is_some())
    };
    let message = if !spec.text_at(&["serviceAccountName"]).is_empty() {
        "a mirror pod may not reference service accounts"
    } else if references_secrets(spec) {
        "a mirror pod may not reference secrets"
    } else if volumes.iter().any(projects_token) {
        "a mirror pod may not use ServiceAccountToken volume projections"
    } else {
        return Ok(());
    };
    Err(attributes.forbidden(pod, message))
}

/// Limits a pod to the account's mountable secrets, if the account enforces that.
fn limit(attributes: &Attributes<'_>, pod: &Value, account: &Value, lists: &[&str]) -> Result<(), Status> {
    let enforced = Meta::of(account).annotation(ENFORCE_MOUNTABLE);
    if !matches!(enforced, Some("1" | "t" | "T" | "true" | "TRUE" | "True")) {
        return Ok(());
    }
    let name = Meta::of(account).name();
    let listed =
        |field: &str, secret: &str| account.list_at(&[field]).iter().any(|have| have.text_at(&["name"]) == secret);
    let forbid = |what: String, secret: &str| {
        let message = format!("{what} is not allowed because service account {name} does not reference that {secret}");
        Err(attributes.forbidden(pod, message))
    };
    for volume in spec(pod).list_at(&["volumes"]).iter().filter(|_| lists.contains(&"containers")) {
        let secret = volume.text_at(&["secret", "secretName"]);
        if volume.get("secret").is_some() && !listed("secrets", secret) {
            return forbid(format!("volume with secret.secretName=\"{secret}\""), "secret");
        }
    }
    for list in lists {
        let kind = match *list {
            "initContainers" => "init container",
            "ephemeralContainers" => "ephemeral container",
            _ => "container",
        };
        for container in containers(spec(pod), &[list]) {
            for variable in container.list_at(&["env"]) {
                let Some(secret) = variable.str_at(&["valueFrom", "secretKeyRef", "name"]) else { continue };
                if !listed("secrets", secret) {
                    let (container, variable) = (container.text_at(&["name"]), variable.text_at(&["name"]));
                    let what =
                        format!("{kind} {container} with envVar {variable} referencing secret.secretName=\"{secret}\"");
                    return forbid(what, "secret");
                }
            }
            for source in container.list_at(&["envFrom"]) {
                let Some(secret) = source.str_at(&["secretRef", "name"]) else { continue };
                if !listed("secrets", secret) {
                    let container = container.text_at(&["name"]);
                    let what = format!("{kind} {container} with envFrom referencing secret.secretName=\"{secret}\"");
                    return forbid(what, "secret");
                }
            }
        }
    }
    let pulls = spec(pod).list_at(&["imagePullSecrets"]).iter().enumerate();
    for (at, pull) in pulls.filter(|_| lists.contains(&"containers")) {
        let secret = pull.text_at(&["name"]);
        if !listed("imagePullSecrets", secret) {
            return forbid(format!("imagePullSecrets[{at}].name=\"{secret}\""), "imagePullSecret");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use apimachinery::json;

    use super::*;
    use crate::testing::{Cluster, attributes};

    fn admitted(account: &str, pod: &str) -> Result<Value, String> {
        let cluster = Cluster::default().with("", "serviceaccounts", account);
        let (kind, user) = (api::core::pod::kind(), auth::User::default());
        let mut pod = json::parse(pod.as_bytes()).unwrap();
        let attributes = attributes(&kind, &user, Operation::Create);
        let verdict = ServiceAccount.admit(&attributes, &mut pod, &cluster, &mut Notes::default());
        verdict.map(|()| pod).map_err(|status| status.message.replacen("pods \"x\" is forbidden: ", "", 1))
    }

    const DEFAULT: &str = r#"{"metadata":{"name":"default","namespace":"n"}}"#;

    #[test]
    fn pod_without_an_account_gets_the_default_one_and_its_token() {
        let pod = admitted(DEFAULT, r#"{"spec":{"containers":[{"name":"c"}]}}"#).unwrap();
        assert_eq!(pod.str_at(&["spec", "serviceAccountName"]), Some("default"));
        assert_eq!(pod["spec"]["volumes"][0]["name"].as_str(), Some("kube-api-access-abcde"));
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"].as_str(), Some(MOUNT_PATH));
    }

    #[test]
    fn token_is_not_mounted_over_another_mount_or_when_automount_is_disabled() {
        let taken = format!(
            r#"{{"spec":{{"containers":[{{"name":"c","volumeMounts":[{{"name":"v","mountPath":"{MOUNT_PATH}"}}]}}]}}}}"#
        );
        assert!(admitted(DEFAULT, &taken).unwrap()["spec"].get("volumes").is_none());
        let declined = r#"{"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c"}]}}"#;
        assert!(admitted(DEFAULT, declined).unwrap()["spec"].get("volumes").is_none());
    }

    #[test]
    fn missing_account_or_an_unlisted_secret_rejects_the_pod() {
        let missing = admitted(DEFAULT, r#"{"spec":{"serviceAccountName":"a"}}"#).unwrap_err();
        assert_eq!(missing, r#"error looking up service account n/a: serviceaccount "a" not found"#);
        let strict = r#"{"metadata":{"name":"default","namespace":"n","annotations":{"kubernetes.io/enforce-mountable-secrets":"true"}}}"#;
        let pod = r#"{"spec":{"containers":[],"volumes":[{"name":"v","secret":{"secretName":"s"}}]}}"#;
        let expect = r#"volume with secret.secretName="s" is not allowed because service account default does not reference that secret"#;
        assert_eq!(admitted(strict, pod).unwrap_err(), expect);
    }

    const STRICT: &str = r#"{"metadata":{"name":"default","namespace":"n","annotations":{"kubernetes.io/enforce-mountable-secrets":"true"}},"secrets":[{"name":"listed"}]}"#;

    #[test]
    fn env_from_may_use_only_the_mountable_secrets_of_its_service_account() {
        let pod = |list: &str, secret: &str| {
            format!(
                r#"{{"spec":{{"containers":[],"{list}":[{{"name":"c","envFrom":[{{"secretRef":{{"name":"{secret}"}}}}]}}]}}}}"#
            )
        };
        for (list, kind) in [("containers", "container"), ("initContainers", "init container")] {
            let expect = format!(
                r#"{kind} c with envFrom referencing secret.secretName="other" is not allowed because service account default does not reference that secret"#
            );
            assert_eq!(admitted(STRICT, &pod(list, "other")).unwrap_err(), expect);
            admitted(STRICT, &pod(list, "listed")).unwrap();
        }
    }

    #[test]
    fn ephemeral_containers_may_use_only_the_mountable_secrets_of_their_service_account() {
        let cluster = Cluster::default().with("", "serviceaccounts", STRICT);
        let (kind, user) = (api::core::pod::kind(), auth::User::default());
        let request = Attributes { subresource: "ephemeralcontainers", ..attributes(&kind, &user, Operation::Update) };
        let validate = |container: &str| {
            let pod = format!(r#"{{"spec":{{"serviceAccountName":"default","ephemeralContainers":[{container}]}}}}"#);
            let pod = json::parse(pod.as_bytes()).unwrap();
            ServiceAccount.validate(&request, &pod, &cluster, &mut Notes::default())
        };
        let env = |secret: &str| {
            format!(r#"{{"name":"c","env":[{{"name":"E","valueFrom":{{"secretKeyRef":{{"name":"{secret}"}}}}}}]}}"#)
        };
        validate(&env("listed")).unwrap();
        assert_eq!(validate(&env("other")).unwrap_err().code, 403);
        assert_eq!(validate(r#"{"name":"c","envFrom":[{"secretRef":{"name":"other"}}]}"#).unwrap_err().code, 403);
    }

    #[test]
    fn mirror_pod_must_not_reference_secrets() {
        let pod = r#"{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"volumes":[{"name":"v","secret":{"secretName":"s"}}]}}"#;
        assert_eq!(admitted(DEFAULT, pod).unwrap_err(), "a mirror pod may not reference secrets");
    }
}
