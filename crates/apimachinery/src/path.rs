//! Field paths in upstream's notation: `spec.containers[0].image`.

use std::fmt;

/// One path element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathSegment<'a> {
    /// A named field: `.name`.
    Field(&'a str),
    /// A list item: `[3]`.
    Index(usize),
    /// A map entry, whose key may contain any characters: `[app.example/key]`.
    Key(&'a str),
}

/// A path that grows on the stack during a walk: a path costs nothing until it is printed.
///
/// ```
/// use apimachinery::Path;
/// let root = Path::ROOT;
/// let spec = root.field("spec");
/// let containers = spec.field("containers");
/// assert_eq!(containers.index(0).to_string(), "spec.containers[0]");
/// assert_eq!(spec.field("nodeSelector").key("a/b").to_string(), "spec.nodeSelector[a/b]");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: PathSegment<'a>,
}

impl<'a> Path<'a> {
    /// The path of the root object. Prints as an empty string.
    pub const ROOT: Path<'static> = Path { parent: None, step: PathSegment::Field("") };

    /// Returns a path of one field, for rules that start below the root.
    pub const fn of(field: &'a str) -> Path<'a> {
        Path { parent: None, step: PathSegment::Field(field) }
    }

    /// Returns the path of the field `name`.
    pub const fn field<'b>(&'b self, name: &'b str) -> Path<'b>
    where
        'a: 'b,
    {
        self.step(PathSegment::Field(name))
    }

    /// Returns the path of the list item `at`.
    pub const fn index<'b>(&'b self, at: usize) -> Path<'b>
    where
        'a: 'b,
    {
        self.step(PathSegment::Index(at))
    }

    /// Returns the path of the map entry `key`.
    pub const fn key<'b>(&'b self, key: &'b str) -> Path<'b>
    where
        'a: 'b,
    {
        self.step(PathSegment::Key(key))
    }

    pub const fn step<'b>(&'b self, step: PathSegment<'b>) -> Path<'b>
    where
        'a: 'b,
    {
        Path { parent: Some(self), step }
    }

    /// Returns the last step; [`None`] for the root.
    pub fn last(&self) -> Option<PathSegment<'a>> {
        (!self.is_root()).then_some(self.step)
    }

    fn is_root(&self) -> bool {
        self.parent.is_none() && self.step == PathSegment::Field("")
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = match self.parent {
            Some(parent) => {
                write!(out, "{parent}")?;
                !parent.is_root()
            }
            None => false,
        };
        match self.step {
            PathSegment::Field(name) if below => write!(out, ".{name}"),
            PathSegment::Field(name) => out.write_str(name),
            PathSegment::Index(at) => write!(out, "[{at}]"),
            PathSegment::Key(key) => write!(out, "[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_like_upstream() {
        let root = Path::ROOT;
        let items = root.field("items");
        let item = items.index(2);
        let labels = item.field("labels");
        assert_eq!(root.to_string(), "");
        assert_eq!(labels.key("a.b/c").to_string(), "items[2].labels[a.b/c]");
        assert_eq!(root.index(1).to_string(), "[1]");
        assert_eq!(root.key("x").to_string(), "[x]");
    }
}
