//! Changes of taints: their notation, and their effect on the taints of a node.

use apimachinery::{Object, Value, go, names};

/// A taint of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Taint {
    key: String,
    value: String,
    /// Empty for any effect.
    effect: String,
}

/// The taints to add and to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    add: Vec<Taint>,
    remove: Vec<Taint>,
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

impl Changes {
    /// Parses `key=value:effect`, `key:effect` to add, `key:effect-` and `key-` to remove.
    pub(super) fn parse(args: &[String]) -> Result<Self, String> {
        let mut changes = Self::default();
        for arg in args {
            if let Some(arg) = arg.strip_suffix('-') {
                changes.remove.push(Taint { value: String::new(), ..Taint::parse(arg)? });
                continue;
            }
            let taint = Taint::parse(arg)?;
            if taint.effect.is_empty() {
                return Err(format!("invalid taint spec: {arg}"));
            }
            if changes.add.iter().any(|have| have.matches(&taint)) {
                let Taint { key, value, effect } = taint;
                return Err(format!(
                    "duplicated taints with the same key and effect: {{{key} {value} {effect} <nil>}}"
                ));
            }
            changes.add.push(taint);
        }
        Ok(changes)
    }

    /// Returns the taints that are both added and removed.
    pub(super) fn conflicts(&self) -> Vec<String> {
        let removed = |add: &Taint| {
            let add = add.clone();
            self.remove.iter().filter(move |remove| {
                remove.key == add.key && (remove.effect.is_empty() || remove.effect == add.effect)
            })
        };
        self.add.iter().flat_map(removed).map(|taint| format!("{}={}", taint.key, taint.effect)).collect()
    }

    /// Returns the effect of the changes and the new taints of a node, or the reason why they cannot be applied.
    pub(super) fn apply(
        &self,
        node: &str,
        old: &[Value],
        overwrite: bool,
    ) -> Result<(&'static str, Vec<Value>), Vec<String>> {
        let same = |taint: &Taint, value: &Value| taint.matches(&Taint::of(value));
        let existing: Vec<&str> = self
            .add
            .iter()
            .flat_map(|taint| old.iter().filter(|value| same(taint, value)).map(|_| taint.key.as_str()))
            .collect();
        if !existing.is_empty() && !overwrite {
            let existing = existing.join(",");
            return Err(vec![format!(
                "node {node} already has {existing} taint(s) with same effect(s) and --overwrite is false"
            )]);
        }
        let mut new: Vec<Value> = self.add.iter().map(Taint::value).collect();
        new.extend(old.iter().filter(|value| !self.add.iter().any(|taint| same(taint, value))).cloned());
        let added = old.len() != new.len();
        let mut removed = false;
        let mut missing = Vec::new();
        for taint in &self.remove {
            let before = new.len();
            new.retain(|value| !taint.selects(&Taint::of(value)));
            removed = new.len() < before;
            if !removed {
                missing.push(format!("taint {} not found", go::quote(&taint.to_text())));
            }
        }
        if !missing.is_empty() {
            return Err(missing);
        }
        let operation = match (added, removed) {
            (true, false) if !overwrite => "tainted",
            (false, _) if !overwrite => "untainted",
            _ => "modified",
        };
        Ok((operation, new))
    }
}

impl Taint {
    fn parse(text: &str) -> Result<Self, String> {
        let invalid = || format!("invalid taint spec: {text}");
        let (pair, effect) = match text.split(':').collect::<Vec<_>>().as_slice() {
            [key] => return Self { key: (*key).to_owned(), ..Self::default() }.check(text),
            [pair, effect] => (*pair, *effect),
            _ => return Err(invalid()),
        };
        if !EFFECTS.contains(&effect) {
            return Err(format!("invalid taint effect: {effect}, unsupported taint effect"));
        }
        let (key, value) = match pair.split('=').collect::<Vec<_>>().as_slice() {
            [key] => (*key, ""),
            [key, value] => (*key, *value),
            _ => return Err(invalid()),
        };
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            return Err(format!("{}, {}", invalid(), wrong.join("; ")));
        }
        let [key, value, effect] = [key, value, effect].map(str::to_owned);
        Self { key, value, effect }.check(text)
    }

    fn check(self, text: &str) -> Result<Self, String> {
        let wrong = names::qualified_name(&self.key);
        if wrong.is_empty() { Ok(self) } else { Err(format!("invalid taint spec: {text}, {}", wrong.join("; "))) }
    }

    fn of(value: &Value) -> Self {
        let [key, text, effect] =
            ["key", "value", "effect"].map(|field| value.str_at(&[field]).unwrap_or_default().to_owned());
        Self { key, value: text, effect }
    }

    /// Whether two taints have the same key and effect.
    fn matches(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }

    /// Whether a removal applies to a taint.
    fn selects(&self, other: &Self) -> bool {
        self.key == other.key && (self.effect.is_empty() || self.effect == other.effect)
    }

    fn value(&self) -> Value {
        let mut taint = Object::with_capacity(3);
        taint.insert("key", self.key.as_str());
        taint.insert("effect", self.effect.as_str());
        if !self.value.is_empty() {
            taint.insert("value", self.value.as_str());
        }
        Value::Object(taint)
    }

    fn to_text(&self) -> String {
        crate::describe::common::taint(&self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::value;

    fn changes(text: &str) -> Result<Changes, String> {
        Changes::parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn taints_are_checked() {
        let check = |text: &str, problem: &str| assert_eq!(changes(text).unwrap_err(), problem);
        check(
            "a=b",
            "invalid taint spec: a=b, name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        );
        check("a", "invalid taint spec: a");
        check("a:No", "invalid taint effect: No, unsupported taint effect");
        check("a:b:c", "invalid taint spec: a:b:c");
        check("a=b=c:NoExecute", "invalid taint spec: a=b=c:NoExecute");
        check("a=b:NoExecute a=c:NoExecute", "duplicated taints with the same key and effect: {a c NoExecute <nil>}");
        assert_eq!(changes("a=b:NoExecute a-").unwrap().conflicts(), ["a="]);
    }

    #[test]
    fn changes_are_applied_to_the_taints_of_a_node() {
        let old =
            [value!({"key": "a", "effect": "NoExecute"}), value!({"key": "b", "value": "x", "effect": "NoSchedule"})];
        let check = |text: &str, overwrite: bool, expect: Result<(&str, &[&str]), &str>| {
            let changes = changes(text).unwrap();
            let applied = changes.apply("n", &old, overwrite);
            let applied = applied.map(|(operation, taints)| {
                (operation, taints.iter().map(|taint| Taint::of(taint).to_text()).collect::<Vec<_>>())
            });
            let expect = expect
                .map(|(operation, taints)| (operation, taints.iter().map(|taint| (*taint).to_owned()).collect()))
                .map_err(|problem| vec![problem.to_owned()]);
            assert_eq!(applied, expect, "{text}");
        };
        check("c=d:NoSchedule", false, Ok(("tainted", &["c=d:NoSchedule", "a:NoExecute", "b=x:NoSchedule"])));
        check("a-", false, Ok(("untainted", &["b=x:NoSchedule"])));
        check("c:NoSchedule a-", false, Ok(("modified", &["c:NoSchedule", "b=x:NoSchedule"])));
        check("b=y:NoSchedule", true, Ok(("modified", &["b=y:NoSchedule", "a:NoExecute"])));
        let exists = "node n already has b taint(s) with same effect(s) and --overwrite is false";
        check("b=y:NoSchedule", false, Err(exists));
        check("z:NoExecute-", false, Err("taint \"z:NoExecute\" not found"));
    }
}
