//! `knarr convert` as a user runs it: conversions and error messages.

use std::io::Write;
use std::process::{Command, Output, Stdio};

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"memory":"1.5Gi"}}}]}}"#;

fn knarr(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_knarr"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().expect("a pipe").write_all(input).expect("the binary reads its input");
    child.wait_with_output().expect("the binary exits")
}

fn convert(encoding: &str, input: &[u8]) -> Vec<u8> {
    let output = knarr(&["convert", "-o", encoding], input);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn pod_is_converted_from_json_to_protobuf_to_yaml() {
    let protobuf = convert("protobuf", POD.as_bytes());
    assert!(protobuf.starts_with(b"k8s\0"));
    let yaml = String::from_utf8(convert("yaml", &protobuf)).expect("YAML is text");
    assert!(yaml.starts_with("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n"), "{yaml}");
    assert!(yaml.contains("memory: 1536Mi"), "{yaml}");
}

#[test]
fn readme_example_is_converted() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/pod.yaml");
    let output = knarr(&["convert", "-f", example, "-o", "json"], b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("\"kind\": ").count(), 2);
}

#[test]
fn invalid_input_fails_with_a_clear_error() {
    let check = |args: &[&str], input: &[u8], expect: &str| {
        let output = knarr(args, input);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8_lossy(&output.stderr), expect);
        assert!(output.stdout.is_empty());
    };
    let convert = ["convert", "-o", "json"];
    check(&convert, b"", "knarr convert: -: there is no object in the input\n");
    check(&convert, b"[1]", "knarr convert: -: document 1 is not a Kubernetes object: it is of JSON type array\n");
    check(
        &["convert", "-o", "json", "-f", "/does/not/exist"],
        b"",
        "knarr convert: cannot read /does/not/exist: No such file or directory (os error 2)\n",
    );
}

#[test]
fn version_and_help_are_printed() {
    assert!(String::from_utf8_lossy(&knarr(&["--version"], b"").stdout).starts_with("knarr "));
    assert!(String::from_utf8_lossy(&knarr(&["--help"], b"").stdout).contains("convert"));
}
