use super::*;

fn options(change: impl FnOnce(&mut DebugOptions)) -> DebugOptions {
    let mut options = DebugOptions {
        args: Vec::new(),
        args_only: false,
        container: String::new(),
        copy_to: String::new(),
        env: Vec::new(),
        image: "busybox".into(),
        pull_policy: String::new(),
        stdin: false,
        tty: false,
        same_node: false,
        set_images: Vec::new(),
        share_processes: None,
        target: String::new(),
        profile: Profile::General,
        keep: Keep { init_containers: true, ..Keep::default() },
        custom: None,
    };
    change(&mut options);
    options
}

fn pod() -> Value {
    value!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {
            "nodeName": "node",
            "initContainers": [{"name": "init", "image": "i"}],
            "containers": [
                {"name": "one", "image": "x", "args": ["-x"], "livenessProbe": {}, "readinessProbe": {}, "startupProbe": {}},
                {"name": "two", "image": "y"},
            ],
            "ephemeralContainers": [{"name": "old", "image": "o"}],
        },
        "status": {"phase": "Running"},
    })
}

fn container_of(profile: Profile, style: Style) -> Value {
    let options = options(|options| {
        options.profile = profile;
        options.container = "d".into();
        options.copy_to = "copy".into();
    });
    let made = match style {
        Style::Ephemeral => ephemeral(&pod(), "d", &options),
        Style::Copy => copy(&pod(), &options, |_| unreachable!()),
        Style::Node => node_pod("node", "abcde", &options),
    };
    let made = made.unwrap();
    has_container(&made.pod, "d").unwrap().spec.get("securityContext").cloned().unwrap_or_default()
}

#[test]
fn profile_decides_the_security_context() {
    let restricted = value!({
        "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let network = value!({"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}});
    let trace = value!({"capabilities": {"add": ["SYS_PTRACE"]}});
    for style in [Style::Ephemeral, Style::Copy, Style::Node] {
        let check = |profile, expect: &Value| {
            assert_eq!(&container_of(profile, style), expect, "{profile:?} {style:?}");
        };
        check(Profile::Legacy, &Value::Null);
        check(Profile::General, if style == Style::Node { &Value::Null } else { &trace });
        check(Profile::Baseline, &Value::Null);
        check(Profile::Restricted, &restricted);
        check(Profile::Netadmin, &network);
        check(Profile::Sysadmin, &value!({"privileged": true}));
    }
}

#[test]
fn patch_adds_one_ephemeral_container() {
    let options = options(|options| {
        options.args = vec!["sh".into()];
        options.env = vec![("A".into(), "1".into())];
        options.stdin = true;
        options.target = "one".into();
        options.profile = Profile::Legacy;
    });
    let made = ephemeral(&pod(), "new", &options).unwrap();
    assert_eq!(
        ephemeral_patch(&made.pod, &made.container),
        value!({"spec": {
            "$setElementOrder/ephemeralContainers": [{"name": "old"}, {"name": "new"}],
            "ephemeralContainers": [{
                "name": "new", "image": "busybox", "command": ["sh"], "env": [{"name": "A", "value": "1"}],
                "stdin": true, "targetContainerName": "one", "terminationMessagePolicy": "File",
            }],
        }})
    );
}

#[test]
fn copy_has_no_identity_and_no_probes() {
    let options = options(|options| {
        options.copy_to = "copy".into();
        options.set_images = vec![("*".into(), "all".into()), ("two".into(), "own".into())];
        options.image = String::new();
        options.container = "one".into();
        options.args = vec!["sh".into()];
        options.tty = true;
    });
    let made = copy(&pod(), &options, |_| unreachable!()).unwrap();
    assert_eq!(made.container, "one");
    assert_eq!(
        made.pod,
        value!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "copy", "namespace": "n"},
            "spec": {
                "shareProcessNamespace": true,
                "initContainers": [{"name": "init", "image": "i"}],
                "containers": [
                    {
                        "name": "one", "image": "all", "command": ["sh"], "tty": true,
                        "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}},
                    },
                    {"name": "two", "image": "own"},
                ],
            },
        })
    );
}

