//! CEL checker: no expression makes the type checker or the cost estimate panic, in any environment.
#![no_main]

use cel::{Env, Host, Strictness, Type};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &str| {
    let plain = Env::new(Strictness::Plain)
        .with_variable("x", Type::Dyn)
        .with_variable("l", Type::list(Type::Int))
        .with_variable("m", Type::map(Type::String, Type::Int));
    for env in [plain, Host::MutatingPolicy.env_set().stored, Host::DeviceSelector.env_set().stored] {
        match env.compile(source) {
            Ok(compiled) => assert!(compiled.estimate.min <= compiled.estimate.max),
            Err(findings) => assert!(findings.to_string().starts_with("ERROR: <input>:")),
        }
    }
});
