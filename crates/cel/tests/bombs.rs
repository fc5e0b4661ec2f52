//! Tests of hostile expressions: each is rejected or stopped by a limit that is counted, not timed.

use cel::{Env, EnvSet, Failure, Library, Meter, Type};

fn env() -> Env {
    EnvSet::default().stored.with_libraries(&[Library::Bind, Library::Math]).with_variable("x", Type::Dyn)
}

fn assert_rejected(expression: &str, expected: &str) {
    let findings =
        env().compile(expression).err().unwrap_or_else(|| panic!("{}…", &expression[..60.min(expression.len())]));
    let message = findings.iter().next().expect("a rejection has a message").message.clone();
    assert!(message.contains(expected), "{message}");
}

/// Runs an expression with the budget of one expression, and expects the given failure.
fn stopped(expression: &str, expect: &Failure) {
    let compiled = env().compile(expression).unwrap_or_else(|findings| panic!("{findings}"));
    let meter = Meter::new(cel::cost::limits::PER_CALL);
    match compiled.program.run(&(), &meter) {
        Err(failure) => assert_eq!(failure, *expect, "{expression}"),
        Ok(_) => panic!("{expression} ran to its end at a cost of {}", meter.cost()),
    }
    // A single call must not exceed the remaining budget by much: the limit must be checked early enough.
    assert!(meter.steps() <= 1_100_000, "{} steps: {expression}", meter.steps());
}

fn ends(expression: &str) -> u64 {
    let compiled = env().compile(expression).unwrap_or_else(|findings| panic!("{findings}"));
    let meter = Meter::new(cel::cost::limits::PER_CALL);
    let _ = compiled.program.run(&(), &meter);
    assert!(meter.steps() <= 1_100_000, "{} steps: {expression}", meter.steps());
    meter.cost()
}

#[test]
fn deep_nesting_is_rejected() {
    for open in ["(", "[", "{1:", "-(", "!(", "x[", "f(", "true ? true : ", "[1].map(x, ", "cel.bind(y, 1, "] {
        assert_rejected(&open.repeat(20_000 / open.len()), "limit exceeded");
    }
    assert_rejected(&format!("x{}", ".y".repeat(10_000)), "limit exceeded");
    assert_rejected(&format!("1{}", "+1".repeat(10_000)), "limit exceeded");
    assert_rejected(&format!("x{}", ".?y".repeat(10_000)), "limit exceeded");
    assert_rejected(&format!("optional.of(1){}", ".optMap(y, y)".repeat(3_000)), "limit exceeded");
}

#[test]
fn long_sources_are_rejected_or_take_linear_time() {
    assert_rejected(&"x".repeat(100_001), "size exceeds limit");
    assert_eq!(ends(&format!("[{}].size()", vec!["1"; 30_000].join(","))), 1);
    assert_eq!(ends(&format!("'{}'.size()", "a".repeat(99_000))), 1);
    ends(&vec!["true"; 12_000].join(" && "));
    assert_rejected(&"1".repeat(50_000), "invalid int literal");
    ends(&format!("[{}].size()", vec!["1+1"; 20_000].join(",")));
    ends(&format!("{{{}}}.size()", (0..10_000).map(|i| format!("{i}:{i}")).collect::<Vec<_>>().join(",")));
}

#[test]
fn nested_loops_run_out_of_budget() {
    let range = "[0,1,2,3,4,5,6,7,8,9]";
    let mut expression = "true".to_owned();
    for depth in 0..12 {
        expression = format!("{range}.all(v{depth}, {expression})");
    }
    stopped(&expression, &Failure::Cost);
    stopped("lists.range(100000).map(a, lists.range(100000).map(b, a + b))", &Failure::Cost);
    stopped("lists.range(1000).all(a, lists.range(1000).all(b, a * b >= 0))", &Failure::Cost);
}

#[test]
fn values_with_shared_parts_are_limited() {
    let doubled = |inner: &str, last: &str| {
        let mut expression = last.replace('$', "v60");
        for level in (1..=60).rev() {
            let before = level - 1;
            expression = format!("cel.bind(v{level}, {}, {expression})", inner.replace('$', &format!("v{before}")));
        }
        format!("cel.bind(v0, [1], {expression})")
    };
    stopped(&doubled("$ + $", "$.size() > 0"), &Failure::Resources);
    stopped(&doubled("[$, $]", "[$] == [$]"), &Failure::Resources);
    stopped(&doubled("[$, $]", "[$].indexOf($) == 0"), &Failure::Resources);
    stopped(&doubled("[$, $]", "'%s'.format([$]) == ''"), &Failure::Resources);
    ends(&doubled("{'a': $, 'b': $}", "$.size() > 0"));
}

#[test]
fn string_growth_is_limited() {
    let mut expression = "s20.size()".to_owned();
    for level in (1..=20).rev() {
        expression = format!("cel.bind(s{level}, s{0} + s{0} + s{0} + s{0}, {expression})", level - 1);
    }
    stopped(&format!("cel.bind(s0, 'aaaaaaaaaaaaaaaa', {expression})"), &Failure::Cost);
    stopped(
        "cel.bind(s, lists.range(20000).map(i, 'aaaaaaaaaa').join(), s.replace('', s).size())",
        &Failure::Resources,
    );
}