#[test]
fn copy_keeps_the_requested_fields() {
    let all = Keep {
        labels: true,
        annotations: true,
        liveness: true,
        readiness: true,
        startup: true,
        init_containers: false,
    };
    let options = options(|options| {
        options.copy_to = "copy".into();
        options.keep = all;
        options.same_node = true;
        options.share_processes = Some(false);
    });
    let made = copy(&pod(), &options, |_| "new".into()).unwrap();
    assert_eq!(made.pod.at(&["metadata", "labels"]), Some(&value!({"a": "b"})));
    assert_eq!(made.pod.str_at(&["spec", "nodeName"]), Some("node"));
    assert_eq!(made.pod.at(&["spec", "shareProcessNamespace"]), Some(&Value::Bool(false)));
    assert_eq!(made.pod.at(&["spec", "initContainers"]), None);
    let containers = made.pod.at(&["spec", "containers"]).and_then(Value::as_array).unwrap();
    assert_eq!(containers.len(), 3);
    assert!(containers[0].get("livenessProbe").is_some());
    assert_eq!((made.container.as_str(), containers[2].str_at(&["image"])), ("new", Some("busybox")));
}

#[test]
fn only_changed_images_have_no_debug_container() {
    let options = options(|options| {
        options.copy_to = "copy".into();
        options.image = String::new();
        options.set_images = vec![("one".into(), "new".into())];
    });
    let made = copy(&pod(), &options, |_| unreachable!()).unwrap();
    assert_eq!(made.container, "");
    assert_eq!(made.pod.at(&["metadata", "labels"]), Some(&value!({"a": "b"})), "no profile applies");
}

#[test]
fn node_is_debugged_in_its_namespaces() {
    let made = node_pod("node", "abcde", &options(|_| ())).unwrap();
    assert_eq!(
        made.pod,
        value!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "node-debugger-node-abcde", "labels": {"app.kubernetes.io/managed-by": "kubectl-debug"},
            },
            "spec": {
                "containers": [{
                    "name": "debugger", "image": "busybox", "terminationMessagePolicy": "File",
                    "volumeMounts": [{"name": "host-root", "mountPath": "/host"}],
                }],
                "nodeName": "node", "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}],
                "volumes": [{"name": "host-root", "hostPath": {"path": "/"}}],
                "hostNetwork": true, "hostPID": true, "hostIPC": true,
            },
        })
    );
    let baseline = node_pod("node", "abcde", &options(|options| options.profile = Profile::Baseline)).unwrap();
    assert_eq!(baseline.pod.at(&["spec", "hostPID"]), None);
}

#[test]
fn custom_profile_is_merged_into_the_container() {
    let options = options(|options| {
        let custom = value!({"securityContext": {"runAsUser": 0}, "env": [{"name": "A", "value": "1"}]});
        options.custom = custom.as_object().cloned();
    });
    let made = ephemeral(&pod(), "new", &options).unwrap();
    let container = has_container(&made.pod, "new").unwrap().spec;
    assert_eq!(
        container.get("securityContext"),
        Some(&value!({"capabilities": {"add": ["SYS_PTRACE"]}, "runAsUser": 0}))
    );
    assert_eq!(container.str_at(&["image"]), Some("busybox"));
    assert_eq!(made.pod.at(&["spec", "ephemeralContainers"]).and_then(Value::as_array).unwrap().len(), 2);
}

#[test]
fn capabilities_of_a_non_root_pod_are_warned_of() {
    let warns = |user: i64, profile: Profile| {
        let mut pod = pod();
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("securityContext", value!({"runAsUser": user}));
        }
        let made = ephemeral(&pod, "new", &options(|options| options.profile = profile)).unwrap();
        non_root_warning(&made.pod, "new").is_some()
    };
    assert!(warns(1000, Profile::General));
    assert!(warns(1000, Profile::Sysadmin));
    assert!(!warns(1000, Profile::Baseline));
    assert!(!warns(0, Profile::General));
}
