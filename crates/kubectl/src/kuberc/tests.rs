use super::decode::{NoPreference, decode_file};
use super::*;
use crate::Invocation;
use crate::commands::ROOT;
use crate::flags::Parsed;

const FILE: &str = r#"---
apiVersion: kubectl.config.k8s.io/v1beta1
kind: Preference
defaults:
- command: get
  options: [{name: output, default: wide}, {name: namespace, default: web}]
- command: set image
  options: [{name: all, default: "true"}]
aliases:
- name: getn
  command: get
  prependArgs: [nodes]
  options: [{name: output, default: yaml}]
- name: runx
  command: run
  options: [{name: image, default: nginx}, {name: env, default: A=1}, {name: env, default: B=2}]
  appendArgs: [test, --, one]
credentialPluginPolicy: Allowlist
credentialPluginAllowlist: [{command: a}, {name: b}]
"#;

fn strings(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn preference(text: &str) -> Preference {
    let decoded = decode_file(text, |_, problem| panic!("{problem}")).unwrap().unwrap();
    assert_eq!(decoded.problems, Vec::<String>::new());
    decoded.preference
}

/// Returns the command line that kubectl runs, with all flags.
fn run(preference: &Preference, line: &str) -> Result<String, String> {
    let args = strings(line);
    let (mut invocation, alias) = parse(preference, &args)?;
    let warnings = apply_defaults(&ROOT, preference, &mut invocation, alias)?;
    Ok(warnings.into_iter().chain([invocation.command_line()]).collect::<Vec<_>>().join("\n"))
}

fn parse<'a>(preference: &'a Preference, args: &[String]) -> Result<(Invocation, Option<&'a str>), String> {
    match flags::parse(&ROOT, args).unwrap() {
        Parsed::Run(invocation) => Ok((invocation, None)),
        Parsed::Unknown { name, at, .. } => {
            let alias = preference.aliases.iter().find(|alias| alias.name == name).unwrap();
            let args = expand_alias(&ROOT, alias, args, at)?;
            let Parsed::Run(mut invocation) = flags::parse(&ROOT, &args).unwrap() else {
                panic!("{args:?} is no command")
            };
            set_options(alias, &mut invocation)?;
            Ok((invocation, Some(&alias.name)))
        }
        Parsed::Help(_) => panic!("no help was requested"),
    }
}

#[test]
fn defaults_and_aliases_set_flags_that_are_not_given() {
    let preference = preference(FILE);
    for (line, expect) in [
        ("get pods", "kubectl get pods --output=wide --namespace=web"),
        ("get pods -ojson -n a", "kubectl get pods --output=json --namespace=a"),
        ("set image pod/a b=c", "kubectl set image pod/a b=c --all=true"),
        // The defaults of a command do not apply to its aliases.
        ("getn one", "kubectl get nodes one --output=yaml"),
        ("--namespace a getn one -oname", "kubectl get nodes one --namespace=a --output=name"),
        ("runx", "kubectl run test one --image=nginx --env=A=1 --env=B=2"),
        ("runx --env=C=3", "kubectl run test one --env=C=3 --image=nginx"),
        ("describe pods", "kubectl describe pods"),
    ] {
        assert_eq!(run(&preference, line).as_deref(), Ok(expect), "{line}");
    }
}

