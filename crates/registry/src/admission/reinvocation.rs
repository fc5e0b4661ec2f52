//! Who is asked a second time about an object, because others changed what they saw.
//!
//! ```text
//! first round: everybody ─(somebody changed it)─> second round: those who want to and saw something else
//! ```

use std::collections::BTreeSet;

use machinery::Value;

/// What policies, or hooks, have done to the object of one request so far.
#[derive(Debug, Default)]
pub struct Reinvocation {
    second: bool,
    changed: bool,
    /// Those that were asked since the last change and want to be asked again.
    asked: BTreeSet<String>,
    required: BTreeSet<String>,
    last: Option<Value>,
}

/// Whether somebody wants to see what others make of an object after him (`reinvocationPolicy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Once is enough.
    Never,
    /// If others changed it.
    IfNeeded,
}

impl Again {
    /// What an object with a `reinvocationPolicy` says.
    pub fn of(holder: &Value) -> Self {
        match holder.str_at(&["reinvocationPolicy"]) {
            Some("IfNeeded") => Self::IfNeeded,
            _ => Self::Never,
        }
    }
}

impl Reinvocation {
    /// Whether this is the second round.
    pub const fn is_second(&self) -> bool {
        self.second
    }

    /// Whether anybody changed the object.
    pub const fn has_changed(&self) -> bool {
        self.changed
    }

    /// Begins the second round.
    pub const fn begin_second(&mut self) {
        self.second = true;
    }

    /// Takes up the object. What others made of it meanwhile concerns all who were asked.
    pub fn resume(&mut self, object: &Value) {
        if self.second && self.last.as_ref().is_some_and(|last| last != object) {
            self.require_all();
        }
    }

    /// Whether somebody is to be asked now.
    pub fn wants(&self, id: &str) -> bool {
        !self.second || self.required.contains(id)
    }

    /// Somebody was asked.
    pub fn asked(&mut self, id: &str, again: Again, changed: bool) {
        if changed {
            self.changed = true;
            self.require_all();
        }
        if again == Again::IfNeeded {
            self.asked.insert(id.to_owned());
        }
    }

    /// All were asked, and this is what they made.
    pub fn finish(&mut self, object: &Value) {
        self.last = Some(object.clone());
    }

    fn require_all(&mut self) {
        self.required.append(&mut self.asked);
    }
}

#[cfg(test)]
mod tests {
    use machinery::value;

    use super::*;

    #[test]
    fn who_asked_to_see_changes_of_others_is_asked_again_and_nobody_else() {
        let mut again = Reinvocation::default();
        again.resume(&value!({"a": 0}));
        again.asked("a", Again::IfNeeded, false);
        again.asked("b", Again::Never, true);
        again.asked("c", Again::IfNeeded, false);
        again.finish(&value!({"a": 1}));
        assert!(again.has_changed());
        again.begin_second();
        again.resume(&value!({"a": 1}));
        assert_eq!(["a", "b", "c"].map(|id| again.wants(id)), [true, false, false]);
    }

    #[test]
    fn what_plug_ins_change_meanwhile_concerns_all_who_want_to_see_it() {
        let mut again = Reinvocation::default();
        again.asked("a", Again::Never, false);
        again.asked("b", Again::IfNeeded, false);
        again.finish(&value!({"a": 1}));
        assert!(!again.has_changed());
        again.begin_second();
        again.resume(&value!({"a": 2}));
        assert_eq!(["a", "b"].map(|id| again.wants(id)), [false, true]);
    }
}
