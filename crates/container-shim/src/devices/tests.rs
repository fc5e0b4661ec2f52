//! Tests of device rules, the compiled program, and its acceptance by the kernel.

use proptest::prelude::*;

use super::*;

/// Interprets a program as the kernel would.
fn run(program: &[BpfInstruction], kind: u32, major: u32, minor: u32, access: u32) -> bool {
    let context = [access << 16 | kind, major, minor];
    let (mut registers, mut at) = ([0u32; 6], 0);
    loop {
        let BpfInstruction { code, registers: named, offset, immediate } = program[at];
        let (to, from) = (usize::from(named & 15), usize::from(named >> 4));
        let (value, skip) = (immediate.cast_unsigned(), usize::try_from(offset).unwrap());
        at += 1;
        match code {
            asm::LOAD => registers[to] = context[skip / 4],
            asm::SET => registers[to] = value,
            asm::COPY => registers[to] = registers[from],
            asm::AND => registers[to] &= value,
            asm::SHIFT_RIGHT => registers[to] >>= value,
            asm::SKIP_IF_EQUAL if registers[to] == value => at += skip,
            asm::SKIP_UNLESS_EQUAL if registers[to] != value => at += skip,
            asm::SKIP_IF_EQUAL | asm::SKIP_UNLESS_EQUAL => {}
            asm::EXIT => return registers[usize::from(asm::RESULT)] == 1,
            other => panic!("unexpected instruction {other:#x}"),
        }
    }
}

/// Evaluates the rules: the last one that matches the device and the access decides; without a match access is denied.
fn allows(rules: &[Rule], kind: u32, major: u32, minor: u32, access: u32) -> bool {
    let matches = |rule: &&Rule, bit: u32| {
        rule.kind.is_none_or(|own| own as u32 == kind)
            && rule.major.is_none_or(|own| own == major)
            && rule.minor.is_none_or(|own| own == minor)
            && rule.access & bit != 0
    };
    let mut bits = [MKNOD, READ, WRITE].into_iter().filter(|bit| access & bit != 0);
    bits.all(|bit| rules.iter().rev().find(|rule| matches(rule, bit)).is_some_and(|rule| rule.allow))
}

fn parse(json: &str) -> Vec<Rule> {
    rules_of(&serde_json::from_str::<Vec<LinuxDeviceCgroup>>(json).unwrap())
}

#[test]
fn container_may_use_only_its_own_and_the_default_devices() {
    let rules = parse(
        r#"[{"allow":false,"access":"rwm"},
            {"allow":true,"type":"b","major":8,"minor":1,"access":"r"},
            {"allow":true,"type":"c","major":10,"access":"rwm"},
            {"allow":false,"type":"c","major":10,"minor":200,"access":"w"}]"#,
    );
    let program = compile(&rules).unwrap();
    let check = |kind: Kind, major: u32, minor: u32, access: u32, expect: bool| {
        assert_eq!(run(&program, kind as u32, major, minor, access), expect, "{kind:?} {major}:{minor} {access}");
    };
    check(Kind::Block, 8, 0, READ, false);
    check(Kind::Block, 8, 0, MKNOD, true);
    check(Kind::Block, 8, 1, READ, true);
    check(Kind::Block, 8, 1, READ | WRITE, false);
    check(Kind::Char, 8, 1, READ, false);
    check(Kind::Char, 1, 3, READ | WRITE, true);
    check(Kind::Char, 1, 1, READ, false);
    check(Kind::Char, 136, 77, READ | WRITE, true);
    check(Kind::Char, 10, 229, READ | WRITE, true);
    check(Kind::Char, 10, 200, READ, true);
    check(Kind::Char, 10, 200, READ | WRITE, false);
}

#[test]
fn privileged_container_needs_no_program_without_denials() {
    let all = r#"{"allow":true,"access":"rwm"}"#;
    assert_eq!(compile(&parse(&format!("[{all}]"))), None);
    assert_eq!(compile(&parse(&format!(r#"[{{"allow":false,"access":"rwm"}},{all}]"#))), None);
    assert!(compile(&parse(&format!(r#"[{all},{{"allow":false,"type":"b","major":8,"access":"w"}}]"#))).is_some());
    assert!(compile(&parse("[]")).is_some());
}

#[test]
fn rule_without_access_allows_nothing_and_denies_everything() {
    let read = |json: &str| run(&compile(&parse(json)).unwrap(), Kind::Block as u32, 8, 0, READ);
    assert!(!read(r#"[{"allow":true,"type":"b"}]"#));
    assert!(!read(r#"[{"allow":true,"type":"b","access":"r"},{"allow":false,"type":"b","major":8}]"#));
    assert!(!read(r#"[{"allow":true,"type":"p","access":"rwm"}]"#));
}

#[test]
fn kernel_accepts_a_program_of_many_rules() {
    test_requirements::root();
    let many = (0..500)
        .map(|minor| format!(r#"{{"allow":{},"type":"c","major":10,"minor":{minor},"access":"rw"}}"#, minor % 2 == 0));
    let program = compile(&parse(&format!("[{}]", many.collect::<Vec<_>>().join(",")))).unwrap();
    sys::load_device_filter(&program).unwrap();
}

fn rule() -> impl Strategy<Value = Rule> {
    let kind = prop_oneof![Just(None), Just(Some(Kind::Block)), Just(Some(Kind::Char))];
    (any::<bool>(), kind, proptest::option::of(0..3u32), proptest::option::of(0..3u32), 0..8u32)
        .prop_map(|(allow, kind, major, minor, access)| Rule { allow, kind, major, minor, access })
}

proptest! {
    #[test]
    fn compiled_program_matches_the_rules(rules in proptest::collection::vec(rule(), 0..8)) {
        let program = compile(&rules);
        for (kind, major, minor, access) in every_request(3) {
            let got = program.as_ref().is_none_or(|program| run(program, kind, major, minor, access));
            prop_assert_eq!(got, allows(&rules, kind, major, minor, access), "{} {}:{} {}", kind, major, minor, access);
        }
    }
}

/// Returns every request for devices with numbers below `numbers`.
fn every_request(numbers: u32) -> impl Iterator<Item = (u32, u32, u32, u32)> {
    let pairs = (0..numbers).flat_map(move |major| (0..numbers).map(move |minor| (major, minor)));
    let kinds = pairs.flat_map(|(major, minor)| [1, 2].map(|kind| (kind, major, minor)));
    kinds.flat_map(|(kind, major, minor)| (1..8).map(move |access| (kind, major, minor, access)))
}
