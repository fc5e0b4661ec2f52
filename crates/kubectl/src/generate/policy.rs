//! `create quota`, `create poddisruptionbudget` and `create priorityclass`.

use apimachinery::{Object, Value, quantity};

use super::{Error, Name, int_or_string, labels, put, texts, typed};

/// Options of `create poddisruptionbudget`.
#[derive(Clone, Copy, Debug)]
pub struct DisruptionBudget<'a> {
    pub name: Name<'a>,
    pub selector: &'a str,
    pub min_available: &'a str,
    pub max_unavailable: &'a str,
}

/// Options of `create priorityclass`.
#[derive(Clone, Copy, Debug)]
pub struct PriorityClass<'a> {
    pub name: &'a str,
    pub value: i64,
    pub global_default: bool,
    pub description: &'a str,
    pub preemption_policy: &'a str,
}

/// Returns a resource quota from `resource=quantity` pairs and scopes, both separated by commas.
pub fn quota(name: Name<'_>, hard: &str, scopes: &str) -> Result<Value, Error> {
    name.required()?;
    let mut quota = name.object("v1", "ResourceQuota");
    if let Some(hard) = resource_list(hard)? {
        put(&mut quota, &["spec", "hard"], hard);
    }
    if !scopes.is_empty() {
        if scopes.split(',').any(str::is_empty) {
            return Err(Error::new("invalid resource quota scope \"\""));
        }
        put(&mut quota, &["spec", "scopes"], texts(scopes.split(',')));
    }
    Ok(typed(quota))
}

/// Parses `resource=quantity` pairs; returns [`None`] for an empty text.
pub fn resource_list(text: &str) -> Result<Option<Object>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    let mut list = Object::new();
    for statement in text.split(',') {
        let [resource, amount] = statement.split('=').collect::<Vec<_>>()[..] else {
            return Err(Error::new(format!("Invalid argument syntax {statement}, expected <resource>=<value>")));
        };
        let amount = quantity::canonical(amount).map_err(|error| Error::new(error.to_string()))?;
        list.insert(resource, amount.into_owned());
    }
    Ok(Some(list))
}

/// Returns a pod disruption budget.
pub fn disruption_budget(options: DisruptionBudget<'_>) -> Result<Value, Error> {
    options.name.required()?;
    let DisruptionBudget { name, selector, min_available, max_unavailable } = options;
    let fault = if selector.is_empty() {
        "a selector must be specified"
    } else if min_available.is_empty() && max_unavailable.is_empty() {
        "one of min-available or max-unavailable must be specified"
    } else if !min_available.is_empty() && !max_unavailable.is_empty() {
        "min-available and max-unavailable cannot be both specified"
    } else if !min_available.is_empty() && !is_number_or_percent(min_available) {
        "invalid format specified for min-available"
    } else if !max_unavailable.is_empty() && !is_number_or_percent(max_unavailable) {
        "invalid format specified for max-unavailable"
    } else {
        let mut budget = name.object("policy/v1", "PodDisruptionBudget");
        put(&mut budget, &["spec", "selector"], labels::selector(selector)?);
        if min_available.is_empty() {
            put(&mut budget, &["spec", "maxUnavailable"], int_or_string(max_unavailable));
        } else {
            put(&mut budget, &["spec", "minAvailable"], int_or_string(min_available));
        }
        return Ok(typed(budget));
    };
    Err(Error::new(fault))
}

/// Returns a priority class.
pub fn priority_class(options: PriorityClass<'_>) -> Value {
    let name = Name { name: options.name, namespace: None };
    let mut class = name.object("scheduling.k8s.io/v1", "PriorityClass");
    put(&mut class, &["value"], options.value);
    put(&mut class, &["globalDefault"], options.global_default);
    put(&mut class, &["description"], options.description);
    put(&mut class, &["preemptionPolicy"], options.preemption_policy);
    typed(class)
}

fn is_number_or_percent(text: &str) -> bool {
    let digits = text.strip_suffix('%').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
