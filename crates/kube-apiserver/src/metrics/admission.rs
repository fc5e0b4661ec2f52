//! Admission metrics: steps, plugins, webhooks, policies and their CEL expressions.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use admission::Operation;
use admission::measure::{Check, Measurement, Policies};

use super::family::{Counter, Family, Histogram};
use super::{counter, spread};

const SECONDS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const HOOK_SECONDS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
const CHECK_SECONDS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];
const CONVERSION_SECONDS: [f64; 15] =
    [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
const CEL_SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Cached series per plugin: four operations, two steps, rejected or not.
const SERIES_OF_PLUGIN: usize = 16;
/// Maximum status code in labels. A webhook can return any number, so larger codes are counted as this one.
const CODE_MAX: u16 = 600;

pub struct Admission {
    steps: Family<Histogram>,
    plugins: Family<Histogram>,
    /// Cached series of plugins: every write passes through all plugins twice.
    known: Vec<[OnceLock<Arc<Histogram>>; SERIES_OF_PLUGIN]>,
    hook_seconds: Family<Histogram>,
    hook_requests: Family<Counter>,
    hook_rejections: Family<Counter>,
    hook_fail_open: Family<Counter>,
    conversions: Family<Counter>,
    conversion_seconds: Family<Histogram>,
    validating: Family<Counter>,
    validating_seconds: Family<Histogram>,
    mutating: Family<Counter>,
    mutating_seconds: Family<Histogram>,
    compilations: Family<Histogram>,
    evaluations: Family<Histogram>,
}

/// The result of a plugin in an admission step.
pub struct Turn<'a> {
    pub name: &'a str,
    pub operation: Operation,
    /// Whether the step is `validate` rather than `admit`.
    pub validates: bool,
    pub is_rejected: bool,
}

/// The result of a webhook call.
pub struct HookCall<'a> {
    pub name: &'a str,
    /// `admit` or `validating`.
    pub phase: &'static str,
    pub operation: &'static str,
    /// 200, or the code of the rejection or failed call; 0 if the webhook's patch cannot be applied.
    pub code: u16,
    /// The reason of the rejection, if the request is rejected.
    pub rejection: Option<&'static str>,
    /// Whether the call failed and the request was admitted because of `failurePolicy: Ignore`.
    pub failed_open: bool,
    pub took: Duration,
}

impl Default for Admission {
    fn default() -> Self {
        const NAMED: [&str; 4] = ["name", "operation", "rejected", "type"];
        const CHECK: [&str; 4] = ["enforcement_action", "error_type", "policy", "policy_binding"];
        const MUTATION: [&str; 3] = ["error_type", "policy", "policy_binding"];
        const CONVERSION: [&str; 2] = ["failure_type", "result"];
        let short = || Histogram::new(&SECONDS);
        let check = || Histogram::new(&CHECK_SECONDS);
        let cel = || Histogram::new(&CEL_SECONDS);
        Self {
            steps: spread(
                "apiserver_admission_step_admission_duration_seconds",
                "Latency of the admission steps in seconds.",
                &["operation", "rejected", "type"],
                short,
            ),
            plugins: spread(
                "apiserver_admission_controller_admission_duration_seconds",
                "Latency of admission plugins in seconds.",
                &NAMED,
                short,
            ),
            known: (0..admission::names().count()).map(|_| std::array::from_fn(|_| OnceLock::new())).collect(),
            hook_seconds: spread(
                "apiserver_admission_webhook_admission_duration_seconds",
                "Latency of admission webhooks in seconds.",
                &NAMED,
                || Histogram::new(&HOOK_SECONDS),
            ),
            hook_requests: counter(
                "apiserver_admission_webhook_request_total",
                "Number of calls to admission webhooks.",
                &["code", "name", "operation", "rejected", "type"],
            ),
            hook_rejections: counter(
                "apiserver_admission_webhook_rejection_count",
                "Number of requests that a webhook rejected, or that failed with its call.",
                &["error_type", "name", "operation", "rejection_code", "type"],
            ),
            hook_fail_open: counter(
                "apiserver_admission_webhook_fail_open_count",
                "Number of failed webhook calls that were ignored (failurePolicy: Ignore).",
                &["name", "type"],
            ),
            conversions: counter("apiserver_conversion_webhook_request_total", "Conversion calls.", &CONVERSION),
            conversion_seconds: spread(
                "apiserver_conversion_webhook_duration_seconds",
                "Latency of conversion webhooks in seconds.",
                &CONVERSION,
                || Histogram::new(&CONVERSION_SECONDS),
            ),
            validating: counter("apiserver_validating_admission_policy_check_total", "Policy evaluations.", &CHECK),
            validating_seconds: spread(
                "apiserver_validating_admission_policy_check_duration_seconds",
                "Latency of validating admission policies in seconds.",
                &CHECK,
                check,
            ),
            mutating: counter("apiserver_mutating_admission_policy_check_total", "Policy evaluations.", &MUTATION),
            mutating_seconds: spread(
                "apiserver_mutating_admission_policy_check_duration_seconds",
                "Latency of mutating admission policies in seconds.",
                &MUTATION,
                check,
            ),
            compilations: spread(
                "apiserver_cel_compilation_duration_seconds",
                "Time to compile CEL expressions, in seconds.",
                &[],
                cel,
            ),
            evaluations: spread(
                "apiserver_cel_evaluation_duration_seconds",
                "Time to evaluate CEL expressions, in seconds.",
                &[],
                cel,
            ),
        }
    }
}

