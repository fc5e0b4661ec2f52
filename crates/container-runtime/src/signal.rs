//! Signal names and numbers.

use node_api::cri::v1;

pub(crate) const KILL: i32 = 9;
const TERM: i32 = 15;
/// SIGRTMIN and SIGRTMAX, as glibc numbers them.
const RT_MIN: i32 = 34;
const RT_MAX: i32 = 64;

const NAMES: &[&str] = &[
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

/// Returns the stop signal of a container: CRI's, the image's, or SIGTERM, in this order.
pub(crate) fn stop_signal(requested: v1::Signal, image: &str) -> i32 {
    let signal = match requested {
        v1::Signal::RuntimeDefault => None,
        named => number(named.as_str_name()),
    };
    signal.or_else(|| number(image)).unwrap_or(TERM)
}

/// Parses `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`, `SIGRTMINPLUS3` and `SIGRTMAXMINUS2`.
fn number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (1..=RT_MAX).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some(rest) = name.strip_prefix("RTMIN") {
        let rest = rest.trim_start_matches("PLUS").trim_start_matches('+');
        return Some(RT_MIN + if rest.is_empty() { 0 } else { rest.parse::<i32>().ok()? }).filter(|n| *n <= RT_MAX);
    }
    if let Some(rest) = name.strip_prefix("RTMAX") {
        let rest = rest.trim_start_matches("MINUS").trim_start_matches('-');
        return Some(RT_MAX - if rest.is_empty() { 0 } else { rest.parse::<i32>().ok()? }).filter(|n| *n >= RT_MIN);
    }
    let name = match name {
        "CLD" => "CHLD",
        "IOT" => "ABRT",
        "POLL" => "IO",
        other => other,
    };
    NAMES.iter().position(|known| *known == name).and_then(|at| i32::try_from(at + 1).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_signal_notations_are_parsed() {
        let check = |text: &str, expect: Option<i32>| assert_eq!(number(text), expect, "{text}");
        check("SIGTERM", Some(15));
        check("quit", Some(3));
        check("9", Some(9));
        check("SIGRTMIN+3", Some(37));
        check("SIGRTMINPLUS3", Some(37));
        check("SIGRTMAXMINUS14", Some(50));
        check("SIGSYS", Some(31));
        check("SIGNOPE", None);
        check("0", None);
        check("", None);
    }

    #[test]
    fn stop_signal_of_the_container_overrides_the_image() {
        assert_eq!(stop_signal(v1::Signal::RuntimeDefault, ""), 15);
        assert_eq!(stop_signal(v1::Signal::RuntimeDefault, "SIGQUIT"), 3);
        assert_eq!(stop_signal(v1::Signal::Sigusr1, "SIGQUIT"), 10);
    }
}
