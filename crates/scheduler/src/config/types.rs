//! Schema of `kubescheduler.config.k8s.io/v1`: field names and types, for strict decoding.

use apimachinery::schema::{Field, List, ListKind, Omit, Patch, Shape, Struct, Type, TypeId, Types};
use apimachinery::{Schema, Value, conform};

/// Every struct with its fields: a scalar, `any`, another struct, or `[]` of one of them.
const STRUCTS: &[(&str, &[(&str, &str)])] = &[
    (
        "KubeSchedulerConfiguration",
        &[
            ("apiVersion", "string"),
            ("clientConnection", "ClientConnectionConfiguration"),
            ("delayCacheUntilActive", "bool"),
            ("enableContentionProfiling", "bool"),
            ("enableProfiling", "bool"),
            ("extenders", "[]Extender"),
            ("kind", "string"),
            ("leaderElection", "LeaderElectionConfiguration"),
            ("parallelism", "int32"),
            ("percentageOfNodesToScore", "int32"),
            ("podInitialBackoffSeconds", "int64"),
            ("podMaxBackoffSeconds", "int64"),
            ("profiles", "[]KubeSchedulerProfile"),
        ],
    ),
    (
        "ClientConnectionConfiguration",
        &[
            ("acceptContentTypes", "string"),
            ("burst", "int32"),
            ("contentType", "string"),
            ("kubeconfig", "string"),
            ("qps", "double"),
        ],
    ),
    (
        "LeaderElectionConfiguration",
        &[
            ("leaderElect", "bool"),
            ("leaseDuration", "string"),
            ("renewDeadline", "string"),
            ("resourceLock", "string"),
            ("resourceName", "string"),
            ("resourceNamespace", "string"),
            ("retryPeriod", "string"),
        ],
    ),
    (
        "KubeSchedulerProfile",
        &[
            ("percentageOfNodesToScore", "int32"),
            ("pluginConfig", "[]PluginConfig"),
            ("plugins", "Plugins"),
            ("schedulerName", "string"),
        ],
    ),
    (
        "Plugins",
        &[
            ("bind", "PluginSet"),
            ("filter", "PluginSet"),
            ("multiPoint", "PluginSet"),
            ("permit", "PluginSet"),
            ("placementGenerate", "PluginSet"),
            ("placementScore", "PluginSet"),
            ("postBind", "PluginSet"),
            ("postFilter", "PluginSet"),
            ("preBind", "PluginSet"),
            ("preEnqueue", "PluginSet"),
            ("preFilter", "PluginSet"),
            ("preScore", "PluginSet"),
            ("queueSort", "PluginSet"),
            ("reserve", "PluginSet"),
            ("score", "PluginSet"),
        ],
    ),
    ("PluginSet", &[("disabled", "[]Plugin"), ("enabled", "[]Plugin")]),
    ("Plugin", &[("name", "string"), ("weight", "int32")]),
    ("PluginConfig", &[("args", "any"), ("name", "string")]),
    (
        "Extender",
        &[
            ("bindVerb", "string"),
            ("enableHTTPS", "bool"),
            ("filterVerb", "string"),
            ("httpTimeout", "string"),
            ("ignorable", "bool"),
            ("managedResources", "[]ExtenderManagedResource"),
            ("nodeCacheCapable", "bool"),
            ("preemptVerb", "string"),
            ("prioritizeVerb", "string"),
            ("tlsConfig", "ExtenderTLSConfig"),
            ("urlPrefix", "string"),
            ("weight", "int64"),
        ],
    ),
    ("ExtenderManagedResource", &[("ignoredByScheduler", "bool"), ("name", "string")]),
    (
        "ExtenderTLSConfig",
        &[
            ("caData", "string"),
            ("caFile", "string"),
            ("certData", "string"),
            ("certFile", "string"),
            ("insecure", "bool"),
            ("keyData", "string"),
            ("keyFile", "string"),
            ("serverName", "string"),
        ],
    ),
    (
        "DefaultPreemptionArgs",
        &[
            ("apiVersion", "string"),
            ("kind", "string"),
            ("minCandidateNodesAbsolute", "int32"),
            ("minCandidateNodesPercentage", "int32"),
        ],
    ),
    (
        "DynamicResourcesArgs",
        &[("apiVersion", "string"), ("bindingTimeout", "string"), ("filterTimeout", "string"), ("kind", "string")],
    ),
    (
        "InterPodAffinityArgs",
        &[
            ("apiVersion", "string"),
            ("hardPodAffinityWeight", "int32"),
            ("ignorePreferredTermsOfExistingPods", "bool"),
            ("kind", "string"),
        ],
    ),
    ("NodeAffinityArgs", &[("addedAffinity", "any"), ("apiVersion", "string"), ("kind", "string")]),
    (
        "NodeResourcesBalancedAllocationArgs",
        &[("apiVersion", "string"), ("kind", "string"), ("resources", "[]ResourceSpec")],
    ),
    (
        "NodeResourcesFitArgs",
        &[
            ("apiVersion", "string"),
            ("ignoredResourceGroups", "[]string"),
            ("ignoredResources", "[]string"),
            ("kind", "string"),
            ("scoringStrategy", "ScoringStrategy"),
        ],
    ),
    (
        "ScoringStrategy",
        &[
            ("requestedToCapacityRatio", "RequestedToCapacityRatioParam"),
            ("resources", "[]ResourceSpec"),
            ("type", "string"),
        ],
    ),
    ("RequestedToCapacityRatioParam", &[("shape", "[]UtilizationShapePoint")]),
    ("UtilizationShapePoint", &[("score", "int32"), ("utilization", "int32")]),
    ("ResourceSpec", &[("name", "string"), ("weight", "int64")]),
    (
        "PodTopologySpreadArgs",
        &[
            ("apiVersion", "string"),
            ("defaultConstraints", "[]TopologySpreadConstraint"),
            ("defaultingType", "string"),
            ("kind", "string"),
        ],
    ),
    (
        "TopologySpreadConstraint",
        &[
            ("labelSelector", "any"),
            ("matchLabelKeys", "[]string"),
            ("maxSkew", "int32"),
            ("minDomains", "int32"),
            ("nodeAffinityPolicy", "string"),
            ("nodeTaintsPolicy", "string"),
            ("topologyKey", "string"),
            ("whenUnsatisfiable", "string"),
        ],
    ),
    (
        "VolumeBindingArgs",
        &[
            ("apiVersion", "string"),
            ("bindTimeoutSeconds", "int64"),
            ("kind", "string"),
            ("shape", "[]UtilizationShapePoint"),
        ],
    ),
];

