use apimachinery::yaml;

use super::*;
use crate::generate::rbac::Subjects;

fn deployment() -> Value {
    yaml::parse(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n      \
         containers: [{name: a, image: x, env: [{name: A, value: '1'}, {name: B, value: '2'}]}, {name: b, image: x}]\n      \
         initContainers: [{name: init, image: x}]\n",
    )
    .unwrap()
}

fn strings(items: &[&str]) -> Vec<String> {
    items.iter().map(|&item| item.to_owned()).collect()
}

fn images(object: &Value) -> Vec<&str> {
    let spec = &object["spec"]["template"]["spec"];
    let lists = [&spec["containers"], &spec["initContainers"]];
    lists.iter().flat_map(|list| list.as_array().unwrap()).map(|c| c["image"].as_str().unwrap()).collect()
}

#[test]
fn images_are_set_by_container_name() {
    let mut object = deployment();
    let pair = |name: &str, image: &str| (name.to_owned(), image.to_owned());
    assert_eq!(image(&mut object, &[pair("b", "y"), pair("init", "z")]), Ok(Vec::new()));
    assert_eq!(images(&object), ["x", "y", "z"]);
    assert_eq!(image(&mut object, &[pair("*", "all")]), Ok(Vec::new()));
    assert_eq!(images(&object), ["all", "all", "all"]);
    assert_eq!(image(&mut object, &[pair("c", "y")]), Ok(strings(&["c"])));
}

#[test]
fn objects_without_a_pod_template_are_rejected() {
    let mut service = yaml::parse("{apiVersion: v1, kind: Service}").unwrap();
    let error = service_account(&mut service, "robot").unwrap_err();
    assert_eq!(error.to_string(), "the object is not a pod or does not have a pod template: *v1.Service");
}

#[test]
fn environment_changes_keep_the_order_of_variables() {
    let check = |changes: &[&str], expected: &[&str]| {
        let mut object = deployment();
        let changes = env::parse(&strings(changes), || Ok("C=3 # three\nnothing\nD=\n".to_owned())).unwrap();
        let mut selected = containers_mut(pod_spec_mut(&mut object).unwrap(), "a");
        env::update(selected[0], &changes);
        let variables = selected[0]["env"].as_array().unwrap_or_default();
        let text = |variable: &Value| {
            format!("{}={}", variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap_or_default())
        };
        assert_eq!(variables.iter().map(text).collect::<Vec<_>>(), expected, "{changes:?}");
    };
    check(&["B=4", "C=5"], &["A=1", "B=4", "C=5"]);
    check(&["A-", "Z-"], &["B=2"]);
    check(&["A-", "B-"], &[]);
    check(&["-"], &["A=1", "B=2", "C=3 ", "D="]);
}

