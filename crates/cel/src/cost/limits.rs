//! Kubernetes' CEL cost limits and the messages for exceeding them.

/// Maximum runtime cost of one expression.
pub const PER_CALL: u64 = 1_000_000;
/// Maximum total runtime cost of all expressions on one object.
pub const PER_OBJECT: u64 = 10_000_000;
/// Maximum total runtime cost of all match conditions of one webhook or policy.
pub const MATCH_CONDITIONS: u64 = 2_500_000;
/// Maximum estimated cost of one rule of a CRD.
pub const ESTIMATE_PER_EXPRESSION: u64 = 10_000_000;
/// Maximum total estimated cost of all rules of a CRD.
pub const ESTIMATE_PER_CRD: u64 = 100_000_000;
/// Maximum length of a device selector in bytes.
pub const SELECTOR_LENGTH: usize = 10 * 1024;
/// Maximum estimated cost and runtime cost of a device selector.
pub const SELECTOR: u64 = 1_000_000;

/// Maximum size of a request, which bounds every size that a schema does not limit.
pub const REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// The message for an evaluation that exhausted its budget.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The message for each rule that contributed to exceeding the limit of the entire CRD.
pub const CONTRIBUTED: &str =
    "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";

/// The name of a rule's estimate in messages.
pub const RULE: &str = "estimated rule cost";
/// The name of a messageExpression's estimate in messages.
pub const MESSAGE_EXPRESSION: &str = "estimated messageExpression cost";
/// The name of the sum of all estimates in messages.
pub const CRD: &str = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";

/// Returns the message for an estimate that exceeds its limit; [`None`] if it does not.
pub fn exceeded(what: &str, cost: u64, limit: u64) -> Option<String> {
    if cost <= limit {
        return None;
    }
    let factor = cost as f64 / limit as f64;
    // Just above the limit, one digit would read as the limit itself; far above it, the exact factor is irrelevant.
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    Some(format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    ))
}

/// The sum of the estimates of all rules of a CRD, each multiplied by the maximum number of its occurrences in one
/// object.
#[derive(Clone, Debug, Default)]
pub struct CrdBudget {
    total: u64,
}

impl CrdBudget {
    /// Adds the estimate of a rule on a value that occurs at most `times`, and returns the product.
    pub const fn add(&mut self, estimate: u64, times: u64) -> u64 {
        let cost = estimate.saturating_mul(times);
        self.total = self.total.saturating_add(cost);
        cost
    }

    /// Returns the error message if the sum exceeds the limit.
    pub fn exceeded(&self) -> Option<String> {
        exceeded(CRD, self.total, ESTIMATE_PER_CRD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_of_the_factor_depends_on_its_size() {
        let check = |cost: u64, expect: &str| {
            let message = exceeded(RULE, cost, ESTIMATE_PER_EXPRESSION).unwrap_or_default();
            assert!(message.starts_with(expect), "{message}");
            assert_eq!(message.is_empty(), expect.is_empty());
        };
        check(10_000_000, "");
        check(10_000_001, "estimated rule cost exceeds budget by factor of 1.000000x (try simplifying the rule");
        check(18_100_000, "estimated rule cost exceeds budget by factor of 1.8x");
        check(u64::MAX, "estimated rule cost exceeds budget by factor of more than 100x");
    }

    #[test]
    fn all_rules_of_a_crd_share_one_budget() {
        let mut budget = CrdBudget::default();
        assert_eq!(budget.add(1_000, 10), 10_000);
        assert_eq!(budget.exceeded(), None);
        budget.add(1_000_000, 1_000_000);
        assert!(budget.exceeded().is_some_and(|message| message.starts_with(CRD)));
    }
}
