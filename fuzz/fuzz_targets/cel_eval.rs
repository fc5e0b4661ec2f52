//! CEL evaluation: no expression makes the evaluator panic or exceed its budget, and evaluation is deterministic.
#![no_main]

use cel::{Env, EnvSet, Library, Meter, Type, Val};
use libfuzzer_sys::fuzz_target;
use apimachinery::json;

const OBJECT: &[u8] = br#"{"a": 1, "s": "text", "l": [1, 2, 3], "m": {"k": "v"}, "n": null, "d": 1.5, "b": true}"#;

fn env() -> Env {
    EnvSet::default()
        .stored
        .with_libraries(&[Library::Bind, Library::Math, Library::Encoders, Library::StringsReverse])
        .with_variable("self", Type::Dyn)
        .with_mutation()
}

fuzz_target!(|source: &str| {
    let Ok(compiled) = env().compile(source) else { return };
    let object = json::parse(OBJECT).expect("the object is JSON");
    let run = || {
        let meter = Meter::new(100_000);
        let variables = [("self", Val::json(&object, None).expect("an untyped expression has no type error"))];
        let result = compiled.program.run(&variables, &meter);
        (result.map(|value| (value.to_json().is_ok(), value.type_of())).map_err(|failure| failure.to_string()), meter.cost())
    };
    assert_eq!(run(), run());
});
