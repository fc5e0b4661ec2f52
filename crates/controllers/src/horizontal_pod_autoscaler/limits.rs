//! Autoscaler limits: stabilization windows, scaling policies, and minimum and maximum replicas.

use apimachinery::time::{Duration, Time};
use apimachinery::{Value, value};

use super::{Config, Report};

/// Maximum remembered proposals, and maximum remembered changes.
const REMEMBERED_MAX: usize = 1000;
/// Maximum stabilization window and policy period.
const WINDOW_MAX: Duration = Duration::from_seconds(3600);

/// Minimum and maximum replicas.
pub(super) struct Bounds {
    pub min: i64,
    pub max: i64,
}

/// Recent proposals and changes with their Unix seconds. As upstream's, they are lost when the process exits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    proposals: Vec<(i64, i64)>,
    changes: Vec<(i64, i64)>,
}

impl Memory {
    pub(super) fn read(value: Option<&Value>) -> Self {
        let list = |field: &str| -> Vec<(i64, i64)> {
            let entries = value.and_then(|value| value.get(field)?.as_array()).unwrap_or_default();
            entries
                .iter()
                .filter_map(|entry| Some((entry.as_array()?.first()?.as_int()?, entry.as_array()?.get(1)?.as_int()?)))
                .collect()
        };
        Self { proposals: list("proposals"), changes: list("changes") }
    }

    pub(super) fn into_value(self) -> Value {
        let list = |entries: Vec<(i64, i64)>| -> Vec<Value> {
            entries.into_iter().map(|(at, number)| value!([at, number])).collect()
        };
        value!({"proposals": (list(self.proposals)), "changes": (list(self.changes))})
    }

    /// Records a change of the replicas.
    pub(super) fn resized(&mut self, now: Time, by: i64) {
        push(&mut self.changes, now, by);
    }

    /// Returns the proposals within the window before `now`.
    fn proposed(&self, now: Time, window: Duration) -> impl Iterator<Item = i64> {
        let from = now.plus(Duration::from_nanos(-window.nanos())).unix_seconds();
        self.proposals.iter().filter(move |(at, _)| *at > from).map(|(_, size)| *size)
    }

    /// Returns by how much the replicas grew, or shrank if `sign` is negative, within the period before `now`.
    fn changed(&self, now: Time, period: Duration, sign: i64) -> i64 {
        let from = now.plus(Duration::from_nanos(-period.nanos())).unix_seconds();
        let within = self.changes.iter().filter(|(at, by)| *at > from && by.signum() == sign);
        within.map(|(_, by)| by.abs()).sum()
    }
}

fn push(list: &mut Vec<(i64, i64)>, now: Time, number: i64) {
    let oldest = now.plus(Duration::from_nanos(-WINDOW_MAX.nanos())).unix_seconds();
    list.retain(|(at, _)| *at >= oldest);
    if list.len() >= REMEMBERED_MAX {
        list.remove(0);
    }
    list.push((now.unix_seconds(), number));
}

impl Bounds {
    pub(super) fn of(hpa: &Value) -> Self {
        let number = |field| hpa.int_at(&["spec", field]);
        Self { min: number("minReplicas").unwrap_or(1), max: number("maxReplicas").unwrap_or(1) }
    }

    /// Returns the replicas allowed now: `proposed` after stabilization, rates and bounds.
    pub(super) fn normalize(
        &self,
        hpa: &Value,
        current: i64,
        proposed: i64,
        memory: &mut Memory,
        config: &Config,
        report: &mut Report<'_>,
    ) -> i64 {
        if memory.proposals.is_empty() {
            // The initial replicas count as a proposal, so that a restarted controller does not scale down immediately.
            push(&mut memory.proposals, report.now, current);
        }
        let stabilized = stabilize(hpa, current, proposed, memory, config, report);
        push(&mut memory.proposals, report.now, proposed);
        let (allowed, reason, message) = self.allowed(hpa, current, stabilized, memory, report.now);
        report.set("ScalingLimited", allowed != stabilized, reason, message);
        allowed
    }

