//! The limits that Kubernetes sets, and what it says when one is exceeded.

/// What one expression may cost while it runs.
pub const PER_CALL: u64 = 1_000_000;
/// What all expressions on one object may cost together while they run.
pub const PER_OBJECT: u64 = 10_000_000;
/// What all match conditions of one webhook or policy may cost together while they run.
pub const MATCH_CONDITIONS: u64 = 2_500_000;
/// What one rule of a CRD may be estimated at.
pub const ESTIMATE_PER_EXPRESSION: u64 = 10_000_000;
/// What all rules of a CRD may be estimated at together.
pub const ESTIMATE_PER_CRD: u64 = 100_000_000;
/// How long a device selector may be, in bytes.
pub const SELECTOR_LENGTH: usize = 10 * 1024;
/// What a device selector may be estimated at, and cost while it runs.
pub const SELECTOR: u64 = 1_000_000;

/// How large a request may be, which bounds every size that a schema does not.
pub const REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// Said of an evaluation that used up its budget.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Said of each rule that had a part in exceeding the limit of the whole CRD.
pub const CONTRIBUTED: &str =
    "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";

/// What a rule's estimate is called in messages.
pub const RULE: &str = "estimated rule cost";
/// What a message expression's estimate is called.
pub const MESSAGE_EXPRESSION: &str = "estimated messageExpression cost";
/// What the sum of all estimates is called.
pub const CRD: &str = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";

/// Says that an estimate exceeds its limit and what to do about it; nothing if it does not.
pub fn exceeded(what: &str, cost: u64, limit: u64) -> Option<String> {
    if cost <= limit {
        return None;
    }
    let factor = cost as f64 / limit as f64;
    // Just over the limit, one digit would read as exactly the limit; far over it, none would tell anything.
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    Some(format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    ))
}

/// The estimates of all rules of a CRD, each multiplied by how often its place can occur in one object.
#[derive(Clone, Debug, Default)]
pub struct CrdBudget {
    total: u64,
}

impl CrdBudget {
    /// Adds the estimate of a rule under a place that occurs at most `times`, and gives what it amounts to.
    pub const fn add(&mut self, estimate: u64, times: u64) -> u64 {
        let cost = estimate.saturating_mul(times);
        self.total = self.total.saturating_add(cost);
        cost
    }

    /// What is wrong with the sum, if it is too much.
    pub fn exceeded(&self) -> Option<String> {
        exceeded(CRD, self.total, ESTIMATE_PER_CRD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_is_told_as_precisely_as_it_helps() {
        let check = |cost: u64, expect: &str| {
            let said = exceeded(RULE, cost, ESTIMATE_PER_EXPRESSION).unwrap_or_default();
            assert!(said.starts_with(expect), "{said}");
            assert_eq!(said.is_empty(), expect.is_empty());
        };
        check(10_000_000, "");
        check(10_000_001, "estimated rule cost exceeds budget by factor of 1.000000x (try simplifying the rule");
        check(18_100_000, "estimated rule cost exceeds budget by factor of 1.8x");
        check(u64::MAX, "estimated rule cost exceeds budget by factor of more than 100x");
    }

    #[test]
    fn a_crd_has_one_budget_for_all_its_rules() {
        let mut budget = CrdBudget::default();
        assert_eq!(budget.add(1_000, 10), 10_000);
        assert_eq!(budget.exceeded(), None);
        budget.add(1_000_000, 1_000_000);
        assert!(budget.exceeded().is_some_and(|said| said.starts_with(CRD)));
    }
}
