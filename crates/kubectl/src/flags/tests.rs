use super::*;
use crate::Failure;
use crate::command::Group;

static LEAF: Command = Command {
    name: "leaf",
    aliases: &["lf"],
    flags: &[
        OUTPUT,
        DRY_RUN,
        &[
            Flag::bool("stdin", "").short('i'),
            Flag::bool("tty", "").short('t'),
            Flag::int("count", "3", ""),
            Flag::list("items", "").short('L'),
            Flag::array("set", ""),
            Flag::duration("wait", "5s", ""),
        ],
    ],
    run: Some(|_, _| Box::pin(async { Ok::<(), Failure>(()) })),
    ..Command::EMPTY
};
static ROOT: Command = Command { name: "kubectl", group: Group::Other, commands: &[&LEAF], ..Command::EMPTY };

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn run(text: &str) -> Invocation {
    match parse(&ROOT, &words(text)) {
        Ok(Parsed::Run(invocation)) => invocation,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn flags_and_arguments_mix() {
    let it = run("-n ns leaf a -it -ojson --count=7 b -La,b --items c --set x,y --set z --wait 1m30s -- -c --d");
    assert_eq!(it.args, ["a", "b", "-c", "--d"]);
    assert_eq!(it.dash, Some(2));
    assert_eq!(it.name(), "kubectl leaf");
    assert!(it.bool("stdin") && it.bool("tty"));
    assert_eq!((it.text("namespace"), it.text("output"), it.int("count")), ("ns", "json", 7));
    assert_eq!(it.list("items"), ["a", "b", "c"]);
    assert_eq!(it.list("set"), ["x,y", "z"]);
    assert_eq!(it.duration("wait"), Duration::from_secs(90));
}

#[test]
fn defaults_apply_to_flags_that_are_not_given() {
    let it = run("lf --dry-run");
    assert_eq!((it.int("count"), it.text("dry-run"), it.duration("wait")), (3, "unchanged", Duration::from_secs(5)));
    assert!(it.is_set("dry-run") && !it.is_set("count"));
    assert!(!run("leaf --tty=false").bool("tty"));
    assert_eq!(run("leaf --dry-run=client").text("dry-run"), "client");
}

#[test]
fn mistakes_are_reported_with_pflags_messages() {
    let check = |text: &str, expect: &str| {
        let failure = parse(&ROOT, &words(text)).unwrap_err();
        assert_eq!(failure.to_string(), format!("error: {expect}\nSee 'kubectl leaf --help' for usage."), "{text}");
    };
    check("leaf --nope", "unknown flag: --nope");
    check("leaf -z", "unknown shorthand flag: 'z' in -z");
    check("leaf -iz", "unknown shorthand flag: 'z' in -z");
    check("leaf -o", "flag needs an argument: 'o' in -o");
    check("leaf --output", "flag needs an argument: --output");
    check(
        "leaf --count=x",
        "invalid argument \"x\" for \"--count\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
    );
    check(
        "leaf --tty=x",
        "invalid argument \"x\" for \"-t, --tty\" flag: strconv.ParseBool: parsing \"x\": invalid syntax",
    );
    check("leaf --wait=x", "invalid argument \"x\" for \"--wait\" flag: time: invalid duration \"x\"");
    check("leaf --wait=5", "invalid argument \"5\" for \"--wait\" flag: time: missing unit in duration \"5\"");
    check("leaf ---x", "bad flag syntax: ---x");
}

#[test]
fn help_is_recognized_anywhere_before_the_dashes() {
    assert!(matches!(parse(&ROOT, &words("leaf a --help")), Ok(Parsed::Help(path)) if path.len() == 2));
    assert!(matches!(parse(&ROOT, &words("leaf a -h")), Ok(Parsed::Help(_))));
    assert!(matches!(parse(&ROOT, &words("leaf a -- -h")), Ok(Parsed::Run(_))));
    assert!(matches!(parse(&ROOT, &words("--help")), Ok(Parsed::Help(path)) if path.len() == 1));
    assert!(matches!(parse(&ROOT, &words("-n x plug --flag")), Ok(Parsed::Unknown { name, .. }) if name == "plug"));
}
