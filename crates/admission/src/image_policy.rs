//! ImagePolicyWebhook: builds ImageReviews of pods and evaluates the responses.

use api::resources::PODS;
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::time::Duration;
use apimachinery::{Object, Value, value};

use super::configuration::Error;
use super::pods::spec;
use super::{Attributes, Notes, Operation};

/// The plugin's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Path of the webhook's kubeconfig.
    pub kubeconfig: String,
    /// Time for which an allowed review is cached; `None` disables caching.
    pub allow_ttl: Option<Duration>,
    /// Time for which a denied review is cached; `None` disables caching.
    pub deny_ttl: Option<Duration>,
    /// Whether pods are admitted if the webhook fails.
    pub default_allow: bool,
}

const SECOND: i64 = 1_000_000_000;

impl Config {
    /// Parses the plugin's configuration.
    pub fn of(configuration: &Value) -> Result<Self, Error> {
        let policy = &configuration["imagePolicy"];
        let wrong = |field: &str, problem: String| Error::Field { field: format!("imagePolicy.{field}"), problem };
        let kubeconfig = policy.text_at(&["kubeConfigFile"]);
        if kubeconfig.is_empty() {
            return Err(wrong("kubeConfigFile", "is required".to_owned()));
        }
        let ttl = |field: &str, default: i64| match policy.get(field).and_then(Value::as_int).unwrap_or(0) {
            -1 => Ok(None),
            0 => Ok(Some(Duration::from_nanos(default * SECOND))),
            seconds @ 1..=1800 => Ok(Some(Duration::from_nanos(seconds * SECOND))),
            other => Err(wrong(field, format!("valid value is between 1s and 30m0s, got {other}"))),
        };
        Ok(Self {
            kubeconfig: kubeconfig.to_owned(),
            allow_ttl: ttl("allowTTL", 300)?,
            deny_ttl: ttl("denyTTL", 30)?,
            default_allow: policy.get("defaultAllow").and_then(Value::as_bool).unwrap_or(false),
        })
    }
}

/// Returns the ImageReview of a pod, or `None` if the request does not set images.
pub fn review(attributes: &Attributes<'_>, pod: &Value) -> Option<Value> {
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    if !writes || !attributes.is(PODS) {
        return None;
    }
    let lists: &[&str] = match attributes.subresource {
        "" => &["containers", "initContainers"],
        "ephemeralcontainers" => &["ephemeralContainers"],
        _ => return None,
    };
    let containers = lists.iter().flat_map(|list| spec(pod).list_at(&[list]));
    let containers: Vec<Value> = containers.map(|one| value!({"image": (one.text_at(&["image"]))})).collect();
    let mut review_spec: Object = [("namespace", attributes.namespace)].into_iter().collect();
    review_spec.insert("containers", containers);
    let annotations: Object = Meta::of(pod)
        .annotations()
        .into_iter()
        .flat_map(Object::iter)
        .filter(|(key, _)| key.split_once('/').is_some_and(|(domain, _)| domain.ends_with(".image-policy.k8s.io")))
        .map(|(key, value)| (key, value.clone()))
        .collect();
    if annotations.iter().next().is_some() {
        review_spec.insert("annotations", annotations);
    }
    Some(value!({
        "apiVersion": "imagepolicy.k8s.io/v1alpha1",
        "kind": "ImageReview",
        "metadata": {"creationTimestamp": null},
        "spec": review_spec,
        "status": {"allowed": false},
    }))
}

/// Whether the response allows the pod.
pub fn is_allowed(response: &Value) -> bool {
    response.is_true_at(&["status", "allowed"])
}

