//! The Common Expression Language as used in Kubernetes: parser, checker, cost estimation and evaluation over the JSON
//! tree.
//!
//! ```
//! use cel::{Env, Strictness, Type, Val};
//! use apimachinery::value;
//!
//! let env = Env::new(Strictness::Kubernetes).with_variable("self", Type::Dyn);
//! let compiled = env.compile("self.replicas <= 5")?;
//! let object = value!({"replicas": 3});
//! let outcome = compiled.program.evaluate(&[("self", Val::json(&object, None)?)])?;
//! assert_eq!(outcome.value.as_bool(), Some(true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The stages of an expression are [`lexer`], [`parser`] (which expands macros), [`check`], [`cost::estimate()`], and a
//! program that [`eval`] runs. All functions are in one table, [`library`].
//!
//! # Invariants
//!
//! - No expression exceeds its cost budget, and no operator absorbs an exhausted budget. *Enforced by*
//!   `logical_operators_do_not_absorb_an_exhausted_budget`, `quadratic_functions_are_charged_before_they_run`,
//!   `deep_nesting_is_rejected`.
//! - Traversing a long string or compiling a pattern at run time costs more than one unit. *Enforced by*
//!   `traversals_of_long_texts_count_as_steps`, `patterns_compiled_at_runtime_count_as_steps`.

pub mod ast;
pub mod check;
pub mod cost;
pub mod env;
pub mod error;
pub mod eval;
pub mod lexer;
pub mod library;
mod macros;
pub mod parser;
pub mod schema;
pub mod types;
pub mod value;

pub use env::{Compiled, Env, EnvSet, ExpressionContext, Strictness, Version};
pub use error::{Finding, Findings};
pub use eval::{Failure, Meter, Outcome, Program, Variables};
pub use library::Library;
pub use library::authorizer::{Authorizer, Check, Decision};
pub use types::Type;
pub use value::Val;
