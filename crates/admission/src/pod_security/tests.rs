use apimachinery::json;

use super::*;
use crate::testing::{Cluster, attributes};

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
        Err(message) => assert_eq!(verdict.unwrap_err().message, format!("pods \"x\" is forbidden: {message}")),
    }
}

const BASELINE: &str = r#""pod-security.kubernetes.io/enforce":"baseline""#;
const RESTRICTED: &str = r#""pod-security.kubernetes.io/enforce":"restricted""#;

#[test]
fn namespace_without_labels_admits_all_pods() {
    check("", r#"{"hostNetwork":true,"containers":[{"name":"a"}]}"#, Ok(&[]));
}

#[test]
fn baseline_rejects_pods_with_host_access() {
    check(
        BASELINE,
        r#"{"hostNetwork":true,"hostPID":true,"containers":[{"name":"a","securityContext":{"privileged":true}}]}"#,
        Err(
            r#"violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true, hostPID=true), privileged (container "a" must not set securityContext.privileged=true)"#,
        ),
    );
    check(
        BASELINE,
        r#"{"containers":[{"name":"a","securityContext":{"capabilities":{"add":["NET_ADMIN","CHOWN"]}}}],
            "volumes":[{"name":"v","hostPath":{"path":"/"}}]}"#,
        Err(
            r#"violates PodSecurity "baseline:latest": non-default capabilities (container "a" must not include "NET_ADMIN" in securityContext.capabilities.add), hostPath volumes (volume "v")"#,
        ),
    );
    check(BASELINE, r#"{"containers":[{"name":"a"}]}"#, Ok(&[]));
}

#[test]
fn restricted_requires_explicit_security_settings() {
    check(
        RESTRICTED,
        r#"{"containers":[{"name":"a"}]}"#,
        Err(
            r#"violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
        ),
    );
    check(
        RESTRICTED,
        r#"{"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"a",
            "securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}"#,
        Ok(&[]),
    );
}

#[test]
fn warn_level_does_not_reject_and_version_selects_the_checks() {
    check(
        r#""pod-security.kubernetes.io/warn":"baseline","pod-security.kubernetes.io/warn-version":"v1.24""#,
        r#"{"hostIPC":true,"containers":[{"name":"a","livenessProbe":{"httpGet":{"host":"h"}}}]}"#,
        Ok(&[r#"would violate PodSecurity "baseline:v1.24": host namespaces (hostIPC=true)"#]),
    );
}
