//! Replay of the committed corpora of the fuzz targets.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fuzzing::TARGETS;

/// Time for which each target runs mutated inputs.
const MUTATED_TIME: Duration = Duration::from_secs(1);

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

/// Runs mutations close to the corpora with every test run. This does not replace fuzzing.
#[test]
fn mutations_of_the_corpora_run_without_a_finding() {
    for (name, check) in TARGETS {
        let mut inputs: Vec<PathBuf> = entries(&fuzz().join("corpus").join(name));
        inputs.sort();
        let inputs: Vec<Vec<u8>> = inputs.iter().map(|input| fs::read(input).unwrap()).collect();
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let end = Instant::now() + MUTATED_TIME;
        while Instant::now() < end {
            let input = mutated(&inputs, &mut random);
            let found = std::panic::catch_unwind(|| check(&input));
            assert!(found.is_ok(), "{name}: {:?}", String::from_utf8_lossy(&input));
        }
    }
}

/// A xorshift random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or_default() % end.max(1)
    }
}

/// Returns an input with some bytes changed, removed, or taken from another input.
fn mutated(inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const TELLING: &[u8] = b"/%?&=:.\n\0\xff ";
    let mut input = inputs[random.below(inputs.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let end = (at + random.below(8)).min(input.len());
        let byte = TELLING[random.below(TELLING.len())];
        match random.below(5) {
            0 => input.insert(at, byte),
            1 => drop(input.drain(at..end)),
            2 => {
                let other = &inputs[random.below(inputs.len())];
                let from = random.below(other.len() + 1);
                let part = other[from..(from + random.below(24)).min(other.len())].to_vec();
                drop(input.splice(at..end, part));
            }
            3 => input[at..end].fill(byte),
            _ => input[at..end].iter_mut().for_each(|one| *one ^= 1 << random.below(8)),
        }
    }
    input
}

#[test]
fn every_corpus_has_a_target_and_a_binary() {
    let name = |path: PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    let corpora: BTreeSet<String> = entries(&fuzz().join("corpus")).into_iter().map(name).collect();
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(corpora, targets);
    for target in targets {
        let program = fs::read_to_string(fuzz().join("fuzz_targets").join(format!("{target}.rs"))).unwrap();
        assert!(program.contains(&format!("fuzzing::check(\"{target}\", ")), "{target}");
    }
}
