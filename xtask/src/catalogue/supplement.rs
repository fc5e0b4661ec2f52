//! Facts that the source of the catalogue lacks.
//!
//! These are Go names of lists and maps, three webhook and discovery APIs, and the kinds of `meta.k8s.io`.

use anyhow::Context as _;

use super::Facts;

/// Types with handwritten JSON and protobuf forms in Go.
pub(super) const SPECIAL: &[&str] = &[
    "FieldsV1",
    "IntOrString",
    "JSON",
    "JSONSchemaPropsOrArray",
    "JSONSchemaPropsOrBool",
    "JSONSchemaPropsOrStringArray",
];

/// Named lists and maps, which the source shows as their element types.
const NAMED: &[(&str, &str, &str)] = &[
    ("api/core/v1", "ResourceList", "{ResourceName}resource.Quantity"),
    ("api/authentication/v1", "ExtraValue", "[]string wrapped"),
    ("api/authentication/v1beta1", "ExtraValue", "[]string wrapped"),
    ("api/authorization/v1", "ExtraValue", "[]string wrapped"),
    ("api/authorization/v1beta1", "ExtraValue", "[]string wrapped"),
    ("api/certificates/v1", "ExtraValue", "[]string wrapped"),
    ("api/certificates/v1beta1", "ExtraValue", "[]string wrapped"),
    ("apiextensions-apiserver/pkg/apis/apiextensions/v1", "JSONSchemaDefinitions", "{string}JSONSchemaProps"),
    (
        "apiextensions-apiserver/pkg/apis/apiextensions/v1",
        "JSONSchemaDependencies",
        "{string}JSONSchemaPropsOrStringArray",
    ),
    ("apimachinery/pkg/apis/meta/v1", "Verbs", "[]string wrapped"),
];

/// Versions that are copies of another one: package, and the package they copy.
const COPIES: &[(&str, &str)] =
    &[("api/admission/v1beta1", "admission/v1"), ("api/apidiscovery/v2beta1", "apidiscovery/v2")];

/// The API of image policy webhooks.
const IMAGE_POLICY: &[(&str, &str)] = &[
    (
        "ImageReview",
        "\t+ - meta/v1.TypeMeta\n\
         \tmetadata 1 meta/v1.ObjectMeta omitempty\n\
         \tspec 2 ImageReviewSpec\n\
         \tstatus 3 ImageReviewStatus omitempty\n",
    ),
    ("ImageReviewContainerSpec", "\timage 1 string omitempty\n"),
    (
        "ImageReviewSpec",
        "\tcontainers 1 [atomic]ImageReviewContainerSpec omitempty\n\
         \tannotations 2 {string}string omitempty\n\
         \tnamespace 3 string omitempty\n",
    ),
    (
        "ImageReviewStatus",
        "\tallowed 1 bool\n\
         \treason 2 string omitempty\n\
         \tauditAnnotations 3 {string}string omitempty\n",
    ),
];

const KINDS: &[(&str, &str, &str)] = &[
    ("admission.k8s.io/v1beta1", "AdmissionReview", "admission/v1beta1.AdmissionReview"),
    ("apidiscovery.k8s.io/v2beta1", "APIGroupDiscovery", "apidiscovery/v2beta1.APIGroupDiscovery"),
    ("apidiscovery.k8s.io/v2beta1", "APIGroupDiscoveryList", "apidiscovery/v2beta1.APIGroupDiscoveryList"),
    ("imagepolicy.k8s.io/v1alpha1", "ImageReview", "imagepolicy/v1alpha1.ImageReview"),
    ("meta.k8s.io/v1", "PartialObjectMetadata", "meta/v1.PartialObjectMetadata"),
    ("meta.k8s.io/v1", "PartialObjectMetadataList", "meta/v1.PartialObjectMetadataList"),
    ("meta.k8s.io/v1", "Table", "meta/v1.Table"),
    ("meta.k8s.io/v1beta1", "PartialObjectMetadata", "meta/v1.PartialObjectMetadata"),
    ("meta.k8s.io/v1beta1", "PartialObjectMetadataList", "meta/v1.PartialObjectMetadataList"),
    ("meta.k8s.io/v1beta1", "Table", "meta/v1.Table"),
];

/// Kinds that every group version has in addition to its own.
const COMMON: &[&str] =
    &["CreateOptions", "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "UpdateOptions", "WatchEvent"];

/// Returns the Go name of a field's type, if it is a named list or map.
pub(super) fn named(owner: &str, json: &str, ty: Option<&str>) -> Option<&'static str> {
    match (owner, json, ty?) {
        // The only map of this shape that is not a ResourceList in Go.
        ("core/v1.NodeAllocatableResourceClaimStatus", "resources", _) => None,
        (_, _, "{api/core/v1.ResourceName:apimachinery/pkg/api/resource.Quantity}") => Some("core/v1.ResourceList"),
        (_, "extra", "{string:[string]}") => Some("{string}ExtraValue"),
        ("meta/v1.APIResource", "verbs", _) => Some("meta/v1.Verbs"),
        ("apiextensions/v1.JSONSchemaProps", "definitions", _) => Some("apiextensions/v1.JSONSchemaDefinitions"),
        ("apiextensions/v1.JSONSchemaProps", "dependencies", _) => Some("apiextensions/v1.JSONSchemaDependencies"),
        _ => None,
    }
}

/// Adds all of these facts.
pub(super) fn add(facts: &mut Facts) -> anyhow::Result<()> {
    for (package, name, ty) in NAMED {
        facts.declare(package, name, format!("named {name} {ty}\n"));
    }
    for (package, original) in COPIES {
        let types = facts.packages.get(*original).with_context(|| format!("no package {original}"))?.types.clone();
        for (name, lines) in types {
            facts.declare(package, &name, lines);
        }
    }
    for (name, fields) in IMAGE_POLICY {
        facts.declare("api/imagepolicy/v1alpha1", name, format!("struct {name}\n{fields}"));
    }
    for (version, kind, ty) in KINDS {
        facts.kinds.insert(((*version).to_owned(), (*kind).to_owned()), (*ty).to_owned());
        for common in COMMON {
            facts.kinds.insert(((*version).to_owned(), (*common).to_owned()), format!("meta/v1.{common}"));
        }
    }
    Ok(())
}
