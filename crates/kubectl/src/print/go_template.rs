//! `-o go-template`: the language of Go's `text/template` with kubectl's functions `exists` and `base64decode`.
//!
//! The parser creates a tree of actions (`tree`). The evaluation walks it with values that have Go types (`value`),
//! because messages and `printf` print the types.

mod escape;
mod eval;
mod functions;
mod lex;
mod parse;
mod printf;
mod tree;
mod value;

use std::collections::BTreeMap;

use apimachinery::jsonpath::MissingKeys;
use apimachinery::{Value, go};

use super::format::PrintError;

/// A parsed template.
#[derive(Clone, Debug)]
pub struct GoTemplate {
    text: String,
    templates: BTreeMap<String, Vec<tree::Node>>,
    missing: MissingKeys,
}

/// A text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("template: {NAME}:{line}: {message}")]
pub struct ParseError {
    line: usize,
    message: String,
}

/// The name of the template in messages.
const NAME: &str = "output";

impl GoTemplate {
    pub fn parse(text: &str, missing: MissingKeys) -> Result<Self, ParseError> {
        Ok(Self { text: text.to_owned(), templates: parse::parse(text)?, missing })
    }

    /// Executes the template on an object. On failure, prints the output so far, the template and the object.
    pub fn print(&self, object: &Value) -> Result<String, PrintError> {
        let mut output = String::new();
        self.execute(object, &mut output).map_err(|error| {
            let (text, raw, shown) = (&self.text, go::json(object), go::display(object));
            output.push_str(&format!(
                "Error executing template: {error}. Printing more information for debugging the template:\n\ttemplate \
                 was:\n\t\t{text}\n\traw data was:\n\t\t{raw}\n\tobject given to template engine was:\n\t\t{shown}\n\n"
            ));
            let message = format!("error executing template {}: {error}", go::quote(&self.text));
            PrintError { output: std::mem::take(&mut output), message }
        })?;
        Ok(output)
    }

    /// Executes the template; what it prints before a failure is in `out`.
    fn execute(&self, object: &Value, out: &mut String) -> Result<(), String> {
        eval::execute(&self.text, &self.templates, self.missing, object, out)
    }
}

#[cfg(test)]
mod tests;
