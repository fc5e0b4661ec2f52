//! Authorizer chain: the first authorizer with an opinion decides.

use crate::Attributes;

/// The decision of an authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request is allowed, with the reason.
    Allow(String),
    /// The request is denied, regardless of later authorizers.
    Deny(String),
    /// The next authorizer decides. If none does, the request is denied with the collected reasons.
    NoOpinion(String),
}

pub trait Authorizer: Send + Sync {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision;
}

/// Authorizers in their configured order.
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

/// Allows all requests (`AlwaysAllow`).
pub struct AlwaysAllow;

impl Authorizer for AlwaysAllow {
    fn authorize(&self, _: &Attributes<'_>) -> Decision {
        Decision::Allow(String::new())
    }
}

/// Denies all requests (`AlwaysDeny`).
pub struct AlwaysDeny;

impl Authorizer for AlwaysDeny {
    fn authorize(&self, _: &Attributes<'_>) -> Decision {
        Decision::NoOpinion("Everything is forbidden.".to_owned())
    }
}

/// Allows all requests of one group before any other authorizer, so that `system:masters` cannot be locked out.
pub struct PrivilegedGroup(pub &'static str);

impl Authorizer for PrivilegedGroup {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.is_in(self.0) { Decision::Allow(String::new()) } else { Decision::NoOpinion(String::new()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Target, User};

    struct FixedDecision(Decision);

    impl Authorizer for FixedDecision {
        fn authorize(&self, _: &Attributes<'_>) -> Decision {
            self.0.clone()
        }
    }

    #[test]
    fn first_opinion_decides_and_denial_reasons_are_joined() {
        let check = |decisions: &[Decision], expect: Decision| {
            let chain = Chain(
                decisions
                    .iter()
                    .map(|decisions| Box::new(FixedDecision(decisions.clone())) as Box<dyn Authorizer>)
                    .collect(),
            );
            let user = User::anonymous();
            let attributes = Attributes { user: &user, verb: "get", target: Target::Path("/") };
            assert_eq!(chain.authorize(&attributes), expect);
        };
        let (allow, deny) = (Decision::Allow("yes".into()), Decision::Deny("no".into()));
        let unsure = Decision::NoOpinion("unsure".into());
        check(&[], Decision::NoOpinion(String::new()));
        check(&[unsure.clone(), allow.clone(), deny.clone()], allow.clone());
        check(&[unsure.clone(), deny, allow], Decision::Deny("unsure\nno".into()));
        check(&[unsure.clone(), unsure], Decision::NoOpinion("unsure\nunsure".into()));
    }
}
