//! Property tests of strategic merge patches over pairs and triples of objects of a type.

use proptest::prelude::*;

use super::fixture::thing;
use super::{OnConflict, apply, create_three_way, create_two_way};
use crate::schema::{Schema, Shape};
use crate::{Object, Value};

/// Generates an object of the type from a seed by walking the schema. It uses few names, so that two objects often
/// share them.
fn generate(schema: Schema<'_>, merge_key: Option<&str>, rng: &mut TestRng) -> Value {
    match schema.shape() {
        Shape::Struct(shape) => {
            let mut object = Object::new();
            for field in &shape.fields {
                let is_key = merge_key == Some(field.name.as_str());
                // Fields that upstream cannot merge are not generated.
                if matches!(field.name.as_str(), "matrix" | "keyless") || !(is_key || rng.roll(2) == 0) {
                    continue;
                }
                let value = match &field.patch.merge_key {
                    Some(key) if field.patch.merge => items(schema.other(field.ty), key, rng),
                    _ => generate(schema.other(field.ty), None, rng),
                };
                object.insert(field.name.clone(), unique_if_merged(value, field.patch.merge));
            }
            object.into()
        }
        Shape::Map(map) => {
            let value = schema.other(map.value);
            (0..rng.roll(3)).map(|_| (rng.name(), generate(value, None, rng))).collect::<Object>().into()
        }
        Shape::List(list) => {
            let item = schema.other(list.item);
            (0..rng.roll(4)).map(|_| generate(item, None, rng)).collect::<Vec<_>>().into()
        }
        Shape::Int32 => Value::Int(rng.roll(4).into()),
        Shape::RawExtension => crate::value!({"raw": (i64::from(rng.roll(3)))}),
        _ => rng.name().into(),
    }
}

fn items(list: Schema<'_>, key: &str, rng: &mut TestRng) -> Value {
    let item = list.item().expect("a field with a merge key is a list");
    let mut items: Vec<Value> = (0..rng.roll(5)).map(|_| generate(item, Some(key), rng)).collect();
    let mut seen = Vec::new();
    items.retain(|item| {
        let new = !seen.contains(&item[key]);
        seen.push(item[key].clone());
        new
    });
    items.into()
}

fn unique_if_merged(value: Value, merge: bool) -> Value {
    match value {
        Value::Array(items) if merge => {
            let mut unique: Vec<Value> = Vec::new();
            items.into_iter().for_each(|item| {
                if !unique.contains(&item) {
                    unique.push(item);
                }
            });
            unique.into()
        }
        value => value,
    }
}

/// A deterministic source of choices, seeded by proptest.
struct TestRng(u64);

impl TestRng {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).expect("31 bits fit") % sides
    }

    fn name(&mut self) -> String {
        ["a", "b", "c", "d", "e"][self.roll(5) as usize].to_owned()
    }
}

fn any_thing() -> impl Strategy<Value = Object> {
    any::<u64>().prop_map(|seed| match generate(thing(), None, &mut TestRng(seed)) {
        Value::Object(object) => object,
        _ => unreachable!("a thing is an object"),
    })
}

/// Checks the rules of a three-way merge on every field that is not a list and does not change its type.
fn check_rules(original: &Value, modified: &Value, current: &Value, merged: &Value, schema: Option<Schema<'_>>) {
    let empty = Object::new();
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_else(|| empty.clone());
    let (original, modified, current) = (fields(original), fields(modified), fields(current));
    for (key, desired) in modified.iter() {
        let child = schema.and_then(|schema| schema.child(key));
        match desired {
            Value::Object(_) => {
                let at = |object: &Object| object.get(key).cloned().unwrap_or_default();
                let replaced = schema
                    .and_then(|schema| schema.field(key))
                    .is_some_and(|(field, _)| field.patch.replace || field.patch.retain_keys);
                if !replaced {
                    check_rules(&at(&original), desired, &at(&current), &merged[key], child);
                }
            }
            Value::Array(_) => {}
            scalar => assert_eq!(&merged[key], scalar, "{key} is as modified"),
        }
    }
    for key in original.keys().filter(|key| !modified.contains_key(key)) {
        assert_eq!(merged.get(key), None, "{key} is removed");
    }
    for (key, value) in current.iter().filter(|(key, _)| !modified.contains_key(key) && !original.contains_key(key)) {
        assert_eq!(merged.get(key), Some(value), "{key} is kept");
    }
}

fn names(list: &Value, key: &str) -> Vec<Value> {
    list.as_array().unwrap_or_default().iter().map(|item| item[key].clone()).collect()
}

proptest! {
    #[test]
    fn applying_a_two_way_patch_gives_the_target(from in any_thing(), to in any_thing()) {
        let patch = create_two_way(&from, &to, thing()).unwrap();
        prop_assert_eq!(Value::Object(apply(from, patch, thing()).unwrap()), Value::Object(to));
    }

    #[test]
    fn patch_between_equal_objects_is_empty(object in any_thing()) {
        prop_assert!(create_two_way(&object, &object, thing()).unwrap().is_empty());
        prop_assert!(create_three_way(&object, &object, &object, thing(), OnConflict::Fail).unwrap().is_empty());
    }

    #[test]
    fn three_way_merge_sets_removes_and_keeps_fields(
        original in any_thing(), modified in any_thing(), current in any_thing(),
    ) {
        let patch = create_three_way(&original, &modified, &current, thing(), OnConflict::Overwrite).unwrap();
        let merged = Value::Object(apply(current.clone(), patch, thing()).unwrap());
        let (original, modified, current) = (original.into(), modified.into(), current.into());
        check_rules(&original, &modified, &current, &merged, Some(thing()));
    }

    #[test]
    fn three_way_merge_of_a_list_works_per_item(
        original in any_thing(), modified in any_thing(), current in any_thing(),
    ) {
        let patch = create_three_way(&original, &modified, &current, thing(), OnConflict::Overwrite).unwrap();
        let merged = Value::Object(apply(current.clone(), patch, thing()).unwrap());
        let containers = |object: &Value| names(&object["spec"]["containers"], "name");
        let (original, modified, current) = (original.into(), modified.into(), current.into());
        let (old, desired) = (containers(&original), containers(&modified));
        if modified["spec"]["containers"].is_null() {
            return Ok(());
        }
        let got = containers(&merged);
        let actual: Vec<_> = got.iter().filter(|name| desired.contains(name)).cloned().collect();
        prop_assert_eq!(actual, desired.clone(), "the items have the desired order");
        for name in containers(&current) {
            let stays = desired.contains(&name) || !old.contains(&name);
            prop_assert_eq!(got.contains(&name), stays, "{} stays if wanted or somebody else's", name);
        }
    }

    #[test]
    fn applying_a_three_way_patch_is_idempotent(
        original in any_thing(), modified in any_thing(), current in any_thing(),
    ) {
        let patch = create_three_way(&original, &modified, &current, thing(), OnConflict::Overwrite).unwrap();
        let once = apply(current, patch, thing()).unwrap();
        let again = create_three_way(&original, &modified, &once, thing(), OnConflict::Overwrite).unwrap();
        let twice = apply(once.clone(), again, thing()).unwrap();
        prop_assert_eq!(Value::Object(twice), Value::Object(once));
    }

    #[test]
    fn arbitrary_objects_as_patches_do_not_panic(current in any_thing(), patch in crate::patch::notation::any_value()) {
        if let Value::Object(patch) = patch {
            let _ = apply(current, patch, thing());
        }
    }
}
