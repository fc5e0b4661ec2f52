use machinery::json;

use super::*;
use crate::admission::testing::{Cluster, attributes};

fn check(labels: &str, pod_spec: &str, expect: Result<&[&str], &str>) {
    let namespace = format!(r#"{{"metadata":{{"name":"n","labels":{{{labels}}}}}}}"#);
    let cluster = Cluster::default().with("", "namespaces", &namespace);
    let pod = json::parse(format!(r#"{{"metadata":{{"name":"x"}},"spec":{pod_spec}}}"#).as_bytes()).unwrap();
    let (kind, user, mut notes) = (api::core::pod::kind(), auth::User::default(), Notes::default());
    let plugin = PodSecurity::default();
    let verdict = plugin.validate(&attributes(&kind, &user, Operation::Create), &pod, &cluster, &mut notes);
    match expect {
        Ok(warnings) => {
            assert_eq!(verdict, Ok(()));
            assert_eq!(notes.warnings, warnings);
        }
        Err(why) => assert_eq!(verdict.unwrap_err().message, format!("pods \"x\" is forbidden: {why}")),
    }
}

const BASELINE: &str = r#""pod-security.kubernetes.io/enforce":"baseline""#;
const RESTRICTED: &str = r#""pod-security.kubernetes.io/enforce":"restricted""#;

#[test]
fn a_namespace_without_labels_lets_everything_run() {
    check("", r#"{"hostNetwork":true,"containers":[{"name":"a"}]}"#, Ok(&[]));
}

#[test]
fn the_baseline_forbids_what_reaches_the_host() {
    check(
        BASELINE,
        r#"{"hostNetwork":true,"hostPID":true,"containers":[{"name":"a","securityContext":{"privileged":true}}]}"#,
        Err(r#"violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true, hostPID=true), privileged (container "a" must not set securityContext.privileged=true)"#),
    );
    check(
        BASELINE,
        r#"{"containers":[{"name":"a","securityContext":{"capabilities":{"add":["NET_ADMIN","CHOWN"]}}}],
            "volumes":[{"name":"v","hostPath":{"path":"/"}}]}"#,
        Err(r#"violates PodSecurity "baseline:latest": non-default capabilities (container "a" must not include "NET_ADMIN" in securityContext.capabilities.add), hostPath volumes (volume "v")"#),
    );
    check(BASELINE, r#"{"containers":[{"name":"a"}]}"#, Ok(&[]));
}

#[test]
fn restricted_pods_say_that_they_give_everything_up() {
    check(
        RESTRICTED,
        r#"{"containers":[{"name":"a"}]}"#,
        Err(r#"violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#),
    );
    check(
        RESTRICTED,
        r#"{"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"a",
            "securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}"#,
        Ok(&[]),
    );
}

#[test]
fn warnings_do_not_refuse_and_versions_count() {
    check(
        r#""pod-security.kubernetes.io/warn":"baseline","pod-security.kubernetes.io/warn-version":"v1.24""#,
        r#"{"hostIPC":true,"containers":[{"name":"a","livenessProbe":{"httpGet":{"host":"h"}}}]}"#,
        Ok(&[r#"would violate PodSecurity "baseline:v1.24": host namespaces (hostIPC=true)"#]),
    );
}