impl Admission {
    /// Records a completed step: `admit` or `validate`.
    pub fn stepped(&self, step: &str, operation: &str, is_rejected: bool, took: Duration) {
        self.steps.with(&[operation, word(is_rejected), step]).observe(took.as_secs_f64());
    }

    /// Records the result of the plugin with index `at` in the chain.
    pub fn plugged(&self, at: usize, turn: &Turn<'_>, took: Duration) {
        let find = || {
            let step = if turn.validates { "validate" } else { "admit" };
            self.plugins.with(&[turn.name, turn.operation.word(), word(turn.is_rejected), step])
        };
        let of_turn = turn.operation as usize * 4 + usize::from(turn.validates) * 2 + usize::from(turn.is_rejected);
        match self.known.get(at) {
            Some(series) => series[of_turn].get_or_init(find).observe(took.as_secs_f64()),
            None => find().observe(took.as_secs_f64()),
        }
    }

    /// Records a webhook call.
    pub fn called(&self, call: &HookCall<'_>) {
        let HookCall { name, phase, operation, .. } = *call;
        let rejected = word(call.rejection.is_some());
        let code = call.code.min(CODE_MAX).to_string();
        self.hook_seconds.with(&[name, operation, rejected, phase]).observe(call.took.as_secs_f64());
        self.hook_requests.with(&[&code, name, operation, rejected, phase]).add(1);
        if let Some(error) = call.rejection {
            self.hook_rejections.with(&[error, name, operation, &code, phase]).add(1);
        }
        if call.failed_open {
            self.hook_fail_open.with(&[name, phase]).add(1);
        }
    }

    /// Records a conversion webhook call.
    pub fn converted(&self, is_success: bool, took: Duration) {
        let labels = if is_success { ["", "success"] } else { ["conversion_webhook_call_failure", "failure"] };
        self.conversions.with(&labels).add(1);
        self.conversion_seconds.with(&labels).observe(took.as_secs_f64());
    }

    /// Records a measurement that the admission crate reports.
    pub fn measured(&self, what: Measurement<'_>) {
        match what {
            Measurement::Compilation(took) => self.compilations.with(&[]).observe(took.as_secs_f64()),
            Measurement::Evaluation(took) => self.evaluations.with(&[]).observe(took.as_secs_f64()),
            Measurement::Check(check) => self.checked(&check),
        }
    }

    fn checked(&self, check: &Check<'_>) {
        let Check { policy, binding, action, took, .. } = *check;
        let error = if check.failed { "invalid_error" } else { "no_error" };
        let seconds = took.as_secs_f64();
        match check.by {
            Policies::Validating => {
                self.validating.with(&[action, error, policy, binding]).add(1);
                self.validating_seconds.with(&[action, error, policy, binding]).observe(seconds);
            }
            Policies::Mutating => {
                self.mutating.with(&[error, policy, binding]).add(1);
                self.mutating_seconds.with(&[error, policy, binding]).observe(seconds);
            }
        }
    }

    /// Appends all series in the text format.
    pub fn print(&self, out: &mut String) {
        self.steps.print(out);
        self.plugins.print(out);
        self.hook_seconds.print(out);
        self.hook_requests.print(out);
        self.hook_rejections.print(out);
        self.hook_fail_open.print(out);
        self.conversions.print(out);
        self.conversion_seconds.print(out);
        self.validating.print(out);
        self.validating_seconds.print(out);
        self.mutating.print(out);
        self.mutating_seconds.print(out);
        self.compilations.print(out);
        self.evaluations.print(out);
    }
}

const fn word(yes: bool) -> &'static str {
    if yes { "true" } else { "false" }
}