#[test]
fn wrong_preferences_are_reported_with_their_command() {
    let with = |rest: &str| preference(&format!("apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n{rest}"));
    let check = |rest: &str, line: &str, expect: &str| assert_eq!(run(&with(rest), line).unwrap_err(), expect);
    check("defaults: [{command: get, options: [{name: x}]}]", "get pods", "invalid flag x for command get");
    check(
        "defaults: [{command: get, options: [{name: watch, default: maybe}]}]",
        "get pods",
        "could not apply override value maybe to flag watch in command get err: invalid argument \"maybe\" for \"-w, --watch\" \
         flag: strconv.ParseBool: parsing \"maybe\": invalid syntax",
    );
    check("aliases: [{name: a, command: get, options: [{name: x}]}]", "a", "invalid alias flag x in alias a");
    check("aliases: [{name: a, command: fly up}]", "a", "command \"fly up\" not found to set alias \"a\": [fly up]");
    let overridden = "aliases: [{name: a, command: get}]\ndefaults: [{command: a, options: []}]";
    check(overridden, "a", "alias a can not be overridden");
    let warned = run(&with(overridden), "get pods").unwrap();
    assert_eq!(warned, "Warning: command \"a\" not found to set kuberc override\nkubectl get pods");
    for (rest, expect) in [
        ("aliases: [{name: a1, command: get}]", "invalid alias name, can only include alphabetical characters"),
        ("aliases: [{name: a, command: get}, {name: a, command: get}]", "duplicate alias name a"),
        ("defaults: [{command: get, options: [{name: -o}]}]", "flag name -o should be in long form without dashes"),
    ] {
        assert_eq!(with(rest).validate().unwrap_err(), expect);
    }
}

#[test]
fn first_preference_of_a_known_version_counts() {
    let mut skipped = Vec::new();
    let text = "a: [\n---\nkind: Pod\n---\napiVersion: kubectl.config.k8s.io/v1alpha1\nkind: Preference\nmore: 1\n\
        overrides:\n- command: get\n  flags: [{name: output, default: json, x: 1}]\n---\napiVersion: kubectl.config.k8s.io/v9\n";
    let decoded = decode_file(text, |entry, _| skipped.push(entry)).unwrap().unwrap();
    assert_eq!(skipped, [1, 2]);
    assert_eq!(decoded.problems, ["unknown field \"more\"", "unknown field \"overrides[0].flags[0].x\""]);
    assert_eq!(decoded.preference.defaults[0].options, [FlagValue { name: "output".into(), value: "json".into() }]);
    assert!(decode_file("---\n\n", |_, _| ()).unwrap().is_none());
    assert!(matches!(decode_file("kind: Preference", |_, _| ()), Err(NoPreference)));
    let wrong = "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\ndefaults: [{command: 1}]";
    assert!(matches!(decode_file(wrong, |_, _| ()), Err(NoPreference)));
    let decoded = decode_file(FILE, |_, _| ()).unwrap().unwrap();
    assert_eq!((decoded.policy.as_str(), decoded.allowlist), ("Allowlist", Some(vec!["a".into(), "b".into()])));
}

#[test]
fn flag_precedes_variable_and_default_file() {
    let default = Path::new("/home/a/.kube/kuberc");
    let find = |flag, variable| location(flag, variable, default).map_err(|failure| failure.message);
    let at = |file: &str, explicit| Ok(Some(Location { file: file.into(), explicit }));
    assert_eq!(find("", ""), at("/home/a/.kube/kuberc", false));
    assert_eq!(find("", "/b"), at("/b", true));
    assert_eq!(find("/c", "/b"), at("/c", true));
    assert_eq!(find("", "off"), Ok(None));
    assert!(find("/c", "off").unwrap_err().contains("mutually exclusive"));
}

#[test]
fn flags_are_found_before_the_command_is_known() {
    let file = |line| flag_value(&strings(line));
    assert_eq!(file("get --kuberc a pods").as_deref(), Ok("a"));
    assert_eq!(file("x --kuberc=b=c").as_deref(), Ok("b=c"));
    assert_eq!(file("exec a -- --kuberc=b").as_deref(), Ok(""));
    assert_eq!(file("kuberc view --kubercx=1").as_deref(), Ok(""));
    assert!(file("get --kuberc").is_err() && file("get --kuberc=").is_err());
    for (line, expect) in [("-v 5", 5), ("-v=6 get", 6), ("get --v 7", 7), ("get --v=8", 8), ("get -v9", 9), ("get", 0)]
    {
        assert_eq!(verbosity(&strings(line)), expect, "{line}");
    }
}
