//! The examples on one cluster: every command of their READMEs prints the documented output.

use super::readme::{ReadmeCommand, matches_line, steps};
use super::*;

/// The root of the workspace, where users run the commands.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns the names of the directories below `examples`, sorted.
fn examples() -> Vec<String> {
    let entries = std::fs::read_dir(Path::new(ROOT).join("examples")).unwrap().map(Result::unwrap);
    let directories = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = directories.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns the commands of an example's README.
fn commands(example: &str) -> Vec<ReadmeCommand> {
    let path = Path::new(ROOT).join("examples").join(example).join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    steps(&readme, "# ")
}

/// Whether the output contains the lines that a README shows. Columns may have other widths.
fn contains_lines(output: &str, prints: &[String]) -> bool {
    let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let prints: Vec<String> = prints.iter().map(|line| squeeze(line)).collect();
    let lines: Vec<String> = output.lines().map(squeeze).collect();
    let fits = |lines: &[String]| lines.iter().zip(&prints).all(|(line, documented)| matches_line(line, documented));
    prints.is_empty() || lines.windows(prints.len()).any(fits)
}

/// Repeats a command until it prints the documented output: endpoints, metrics and rules follow objects with a delay,
/// and a CronJob may wait a minute for its schedule. A command without documented output must succeed. For a command
/// that fails, the README contains the error message.
fn follow(machine: &Machine, step: &ReadmeCommand) {
    // The examples need no other kubectl.
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", Path::new(KNARR).parent().unwrap().display());
    let start = Instant::now();
    let mut outputs: Vec<String> = Vec::new();
    loop {
        let output = machine.command("sh -c").arg(&step.command).env("PATH", &path).current_dir(ROOT).output().unwrap();
        outputs.push(text(&output));
        outputs.dedup();
        if contains_lines(&text(&output), &step.prints) && (output.status.success() || !step.prints.is_empty()) {
            return;
        }
        assert!(
            start.elapsed() < 2 * DEADLINE,
            "{step:?} printed {outputs:#?}\n{}",
            machine.output_of("kubectl get all,pvc,events -A -o wide")
        );
    }
}

#[test]
fn every_manifest_of_an_example_is_applied_by_its_readme() {
    let examples = examples();
    assert!(!examples.is_empty());
    for example in examples {
        let directory = format!("examples/{example}");
        let commands = commands(&example);
        let is_applied =
            |path: &str| commands.iter().any(|step| step.command == format!("knarr kubectl apply -f {path}"));
        for entry in std::fs::read_dir(Path::new(ROOT).join(&directory)).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            let known = file == "README.md" || is_applied(&directory) || is_applied(&format!("{directory}/{file}"));
            assert!(known, "{directory}/{file}");
        }
    }
}

#[test]
fn output_is_compared_without_column_widths() {
    let expected = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let output = "first\nNAME    KEEP\nweb-1   7\n";
    assert!(contains_lines(output, &expected(&["NAME KEEP", "web-…  7"])));
    assert!(contains_lines(output, &[]));
    assert!(!contains_lines(output, &expected(&["NAME KEEP", "web-… 8"])));
    assert!(!contains_lines(output, &expected(&["first", "web-1 7"])), "the lines follow each other");
}

#[test]
fn commands_of_the_examples_print_what_their_readmes_show() {
    let machine = Machine::new();
    machine.up();
    for example in examples() {
        println!("{example}");
        for step in commands(&example) {
            follow(&machine, &step);
        }
    }
}
