//! Names of types on the command line: `pods`, `po`, `deployments.apps`, `deployments.v1.apps`, `Deployment`.

use super::Mapping;

/// A parsed name of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeName {
    text: String,
}

/// One way to read a name. The readings of a name are tried in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    name: String,
    lower: String,
    group: Option<String>,
    group_is_prefix: bool,
    version: Option<String>,
    by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The plural or singular name.
    Name,
    ShortName,
    Kind,
}

impl TypeName {
    pub fn parse(text: &str) -> Self {
        Self { text: text.to_owned() }
    }

    /// Returns the name without version and group.
    pub fn resource(&self) -> &str {
        self.text.split('.').next().unwrap_or_default()
    }

    /// Returns the readings of the name, the preferred one first.
    pub fn patterns(&self) -> Vec<Pattern> {
        let mut patterns = Vec::new();
        let mut parts = self.text.splitn(3, '.');
        let full = match (parts.next(), parts.next(), parts.next()) {
            (Some(name), Some(version), Some(group)) => Some((name, version, group)),
            _ => None,
        };
        let (name, group) = match self.text.split_once('.') {
            Some((name, group)) => (name, Some(group)),
            None => (self.text.as_str(), None),
        };
        let pattern = |name: &str, version: Option<&str>, group: Option<&str>, by: By| Pattern {
            name: name.to_owned(),
            lower: name.to_lowercase(),
            group: group.map(str::to_owned),
            group_is_prefix: false,
            version: version.map(str::to_owned),
            by,
        };
        for by in [By::Name, By::ShortName, By::Kind] {
            if let Some((name, version, group)) = full {
                patterns.push(pattern(name, Some(version), Some(group), by));
            }
            patterns.push(pattern(name, None, group, by));
            if group.is_some() {
                patterns.push(Pattern { group_is_prefix: true, ..pattern(name, None, group, by) });
            }
        }
        // `Kind.version` of the core group, such as `Pod.v1.`.
        patterns
    }
}

impl Pattern {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_short(&self) -> bool {
        self.by == By::ShortName
    }

    pub fn allows_group(&self, group: &str) -> bool {
        match &self.group {
            None => true,
            Some(expected) if self.group_is_prefix => group.starts_with(expected.as_str()),
            Some(expected) => group == expected,
        }
    }

    pub fn allows_version(&self, version: &str) -> bool {
        self.version.as_ref().is_none_or(|expected| version == expected)
    }

    pub fn matches(&self, mapping: &Mapping) -> bool {
        match self.by {
            By::Name => mapping.resource.plural == self.lower || mapping.singular == self.lower,
            By::ShortName => mapping.short_names.iter().any(|short| *short == self.name),
            By::Kind => mapping.resource.kind == self.name || mapping.resource.kind.to_lowercase() == self.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::Resource;

    use super::*;

    fn deployments() -> Mapping {
        Mapping {
            resource: Resource::namespaced("apps", "v1", "deployments", "Deployment"),
            singular: "deployment".into(),
            short_names: vec!["deploy".into()],
            categories: Vec::new(),
            verbs: Vec::new(),
            subresources: Vec::new(),
        }
    }

    #[test]
    fn type_is_found_by_all_its_names() {
        let found = |text: &str| {
            TypeName::parse(text).patterns().iter().any(|pattern| {
                pattern.allows_group("apps") && pattern.allows_version("v1") && pattern.matches(&deployments())
            })
        };
        for name in [
            "deployments",
            "deployment",
            "Deployment",
            "deploy",
            "deployments.apps",
            "deploy.app",
            "deployments.v1.apps",
            "Deployment.v1.apps",
        ] {
            assert!(found(name), "{name}");
        }
        for name in ["pods", "deployments.batch", "deployments.v1beta1.batch", "deplo"] {
            assert!(!found(name), "{name}");
        }
    }
}
