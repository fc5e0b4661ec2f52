//! Table tests of CEL: each line of `rows/*.txt` is a case, `expression => value` or `expression => error: message`.
//!
//! A line `env: name` selects the environment for the following lines. `check:` before an expression stops after the
//! checker and prints the type; `cost:` prints the cost of a run, `estimate:` its estimated cost. Lines that start with
//! `#` and a blank describe the cases below them.

mod support;

use std::path::Path;

use cel::{Env, Meter};
use support::{Surroundings, surroundings};

#[test]
fn every_row_holds() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rows");
    let mut files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut count, mut wrong) = (0, Vec::new());
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        count += run_file(&name, &text, &mut wrong);
    }
    assert!(wrong.is_empty(), "{} of {count} rows do not hold:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 1200, "{count} rows");
}

fn run_file(name: &str, text: &str, wrong: &mut Vec<String>) -> usize {
    let mut env = surroundings("all");
    let mut count = 0;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line == "#" || line.starts_with("# ") {
            continue;
        }
        if let Some(env_name) = line.strip_prefix("env: ") {
            env = surroundings(env_name);
            continue;
        }
        let Some((row, expect)) = line.rsplit_once(" => ") else {
            wrong.push(format!("{name}:{}: no `=>` in {line}", at + 1));
            continue;
        };
        count += 1;
        let found = run_row(&env, row.trim());
        if found != expect.trim() {
            wrong.push(format!("{name}:{}: {row}\n    expected {}\n    found    {found}", at + 1, expect.trim()));
        }
    }
    count
}

/// Runs a row; `\n` in a row is a line break, so that multi-line expressions fit on one line.
fn run_row(surroundings: &Surroundings, row: &str) -> String {
    for (mode, show) in [
        ("check: ", show_type as fn(&Surroundings, &str) -> String),
        ("cost: ", show_cost),
        ("estimate: ", show_estimate),
    ] {
        if let Some(expression) = row.strip_prefix(mode) {
            return show(surroundings, expression);
        }
    }
    show_value(surroundings, row)
}

fn show_type(surroundings: &Surroundings, expression: &str) -> String {
    match surroundings.env.compile(expression) {
        Ok(compiled) => compiled.program.result_type().to_string(),
        Err(findings) => first(&findings),
    }
}

fn first(findings: &cel::Findings) -> String {
    let messages: Vec<_> =
        findings.iter().map(|finding| format!("error: {} @{}", finding.message, finding.offset)).collect();
    messages.join("; ")
}

fn show_value(surroundings: &Surroundings, expression: &str) -> String {
    let compiled = match surroundings.env.compile(expression) {
        Ok(compiled) => compiled,
        Err(findings) => {
            return format!("error: {}", findings.iter().next().expect("a rejection has a message").message);
        }
    };
    match compiled.program.evaluate(&surroundings.variables()) {
        Ok(outcome) => outcome.value.to_string(),
        Err(failure) => format!("error: {failure}"),
    }
}

fn show_cost(surroundings: &Surroundings, expression: &str) -> String {
    let compiled = match surroundings.env.compile(expression) {
        Ok(compiled) => compiled,
        Err(findings) => return first(&findings),
    };
    let meter = Meter::new(cel::cost::limits::PER_CALL);
    match compiled.program.run(&surroundings.variables(), &meter) {
        Ok(_) => meter.cost().to_string(),
        Err(failure) => format!("{} {failure}", meter.cost()),
    }
}

fn show_estimate(surroundings: &Surroundings, expression: &str) -> String {
    match surroundings.env.compile(expression) {
        Ok(compiled) => format!("{}..{}", compiled.estimate.min, compiled.estimate.max),
        Err(findings) => first(&findings),
    }
}

#[test]
fn environment_is_cheap_to_extend() {
    let base = Env::new(cel::Strictness::Kubernetes);
    let extended = base.clone().with_variable("x", cel::Type::Int);
    assert!(base.compile("x").is_err());
    assert!(extended.compile("x").is_ok());
}
