//! `-o yaml`.

use apimachinery::{Value, yaml};

/// Prints objects as a stream of YAML documents.
#[derive(Debug, Default)]
pub struct YamlPrinter {
    printed: bool,
}

impl YamlPrinter {
    /// Prints an object; every object after the first follows a `---` line.
    pub fn print(&mut self, object: &Value) -> String {
        let separator = if std::mem::replace(&mut self.printed, true) { "---\n" } else { "" };
        format!("{separator}{}", yaml::to_string(object))
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn documents_are_separated() {
        let mut printer = YamlPrinter::default();
        assert_eq!(printer.print(&value!({"b": 1, "a": ["x"]})), "a:\n- x\nb: 1\n");
        assert_eq!(printer.print(&value!({"c": {}})), "---\nc: {}\n");
    }
}
