//! Resource amounts as integers: CPU in millicores, bytes, and counts of scalar resources.

use api::amounts::Amounts;
use apimachinery::quantity::Quantity;
use apimachinery::{Str, Value};

/// Integer amounts for comparing nodes and pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    pub cpu_milli: i64,
    /// In bytes.
    pub memory: i64,
    /// Ephemeral storage in bytes.
    pub ephemeral: i64,
    /// All other countable resources, sorted by name.
    pub scalars: Vec<(Str, i64)>,
}

/// An invalid quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Error {
    pub field: String,
    pub reason: apimachinery::quantity::Error,
}

/// Parses a map of quantities; `field` is its path for errors.
pub fn list(object: Option<&Value>, field: &str) -> Result<Amounts, Error> {
    let mut list = Amounts::new();
    for (name, value) in object.and_then(Value::as_object).into_iter().flat_map(apimachinery::Object::iter) {
        let error = |reason| Error { field: format!("{field}[{name}]"), reason };
        let quantity = match value {
            Value::Int(int) => Quantity::new(*int, apimachinery::quantity::Format::DecimalSI),
            other => other.as_str().unwrap_or_default().parse().map_err(error)?,
        };
        list.insert(name.into(), quantity);
    }
    Ok(list)
}

impl Resources {
    /// Converts a list; amounts are rounded up to whole units.
    pub fn from_list(list: &Amounts) -> Self {
        let whole = |name: &str| list.get(name).map_or(0, |amount| amount.value());
        Self {
            cpu_milli: list.get("cpu").map_or(0, |amount| amount.milli_value()),
            memory: whole("memory"),
            ephemeral: whole("ephemeral-storage"),
            scalars: list.iter().filter(|(name, _)| is_scalar(name)).map(|(n, q)| (n.clone(), q.value())).collect(),
        }
    }

    /// Returns the amount of any resource; 0 if absent.
    pub fn amount(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.cpu_milli,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral,
            _ => self.scalar(name),
        }
    }

    /// Returns the amount of a resource other than CPU, memory and ephemeral storage; 0 if absent.
    pub fn scalar(&self, name: &str) -> i64 {
        self.scalars.binary_search_by(|(have, _)| have.as_str().cmp(name)).map_or(0, |at| self.scalars[at].1)
    }

    pub fn increase(&mut self, other: &Self) {
        self.change(other, i64::saturating_add);
    }

    /// Subtracts `other`, which must have been added before.
    pub fn decrease(&mut self, other: &Self) {
        self.change(other, i64::saturating_sub);
        self.scalars.retain(|(_, amount)| *amount != 0);
    }

    fn change(&mut self, other: &Self, by: fn(i64, i64) -> i64) {
        self.cpu_milli = by(self.cpu_milli, other.cpu_milli);
        self.memory = by(self.memory, other.memory);
        self.ephemeral = by(self.ephemeral, other.ephemeral);
        for (name, amount) in &other.scalars {
            match self.scalars.binary_search_by(|(have, _)| have.cmp(name)) {
                Ok(at) => self.scalars[at].1 = by(self.scalars[at].1, *amount),
                Err(at) => self.scalars.insert(at, (name.clone(), by(0, *amount))),
            }
        }
    }
}

/// Whether a resource is an extended resource: its name has a domain outside `kubernetes.io`.
pub fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

fn is_scalar(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn amounts_are_rounded_up_to_whole_units() {
        let list = list(Some(&value!({"cpu": "1500u", "memory": "0.5", "a.io/gpu": 2, "pods": "3"})), "x").unwrap();
        let resources = Resources::from_list(&list);
        let expect = Resources { cpu_milli: 2, memory: 1, ephemeral: 0, scalars: vec![("a.io/gpu".into(), 2)] };
        assert_eq!(resources, expect);
    }

    #[test]
    fn invalid_quantity_error_names_its_field() {
        let error = list(Some(&value!({"cpu": "much"})), "spec.overhead").unwrap_err();
        assert!(error.to_string().starts_with("spec.overhead[cpu]: "), "{error}");
    }

    #[test]
    fn added_resources_can_be_subtracted() {
        let one = Resources { cpu_milli: 5, scalars: vec![("a/b".into(), 1)], ..Resources::default() };
        let mut sum = Resources::default();
        sum.increase(&one);
        sum.increase(&one);
        assert_eq!((sum.amount("cpu"), sum.amount("a/b")), (10, 2));
        sum.decrease(&one);
        sum.decrease(&one);
        assert_eq!(sum, Resources::default());
    }
}
