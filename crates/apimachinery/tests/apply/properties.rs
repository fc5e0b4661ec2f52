//! Property tests of server-side apply over arbitrary writes.

use std::collections::BTreeMap;

use apimachinery::apply::{FieldSet, Owners, compare, field_set};
use apimachinery::{Object, Value, value};
use proptest::prelude::*;

use crate::notation::Notation;
use crate::scenario::{ApplyScenario, object};

fn thing() -> Notation {
    Notation::kind(&value!({
        "data": {"$values": "string"},
        "spec": {"a": "int", "b": "string", "args": {"$items": "string"}, "nested": {"c": "int", "map": {"$values": "int"}}},
        "items": {"$keys": ["name"], "$items": {"name": "string", "x": "int", "y": "int"}},
        "tags": {"$items": "string", "$set": true},
        "any": "any"
    }))
}

fn entries<V: Into<Value> + std::fmt::Debug>(
    name: &'static str,
    value: impl Strategy<Value = V>,
) -> impl Strategy<Value = Value> {
    prop::collection::btree_map(name, value, 0..4)
        .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key, value.into())).collect()))
}

fn part(names: &'static [&'static str], values: Vec<BoxedStrategy<Value>>) -> impl Strategy<Value = Value> {
    values.into_iter().map(|value| prop::option::of(value).boxed()).collect::<Vec<_>>().prop_map(move |values| {
        let present = names.iter().zip(values).filter_map(|(name, value)| Some((*name, value?)));
        Value::Object(present.collect::<Object>())
    })
}

fn number() -> BoxedStrategy<Value> {
    (0i64..3).prop_map(Value::from).boxed()
}

fn items() -> impl Strategy<Value = Value> {
    let item = part(&["x", "y"], vec![number(), number()]);
    prop::collection::btree_map("[pqr]", item, 0..3).prop_map(|map| {
        let items = map.into_iter().map(|(name, mut item)| {
            item.as_object_mut().unwrap().insert("name", name);
            item
        });
        Value::Array(items.collect())
    })
}

/// Generates the fields of an object.
fn fields() -> impl Strategy<Value = String> {
    let text = || "[a-c]".prop_map(Value::from).boxed();
    let list = |strategy: BoxedStrategy<Value>| prop::collection::vec(strategy, 0..3).prop_map(Value::Array).boxed();
    let set = prop::collection::btree_set("[s-v]", 0..3);
    let tags = set.prop_map(|set| Value::Array(set.into_iter().map(Value::from).collect())).boxed();
    let nested = part(&["c", "map"], vec![number(), entries("[kl]", 0i64..3).boxed()]).boxed();
    let spec = part(&["a", "b", "args", "nested"], vec![number(), text(), list(text()), nested]).boxed();
    let any = prop_oneof![number(), entries("[mn]", 0i64..3), list(number())].boxed();
    let names = &["data", "spec", "items", "tags", "any"];
    part(names, vec![entries("[de]", "[a-c]").boxed(), spec, items().boxed(), tags, any]).prop_map(|it| it.to_string())
}

/// Generates a configuration that sets only entries of `data` whose keys start with `letter`.
fn disjoint(letter: &'static str) -> impl Strategy<Value = String> {
    entries(letter, "[a-c]").prop_map(|data| value!({"data": data}).to_string())
}

fn owners(scenario: &ApplyScenario<'_>) -> BTreeMap<String, FieldSet> {
    let owners = Owners::of(scenario.object.as_ref().unwrap()).unwrap();
    let key = |it: &apimachinery::apply::Owner| format!("{} {}", it.manager, it.operation.as_str());
    owners.list().iter().map(|it| (key(it), it.fields.clone())).collect()
}