/// Applies the response: adds its audit annotations and rejects a pod that is not allowed.
pub fn apply_response(
    attributes: &Attributes<'_>,
    pod: &Value,
    response: &Value,
    notes: &mut Notes,
) -> Result<(), Status> {
    let annotations = response.at(&["status", "auditAnnotations"]).and_then(Value::as_object);
    notes.audit.extend(annotations.into_iter().flat_map(Object::iter).filter_map(|(key, value)| {
        Some((format!("imagepolicywebhook.image-policy.k8s.io/{key}"), value.as_str()?.to_owned()))
    }));
    if is_allowed(response) {
        return Ok(());
    }
    let message = match response.text_at(&["status", "reason"]) {
        "" => "one or more images rejected by webhook backend".to_owned(),
        reason => format!("image policy webhook backend denied one or more images: {reason}"),
    };
    Err(attributes.forbidden(pod, message))
}

/// Admits or rejects a pod for which the webhook failed.
pub fn handle_webhook_failure(
    config: &Config,
    attributes: &Attributes<'_>,
    pod: &Value,
    message: &str,
    notes: &mut Notes,
) -> Result<(), Status> {
    if !config.default_allow {
        return Err(attributes.forbidden(pod, message));
    }
    notes.audit.push(("imagepolicywebhook.image-policy.k8s.io/failed-open".to_owned(), "true".to_owned()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use auth::User;

    use super::*;
    use crate::testing::attributes;

    #[test]
    fn image_review_contains_images_and_image_policy_annotations() {
        let (kind, user) = (api::core::pod::kind(), User::anonymous());
        let pod = value!({
            "metadata": {"annotations": {"a.image-policy.k8s.io/ticket": "1", "other": "2"}},
            "spec": {"containers": [{"image": "a"}], "initContainers": [{"image": "b"}]},
        });
        let request = attributes(&kind, &user, Operation::Create);
        let expect = value!({
            "namespace": "n",
            "containers": [{"image": "a"}, {"image": "b"}],
            "annotations": {"a.image-policy.k8s.io/ticket": "1"},
        });
        assert_eq!(review(&request, &pod).unwrap()["spec"], expect);
        assert!(review(&attributes(&kind, &user, Operation::Delete), &pod).is_none());
        let denied =
            apply_response(&request, &pod, &value!({"status": {"reason": "old"}}), &mut Notes::default()).unwrap_err();
        let expect = "pods \"x\" is forbidden: image policy webhook backend denied one or more images: old";
        assert_eq!((denied.code, denied.message.as_str()), (403, expect));
        apply_response(&request, &pod, &value!({"status": {"allowed": true}}), &mut Notes::default()).unwrap();
    }

    #[test]
    fn images_of_ephemeral_containers_are_reviewed() {
        let (kind, user) = (api::core::pod::kind(), User::anonymous());
        let pod = value!({"spec": {"containers": [{"image": "a"}], "ephemeralContainers": [{"image": "e"}]}});
        let request = Attributes { subresource: "ephemeralcontainers", ..attributes(&kind, &user, Operation::Update) };
        assert_eq!(review(&request, &pod).unwrap()["spec"]["containers"], value!([{"image": "e"}]));
    }

    #[test]
    fn cache_times_are_bounded_and_the_kubeconfig_is_required() {
        let check = |policy: Value, expect: Result<(Option<i64>, Option<i64>), &str>| {
            let seconds = |ttl: Option<Duration>| ttl.map(|ttl| ttl.nanos() / SECOND);
            let found = Config::of(&value!({"imagePolicy": policy}));
            let found = found.map(|config| (seconds(config.allow_ttl), seconds(config.deny_ttl)));
            assert_eq!(found.map_err(|error| error.to_string()), expect.map_err(str::to_owned));
        };
        check(value!({"kubeConfigFile": "k"}), Ok((Some(300), Some(30))));
        check(value!({"kubeConfigFile": "k", "allowTTL": (-1), "denyTTL": 5}), Ok((None, Some(5))));
        check(value!({}), Err("imagePolicy.kubeConfigFile: is required"));
        check(
            value!({"kubeConfigFile": "k", "denyTTL": 1801}),
            Err("imagePolicy.denyTTL: valid value is between 1s and 30m0s, got 1801"),
        );
    }
}
