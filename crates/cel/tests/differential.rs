//! Differential test: random expressions are evaluated by another implementation, and every difference is explained.
//!
//! `differential.txt` lists the differences: an expression, this crate's result, the other's result, and the reason.

use cel::{Env, Library, Strictness};
use cel_second::objects::{Key, Value};
use cel_second::{Context, Program};

const EXPRESSIONS: u64 = 4000;

/// Returns the result of this crate: a value in its notation, `error`, or `rejected` by the checker.
fn evaluate(env: &Env, expression: &str) -> String {
    let Ok(compiled) = env.compile(expression) else { return "rejected".into() };
    compiled.program.evaluate(&()).map_or_else(|_| "error".into(), |outcome| outcome.value.to_string())
}

fn evaluate_reference(expression: &str) -> String {
    let Ok(program) = Program::compile(expression) else { return "error".into() };
    program.execute(&Context::default()).map_or_else(|_| "error".into(), |value| show(&value))
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(bool) => bool.to_string(),
        Value::Int(int) => int.to_string(),
        Value::UInt(uint) => format!("{uint}u"),
        Value::Float(double) if double.is_nan() => "NaN".into(),
        Value::Float(double) if double.is_infinite() => if *double > 0.0 { "+Inf" } else { "-Inf" }.into(),
        Value::Float(double) => format!("{double:?}"),
        Value::String(text) => format!("{text:?}"),
        Value::Bytes(bytes) => format!("b\"{}\"", bytes.escape_ascii()),
        Value::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let show_entry = |(key, value): (&Key, &Value)| format!("{}: {}", show_key(key), show(value));
            #[expect(clippy::disallowed_methods, reason = "sorted on the next line")]
            let mut entries: Vec<_> = map.map.iter().map(show_entry).collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn show_key(key: &Key) -> String {
    match key {
        Key::Int(int) => int.to_string(),
        Key::Uint(uint) => format!("{uint}u"),
        Key::Bool(bool) => bool.to_string(),
        Key::String(text) => format!("{text:?}"),
    }
}

/// A small deterministic random generator.
struct TestRng(u64);

impl TestRng {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick<'p>(&mut self, from: &[&'p str]) -> &'p str {
        from[self.roll(from.len() as u64) as usize]
    }

    fn bool(&mut self, depth: u8) -> String {
        if depth == 0 {
            return self.pick(&["true", "false"]).into();
        }
        let below = depth - 1;
        match self.roll(16) {
            0 => format!("({} && {})", self.bool(below), self.bool(below)),
            1 => format!("({} || {})", self.bool(below), self.bool(below)),
            2 => format!("!{}", self.bool(0)),
            3 => format!("({} ? {} : {})", self.bool(below), self.bool(below), self.bool(below)),
            4 => {
                format!("({} {} {})", self.int(below), self.pick(&["<", "<=", "==", "!=", ">", ">="]), self.int(below))
            }
            5 => format!("({} {} {})", self.text(below), self.pick(&["<", "==", "!=", ">="]), self.text(below)),
            6 => format!("({} {} {})", self.double(below), self.pick(&["<", "<=", "==", "!="]), self.double(below)),
            7 => format!("{}.all(x, x {} {})", self.list(below), self.pick(&["<", "!="]), self.int(0)),
            8 => format!("{}.exists(x, x == {})", self.list(below), self.int(0)),
            9 => format!("({} in {})", self.int(below), self.list(below)),
            10 => {
                format!("{}.{}({})", self.text(below), self.pick(&["startsWith", "endsWith", "contains"]), self.text(0))
            }
            11 => format!("{}.exists_one(x, x > {})", self.list(below), self.int(0)),
            12 => format!("({} == {})", self.any(below), self.any(below)),
            13 => format!("({} in {})", self.text(0), self.map(below)),
            14 => format!("has({}.a)", self.map(below)),
            _ => format!("(dyn({}) {} {})", self.any(below), self.pick(&["==", "!="]), self.any(below)),
        }
    }

    fn any(&mut self, depth: u8) -> String {
        match self.roll(8) {
            0 => self.bool(depth),
            1 => self.int(depth),
            2 => self.text(depth),
            3 => self.list(depth),
            4 => self.double(depth),
            5 => self.map(depth),
            6 => self.uint(depth),
            _ => "null".into(),
        }
    }

    fn map(&mut self, depth: u8) -> String {
        match self.roll(3) {
            0 => format!("{{'a': {}}}", self.int(depth.saturating_sub(1))),
            1 => format!("{{'b': {}, 'ab': {}}}", self.int(0), self.int(0)),
            _ => "{}".into(),
        }
    }

    fn uint(&mut self, depth: u8) -> String {
        if depth == 0 {
            return self.pick(&["0u", "1u", "7u", "18446744073709551615u"]).into();
        }
        match self.roll(2) {
            0 => format!("uint({})", self.int(depth - 1)),
            _ => {
                format!("({} {} {})", self.uint(depth - 1), self.pick(&["+", "-", "*", "/", "%"]), self.uint(depth - 1))
            }
        }
    }

    fn int(&mut self, depth: u8) -> String {
        if depth == 0 {
            return self.pick(&["0", "1", "2", "-3", "7", "9223372036854775807"]).into();
        }
        let below = depth - 1;
        match self.roll(9) {
            0..=2 => format!("({} {} {})", self.int(below), self.pick(&["+", "-", "*", "/", "%"]), self.int(below)),
            3 => format!("size({})", self.list(below)),
            4 => format!("size({})", self.text(below)),
            5 => format!("({} ? {} : {})", self.bool(below), self.int(below), self.int(below)),
            6 => format!("{}.a", self.map(below)),
            7 => format!("int({})", if self.roll(2) == 0 { self.double(below) } else { self.uint(below) }),
            _ => format!("{}[{}]", self.list(below), self.pick(&["0", "1", "5"])),
        }
    }

    fn double(&mut self, depth: u8) -> String {
        if depth == 0 {
            return self.pick(&["0.0", "1.5", "-2.25", "1e10"]).into();
        }
        format!("({} {} {})", self.double(depth - 1), self.pick(&["+", "-", "*", "/"]), self.double(depth - 1))
    }

    fn text(&mut self, depth: u8) -> String {
        if depth == 0 {
            return self.pick(&["''", "'a'", "'ab'", "'ü'", "\"b'c\"", "r'\\n'"]).into();
        }
        match self.roll(4) {
            0 => format!("({} + {})", self.text(depth - 1), self.text(depth - 1)),
            1 => format!("string({})", self.int(depth - 1)),
            2 => format!("string({})", self.pick(&["1.5", "-2.25", "0.001", "2.0"])),
            _ => format!("({} ? {} : {})", self.bool(depth - 1), self.text(depth - 1), self.text(depth - 1)),
        }
    }

    fn list(&mut self, depth: u8) -> String {
        if depth == 0 {
            return self.pick(&["[]", "[1]", "[1, 2, 3]", "[0, -3]"]).into();
        }
        let below = depth - 1;
        match self.roll(4) {
            0 => format!("[{}, {}]", self.int(below), self.int(below)),
            1 => format!("({} + {})", self.list(below), self.list(below)),
            2 => format!("{}.map(x, x + {})", self.list(below), self.int(0)),
            _ => format!("{}.filter(x, x > {})", self.list(below), self.int(0)),
        }
    }

    fn expression(&mut self) -> String {
        match self.roll(7) {
            4 => self.uint(3),
            5 => self.map(2),
            0 => self.int(3),
            1 => self.text(3),
            2 => self.list(3),
            3 => self.double(3),
            _ => self.bool(4),
        }
    }
}

