//! CEL device selectors.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use apimachinery::{Str, Value};
use cel::cost::limits::SELECTOR;
use cel::value::{Entries, Key};
use cel::{Env, ExpressionContext, Failure, Meter, Program, Val, Variables};

use super::slice::Device;

/// Cache size at which compiled expressions without users are dropped.
const UNUSED_MAX: usize = 1_000;

static ENV: LazyLock<Env> = LazyLock::new(|| ExpressionContext::DeviceSelector.env_set().stored);

/// A CEL expression.
#[derive(Debug)]
pub struct Selector {
    source: Str,
    /// The compiled expression or the compile error.
    program: Result<Program, String>,
}

/// Evaluation error of a device selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("CEL compile error: {0}")]
    Compile(String),
    #[error("CEL runtime error: {0}")]
    Run(String),
}

/// Cache of selectors: each expression is compiled once.
#[derive(Clone, Debug, Default)]
pub struct Selectors {
    compiled: BTreeMap<Str, Arc<Selector>>,
}

impl Selectors {
    /// Compiles a list of `DeviceSelector`. An invalid expression fails when it is evaluated.
    pub fn read(&mut self, list: &[Value]) -> Vec<Arc<Selector>> {
        list.iter().map(|it| self.compile(it.text_at(&["cel", "expression"]))).collect()
    }

    fn compile(&mut self, source: &str) -> Arc<Selector> {
        if let Some(known) = self.compiled.get(source) {
            return Arc::clone(known);
        }
        if self.compiled.len() >= UNUSED_MAX {
            self.compiled.retain(|_, selector| Arc::strong_count(selector) > 1);
        }
        let program = ENV.compile(source).map(|compiled| compiled.program).map_err(|findings| findings.to_string());
        let selector = Arc::new(Selector { source: source.into(), program });
        self.compiled.insert(source.into(), Arc::clone(&selector));
        selector
    }
}

impl Selector {
    /// Evaluates the expression for a device.
    pub fn matches(&self, driver: &Str, device: &Device) -> Result<bool, Error> {
        let program = self.program.as_ref().map_err(|message| Error::Compile(message.clone()))?;
        let value = program.run(&About { driver, device }, &Meter::new(SELECTOR));
        let value = value.map_err(|failure| Error::Run(failure.to_string()))?;
        value.as_bool().ok_or_else(|| Error::Run(format!("expected a bool, got {}", value.type_of())))
    }
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

struct About<'a> {
    driver: &'a Str,
    device: &'a Device,
}

impl<'a> Variables<'a> for About<'a> {
    fn variable(&self, name: &str) -> Option<Result<Val<'a>, Failure>> {
        let [attributes, capacity] = &self.device.seen;
        Some(Ok(match name {
            "device.driver" => Val::str(self.driver),
            "device.attributes" => attributes.clone(),
            "device.capacity" => capacity.clone(),
            "device.allowMultipleAllocations" => Val::Bool(self.device.shared),
            "device" => {
                let mut all = Entries::new();
                for field in ["driver", "attributes", "capacity", "allowMultipleAllocations"] {
                    let value = self.variable(&format!("device.{field}"))?;
                    all.insert(Key::borrowed(field), value.ok()?);
                }
                Val::map(all)
            }
            _ => return None,
        }))
    }
}
