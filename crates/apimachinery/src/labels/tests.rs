use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::value;

fn selector(text: &str) -> Selector {
    Selector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn selectors_are_printed_sorted_by_key_with_sorted_values() {
    let check = |text: &str, printed: &str| assert_eq!(selector(text).to_string(), printed);
    check("", "");
    check("  ", "");
    check("b=1,a==2", "a==2,b=1");
    check(" a  in ( z , y ,x ) ", "a in (x,y,z)");
    check("a notin ()", "a notin ()");
    check("a in (,)", "a in ()");
    check("a in (b,,c)", "a in (,b,c)");
    check("a in (b,)", "a in (,b)");
    check("a in (in,notin)", "a in (in,notin)");
    check("in in (in)", "in in (in)");
    check("!a,b", "!a,b");
    check("a=,b", "a=,b");
    check("a>1,b<2", "a>1,b<2");
    check("a!=b", "a!=b");
    check("example.com/a\t=\nb", "example.com/a=b");
}

#[test]
fn invalid_selectors_fail_with_upstreams_messages() {
    let check = |text: &str, error: &str| assert_eq!(Selector::parse(text).unwrap_err().to_string(), error, "{text}");
    check("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
    check("a !b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt");
    check("!", "unable to parse requirement: found '', expected: identifier");
    check("=a", "found '=', expected: !, identifier, or 'end of string'");
    check("a,", "found '', expected: identifier after ','");
    check("a,,b", "found ',', expected: identifier after ','");
    check("!a b", "found 'b', expected: ',' or 'end of string'");
    check("a=b c", "found 'c', expected: ',' or 'end of string'");
    check("a===b", "unable to parse requirement: found '=', expected: identifier");
    check("a in b", "unable to parse requirement: found 'b' expected: '('");
    check("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier");
    check("a in (b", "unable to parse requirement: found '', expected: ',' or ')'");
    check("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'");
    check("a in (,", "unable to parse requirement: found '', expected: ',', or identifier");
    check(
        "-a",
        r#"unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
    );
    check(
        "a=-",
        r#"unable to parse requirement: values[0][a]: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
    );
    check(
        "a>b",
        r#"unable to parse requirement: values[0]: Invalid value: "b": for 'Gt', 'Lt' operators, the value must be an integer"#,
    );
}

#[test]
fn selectors_match_labels() {
    let labels = value!({"metadata": {"labels": {"a": "1", "b": "x"}}});
    let check = |text: &str, matches: bool| assert_eq!(selector(text).matches_object(&labels), matches, "{text}");
    check("", true);
    check("a", true);
    check("!a", false);
    check("c!=1", true);
    check("c notin (1)", true);
    check("a in (0,1),b==x", true);
    check("a>0,a<2", true);
    check("b>0", false);
    check("c=", false);
    assert!(selector("!a").matches_object(&value!({})));
    assert!(!Selector::Nothing.matches_object(&labels));
    assert_eq!(selector("a in (1),b").exact_value("a"), Some("1"));
}

#[test]
fn selector_objects_become_selectors() {
    let check = |object: Value, printed: &str| assert_eq!(format_selector(Some(&object)), printed);
    check(value!({}), "<none>");
    check(value!({"matchLabels": {"b": "1", "a": "2"}}), "a=2,b=1");
    check(
        value!({"matchExpressions": [
            {"key": "t", "operator": "In", "values": ["y", "x"]},
            {"key": "s", "operator": "DoesNotExist"}
        ]}),
        "!s,t in (x,y)",
    );
    check(value!({"matchExpressions": [{"key": "t", "operator": "Like"}]}), "<error>");
    assert_eq!(format_selector(None), "<none>");
    assert_eq!(from_object(None), Ok(Selector::Nothing));
    assert_eq!(from_object(Some(&value!({}))), Ok(Selector::EVERYTHING));
    let error = from_object(Some(&value!({"matchExpressions": [{"key": "t", "operator": "Like"}]}))).unwrap_err();
    assert_eq!(error.to_string(), r#""Like" is not a valid label selector operator"#);
    assert_eq!(format_labels(Some(&value!({"b": "1", "a": "2"}))), "a=2,b=1");
    assert_eq!(format_labels(None), "<none>");
}

#[test]
fn invalid_selector_objects_report_errors_by_field() {
    let object = value!({"matchExpressions": [
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Exists", "values": ["b"]},
        {"key": "a", "operator": "in", "values": ["b"]}
    ]});
    let mut errors = Vec::new();
    validate_object(&object, &Path::of("spec.selector"), &mut errors);
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            r#"spec.selector.matchExpressions[2].operator: Invalid value: "in": not a valid selector operator"#,
        ]
    );
}

type Labels = BTreeMap<String, String>;

/// Implements a requirement independently, as a reference.
fn naive(requirement: &Requirement, labels: &Labels) -> bool {
    let Some(label) = labels.get(requirement.key()) else {
        return matches!(requirement.operator(), Operator::NotEquals | Operator::NotIn | Operator::DoesNotExist);
    };
    let number = |text: &str| text.parse::<i64>().ok();
    match requirement.operator() {
        Operator::Exists => true,
        Operator::DoesNotExist => false,
        Operator::Equals | Operator::DoubleEquals | Operator::In => requirement.values().contains(&label.into()),
        Operator::NotEquals | Operator::NotIn => !requirement.values().contains(&label.into()),
        Operator::GreaterThan => number(label).is_some_and(|label| Some(label) > number(&requirement.values()[0])),
        Operator::LessThan => number(label).is_some_and(|label| Some(label) < number(&requirement.values()[0])),
    }
}

fn any_requirement() -> impl Strategy<Value = String> {
    let value = "[01a]{0,2}";
    prop_oneof![
        ("[abc]", "(=|==|!=)", value).prop_map(|(key, operator, value)| format!("{key}{operator}{value}")),
        ("[abc]", "[<>]", "-?[0-9]{1,2}").prop_map(|(key, operator, value)| format!("{key}{operator}{value}")),
        ("[abc]", "(in|notin)", prop::collection::vec(value, 0..4))
            .prop_map(|(key, operator, values)| format!("{key} {operator} ({})", values.join(","))),
        "!?[abc]",
    ]
}

proptest! {
    #[test]
    fn printed_selectors_parse_back(text in prop::collection::vec(any_requirement(), 0..5)) {
        // A negative bound is an integer but not a valid label value.
        if let Ok(selector) = Selector::parse(&text.join(", ")) {
            let again = Selector::parse(&selector.to_string()).unwrap();
            prop_assert_eq!(again.to_string(), selector.to_string());
            prop_assert_eq!(again, selector);
        }
    }

    #[test]
    fn matching_agrees_with_the_reference_implementation(
        text in prop::collection::vec(any_requirement(), 0..4),
        labels in prop::collection::btree_map("[abc]", "[01a]{0,2}", 0..4),
    ) {
        if let Ok(selector) = Selector::parse(&text.join(",")) {
            let expect = selector.requirements().unwrap().iter().all(|requirement| naive(requirement, &labels));
            prop_assert_eq!(selector.matches(|key| labels.get(key).map(String::as_str)), expect);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[ab=!(),<> \\x00é]{0,20}") {
        let _ = Selector::parse(&text);
    }
}
