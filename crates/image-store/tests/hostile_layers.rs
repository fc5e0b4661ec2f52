//! Tests with hostile layers: the corpus of the fuzz target `unpack`, and generated programs.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

#[test]
fn corpus_layers_change_nothing_outside_of_the_layer() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/unpack");
    let mut count = 0;
    for entry in fs::read_dir(&corpus).expect("the corpus is committed") {
        let path = entry.expect("it can be listed").path();
        println!("{}", path.display());
        image_store::canary::check(&fs::read(&path).expect("it can be read"));
        count += 1;
    }
    assert!(count > 0, "{} is empty", corpus.display());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn generated_layers_change_nothing_outside_of_the_layer(program in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut input = vec![1];
        input.extend(program);
        image_store::canary::check(&input);
    }
}
