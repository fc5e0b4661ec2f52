use apimachinery::json;

use super::*;

fn run(text: &str, missing: MissingKeys) -> String {
    let object = json::parse(include_bytes!("object.json")).unwrap();
    match GoTemplate::parse(text, missing) {
        Ok(template) => {
            let mut out = String::new();
            match template.execute(&object, &mut out) {
                Ok(()) => out,
                Err(error) => format!("{out}error: {error}"),
            }
        }
        Err(error) => format!("parse: {error}"),
    }
}

/// Checks templates against the results of kubectl v1.36.
fn check_all(cases: &[u8], missing: MissingKeys) {
    for case in json::parse(cases).unwrap().as_array().unwrap() {
        let (text, expect) = (case[0].as_str().unwrap(), case[1].as_str().unwrap());
        assert_eq!(run(text, missing), expect, "{text}");
    }
}

#[test]
fn templates_print_like_kubectl() {
    check_all(include_bytes!("cases.json"), MissingKeys::Allow);
}

#[test]
fn missing_keys_can_be_errors() {
    check_all(include_bytes!("cases_missing.json"), MissingKeys::Reject);
}

#[test]
fn failures_show_the_template_and_the_object() {
    let object = apimachinery::value!({"a": "<", "b": 1});
    let template = GoTemplate::parse("x{{.a.b}}", MissingKeys::Allow).unwrap();
    let failure = "template: output:1:5: executing \"output\" at <.a.b>: can't evaluate field b in type interface {}";
    let expect = PrintError {
        output: format!(
            "xError executing template: {failure}. Printing more information for debugging the template:\n\ttemplate \
             was:\n\t\tx{{{{.a.b}}}}\n\traw data was:\n\t\t{{\"a\":\"\\u003c\",\"b\":1}}\n\tobject given to template \
             engine was:\n\t\tmap[a:< b:1]\n\n"
        ),
        message: format!("error executing template \"x{{{{.a.b}}}}\": {failure}"),
    };
    assert_eq!(template.print(&object), Err(expect));
}

#[test]
fn recursive_templates_end() {
    let error = run("{{define \"x\"}}{{template \"x\"}}{{end}}{{template \"x\"}}", MissingKeys::Allow);
    assert!(error.contains("exceeded maximum template depth"), "{error}");
}
