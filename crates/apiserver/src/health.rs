//! `/healthz`, `/livez` and `/readyz`: named checks, each of which can be asked alone, left out or shown.

use std::collections::BTreeSet;

use registry::query::Query;

use crate::answer::{self, Answer};
use crate::state::State;

/// A check: its name, where it counts, and what it asks.
struct Check {
    name: &'static str,
    counts: Counts,
    is_well: fn(&State) -> bool,
}

/// Where a check counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    /// Everywhere.
    Always,
    /// Only before the server may be asked anything.
    ForReadiness,
}

/// The checks, by upstream's names for the same things.
const CHECKS: [Check; 9] = [
    Check { name: "ping", counts: Counts::Always, is_well: |_| true },
    Check { name: "log", counts: Counts::Always, is_well: |_| true },
    Check { name: "etcd", counts: Counts::Always, is_well: has_store },
    Check { name: "etcd-readiness", counts: Counts::ForReadiness, is_well: has_store },
    Check { name: "informer-sync", counts: Counts::ForReadiness, is_well: has_store },
    Check { name: "poststarthook/rbac/bootstrap-roles", counts: Counts::Always, is_well: State::is_started },
    Check {
        name: "poststarthook/scheduling/bootstrap-system-priority-classes",
        counts: Counts::Always,
        is_well: State::is_started,
    },
    Check {
        name: "poststarthook/priority-and-fairness-config-producer",
        counts: Counts::Always,
        is_well: State::is_started,
    },
    Check { name: "shutdown", counts: Counts::ForReadiness, is_well: |state| !*state.ending.borrow() },
];

fn has_store(state: &State) -> bool {
    state.cache.is_fed()
}

/// The answer to a path; `None` if it is none of these.
pub fn serve(state: &State, path: &str, query: &Query) -> Option<Answer> {
    let (name, only) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    let is_readiness = match name {
        "readyz" => true,
        "healthz" | "livez" => false,
        _ => return None,
    };
    let checks = CHECKS.iter().filter(|check| is_readiness || check.counts == Counts::Always);
    if only.is_empty() {
        let found: Vec<(&str, bool)> = checks.map(|check| (check.name, (check.is_well)(state))).collect();
        return Some(all(name, &found, query));
    }
    let mut checks = checks;
    let check = checks.find(|check| check.name == only)?;
    Some(if (check.is_well)(state) {
        answer::text(200, "ok")
    } else {
        answer::text(500, format!("internal server error: {only} failed\n"))
    })
}

fn all(name: &str, checks: &[(&str, bool)], query: &Query) -> Answer {
    let mut excluded: BTreeSet<&str> = query.all("exclude").into_iter().collect();
    let mut lines = String::new();
    let mut failed = false;
    for (check, is_well) in checks {
        let is_excluded = excluded.remove(check);
        failed |= !is_well && !is_excluded;
        lines.push_str(&match (is_excluded, is_well) {
            (true, _) => format!("[+]{check} excluded: ok\n"),
            (false, true) => format!("[+]{check} ok\n"),
            (false, false) => format!("[-]{check} failed: reason withheld\n"),
        });
    }
    if !excluded.is_empty() {
        let unknown: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let unknown = unknown.join(",");
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {unknown}\n"));
    }
    if failed {
        return answer::text(500, format!("{lines}{name} check failed\n"));
    }
    let text = if query.has("verbose") { format!("{lines}{name} check passed\n") } else { "ok".to_owned() };
    answer::text(200, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Body;

    #[test]
    fn checks_are_shown_left_out_and_fail() {
        let check = |checks: &[(&str, bool)], query: &str, code: u16, expect: &str| {
            let answer = all("readyz", checks, &Query::parse(query));
            let Body::Whole(body) = answer.body() else { panic!("not whole") };
            assert_eq!((answer.status().as_u16(), std::str::from_utf8(body).unwrap_or_default()), (code, expect));
        };
        let well = [("ping", true), ("etcd", true)];
        check(&well, "", 200, "ok");
        check(&well, "verbose", 200, "[+]ping ok\n[+]etcd ok\nreadyz check passed\n");
        check(
            &well,
            "verbose&exclude=etcd&exclude=x",
            200,
            "[+]ping ok\n[+]etcd excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"x\"\nreadyz check passed\n",
        );
        let ill = [("ping", true), ("etcd", false)];
        check(&ill, "", 500, "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n");
        check(&ill, "exclude=etcd", 200, "ok");
    }
}
