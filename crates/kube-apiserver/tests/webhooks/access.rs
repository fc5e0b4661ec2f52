//! Webhook authentication, webhook authorization and ImagePolicyWebhook tests.

use apimachinery::time::Duration;
use apimachinery::{Value, value};
use auth::User;
use auth::access_review::webhook::Version;
use auth::authorization_config::{Config, Kind, Webhook};
use http::Method;
use kube_apiserver::authentication::{self, Peer};
use kube_apiserver::authorization;
use kube_apiserver::remote::Remote;
use kube_apiserver::server::Mode;

use crate::hook::{Hook, HookResponse};
use crate::server::{ApiResponse, Cluster};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Starts an authorizer that allows reads, denies deletes, and has no opinion on other verbs.
async fn start_authorizer() -> Hook {
    Hook::start(&["127.0.0.1"], |path, review| {
        if path == "/broken" {
            return HookResponse::Json(503, value!("busy"));
        }
        let verb = review.str_at(&["spec", "resourceAttributes", "verb"]).unwrap_or_default();
        let status = match verb {
            "get" => value!({"allowed": true}),
            "delete" => value!({"allowed": false, "denied": true, "reason": "nothing is deleted here"}),
            _ => value!({"allowed": false, "reason": "not mine"}),
        };
        let api_version = review["apiVersion"].clone();
        HookResponse::Json(200, value!({"apiVersion": api_version, "kind": "SubjectAccessReview", "status": status}))
    })
    .await
}

async fn as_jane(cluster: &Cluster, method: Method, path: &str) -> ApiResponse {
    let peer = Peer { user: Some(User::authenticated("jane", [])), ..Peer::default() };
    cluster.send_as(peer, method, path, "", "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_authorizer_decisions_are_applied_and_cached() {
    let hook = start_authorizer().await;
    let dir = tempfile::tempdir().unwrap();
    let file = hook.kubeconfig(dir.path(), "/authorize");
    let rules = Webhook::unconditional(file.to_str().unwrap(), Version::V1);
    let webhook = authorization::Webhook::new(rules, Remote::of_file(&file).unwrap());
    let cluster = Cluster::with(|config| config.modes = vec![Mode::Webhook(Box::new(webhook)), Mode::Rbac]).await;
    let path = format!("{CONFIG_MAPS}/x");
    for _ in 0..3 {
        assert_eq!(as_jane(&cluster, Method::GET, &path).await.code, 404, "allowed, and not there");
    }
    let (called_path, review) = hook.requests().remove(0);
    assert_eq!((called_path.as_str(), hook.requests().len()), ("/authorize", 1));
    assert_eq!(review["spec"]["user"], "jane".into());
    assert_eq!(review["spec"]["resourceAttributes"]["resource"], "configmaps".into());
    let deleted = as_jane(&cluster, Method::DELETE, &path).await;
    let cannot = "configmaps \"x\" is forbidden: User \"jane\" cannot delete resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert_eq!(deleted.error_message(), format!("403 {cannot}: nothing is deleted here"));
    let listed = as_jane(&cluster, Method::GET, CONFIG_MAPS).await;
    assert!(listed.error_message().contains("not mine"), "{}", listed.error_message());
    // A SubjectAccessReview calls the same webhook while another request is being served.
    let review = value!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "joe", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}},
    });
    let response = cluster.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await.ok();
    assert_eq!(response["status"]["allowed"], true.into());
}

#[tokio::test(flavor = "multi_thread")]
async fn match_conditions_skip_the_authorizer_and_failure_policy_applies_on_errors() {
    let hook = start_authorizer().await;
    let dir = tempfile::tempdir().unwrap();
    let file = hook.kubeconfig(dir.path(), "/broken");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: judge
  webhook:
    authorizedTTL: 30s
    unauthorizedTTL: 30s
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {}}}
    matchConditions: [{{expression: \"has(request.resourceAttributes) && request.resourceAttributes.verb == 'get'\"}}]
- type: AlwaysAllow
  name: all
",
        file.display()
    );
    let mut modes = Vec::new();
    for authorizer in Config::parse(&text).unwrap().authorizers {
        modes.push(match authorizer.kind {
            Kind::Webhook(rules) => {
                Mode::Webhook(Box::new(authorization::Webhook::new(*rules, Remote::of_file(&file).unwrap())))
            }
            _ => Mode::AlwaysAllow,
        });
    }
    let cluster = Cluster::with(|config| config.modes = modes).await;
    assert_eq!(as_jane(&cluster, Method::GET, CONFIG_MAPS).await.code, 200, "a list request is not forwarded");
    assert_eq!(as_jane(&cluster, Method::GET, &format!("{CONFIG_MAPS}/x")).await.code, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn image_policy_webhook_decides_which_images_run() {
    let hook = Hook::start(&["127.0.0.1"], |_, review| {
        let images = review["spec"]["containers"].as_array().unwrap();
        let bad = images.iter().any(|container| container["image"] == "bad".into());
        let status = if bad { value!({"allowed": false, "reason": "bad is bad"}) } else { value!({"allowed": true}) };
        HookResponse::Json(
            200,
            value!({"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": status}),
        )
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let file = hook.kubeconfig(dir.path(), "/images");
    let admission = dir.path().join("admission.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n\
         - {{name: ImagePolicyWebhook, configuration: {{imagePolicy: {{kubeConfigFile: {}}}}}}}\n",
        file.file_name().unwrap().to_str().unwrap()
    );
    std::fs::write(&admission, text).unwrap();
    let cluster = Cluster::with(|config| {
        config.admission.enable.push("ImagePolicyWebhook".to_owned());
        config.admission.config = kube_apiserver::admission_config::read(&admission).unwrap();
    })
    .await;
    let pod = |name: &str, image: &str| -> Value {
        value!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": image}]},
        })
    };
    let pods = "/api/v1/namespaces/default/pods";
    cluster.post(pods, &pod("a", "good")).await.ok();
    cluster.post(pods, &pod("b", "good")).await.ok();
    assert_eq!(hook.requests().len(), 1, "the same images are reviewed once");
    let denied = cluster.post(pods, &pod("c", "bad")).await.error_message();
    let expect = "403 pods \"c\" is forbidden: image policy webhook backend denied one or more images: bad is bad";
    assert_eq!(denied, expect);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_token_authentication_is_applied_and_cached() {
    let hook = Hook::start(&["127.0.0.1"], |_, review| {
        let status = match review.str_at(&["spec", "token"]) {
            Some("janes") => value!({"authenticated": true, "user": {"username": "jane", "groups": ["devs"]}}),
            _ => value!({"authenticated": false, "error": "never seen"}),
        };
        HookResponse::Json(
            200,
            value!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}),
        )
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let remote = Remote::of_file(&hook.kubeconfig(dir.path(), "/tokens")).unwrap();
    let webhook = authentication::Webhook::new(remote, "v1", Duration::from_seconds(120)).unwrap();
    let cluster = Cluster::with(|config| config.authenticators.webhook = Some(webhook)).await;
    let review = |token: &str| value!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    for _ in 0..3 {
        let status = cluster.post(path, &review("janes")).await.ok()["status"].clone();
        assert_eq!(status["authenticated"], true.into());
        assert_eq!(status["user"], value!({"username": "jane", "groups": ["devs", "system:authenticated"]}));
    }
    assert_eq!(hook.requests().len(), 1);
    let rejected_status = cluster.post(path, &review("others")).await.ok()["status"].clone();
    assert_eq!(rejected_status["error"], "[invalid bearer token, never seen]".into());
}