#[test]
fn wrong_environment_changes_are_rejected_with_kubectls_messages() {
    let check = |variables: &[&str], expected: &str| {
        let error = env::parse(&strings(variables), || Ok(String::new())).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(&["A=1", "A-"], "can not both modify and remove the same environment variable in the same command");
    check(&["A"], "unknown environment variable: A");
    let split = env::split(&strings(&["deploy/web", "A=1", "deploy/api"])).unwrap_err();
    assert_eq!(
        split.to_string(),
        "all resources must be specified before environment changes: deploy/web A=1 deploy/api"
    );
}

#[test]
fn keys_of_a_config_map_become_variables() {
    let map = yaml::parse("{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {some-key: x, K: y}}").unwrap();
    let (mut variables, warnings) = env::from_object(&map, &[]).unwrap();
    assert_eq!(warnings, ["key some-key transferred to SOME_KEY"]);
    env::add_prefix(&mut variables, "P_");
    assert_eq!(variables[0], yaml::parse("{name: P_K, valueFrom: {configMapKeyRef: {name: m, key: K}}}").unwrap());
    assert_eq!(env::reference_text(&variables[1]["valueFrom"]), "configmap m, key some-key");
    let (picked, _) = env::from_object(&map, &strings(&["K"])).unwrap();
    assert_eq!(picked.len(), 1);
}

#[test]
fn references_resolve_to_fields_and_resources() {
    let pod = yaml::parse("metadata: {name: p, labels: {a: b, c: d}}\n").unwrap();
    assert_eq!(resolve::field(&pod, "metadata.name"), Ok("p".to_owned()));
    assert_eq!(resolve::field(&pod, "metadata.labels['c']"), Ok("d".to_owned()));
    assert_eq!(resolve::field(&pod, "metadata.labels"), Ok("a=\"b\"\nc=\"d\"".to_owned()));
    assert_eq!(resolve::field(&pod, "spec.x").unwrap_err().to_string(), "unsupported fieldPath: spec.x");
    let container = yaml::parse("resources: {limits: {cpu: 1500m, memory: 1Gi}}").unwrap();
    let check = |reference: &str, expected: &str| {
        assert_eq!(resolve::resource(&container, &yaml::parse(reference).unwrap()), Ok(expected.to_owned()));
    };
    check("{resource: limits.cpu}", "2");
    check("{resource: limits.cpu, divisor: 1m}", "1500");
    check("{resource: limits.memory, divisor: 1Mi}", "1024");
    check("{resource: requests.memory}", "0");
}

#[test]
fn resources_are_merged_into_the_selected_containers() {
    let mut object = deployment();
    let change = requirements("cpu=1", "memory=1Gi").unwrap();
    assert_eq!(resources(&mut object, "a", &change), Ok(true));
    assert_eq!(resources(&mut object, "none", &change), Ok(false));
    let containers = &object["spec"]["template"]["spec"]["containers"];
    let expected = yaml::parse("{limits: {cpu: '1'}, requests: {memory: 1Gi}}").unwrap();
    assert_eq!(containers[0]["resources"], expected);
    assert_eq!(containers[1]["resources"], Value::Null);
}

#[test]
fn subjects_are_added_once() {
    let mut binding = yaml::parse("{kind: RoleBinding}").unwrap();
    let flags = Subjects {
        users: &strings(&["b", "a", "b"]),
        groups: &[],
        service_accounts: &strings(&[":robot", "shop:robot"]),
    };
    let added = new_subjects(flags, "default");
    assert_eq!(subjects(&mut binding, &added), Ok(true));
    assert_eq!(subjects(&mut binding, &added), Ok(false));
    let names = |subject: &Value| {
        format!("{}/{}", subject["namespace"].as_str().unwrap_or("-"), subject["name"].as_str().unwrap())
    };
    let list: Vec<String> = binding["subjects"].as_array().unwrap().iter().map(names).collect();
    assert_eq!(list, ["-/a", "-/b", "default/robot", "shop/robot"]);
    let fault = validate_subjects(flags, true).unwrap_err().to_string();
    assert_eq!(fault, "serviceaccount must be <namespace>:<name>, namespace must be specified");
}

#[test]
fn selectors_are_set_on_services_only() {
    let expected = crate::generate::labels::selector("a=b").unwrap();
    let mut service = yaml::parse("{apiVersion: v1, kind: Service, spec: {selector: {x: y}}}").unwrap();
    selector(&mut service, &expected).unwrap();
    assert_eq!(service["spec"]["selector"], yaml::parse("{a: b}").unwrap());
    let fault = selector(&mut service, &crate::generate::labels::selector("a in (b,c)").unwrap()).unwrap_err();
    assert_eq!(fault.to_string(), "match expression [{a In [b c]}] not supported on this object");
    let fault = selector(&mut deployment(), &expected).unwrap_err();
    assert_eq!(fault.to_string(), "setting a selector is only supported for Services");
}

#[test]
fn container_names_match_patterns() {
    for (name, pattern, expected) in [
        ("web", "*", true),
        ("web", "w*", true),
        ("web", "*b", true),
        ("web", "w*b", true),
        ("web", "a*", false),
        ("web", "web", true),
    ] {
        assert_eq!(name_matches(name, pattern), expected, "{name} {pattern}");
    }
}
