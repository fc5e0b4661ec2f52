//! PriorityLevelConfiguration: concurrency limit and queuing of a class of requests.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, Scope};
use apimachinery::{At, Errors, Value};

use crate::field_rules::{
    column, default_to, drop_field, keep, keep_for_status, raise_generation, reset_with_metadata, start_generation,
};
use crate::kind::{Context, Kind, Rules, Subresource, UpdateChecks, age_column, name_column};

const QUEUES_MAX: i64 = 10_000_000;
/// Number of hash bits available to shuffle sharding.
const HASH_BITS_MAX: f64 = 60.0;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        rules: Arc::new(PriorityLevelConfiguration),
        update_checks: UpdateChecks { whole: 1, change: 0 },
        ..Kind::stored(
            "flowcontrol.apiserver.k8s.io",
            "v1",
            "PriorityLevelConfiguration",
            "prioritylevelconfigurations",
        )
    }
    .with_columns(&[
        name_column(),
        column("Type", "string", "Limited or Exempt.", |object, _| object.text_at(&["spec", "type"]).into()),
        column("NominalConcurrencyShares", "string", "Nominal share of the server's concurrency.", |object, _| {
            cell(object, &["limited", "nominalConcurrencyShares"])
        }),
        column("Queues", "string", "Number of queues.", |object, _| queuing(object, "queues")),
        column("HandSize", "string", "Number of queues of a flow.", |object, _| queuing(object, "handSize")),
        column("QueueLengthLimit", "string", "Maximum number of requests in a queue.", |object, _| {
            queuing(object, "queueLengthLimit")
        }),
        age_column(),
    ])
}

#[derive(Debug)]
struct PriorityLevelConfiguration;

