use super::*;
use crate::{json, value};

#[track_caller]
fn reads(yaml: &str, json: &str) {
    assert_eq!(json::to_string(&parse(yaml).unwrap()), json, "{yaml}");
}

#[track_caller]
fn fails(yaml: &str, error: &str) {
    assert_eq!(parse(yaml).unwrap_err().to_string(), error, "{yaml}");
}

#[track_caller]
fn writes(value: impl Into<Value>, yaml: &str) {
    let value = value.into();
    assert_eq!(to_string(&value), yaml);
    assert_eq!(parse(yaml).unwrap(), value, "{yaml}");
}

#[test]
fn plain_scalars_have_the_types_of_yaml_1_1() {
    reads("[yes, No, on, OFF, y, N, true, False]", "[true,false,true,false,true,false,true,false]");
    reads("[null, ~, Null, '', '~']", r#"[null,null,null,"","~"]"#);
    reads("a:\nb: ~\n", r#"{"a":null,"b":null}"#);
    reads("[yEs, nULL, tRUE]", r#"["yEs","nULL","tRUE"]"#);
}

#[test]
fn numbers_parse_like_go() {
    reads("[0644, 0o644, 0x1F, 0b101, -0x10, 1_000, +12]", "[420,420,31,5,-16,1000,12]");
    reads("[08, 0, 00, -0]", "[8,0,0,0]");
    reads("[1e3, 1.0, 1.50, .5, 5., 1.5e-7, -1.25]", "[1000,1,1.5,0.5,5,1.5e-7,-1.25]");
    reads("[9223372036854775807, 18446744073709551615]", "[9223372036854775807,18446744073709552000]");
    reads("[1.2.3, 0x, 1e, '1', 1:30, 12e999]", r#"["1.2.3","0x","1e","1","1:30","12e999"]"#);
}

#[test]
fn timestamps_stay_strings() {
    reads("[2001-01-01, 2001-1-1T1:2:3Z, 2001-13-01]", r#"["2001-01-01","2001-1-1T1:2:3Z","2001-13-01"]"#);
}

#[test]
fn tags_determine_the_type_of_a_scalar() {
    reads("[!!str 1, !!int '5', !!float 3, !!binary aGk=, !custom x]", r#"["1",5,3,"hi","x"]"#);
    fails("!!int x", "yaml: line 1: cannot decode \"x\" as a !!int");
}

#[test]
fn keys_become_strings() {
    reads(
        "{1: a, 1.5: c, yes: d, n: f, 2001-01-01: e}",
        r#"{"1":"a","1.5":"c","2001-01-01":"e","false":"f","true":"d"}"#,
    );
}

#[test]
fn aliases_expand_to_their_anchors() {
    reads("a: &x {b: 1}\nc: *x\n", r#"{"a":{"b":1},"c":{"b":1}}"#);
    reads("a: &x 1\nb: *x\n", r#"{"a":1,"b":1}"#);
    assert!(parse("a: *x").is_err());
    fails("a: &x [*x]", "yaml: line 1: anchor value contains itself");
}

#[test]
fn merge_keys_merge_mappings_and_later_values_win() {
    reads("base: &b {x: 1, z: 2}\nd:\n  <<: *b\n  z: 3\n", r#"{"base":{"x":1,"z":2},"d":{"x":1,"z":3}}"#);
    reads("<<: [{a: 1}, {a: 2, b: 3}]\nc: 4\n", r#"{"a":1,"b":3,"c":4}"#);
    reads("'<<': 1", r#"{"<<":1}"#);
    fails("<<: 1", "yaml: line 1: map merge requires map or sequence of maps as the value");
}

#[test]
fn block_scalars_keep_or_fold_their_lines() {
    reads("a: |\n  x\n   y\n\nb: >-\n  x\n  y\n", r#"{"a":"x\n y\n","b":"x y"}"#);
    reads("a: |+\n  x\n\nb: 1 # not text\n", r#"{"a":"x\n\n","b":1}"#);
}

#[test]
fn several_documents_are_parsed() {
    let all = |text: &str| parse_all(text).unwrap();
    assert_eq!(all("# nothing\n"), []);
    assert_eq!(
        all("a: 1\n---\nb: 2\n...\n---\n---\n- c\n"),
        [value!({"a": 1}), value!({"b": 2}), Value::Null, value!(["c"])]
    );
    assert_eq!(parse("").unwrap(), Value::Null);
    fails("a: 1\n---\nb: 2\n", "yaml: more than one document");
    let mut broken = documents("a: 1\n---\n[\n");
    assert!(broken.next().unwrap().is_ok());
    assert!(broken.next().unwrap().is_err());
    assert!(broken.next().is_none());
}

#[test]
fn values_without_json_form_fail_with_the_line() {
    fails("a: 1\n? [b]\n: 2\n", "yaml: line 2: unsupported map key");
    fails("~: 1", "yaml: line 1: unsupported map key");
    fails("- .inf", "yaml: line 1: unsupported value .inf");
    for bad in ["a: b: c", "[1, 2", "\"x", "a\n b: c", "%YAML 9"] {
        assert!(matches!(parse(bad), Err(Error::Syntax(_))), "{bad}");
    }
}

#[test]
fn nesting_and_aliases_are_bounded() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(parse(&deep(127)).is_ok());
    assert!(parse(&deep(128)).is_err());
    assert!(parse(&deep(100_000)).is_err());
    let mut laughs = "a0: &a0 [lol]\n".to_owned();
    for at in 1..30 {
        let before = format!("*a{}", at - 1);
        laughs.push_str(&format!("a{at}: &a{at} [{}]\n", [before.as_str(); 9].join(",")));
    }
    assert!(matches!(parse(&laughs), Err(Error::Aliases)));
    let text = "x".repeat(100_000);
    let copies = vec!["*a"; 1_000].join(",");
    assert!(matches!(parse(&format!("[&a {text},{copies}]")), Err(Error::Aliases)));
}

#[test]
fn ambiguous_strings_are_quoted() {
    for text in ["yes", "No", "on", "y", "true", "null", "~", "", "0644", "1e3", "1", "-1.5", ".5", "0x1f", "1_000"] {
        writes(text, &format!("\"{text}\"\n"));
    }
    for text in ["2001-01-01", "2008-01-01T01:01:01Z", "1:30", ".inf"] {
        writes(text, &format!("\"{text}\"\n"));
    }
    for text in ["a", "a b", "1.2.3", "v1", "a:b", "a#b", "-a", "yEs", "100m", "é", "http://x/?a=b"] {
        writes(text, &format!("{text}\n"));
    }
    for text in ["- a", "a: b", "a #b", "#a", "*a", "&a", "!a", "%a", "@a", "[a]", "{a}", " a", "a ", "a:", "---"] {
        writes(text, &format!("'{text}'\n"));
    }
    writes("'a'", "'''a'''\n");
    writes("a\tb", "\"a\\tb\"\n");
    writes("\u{1F600}\u{1}", "\"\\U0001F600\\x01\"\n");
}

#[test]
fn multiline_text_is_a_block_scalar() {
    writes(value!({"a": "x\ny\n"}), "a: |\n  x\n  y\n");
    writes(value!({"a": "x\ny"}), "a: |-\n  x\n  y\n");
    writes(value!({"a": "x\n\n"}), "a: |+\n  x\n\n");
    writes(value!({"a": " x\n\n y\n"}), "a: |2\n   x\n\n   y\n");
    writes(value!({"a": ["x\n"]}), "a:\n- |\n  x\n");
    writes(value!({"a": "x \ny"}), "a: \"x \\ny\"\n");
    writes(value!({"a\nb": 1}), "? |-\n  a\n  b\n: 1\n");
}

#[test]
fn lists_are_not_indented_under_their_key() {
    let pod =
        value!({"spec": {"containers": [{"name": "a", "args": ["x", "y"]}, {"name": "b"}], "list": [[1, 2], []]}});
    writes(
        pod,
        "spec:\n  containers:\n  - args:\n    - x\n    - \"y\"\n    name: a\n  - name: b\n  list:\n  - - 1\n    - 2\n  - []\n",
    );
    writes(value!({"a": {}, "b": [], "c": null, "d": true}), "a: {}\nb: []\nc: null\nd: true\n");
}

#[test]
fn long_lines_are_folded_at_a_space() {
    let long_line = ["word"; 30].join(" ");
    let first = ["word"; 16].join(" ");
    let second = ["word"; 14].join(" ");
    writes(value!({"a": (long_line.as_str())}), &format!("a: {first}\n  {second}\n"));
    let quoted = format!("{long_line}: x");
    let yaml = to_string(&value!({"a": (quoted.as_str())}));
    assert!(yaml.lines().count() == 2 && yaml.starts_with("a: 'word"), "{yaml}");
    assert_eq!(parse(&yaml).unwrap(), value!({"a": (quoted.as_str())}));
}

#[test]
fn keys_are_sorted_naturally() {
    let object = value!({"a10": 1, "a2": 2, "a": 3, "B": 4, "_c": 5, "a-b": 6, "a01": 7, "aB": 8});
    let keys: Vec<String> = to_string(&object).lines().map(|line| line.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(keys, ["_c", "B", "a", "a-b", "a01", "a2", "a10", "aB"]);
}

#[test]
fn floats_are_formatted_like_go() {
    let check = |float: f64, text: &str| assert_eq!(to_string(&Value::Float(float)), format!("{text}\n"));
    check(0.1, "0.1");
    check(1.5, "1.5");
    check(-1234.25, "-1234.25");
    check(0.000_1, "0.0001");
    check(0.000_01, "1e-05");
    check(123_456.5, "123456.5");
    check(1_234_567.5, "1.2345675e+06");
    check(1e21, "1e+21");
    check(1.5e300, "1.5e+300");
}

#[test]
fn last_value_of_a_duplicate_key_counts_and_the_key_is_reported() {
    let check = |text: &str, expect: Value, duplicates: &[&str]| {
        let (value, repeated) = parse_strict(text).unwrap();
        assert_eq!(value, expect, "{text}");
        assert_eq!(repeated, duplicates, "{text}");
    };
    check("a: 1\nb: 2\na: 3\n", value!({"a": 3, "b": 2}), &["line 3: key \"a\" already set in map"]);
    check("a: 1\na:\n  b: 1\n", value!({"a": {"b": 1}}), &["line 3: key \"a\" already set in map"]);
    check("1: a\n'1': b\n", value!({"1": "b"}), &["line 2: key \"1\" already set in map"]);
    check("x: &x {a: 1}\nz: {<<: *x, a: 2}\n", value!({"x": {"a": 1}, "z": {"a": 2}}), &[]);
}

#[test]
fn boolean_words_are_strings_on_request() {
    let text = "a: yes\nn: off\nb: true\nc: 'no'";
    let textual = documents(text).with_bool_words_as_text().next().unwrap().unwrap();
    assert_eq!(textual, value!({"a": "yes", "n": "off", "b": true, "c": "no"}));
    assert_eq!(parse(text).unwrap(), value!({"a": true, "false": false, "b": true, "c": "no"}));
}

#[test]
fn lines_of_nested_keys_and_list_items_are_recorded_on_request() {
    let text = "# x\na:\n  b: 1\n  c: [d,\n    {e: 2}]\nf: 3\n";
    let mut read = documents(text).with_lines();
    read.next().unwrap().unwrap();
    let lines: Vec<String> = read.lines().iter().map(|(path, line)| format!("{}:{line}", path.join("."))).collect();
    assert_eq!(lines, ["a:2", "a.b:3", "a.c:4", "a.c.0:4", "a.c.1:5", "a.c.1.e:5", "f:6"]);
    let mut read = documents(text);
    read.next().unwrap().unwrap();
    assert!(read.lines().is_empty());
}
