use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;
use crate::value;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_name: Option<String>,
    replicas: i32,
    share: f64,
    labels: BTreeMap<String, String>,
    pair: (u8, bool),
    phases: Vec<Phase>,
    wrapped: Wrapped,
    unit: (),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Wrapped(u32);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Phase {
    Running,
    Waiting(String),
    Ended { code: i32 },
    Pair(i8, i8),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum IntOrString {
    Int(i32),
    String(String),
}

fn pod() -> (Pod, Value) {
    let typed = Pod {
        name: "a".to_owned(),
        host_name: None,
        replicas: -1,
        share: 0.5,
        labels: [("b".to_owned(), "c".to_owned())].into(),
        pair: (7, true),
        phases: vec![Phase::Running, Phase::Waiting("x".to_owned()), Phase::Ended { code: 1 }, Phase::Pair(1, 2)],
        wrapped: Wrapped(3),
        unit: (),
    };
    let tree = value!({
        "name": "a", "replicas": (-1), "share": (Value::Float(0.5)), "labels": {"b": "c"}, "pair": [7, true],
        "phases": ["Running", {"Waiting": "x"}, {"Ended": {"code": 1}}, {"Pair": [1, 2]}], "wrapped": 3, "unit": null,
    });
    (typed, tree)
}

#[test]
fn structs_and_trees_round_trip() {
    let (typed, tree) = pod();
    assert_eq!(to_value(&typed).unwrap(), tree);
    assert_eq!(from_value::<Pod>(&tree).unwrap(), typed);
}

#[test]
fn null_is_none_and_untagged_enums_are_resolved() {
    assert_eq!(from_value::<Option<i32>>(&Value::Null).unwrap(), None);
    assert_eq!(from_value::<Option<i32>>(&value!(1)).unwrap(), Some(1));
    assert_eq!(from_value::<IntOrString>(&value!(80)).unwrap(), IntOrString::Int(80));
    assert_eq!(from_value::<IntOrString>(&value!("http")).unwrap(), IntOrString::String("http".to_owned()));
    assert_eq!(from_value::<f64>(&value!(1)).unwrap(), 1.0);
}

#[test]
fn mismatched_types_are_errors() {
    let error = |value: Value| from_value::<Vec<i32>>(&value).unwrap_err().to_string();
    assert_eq!(error(value!("x")), "invalid type: string \"x\", expected a sequence");
    assert_eq!(error(value!([1, true])), "invalid type: boolean `true`, expected i32");
    assert_eq!(error(value!([3_000_000_000_i64])), "invalid value: integer `3000000000`, expected i32");
    assert!(from_value::<(u8, u8)>(&value!([1, 2, 3])).is_err());
    assert!(from_value::<Phase>(&value!({"Running": 1, "Ended": 2})).is_err());
    assert!(from_value::<Phase>(&value!({"Running": 1})).is_err());
    let map: BTreeMap<Vec<u8>, u8> = [(vec![1], 1)].into();
    assert_eq!(to_value(&map).unwrap_err().to_string(), "array as the key of a map");
}
