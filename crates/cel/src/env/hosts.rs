//! Expression contexts: the API fields that contain CEL expressions, and the variables available in each.

use apimachinery::Schema;

use super::shapes::SHAPES;
use super::{Env, EnvSet};
use crate::library::{Library, named_type};
use crate::schema::TypeSet;
use crate::types::Type;

/// A part of the API that contains expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressionContext {
    /// Validations of a ValidatingAdmissionPolicy.
    ValidatingPolicy,
    /// Mutations of a MutatingAdmissionPolicy.
    MutatingPolicy,
    /// Match conditions of policies and webhooks.
    MatchConditions,
    /// Match conditions of an authorizer webhook.
    Authorization,
    /// Claim mappings and validations of a JWT authenticator.
    AuthenticationClaims,
    /// User validations of a JWT authenticator.
    AuthenticationUser,
    /// Device selectors of DRA.
    DeviceSelector,
}

impl ExpressionContext {
    /// Returns the environments of this context. Objects have dynamic type; [`Env::with_object`] adds a known schema.
    pub fn env_set(self) -> EnvSet {
        EnvSet::default().map(|env| self.extend(env))
    }

    /// Returns the schema of a variable that is not an object, by which its JSON is read.
    pub fn schema(self, variable: &str) -> Option<Schema<'static>> {
        let id = match (self, variable) {
            (Self::ValidatingPolicy | Self::MutatingPolicy | Self::MatchConditions, "request") => {
                SHAPES.admission_request
            }
            (Self::ValidatingPolicy | Self::MutatingPolicy | Self::MatchConditions, "namespaceObject") => {
                SHAPES.namespace
            }
            (Self::Authorization, "request") => SHAPES.access_review,
            (Self::AuthenticationUser, "user") => SHAPES.user,
            _ => return None,
        };
        Some(SHAPES.types.schema(id))
    }

    fn extend(self, mut env: Env) -> Env {
        let opaque = |name: &str| named_type(name).unwrap_or(Type::Dyn);
        let set = env.add_types(TypeSet::Static(&SHAPES.types));
        match self {
            Self::ValidatingPolicy => admission(env, set).with_variable("params", Type::Dyn),
            Self::MutatingPolicy => admission(env, set).with_variable("params", Type::Dyn).with_mutation(),
            Self::MatchConditions => admission(env, set),
            Self::Authorization => env.with_object("request", set, SHAPES.access_review, false),
            Self::AuthenticationClaims => env.with_variable("claims", Type::map(Type::String, Type::Dyn)),
            Self::AuthenticationUser => env.with_object("user", set, SHAPES.user, false),
            Self::DeviceSelector => {
                let by_driver = |value: Type| Type::map(Type::String, Type::map(Type::String, value));
                env.with_library(Library::Bind)
                    .with_variable("device", Type::map(Type::String, Type::Dyn))
                    .with_variable("device.driver", Type::String)
                    .with_variable("device.attributes", by_driver(Type::Dyn))
                    .with_variable("device.capacity", by_driver(opaque("kubernetes.Quantity")))
                    .with_variable("device.allowMultipleAllocations", Type::Bool)
            }
        }
    }
}

/// Adds the variables of admission expressions.
fn admission(env: Env, set: u16) -> Env {
    let opaque = |name: &str| named_type(name).unwrap_or(Type::Dyn);
    env.with_variable("object", Type::Dyn)
        .with_variable("oldObject", Type::Dyn)
        .with_object("namespaceObject", set, SHAPES.namespace, false)
        .with_object("request", set, SHAPES.admission_request, false)
        .with_variable("authorizer", opaque("kubernetes.authorization.Authorizer"))
        .with_variable("authorizer.requestResource", opaque("kubernetes.authorization.ResourceCheck"))
}
