//! Replacement of image names, tags and digests.

use apimachinery::{Value, regexp};

use super::Error;
use super::field_path::Create;
use super::resource::Resource;
use super::specs;

/// An entry of `images`.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    /// A regular expression for the image name without tag.
    pub name: String,
    pub new_name: String,
    pub new_tag: String,
    pub tag_suffix: String,
    pub digest: String,
}

const PATTERN_BYTES_MAX: usize = 1 << 20;

impl Image {
    /// Replaces matching images in the containers of a resource.
    pub(super) fn transform(&self, resource: &mut Resource) -> Result<(), Error> {
        if resource.kind() == "CustomResourceDefinition" {
            return Ok(());
        }
        let pattern = format!("^{}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$", self.name);
        let pattern = regexp::compile(&pattern, PATTERN_BYTES_MAX).map_err(|error| Error::new(error.to_string()))?;
        let replace = |field: &mut Value| {
            if let Value::String(image) = field
                && pattern.is_match(image)
            {
                *field = self.replace(image).into();
            }
        };
        in_containers(&mut resource.object, &replace);
        for spec in specs::images() {
            spec.visit(resource, Create::Never, &mut |field| {
                replace(field);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn replace(&self, image: &str) -> String {
        let (name, tag, digest) = split(image);
        let name = if self.new_name.is_empty() { name } else { &self.new_name };
        let (tag, digest) = match (self.new_tag.as_str(), self.digest.as_str(), self.tag_suffix.as_str()) {
            ("", "", "") => (tag.to_owned(), digest),
            ("", "", suffix) => (format!("{tag}{suffix}"), ""),
            (tag, digest, _) => (tag.to_owned(), digest),
        };
        let mut image = name.to_owned();
        if !tag.is_empty() {
            image = image + ":" + &tag;
        }
        if !digest.is_empty() {
            image = image + "@" + digest;
        }
        image
    }
}

/// Visits the image of each item in every list called `containers` or `initContainers`.
fn in_containers(value: &mut Value, replace: &dyn Fn(&mut Value)) {
    match value {
        Value::Object(object) => {
            for (key, field) in object.iter_mut() {
                in_containers(field, replace);
                if let ("containers" | "initContainers", Value::Array(items)) = (key, field) {
                    items.iter_mut().filter_map(|item| item.get_mut("image")).for_each(replace);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| in_containers(item, replace)),
        _ => {}
    }
}

/// Splits an image into name, tag and digest.
fn split(image: &str) -> (&str, &str, &str) {
    let (image, digest) = image.split_once('@').unwrap_or((image, ""));
    let path = image.find('/').unwrap_or(0);
    match image[path..].find(':') {
        Some(colon) => (&image[..path + colon], &image[path + colon + 1..], digest),
        None => (image, "", digest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_split_into_name_tag_and_digest() {
        assert_eq!(split("nginx"), ("nginx", "", ""));
        assert_eq!(split("nginx:1"), ("nginx", "1", ""));
        assert_eq!(split("host:5000/nginx"), ("host:5000/nginx", "", ""));
        assert_eq!(split("host:5000/nginx:1@sha256:a"), ("host:5000/nginx", "1", "sha256:a"));
        assert_eq!(split("nginx@sha256:a"), ("nginx", "", "sha256:a"));
    }
}
