//! The committed corpora of the fuzz targets, replayed.
#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fuzzing::TARGETS;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    found.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn committed_corpora_replay_without_a_finding() {
    for (name, check) in TARGETS {
        let inputs = entries(&fuzz().join("corpus").join(name));
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for input in inputs {
            println!("{}", input.display());
            check(&fs::read(&input).unwrap());
        }
    }
}

#[test]
fn every_corpus_has_a_target_and_a_program() {
    let name = |path: PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    let corpora: BTreeSet<String> = entries(&fuzz().join("corpus")).into_iter().map(name).collect();
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(corpora, targets);
    for target in targets {
        let program = fs::read_to_string(fuzz().join("fuzz_targets").join(format!("{target}.rs"))).unwrap();
        assert!(program.contains(&format!("fuzzing::{target}::check(")), "{target}");
    }
}