#[test]
fn pattern_size_and_time_are_limited() {
    assert_rejected("'a'.matches('(a{1000}){1000}{1000}')", "invalid matches argument");
    let evil = format!("'{}'.matches('(a*)*(a*)*(a*)*b')", "a".repeat(1000));
    assert!(ends(&evil) < 1_000);
    stopped(
        "lists.range(30000).map(i, 'aaaaaaaaaaaaaaaaaaaa').join().matches('(a|a|a|a)*(x|y|z)?(a|b)*$'.replace('x', lists.range(99).map(i, 'x').join()))",
        &Failure::Cost,
    );
}

#[test]
fn quadratic_functions_are_charged_before_they_run() {
    stopped("lists.range(2000).distinct().size()", &Failure::Cost);
    stopped("lists.range(2000).sort().size()", &Failure::Cost);
    stopped("sets.contains(lists.range(2000), lists.range(2000))", &Failure::Cost);
    stopped("lists.range(100000000).size()", &Failure::Resources);
}

/// Runs an expression with a long text and a list of long texts, and expects the step limit to stop it, independent of
/// upstream's cost.
fn stopped_by_work(expression: &str) {
    use apimachinery::Value;
    let text = "a".repeat(1 << 20);
    let items: Vec<Value> = (0..32).map(|at| Value::from(format!("{}{at:02}", "a".repeat(30_000)))).collect();
    let (text, items) = (Value::from(text), Value::Array(items));
    let env = env().with_variable("items", Type::Dyn);
    let compiled = env.compile(expression).unwrap_or_else(|findings| panic!("{expression}: {findings}"));
    let value = |of| cel::Val::json(of, None).expect("an untyped expression has no type error");
    let variables = [("x", value(&text)), ("items", value(&items))];
    let meter = Meter::new(cel::cost::limits::PER_CALL);
    assert_eq!(compiled.program.run(&variables, &meter).map(|_| ()), Err(Failure::Resources), "{expression}");
    assert!(meter.steps() <= 1_100_000, "{} steps: {expression}", meter.steps());
}

#[test]
fn traversals_of_long_texts_count_as_steps() {
    let often = |what: &str| stopped_by_work(&format!("lists.range(1000).all(i, lists.range(100).all(j, {what}))"));
    often("isURL('/' + x) || true");
    often("x.size() > 0");
    often("size(x) > 0");
    often("x.charAt(0) == 'a'");
    often("double('1' + string(i)) > 0.0 && x.size() > 0");
    often("!(x in {'a': 1})");
    often("!(items[31] in items.slice(0, 31))");
    often("strings.quote(x) != ''");
    often("'%s'.format([x]) != ''");
}

#[test]
fn patterns_compiled_at_runtime_count_as_steps() {
    let often = |what: &str| stopped_by_work(&format!("lists.range(1000).all(i, lists.range(100).all(j, {what}))"));
    often("!'b'.matches('x' + string(i * 100 + j))");
    often("!'b'.matches('[x-z]{3,40}' + string(i * 100 + j))");
    often("'b'.find('x' + string(i * 100 + j)) == ''");
    // A pattern that is used repeatedly is compiled once.
    let env = env().with_variable("y", Type::Dyn);
    let compiled = env.compile("lists.range(1000).all(i, 'b'.matches(x))").expect("the expression is right");
    let pattern = apimachinery::Value::from("[a-z]+");
    let variables = [("x", cel::Val::json(&pattern, None).unwrap())];
    assert_eq!(compiled.program.evaluate(&variables).unwrap().value.as_bool(), Some(true));
}

#[test]
fn host_can_interrupt() {
    let compiled = env().compile("lists.range(1000).all(a, lists.range(100).all(b, true))").unwrap();
    let polls = std::cell::Cell::new(0);
    let interrupt = || {
        polls.set(polls.get() + 1);
        polls.get() == 3
    };
    let meter = Meter::new(u64::MAX).with_interrupt(&interrupt);
    assert_eq!(compiled.program.run(&(), &meter).unwrap_err(), Failure::Interrupted);
}

#[test]
fn logical_operators_do_not_absorb_an_exhausted_budget() {
    stopped("lists.range(100000).all(a, lists.range(100000).all(b, a >= 0 && b >= 0)) || true", &Failure::Cost);
}

#[test]
fn types_of_nested_maps_stay_small() {
    let mut expression = "m60.size()".to_owned();
    for level in (1..=60).rev() {
        expression = format!("cel.bind(m{level}, {{m{0}: m{0}}}, {expression})", level - 1);
    }
    ends(&format!("cel.bind(m0, {{1: 1}}, {expression})"));
}

#[test]
fn largest_lists_of_a_request_can_be_compared() {
    use apimachinery::Value;
    let list =
        |last: i64| Value::Array((0..1_500_000).map(|at| Value::Int(if at == 1_499_999 { last } else { 1 })).collect());
    let (a, b) = (list(1), list(2));
    let compiled = env().with_variable("y", Type::Dyn).compile("x == x && x != y").expect("the expression is right");
    let variables = [("x", cel::Val::json(&a, None).unwrap()), ("y", cel::Val::json(&b, None).unwrap())];
    assert_eq!(compiled.program.evaluate(&variables).unwrap().value.as_bool(), Some(true));
}
