//! Authorizers asked in order: the first that has an opinion decides.

use crate::Attributes;

/// What an authorizer says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may, and this is why.
    Allow(String),
    /// It may not, whatever others say.
    Deny(String),
    /// Others may decide; if nobody does, the request is refused with this reason among them.
    NoOpinion(String),
}

/// Decides over requests from rules it holds.
pub trait Authorizer: Send + Sync {
    /// Says whether `attributes` describes something permitted.
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision;
}

/// Asks authorizers in the order they were configured.
pub struct Chain(pub Vec<Box<dyn Authorizer>>);

impl Authorizer for Chain {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let mut reasons = Vec::new();
        for authorizer in &self.0 {
            match authorizer.authorize(attributes) {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                Decision::Deny(reason) => {
                    reasons.push(reason);
                    return Decision::Deny(reasons.join("\n"));
                }
                allowed @ Decision::Allow(_) => return allowed,
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }
}

/// Permits everything (`AlwaysAllow`).
pub struct AlwaysAllow;

impl Authorizer for AlwaysAllow {
    fn authorize(&self, _: &Attributes<'_>) -> Decision {
        Decision::Allow(String::new())
    }
}

/// Permits nothing (`AlwaysDeny`).
pub struct AlwaysDeny;

impl Authorizer for AlwaysDeny {
    fn authorize(&self, _: &Attributes<'_>) -> Decision {
        Decision::NoOpinion("Everything is forbidden.".to_owned())
    }
}

/// Permits everything to members of one group, ahead of all rules: `system:masters` cannot lock itself out.
pub struct Privileged(pub &'static str);

impl Authorizer for Privileged {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.is_in(self.0) { Decision::Allow(String::new()) } else { Decision::NoOpinion(String::new()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Target, User};

    struct Says(Decision);

    impl Authorizer for Says {
        fn authorize(&self, _: &Attributes<'_>) -> Decision {
            self.0.clone()
        }
    }

    #[test]
    fn the_first_opinion_counts_and_refusals_gather_reasons() {
        let check = |said: &[Decision], expect: Decision| {
            let chain = Chain(said.iter().map(|said| Box::new(Says(said.clone())) as Box<dyn Authorizer>).collect());
            let user = User::anonymous();
            let asked = Attributes { user: &user, verb: "get", target: Target::Path("/") };
            assert_eq!(chain.authorize(&asked), expect);
        };
        let (allow, deny) = (Decision::Allow("yes".into()), Decision::Deny("no".into()));
        let unsure = Decision::NoOpinion("unsure".into());
        check(&[], Decision::NoOpinion(String::new()));
        check(&[unsure.clone(), allow.clone(), deny.clone()], allow.clone());
        check(&[unsure.clone(), deny, allow], Decision::Deny("unsure\nno".into()));
        check(&[unsure.clone(), unsure], Decision::NoOpinion("unsure\nunsure".into()));
    }
}