    fn allowed(
        &self,
        hpa: &Value,
        current: i64,
        desired: i64,
        memory: &Memory,
        now: Time,
    ) -> (i64, &'static str, &'static str) {
        let (up, down) = match hpa.at(&["spec", "behavior"]).filter(|behavior| !behavior.is_null()) {
            // Defaults without behavior: at most double (at least 4) when scaling up, no limit when scaling down.
            None => ((2 * current).max(4), 0),
            Some(behavior) => (
                rate(behavior.get("scaleUp"), current, memory, now, 1),
                rate(behavior.get("scaleDown"), current, memory, now, -1),
            ),
        };
        let too_fast = |limit: i64, bound: i64, up: bool| if up { limit < bound } else { limit > bound };
        const RATE: &str = "the desired replica count is increasing faster than the maximum scale rate";
        const RATE_DOWN: &str = "the desired replica count is decreasing faster than the maximum scale rate";
        if desired > current && desired > up.min(self.max).max(current) {
            return match too_fast(up, self.max, true) {
                true => (up.max(current), "ScaleUpLimit", RATE),
                false => {
                    (self.max, "TooManyReplicas", "the desired replica count is more than the maximum replica count")
                }
            };
        }
        if desired < down.max(self.min).min(current) {
            return match too_fast(down, self.min, false) {
                true => (down.min(current), "ScaleDownLimit", RATE_DOWN),
                false => {
                    (self.min, "TooFewReplicas", "the desired replica count is less than the minimum replica count")
                }
            };
        }
        (
            desired.clamp(self.min, self.max.max(self.min)),
            "DesiredWithinRange",
            "the desired count is within the acceptable range",
        )
    }
}

/// Returns the highest recent proposal when scaling down, the lowest when scaling up.
fn stabilize(
    hpa: &Value,
    current: i64,
    proposed: i64,
    memory: &Memory,
    config: &Config,
    report: &mut Report<'_>,
) -> i64 {
    let window = |direction: &str, default: Duration| {
        let stated = hpa.int_at(&["spec", "behavior", direction, "stabilizationWindowSeconds"]);
        stated.map_or(default, Duration::from_seconds)
    };
    let (up, down) = (window("scaleUp", Duration::default()), window("scaleDown", config.downscale_stabilization));
    let lowest = memory.proposed(report.now, up).fold(proposed, i64::min);
    let highest = memory.proposed(report.now, down).fold(proposed, i64::max);
    let stabilized = current.max(lowest).min(highest);
    if stabilized == proposed {
        report.set("AbleToScale", true, "ReadyForNewScale", "recommended size matches current size");
    } else if stabilized > proposed {
        let message = "recent recommendations were higher than current one, applying the highest recent recommendation";
        report.set("AbleToScale", true, "ScaleDownStabilized", message);
    } else {
        let message = "recent recommendations were lower than current one, applying the lowest recent recommendation";
        report.set("AbleToScale", true, "ScaleUpStabilized", message);
    }
    stabilized
}

/// Returns the limit that the policies of a direction allow.
fn rate(rules: Option<&Value>, current: i64, memory: &Memory, now: Time, sign: i64) -> i64 {
    let select = rules.and_then(|rules| rules.str_at(&["selectPolicy"])).unwrap_or("Max");
    if select == "Disabled" {
        return current;
    }
    let policies = rules.and_then(|rules| rules.get("policies")?.as_array()).unwrap_or_default();
    let limits = policies.iter().map(|policy| {
        let number = |field| policy.get(field).and_then(Value::as_int).unwrap_or(0);
        let period = Duration::from_seconds(number("periodSeconds"));
        let start = current - sign * memory.changed(now, period, sign);
        match policy.str_at(&["type"]) {
            Some("Percent") => {
                let share = (start.saturating_mul(number("value")) as f64 / 100.0).ceil() as i64;
                if sign > 0 { start + share } else { ((start as f64) * (1.0 - number("value") as f64 / 100.0)) as i64 }
            }
            _ => start + sign * number("value"),
        }
    });
    // The most permissive policy has the largest limit when scaling up and the smallest when scaling down.
    let largest = (select == "Max") == (sign > 0);
    let chosen = if largest { limits.max() } else { limits.min() };
    chosen.unwrap_or(if sign > 0 { i64::from(i32::MAX) } else { 0 })
}
