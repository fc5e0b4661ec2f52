//! Typed access to one KubeletConfiguration field; a wrong type is an error that names the field.

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::Value;
use apimachinery::quantity::Quantity;
use http::{HeaderName, HeaderValue};

use super::ConfigError;

/// The name and value of a field.
pub(super) struct Field<'a> {
    pub name: &'a str,
    pub value: &'a Value,
}

impl Field<'_> {
    pub(super) fn bad(&self, problem: &str) -> ConfigError {
        ConfigError::Field { field: self.name.to_owned(), problem: problem.to_owned() }
    }

    pub(super) fn text(&self) -> Result<&str, ConfigError> {
        self.value.as_str().ok_or_else(|| self.bad("must be a string"))
    }

    pub(super) fn bool(&self) -> Result<bool, ConfigError> {
        self.value.as_bool().ok_or_else(|| self.bad("must be true or false"))
    }

    pub(super) fn number<N: TryFrom<i64>>(&self) -> Result<N, ConfigError> {
        let number = self.value.as_int().and_then(|number| N::try_from(number).ok());
        number.ok_or_else(|| self.bad("must be a number in the valid range"))
    }

    pub(super) fn parse<T: std::str::FromStr>(&self) -> Result<T, ConfigError> {
        self.text()?.parse().map_err(|_| self.bad("has an invalid value"))
    }

    pub(super) fn quantity(&self) -> Result<Quantity, ConfigError> {
        self.parse()
    }

    pub(super) fn duration(&self) -> Result<Duration, ConfigError> {
        let duration: apimachinery::time::Duration = self.parse()?;
        u64::try_from(duration.nanos()).map(Duration::from_nanos).map_err(|_| self.bad("must not be negative"))
    }

    /// Returns eviction thresholds, quantities or percentages, by signal.
    pub(super) fn thresholds(&self) -> Result<BTreeMap<String, String>, ConfigError> {
        let map = self.map()?;
        for (signal, limit) in &map {
            if !crate::eviction::SIGNALS.contains(&signal.as_str()) {
                return Err(self.bad(&format!("unknown eviction signal {signal}")));
            }
            let good = match limit.strip_suffix('%') {
                Some(percent) => percent.parse::<f64>().is_ok_and(|percent| (0.0..=100.0).contains(&percent)),
                None => limit.parse::<Quantity>().is_ok_and(|amount| !amount.is_negative()),
            };
            if !good {
                return Err(self.bad(&format!("{limit:?} is neither a quantity nor a percentage")));
            }
        }
        Ok(map)
    }

    pub(super) fn durations(&self) -> Result<BTreeMap<String, Duration>, ConfigError> {
        let one = |(key, text): (String, String)| {
            let value = Value::from(text);
            Ok((key, Field { name: self.name, value: &value }.duration()?))
        };
        self.map()?.into_iter().map(one).collect()
    }

    /// Reads `[{priority, shutdownGracePeriodSeconds}]`; the result is ordered by priority.
    pub(super) fn priorities(&self) -> Result<Vec<(i64, u64)>, ConfigError> {
        let list = self.value.as_array().ok_or_else(|| self.bad("must be a list"))?;
        let one = |item: &Value| {
            let seconds = item["shutdownGracePeriodSeconds"].as_int().and_then(|seconds| u64::try_from(seconds).ok());
            let pair = item["priority"].as_int().zip(seconds);
            pair.ok_or_else(|| self.bad("each item must have a priority and shutdownGracePeriodSeconds"))
        };
        let mut list = list.iter().map(one).collect::<Result<Vec<_>, _>>()?;
        list.sort_unstable();
        Ok(list)
    }

    /// Reads `[{numaNode, limits}]` by NUMA node.
    pub(super) fn amounts_by_node(&self) -> Result<BTreeMap<u32, BTreeMap<String, u64>>, ConfigError> {
        let list = self.value.as_array().ok_or_else(|| self.bad("must be a list"))?;
        let shape = || self.bad("each item must have a unique numaNode and limits");
        let mut nodes = BTreeMap::new();
        for item in list {
            let node = item["numaNode"].as_int().and_then(|node| u32::try_from(node).ok()).ok_or_else(shape)?;
            let limits = Field { name: self.name, value: &item["limits"] }.map()?;
            let amount = |(kind, text): (String, String)| {
                let amount = text.parse::<Quantity>().ok().and_then(|amount| u64::try_from(amount.value()).ok());
                amount.map(|bytes| (kind, bytes)).ok_or_else(|| self.bad("has an invalid quantity"))
            };
            let limits = limits.into_iter().map(amount).collect::<Result<_, _>>()?;
            if nodes.insert(node, limits).is_some() {
                return Err(shape());
            }
        }
        Ok(nodes)
    }

    /// Reads HTTP headers: `{name: [value, …]}`.
    pub(super) fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigError> {
        let map = self.value.as_object().ok_or_else(|| self.bad("must be a map"))?;
        let mut headers = Vec::new();
        for (name, values) in map.iter() {
            let parsed = HeaderName::try_from(name).map_err(|_| self.bad("has an invalid header name"))?;
            for value in (Field { name: self.name, value: values }).texts()? {
                let value = HeaderValue::try_from(value).map_err(|_| self.bad("has an invalid header value"))?;
                headers.push((parsed.clone(), value));
            }
        }
        Ok(headers)
    }

    pub(super) fn texts(&self) -> Result<Vec<String>, ConfigError> {
        let list = self.value.as_array().ok_or_else(|| self.bad("must be a list"))?;
        list.iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(|| self.bad("must be a list of strings")))
            .collect()
    }

    pub(super) fn map(&self) -> Result<BTreeMap<String, String>, ConfigError> {
        let map = self.value.as_object().ok_or_else(|| self.bad("must be a map"))?;
        let entry = |(key, value): (&str, &Value)| {
            let text = value.as_str().map(str::to_owned).or_else(|| value.as_int().map(|number| number.to_string()));
            text.map(|text| (key.to_owned(), text)).ok_or_else(|| self.bad("must be a map of strings"))
        };
        map.iter().map(entry).collect()
    }
}