/// Converts `value` to the form of the named struct. Returns the paths of unknown fields.
pub(super) fn conform_to(value: &mut Value, name: &str) -> Result<Vec<String>, conform::Error> {
    let types = types();
    let at = STRUCTS.iter().position(|(have, _)| *have == name).expect("a struct of the table");
    conform::conform(value, schema(&types, at))
}

fn schema(types: &Types, at: usize) -> Schema<'_> {
    types.schema(TypeId::from(at))
}

/// Builds the type table: first all structs in the order of [`STRUCTS`], then the other types of their fields.
fn types() -> Types {
    let mut types = Types::new();
    for (name, _) in STRUCTS {
        types.add(named(name, Shape::Any));
    }
    for (at, (name, fields)) in STRUCTS.iter().enumerate() {
        let fields = fields.iter().map(|(field, ty)| self::field(&mut types, field, ty)).collect();
        let shape = Shape::Struct(Struct { fields, ..Struct::default() });
        types.set(TypeId::from(at), named(&format!("v1.{name}"), shape));
    }
    types
}

fn field(types: &mut Types, name: &str, ty: &str) -> Field {
    Field {
        name: name.into(),
        ty: type_of(types, ty),
        required: false,
        omit: Omit::Empty,
        pointer: true,
        default: None,
        patch: Patch::default(),
        inlined: Box::default(),
    }
}

fn type_of(types: &mut Types, ty: &str) -> TypeId {
    if let Some(item) = ty.strip_prefix("[]") {
        let item = type_of(types, item);
        let list = Shape::List(List { item, kind: ListKind::Atomic, item_default: None });
        return types.add(named(&format!("[]v1.{}", ty.trim_start_matches("[]")), list));
    }
    let shape = match ty {
        "string" => Shape::String,
        "bool" => Shape::Bool,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "double" => Shape::Double,
        "any" => Shape::Any,
        name => {
            return TypeId::from(STRUCTS.iter().position(|(have, _)| *have == name).expect("a struct of the table"));
        }
    };
    types.add(named(ty, shape))
}

fn named(name: &str, shape: Shape) -> Type {
    Type { name: name.into(), shape, nullable: false, rules: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_type_is_in_the_table_and_fields_are_sorted() {
        for (name, fields) in STRUCTS {
            assert!(fields.is_sorted_by(|a, b| a.0 < b.0), "{name}");
        }
        assert!(types().len() > STRUCTS.len());
    }
}
