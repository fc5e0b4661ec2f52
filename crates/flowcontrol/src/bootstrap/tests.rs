use apimachinery::json;

use super::*;

fn stored() -> Vec<Value> {
    let mut objects = objects();
    for object in &mut objects {
        MetaMut::of(object).unwrap().set("generation", 1);
    }
    objects
}

fn find<'a>(objects: &'a mut [Value], kind: &str, name: &str) -> &'a mut Value {
    objects.iter_mut().find(|object| identity(object) == (kind, name)).unwrap()
}

fn lines(current: &[Value]) -> Vec<String> {
    ensure(current).iter().map(ToString::to_string).collect()
}

fn only_update(mut writes: Vec<Write>) -> Value {
    match (writes.pop(), writes.len()) {
        (Some(Write::Update(object)), 0) => object,
        (last, before) => panic!("an update and nothing else: {before} writes and {last:?}"),
    }
}

#[test]
fn compare_bootstrap_objects() {
    let directory = test_requirements::upstream("reference/bootstrap");
    for (kind, file) in [("FlowSchema", "flowschemas"), ("PriorityLevelConfiguration", "prioritylevelconfigurations")] {
        let bytes = std::fs::read(directory.join(format!("{file}.json"))).unwrap();
        let recorded = json::parse(&bytes).unwrap();
        let strip = |object: &Value| {
            (identity(object).1.to_owned(), object["spec"].clone(), object["metadata"]["annotations"].clone())
        };
        let actual: Vec<_> = objects().iter().filter(|object| identity(object).0 == kind).map(strip).collect();
        let expected: Vec<_> = recorded.as_array().unwrap().iter().map(strip).collect();
        assert_eq!(actual, expected);
    }
}

#[test]
fn missing_objects_are_created_and_complete_ones_unchanged() {
    let writes = ensure(&[]);
    assert_eq!(writes.len(), objects().len());
    assert!(writes.iter().all(|write| matches!(write, Write::Create(_))));
    assert_eq!(lines(&stored()), [""; 0]);
}

#[test]
fn missing_object_is_created_again() {
    let mut current = stored();
    current.retain(|object| identity(object) != ("FlowSchema", "exempt") && identity(object).1 != "global-default");
    assert_eq!(
        lines(&current),
        [
            "create PriorityLevelConfiguration global-default",
            "create FlowSchema global-default",
            "create FlowSchema exempt"
        ]
    );
}

#[test]
fn changed_mandatory_object_is_restored() {
    let mut current = stored();
    let object = find(&mut current, "FlowSchema", "catch-all");
    object.get_mut("spec").unwrap().as_object_mut().unwrap().insert("matchingPrecedence", 5);
    MetaMut::of(object).unwrap().set_annotation(AUTO_UPDATE, "false");
    let updated = only_update(ensure(&current));
    assert_eq!(updated["spec"]["matchingPrecedence"], Value::Int(10_000));
    assert_eq!(auto_update(&updated), Some(true));
}

#[test]
fn shares_of_the_exempt_level_may_be_changed() {
    let mut current = stored();
    let object = find(&mut current, "PriorityLevelConfiguration", "exempt");
    object
        .as_object_mut()
        .unwrap()
        .insert("spec", value!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 7, "lendablePercent": 50}}));
    assert_eq!(lines(&current), [""; 0]);
}

#[test]
fn changed_suggested_object_is_preserved() {
    let change = |annotation: Option<&str>, generation: i64| {
        let mut current = stored();
        let object = find(&mut current, "FlowSchema", "probes");
        object.get_mut("spec").unwrap().as_object_mut().unwrap().insert("matchingPrecedence", 5);
        let mut meta = MetaMut::of(object).unwrap();
        meta.remove("annotations");
        meta.set("generation", generation);
        if let Some(mark) = annotation {
            meta.set_annotation(AUTO_UPDATE, mark);
        }
        ensure(&current)
    };
    assert_eq!(change(Some("false"), 2), []);
    let marked = only_update(change(None, 2));
    assert_eq!((auto_update(&marked), &marked["spec"]["matchingPrecedence"]), (Some(false), &Value::Int(5)));
    let managed = only_update(change(None, 1));
    assert_eq!((auto_update(&managed), &managed["spec"]["matchingPrecedence"]), (Some(true), &Value::Int(2)));
    let opted_in = only_update(change(Some("true"), 9));
    assert_eq!(opted_in["spec"]["matchingPrecedence"], Value::Int(2));
}

#[test]
fn unchanged_objects_of_older_versions_are_deleted() {
    let mut current = stored();
    let mut old = current[0].clone();
    MetaMut::of(&mut old).unwrap().set("name", "workload-leader-election");
    let mut opted_out = old.clone();
    MetaMut::of(&mut opted_out).unwrap().set("name", "kept");
    MetaMut::of(&mut opted_out).unwrap().set_annotation(AUTO_UPDATE, "false");
    current.extend([old, opted_out]);
    assert_eq!(lines(&current), ["delete PriorityLevelConfiguration workload-leader-election"]);
}