/// Returns the reason of a known kind of difference.
fn known(actual: &str) -> Option<&'static str> {
    (actual == "rejected").then_some("the other implementation has no checker")
}

#[test]
fn implementations_agree_except_for_known_differences() {
    let env = Env::new(Strictness::Plain).with_library(Library::CrossTypeNumeric);
    let mut rng = TestRng(20_260_704);
    let (mut values, mut failures, mut explained, mut wrong) = (0, 0, 0, Vec::new());
    for _ in 0..EXPRESSIONS {
        let expression = rng.expression();
        let (a, b) = (evaluate(&env, &expression), evaluate_reference(&expression));
        match known(&a) {
            _ if a == b && a == "error" => failures += 1,
            _ if a == b => values += 1,
            Some(_) => explained += 1,
            None => wrong.push(format!("{expression}\n    ours   {a}\n    theirs {b}")),
        }
    }
    wrong.sort_by_key(String::len);
    wrong.truncate(20);
    let counts = format!("{values} same values, {failures} same failures, {explained} explained");
    assert!(wrong.is_empty(), "{counts}, not explained:\n{}", wrong.join("\n"));
    assert!(values > EXPRESSIONS / 2 && failures > 0 && explained > 0, "{counts}");
}

#[test]
fn listed_differences_hold() {
    let env = Env::new(Strictness::Plain).with_library(Library::CrossTypeNumeric);
    for row in include_str!("differential.txt").lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        let parts: Vec<_> = row.split(" | ").collect();
        let [expression, expected, reference_expected, reason] = parts.as_slice() else { panic!("{row}") };
        assert_eq!(evaluate(&env, expression), *expected, "ours: {expression}");
        assert_eq!(evaluate_reference(expression), *reference_expected, "theirs: {expression}");
        assert!(!reason.is_empty());
    }
}