impl Rules for PriorityLevelConfiguration {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        reset_with_metadata(subresource)
    }

    fn default(&self, object: &mut Value, _version: &str) {
        let Some(spec) = object.get_mut("spec") else { return };
        if let Some(exempt) = spec.get_mut("exempt").filter(|exempt| !exempt.is_null()) {
            default_to(exempt, "nominalConcurrencyShares", 0);
            default_to(exempt, "lendablePercent", 0);
        }
        let Some(limited) = spec.get_mut("limited").filter(|limited| !limited.is_null()) else { return };
        default_to(limited, "nominalConcurrencyShares", 30);
        default_to(limited, "lendablePercent", 0);
        let response = limited.get_mut("limitResponse");
        let queuing = response.and_then(|response| response.get_mut("queuing")).and_then(Value::as_object_mut);
        if let Some(queuing) = queuing {
            for (field, amount) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                if queuing.get(field).and_then(Value::as_int).unwrap_or_default() == 0 {
                    queuing.insert(field, amount);
                }
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        drop_field(object, "status");
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if context.subresource == "status" {
            keep_for_status(object, old);
        } else {
            keep(object, old, "status");
            raise_generation(object, old, &["spec"]);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        validate_spec(&root.get("spec"), Meta::of(object).name(), errors);
        super::conditions(&root.get("status"), errors);
    }
}

fn validate_spec(spec: &At<'_>, name: &str, errors: &mut Errors) {
    let (ty, limited, exempt) = (spec.get("type"), spec.get("limited"), spec.get("exempt"));
    if !ty.is_empty() && (name == "exempt") != (ty.str() == "Exempt") {
        errors.push(ty.invalid("type must be 'Exempt' if and only if name is 'exempt'"));
    }
    match ty.str() {
        "" => errors.push(ty.required("")),
        "Exempt" => {
            if limited.is_present() {
                errors.push(limited.forbidden("must be nil if the type is not Limited"));
            }
            if exempt.is_absent() {
                errors.push(exempt.required("must not be empty when type is Exempt"));
            } else {
                validate_shares(&exempt, errors);
                validate_lending(&exempt, errors);
            }
        }
        "Limited" => {
            if exempt.is_present() {
                errors.push(exempt.forbidden("must be nil if the type is Limited"));
            }
            if limited.is_absent() {
                errors.push(limited.required("must not be empty when type is Limited"));
            } else {
                validate_limited(&limited, errors);
            }
        }
        _ => errors.push(ty.not_supported(&["Exempt", "Limited"])),
    }
}

fn validate_shares(of: &At<'_>, errors: &mut Errors) {
    let shares = of.get("nominalConcurrencyShares");
    if shares.int() < 0 {
        errors.push(shares.invalid("must be a non-negative integer"));
    }
}

fn validate_lending(of: &At<'_>, errors: &mut Errors) {
    let lent = of.get("lendablePercent");
    if !(0..=100).contains(&lent.int()) {
        errors.push(lent.invalid("must be between 0 and 100, inclusive"));
    }
}

fn validate_limited(limited: &At<'_>, errors: &mut Errors) {
    validate_shares(limited, errors);
    let response = limited.get("limitResponse");
    let (ty, queuing) = (response.get("type"), response.get("queuing"));
    match ty.str() {
        "" => errors.push(ty.required("")),
        "Reject" => {
            if queuing.is_present() {
                errors.push(queuing.forbidden("must be nil if limited.limitResponse.type is not Limited"));
            }
        }
        "Queue" if queuing.is_absent() => {
            errors.push(queuing.required("must not be empty if limited.limitResponse.type is Limited"));
        }
        "Queue" => validate_queuing(&queuing, errors),
        _ => errors.push(ty.not_supported(&["Queue", "Reject"])),
    }
    validate_lending(limited, errors);
    let borrowed = limited.get("borrowingLimitPercent");
    if borrowed.int() < 0 {
        errors.push(borrowed.invalid("if specified, must be a non-negative integer"));
    }
}

fn validate_queuing(queuing: &At<'_>, errors: &mut Errors) {
    let (queues, hand) = (queuing.get("queues"), queuing.get("handSize"));
    for field in ["queueLengthLimit", "queues"] {
        let amount = queuing.get(field);
        if amount.int() <= 0 {
            errors.push(Error::invalid(amount.path(), amount.int(), "must be positive"));
        }
    }
    if queues.int() > QUEUES_MAX {
        errors.push(queues.invalid(format!("must not be greater than {QUEUES_MAX}")));
    }
    let bits = (queues.int() as f64).log2() * hand.int() as f64;
    if hand.int() <= 0 {
        errors.push(Error::invalid(hand.path(), hand.int(), "must be positive"));
    } else if hand.int() > queues.int() {
        errors.push(hand.invalid(format!("should not be greater than queues ({})", queues.int())));
    } else if bits.ceil() > HASH_BITS_MAX {
        errors.push(hand.invalid(format!(
            "required entropy bits of deckSize {} and handSize {} should not be greater than {HASH_BITS_MAX}",
            queues.int(),
            hand.int()
        )));
    }
}

fn cell(object: &Value, path: &[&str]) -> Value {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    spec.at(path).and_then(Value::as_int).map_or_else(|| "<none>".into(), Value::Int)
}

fn queuing(object: &Value, field: &str) -> Value {
    cell(object, &["limited", "limitResponse", "queuing", field])
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::validation;

    #[test]
    fn hand_size_must_fit_the_queues_and_the_hash() {
        let check = |queues: i64, hand: i64, expect: &[&str]| {
            let queuing = value!({"queues": queues, "handSize": hand});
            let limited = value!({"limitResponse": {"type": "Queue", "queuing": queuing}});
            let object = value!({"metadata": {"name": "a"}, "spec": {"type": "Limited", "limited": limited}});
            let errors = validation::create(&kind(), &object);
            assert_eq!(errors, expect);
        };
        check(64, 8, &[]);
        check(
            4,
            5,
            &["spec.limited.limitResponse.queuing.handSize: Invalid value: 5: should not be greater than queues (4)"],
        );
        check(
            1024,
            7,
            &[
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 7: required entropy bits of deckSize 1024 and handSize 7 should not be greater than 60",
            ],
        );
    }
}
