//! Tests of container environment variables.

use apimachinery::value;

use super::*;
use crate::pod::Role;

fn variables(spec: &Value, services: &[Value]) -> Result<Vec<String>, EnvironmentError> {
    let pod = value!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "b"}},
        "spec": {"nodeName": "node", "containers": [(spec.clone())]}});
    let config = value!({"data": {"KEY": "v", "OTHER": "o"}});
    let secret = value!({"data": {"PASS": "aGk="}});
    let sources = Sources {
        config_maps: &BTreeMap::from([("c".to_owned(), Some(config)), ("gone".to_owned(), None)]),
        secrets: &BTreeMap::from([("s".to_owned(), Some(secret))]),
        trust_bundles: &BTreeMap::new(),
        files: &Files::from([(("v".to_owned(), "f".to_owned()), Some("K='from a file'".to_owned()))]),
        services,
        pod_ips: &["10.0.0.1".to_owned()],
        host_ips: &["192.0.2.1".to_owned()],
        allocatable: &Amounts::from([("memory".into(), "1Gi".parse().unwrap())]),
    };
    let found = environment(Pod(&pod), Container { spec, role: Role::App }, &sources)?;
    Ok(found.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
}

#[test]
fn variables_come_from_all_sources_and_refer_to_earlier_ones() {
    let spec = value!({"name": "x", "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "P_"}],
        "resources": {"limits": {"cpu": "1500m"}},
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(P_KEY)-$$(A)-$(NONE)-$"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            {"name": "PASS", "valueFrom": {"secretKeyRef": {"name": "s", "key": "PASS"}}},
            {"name": "OPT", "valueFrom": {"configMapKeyRef": {"name": "gone", "key": "k", "optional": true}}}]});
    let expect = [
        "A=1",
        "B=1-v-$(A)-$(NONE)-$",
        "POD=p",
        "IP=10.0.0.1",
        "L=b",
        "CPU=2",
        "MEM=1024",
        "PASS=hi",
        "P_KEY=v",
        "P_OTHER=o",
    ];
    assert_eq!(variables(&spec, &[]).unwrap(), expect);
}

#[test]
fn missing_references_are_named_in_the_error() {
    let check = |env: Value, expect: &str| {
        assert_eq!(variables(&value!({"name": "x", "env": [env]}), &[]).unwrap_err().to_string(), expect);
    };
    let of = |field: &str, name: &str, key: &str| {
        let reference = value!({"name": name, "key": key});
        value!({"name": "A", "valueFrom": (Value::Object([(field, reference)].into_iter().collect()))})
    };
    check(of("configMapKeyRef", "gone", "k"), "configmap \"gone\" not found");
    check(of("secretKeyRef", "s", "k"), "couldn't find key k in Secret n/s");
}

#[test]
fn services_become_docker_link_variables() {
    let service = |namespace: &str, name: &str| {
        value!({"metadata": {"namespace": namespace, "name": name},
        "spec": {"clusterIP": "10.0.0.10", "ports": [{"name": "web-ui", "port": 80, "protocol": "TCP"}]}})
    };
    let services = [service("n", "my-app"), service("default", "kubernetes"), service("other", "x")];
    let found = variables(&value!({"name": "x"}), &services).unwrap();
    for line in [
        "MY_APP_SERVICE_HOST=10.0.0.10",
        "MY_APP_SERVICE_PORT=80",
        "MY_APP_SERVICE_PORT_WEB_UI=80",
        "MY_APP_PORT=tcp://10.0.0.10:80",
        "MY_APP_PORT_80_TCP=tcp://10.0.0.10:80",
        "MY_APP_PORT_80_TCP_ADDR=10.0.0.10",
        "KUBERNETES_SERVICE_HOST=10.0.0.10",
    ] {
        assert!(found.iter().any(|have| have == line), "{line} is not in {found:?}");
    }
    assert!(!found.iter().any(|have| have.starts_with("X_")));
}

#[test]
fn variable_is_read_from_a_file_of_a_volume() {
    let check = |path: &str, key: &str, optional: bool, expect: Result<&[&str], &str>| {
        let reference = value!({"volumeName": "v", "path": path, "key": key, "optional": optional});
        let spec = value!({"name": "x", "env": [{"name": "A", "valueFrom": {"fileKeyRef": reference}}]});
        assert_eq!(file_of(&spec["env"][0]), Some(("v".to_owned(), path.to_owned())));
        let found = variables(&spec, &[]).map_err(|error| error.to_string());
        let expect = expect.map(|list| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(found, expect.map_err(str::to_owned), "{path} {key}");
    };
    check("f", "K", false, Ok(&["A=from a file"]));
    check("f", "L", true, Ok(&[]));
    check("absent", "K", true, Ok(&[]));
    let cannot = "environment variable L cannot be taken from file \"f\" of volume \"v\": it has no such key";
    check("f", "L", false, Err(cannot));
    let cannot = "environment variable K cannot be taken from file \"absent\" of volume \"v\": there is no such file";
    check("absent", "K", false, Err(cannot));
}
