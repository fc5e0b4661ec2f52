use apimachinery::value;

use super::*;

fn template(spec: Value) -> Value {
    let mut template = value!({"metadata": {"labels": {"app": "web"}}, "spec": spec});
    default(&mut template);
    template
}

/// Asserts the errors for a template with this spec, in order.
fn check(spec: Value, expect: &[&str]) {
    let template = template(spec);
    let mut errors = Errors::new();
    validate(&At::new(&template, apimachinery::Path::of("template")), &mut errors);
    let found: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(found, expect);
}

/// Asserts the errors for a template with one container, which has `fields` in addition to name and image.
fn check_container(fields: &Value, expect: &[&str]) {
    let mut container = value!({"name": "c", "image": "i", "resources": {}});
    let object = container.as_object_mut().unwrap();
    for (key, value) in fields.as_object().unwrap().clone() {
        object.insert(key, value);
    }
    check(value!({"containers": [container]}), expect);
}

#[test]
fn template_is_defaulted() {
    let template = template(value!({"containers": [{"name": "c", "image": "i"}], "serviceAccount": "s"}));
    let spec = &template["spec"];
    assert_eq!(spec["restartPolicy"], value!("Always"));
    assert_eq!(spec["terminationGracePeriodSeconds"], value!(30));
    assert_eq!(spec["serviceAccountName"], value!("s"));
    assert_eq!(spec["containers"][0]["imagePullPolicy"], value!("Always"));
    assert_eq!(spec["enableServiceLinks"], Value::Null, "left to the pods");
}

#[test]
fn missing_required_fields_are_rejected() {
    check(value!({}), &["template.spec.containers: Required value"]);
    check(
        value!({"containers": [{}]}),
        &["template.spec.containers[0].name: Required value", "template.spec.containers[0].image: Required value"],
    );
    check_container(&value!({}), &[]);
}

#[test]
fn resource_quantities_are_validated() {
    check_container(
        &value!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}),
        &[
            r#"template.spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#,
        ],
    );
    check_container(
        &value!({"resources": {"requests": {"example.com/gpu": "1"}}}),
        &[
            "template.spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ],
    );
    check_container(
        &value!({"resources": {"limits": {"pods": "1"}}}),
        &[
            r#"template.spec.containers[0].resources.limits[pods]: Invalid value: "pods": must be a standard resource for containers"#,
        ],
    );
}

#[test]
fn probes_and_hooks_have_exactly_one_handler() {
    check_container(
        &value!({"livenessProbe": {"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}}),
        &["template.spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"],
    );
    check_container(
        &value!({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}}),
        &[
            "template.spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
        ],
    );
}

#[test]
fn environment_variables_have_one_source() {
    check_container(
        &value!({"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
        &[
            r#"template.spec.containers[0].env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty"#,
        ],
    );
    check_container(
        &value!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a b']"}}}]}),
        &[
            r#"template.spec.containers[0].env[0].valueFrom.fieldRef: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ],
    );
    check_container(
        &value!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.restartPolicy"}}}]}),
        &[
            r#"template.spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "spec.restartPolicy": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs""#,
        ],
    );
}

#[test]
fn volume_has_one_source_and_mounts_refer_to_volumes() {
    let mount =
        value!({"name": "c", "image": "i", "resources": {}, "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    check(
        value!({"containers": [(mount.clone())], "volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]}),
        &[
            "template.spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
            r#"template.spec.containers[0].volumeMounts[0].name: Not found: "v""#,
        ],
    );
    check(value!({"containers": [mount], "volumes": [{"name": "v"}]}), &[]);
}

#[test]
fn security_contexts_are_validated() {
    check_container(
        &value!({"securityContext": {"allowPrivilegeEscalation": false, "privileged": true}}),
        &[
            r#"template.spec.containers[0].securityContext: Invalid value: {"Capabilities":null,"Privileged":true,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":false,"ProcMount":null,"SeccompProfile":null,"AppArmorProfile":null}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true"#,
        ],
    );
    let container = value!({"name": "c", "image": "i", "resources": {}});
    check(
        value!({"containers": [container], "hostNetwork": true, "securityContext": {"sysctls": [{"name": "net.ipv4.x", "value": "1"}]}}),
        &[
            r#"template.spec.securityContext.sysctls[0].name: Invalid value: "net.ipv4.x": may not be specified when 'hostNetwork' is true"#,
        ],
    );
}

#[test]
fn os_name_forbids_fields_of_other_systems() {
    let container = value!({"name": "c", "image": "i", "resources": {}, "securityContext": {"runAsUser": 1}});
    check(
        value!({"containers": [container], "os": {"name": "windows"}}),
        &["template.spec.containers[0].securityContext.runAsUser: Forbidden: cannot be set for a windows pod"],
    );
}

#[test]
fn only_sidecar_init_containers_may_have_probes() {
    let probe = value!({"exec": {"command": ["a"]}});
    let init = |policy: Value| value!({"name": "i", "image": "i", "resources": {}, "restartPolicy": policy, "startupProbe": (probe.clone())});
    let container = value!({"name": "c", "image": "i", "resources": {}});
    check(value!({"containers": [(container.clone())], "initContainers": [(init("Always".into()))]}), &[]);
    check(
        value!({"containers": [container], "initContainers": [(init(Value::Null))]}),
        &[
            "template.spec.initContainers[0].startupProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
        ],
    );
}

#[test]
fn warnings_contain_the_field_path() {
    let template = template(value!({
        "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}],
        "nodeSelector": {"beta.kubernetes.io/os": "linux"},
        "terminationGracePeriodSeconds": (-1)
    }));
    let found = warnings(&At::new(&template, apimachinery::Path::of("template")), None);
    assert_eq!(
        found,
        [
            r#"template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead"#,
            r#"template.spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply"#,
            "template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
        ]
    );
}