/// Returns the object without identity, owners, nulls and empty containers, which apply may leave behind in different
/// forms.
fn bare(scenario: &ApplyScenario<'_>) -> Value {
    fn tidy(value: &mut Value) {
        match value {
            Value::Object(object) => {
                object.iter_mut().for_each(|(_, child)| tidy(child));
                object.retain(|_, child| {
                    !child.is_null()
                        && !child.as_array().is_some_and(<[Value]>::is_empty)
                        && !child.as_object().is_some_and(Object::is_empty)
                });
            }
            Value::Array(items) => items.iter_mut().for_each(tidy),
            _ => {}
        }
    }
    let mut object = scenario.object.clone().unwrap();
    object.get_mut("metadata").unwrap().as_object_mut().unwrap().remove("managedFields");
    tidy(&mut object);
    object
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn apply_is_idempotent(before in fields(), other in fields(), config in fields()) {
        let types = thing();
        let mut scenario = ApplyScenario::of(&types);
        scenario.update("old", &before).force("bob", &other).force("alice", &config);
        let once = scenario.object.clone();
        let changed = scenario.try_apply("alice", &config, false).unwrap();
        prop_assert_eq!(&scenario.object, &once);
        prop_assert!(!changed);
    }

    #[test]
    fn applying_an_empty_config_keeps_only_fields_of_other_owners(before in fields(), other in fields(), config in fields()) {
        let types = thing();
        let mut without = ApplyScenario::of(&types);
        without.update("old", &before).force("bob", &other);
        let mut scenario = ApplyScenario::of(&types);
        scenario.update("old", &before).force("bob", &other).force("alice", &config);
        let others = owners(&scenario).into_iter().filter(|(name, _)| !name.starts_with("alice"));
        let others = others.fold(FieldSet::EMPTY, |all, (_, set)| all.union(&set));
        let stated = field_set(types.schema(), &object(&config));
        scenario.force("alice", "{}");
        let left = field_set(types.schema(), scenario.object.as_ref().unwrap());
        let retained = left.leaves().intersection(&stated.leaves()).difference(&others);
        // Leaves that alice applied and that have no other owner are removed; containers may be left empty.
        let mut scalars = 0;
        retained.for_each(|path| {
            let path_text: String = path.iter().map(ToString::to_string).collect();
            if matches!(path_text.as_str(), ".spec.a" | ".spec.b" | ".spec.args") || path_text.starts_with(".data.") {
                scalars += 1;
            }
        });
        prop_assert_eq!(scalars, 0, "{:?} of {:?}", retained, scenario.object);
        prop_assert!(owners(&scenario).keys().all(|name| !name.starts_with("alice")));
    }

    #[test]
    fn pruning_does_not_depend_on_versions(before in fields(), other in fields(), first in fields(), then in fields()) {
        let types = thing();
        let mut one = ApplyScenario::of(&types);
        one.update("old", &before).force("bob", &other).force("alice", &first);
        let mut two = ApplyScenario::of(&types);
        two.update("old", &before).force("bob", &other).force("alice", &first);
        two.add_owner_in_another_version();
        one.force("alice", &then);
        two.force("alice", &then);
        let metadata = two.object.as_mut().unwrap().get_mut("metadata").unwrap().as_object_mut().unwrap();
        metadata.remove("labels");
        prop_assert_eq!(bare(&one), bare(&two));
        let mut owners_of_two = owners(&two);
        owners_of_two.remove("alien Apply");
        prop_assert_eq!(owners(&one), owners_of_two);
    }

    #[test]
    fn appliers_of_different_fields_commute(before in fields(), a in disjoint("x[a-c]"), b in disjoint("y[a-c]")) {
        let types = thing();
        let (mut one, mut two) = (ApplyScenario::of(&types), ApplyScenario::of(&types));
        one.update("old", &before).apply("alice", &a).apply("bob", &b);
        two.update("old", &before).apply("bob", &b).apply("alice", &a);
        prop_assert_eq!(bare(&one), bare(&two));
        prop_assert_eq!(owners(&one), owners(&two));
    }

    #[test]
    fn force_takes_ownership_of_all_applied_fields(before in fields(), other in fields(), config in fields()) {
        let types = thing();
        let mut scenario = ApplyScenario::of(&types);
        scenario.update("old", &before).force("bob", &other).force("alice", &config);
        let config = object(&config);
        let identity = FieldSet::of_fields(&["apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace"]);
        let stated = field_set(types.schema(), &config).difference(&identity);
        prop_assert_eq!(owners(&scenario).remove("alice Apply").unwrap_or_default(), stated);
        let changes = compare(types.schema(), &config, scenario.object.as_ref().unwrap());
        let lost = changes.modified.union(&changes.removed).leaves();
        let excused = FieldSet::of_fields(&["data", "items", "tags", "spec", "any", "spec.nested", "spec.nested.map"]);
        prop_assert!(lost.difference(&excused).is_empty(), "{:?}", changes);
    }

    #[test]
    fn merging_maps_agrees_with_plain_maps(live in entries("[a-e]", "[a-c]"), config in entries("[a-e]", "[a-c]")) {
        let types = thing();
        let mut merged = value!({"data": (live.clone())});
        apimachinery::apply::merge(types.schema(), &mut merged, &value!({"data": (config.clone())}));
        let mut expect = live.as_object().unwrap().clone();
        for (key, value) in config.as_object().unwrap().iter() {
            expect.insert(key, value.clone());
        }
        prop_assert_eq!(&merged["data"], &Value::Object(expect));
    }

    #[test]
    fn update_owns_the_fields_it_changes(before in fields(), after in fields()) {
        let types = thing();
        let mut scenario = ApplyScenario::of(&types);
        scenario.update("old", &before);
        // An update does not start to track an object without managedFields.
        prop_assume!(!scenario.owners().is_empty());
        let old = scenario.object.clone().unwrap();
        scenario.update("new", &after);
        let mut new = scenario.object.clone().unwrap();
        new.get_mut("metadata").unwrap().as_object_mut().unwrap().remove("managedFields");
        let changes = compare(types.schema(), &old, &new);
        let found = owners(&scenario);
        let own = found.get("new Update").cloned().unwrap_or_default();
        prop_assert_eq!(&own, &changes.modified.union(&changes.added));
        let others = found.get("old Update").cloned().unwrap_or_default();
        prop_assert!(others.intersection(&own).is_empty());
        prop_assert!(others.intersection(&changes.removed).is_empty());
        let present = compare(types.schema(), &Value::object(), &new).added;
        prop_assert!(others.difference(&present).is_empty());
    }
}
