//! Test type with every patch strategy of the built-in types.
//!
//! | field | strategy |
//! |---|---|
//! | `containers`, `env` | merge by `name` |
//! | `ports` | merge by `containerPort` |
//! | `volumes` | merge by `name`, retain keys |
//! | `owners` | merge by `uid` |
//! | `finalizers`, `numbers` | merge, scalars |
//! | `strategy` | retain keys |
//! | `selector` | replace |
//! | `args`, `tolerations` | none: replaced |
//! | `labels`, `limits`, `named` | maps |
//! | `matrix`, `keyless` | merge, although their items cannot be merged |
//! | `raw` | no type |

use std::sync::LazyLock;

use crate::Schema;
use crate::schema::{Field, List, ListKind, Map, Omit, Patch, Shape, Struct, Type, TypeId, Types};

/// Returns the type `v1.Thing`.
pub(super) fn thing() -> Schema<'static> {
    static THING: LazyLock<(Types, TypeId)> = LazyLock::new(|| {
        let mut build = Build(Types::new());
        let thing = build.thing();
        (build.0, thing)
    });
    THING.0.schema(THING.1)
}

struct Build(Types);

impl Build {
    fn thing(&mut self) -> TypeId {
        let string = self.scalar("string", Shape::String);
        let int = self.scalar("int32", Shape::Int32);
        let strings = self.list(string);
        let ints = self.list(int);
        let labels = self.map(string);
        let raw = self.scalar("runtime.RawExtension", Shape::RawExtension);
        let container = self.container(string, int, strings, labels);
        let containers = self.list(container);
        let named = self.map(container);
        let volumes = self.volumes(string);
        let owner = self.object("v1.Owner", vec![plain("kind", string), plain("name", string), plain("uid", string)]);
        let owners = self.list(owner);
        let tolerations = self.list(owner);
        let rolling = self.object("v1.Rolling", vec![plain("maxSurge", int), plain("maxUnavailable", int)]);
        let strategy = self.object("v1.Strategy", vec![plain("rolling", rolling), plain("type", string)]);
        let selector = self.object("v1.Selector", vec![plain("matchLabels", labels)]);
        let matrix = self.list(ints);
        let spec = vec![
            plain("args", strings),
            field("containers", containers, merge("name")),
            field("keyless", owners, Patch { merge: true, ..Patch::default() }),
            field("matrix", matrix, Patch { merge: true, ..Patch::default() }),
            plain("named", named),
            field("numbers", ints, Patch { merge: true, ..Patch::default() }),
            plain("raw", raw),
            plain("replicas", int),
            field("selector", selector, Patch { replace: true, ..Patch::default() }),
            field("strategy", strategy, Patch { retain_keys: true, ..Patch::default() }),
            plain("tolerations", tolerations),
            field("volumes", volumes, Patch { retain_keys: true, ..merge("name") }),
        ];
        let spec = self.object("v1.Spec", spec);
        let metadata = vec![
            field("finalizers", strings, Patch { merge: true, ..Patch::default() }),
            plain("labels", labels),
            plain("name", string),
            field("owners", owners, merge("uid")),
        ];
        let metadata = self.object("v1.Meta", metadata);
        self.object("v1.Thing", vec![plain("kind", string), plain("metadata", metadata), plain("spec", spec)])
    }

    fn container(&mut self, string: TypeId, int: TypeId, strings: TypeId, labels: TypeId) -> TypeId {
        let env = self.object("v1.EnvVar", vec![plain("name", string), plain("value", string)]);
        let env = self.list(env);
        let port = vec![plain("containerPort", int), plain("name", string), plain("protocol", string)];
        let port = self.object("v1.Port", port);
        let ports = self.list(port);
        let container = vec![
            plain("args", strings),
            field("env", env, merge("name")),
            plain("image", string),
            plain("limits", labels),
            plain("name", string),
            field("ports", ports, merge("containerPort")),
        ];
        self.object("v1.Container", container)
    }

    fn volumes(&mut self, string: TypeId) -> TypeId {
        let source = self.object("v1.Source", vec![plain("path", string)]);
        let volume = vec![plain("emptyDir", source), plain("hostPath", source), plain("name", string)];
        let volume = self.object("v1.Volume", volume);
        self.list(volume)
    }

    fn scalar(&mut self, name: &str, shape: Shape) -> TypeId {
        self.0.add(Type::new(name, shape))
    }

    fn list(&mut self, item: TypeId) -> TypeId {
        self.scalar("", Shape::List(List { item, kind: ListKind::Atomic, item_default: None }))
    }

    fn map(&mut self, value: TypeId) -> TypeId {
        self.scalar("", Shape::Map(Map { value, atomic: false, value_default: None }))
    }

    fn object(&mut self, name: &str, fields: Vec<Field>) -> TypeId {
        self.scalar(name, Shape::Struct(Struct { fields: fields.into(), ..Struct::default() }))
    }
}

fn plain(name: &str, ty: TypeId) -> Field {
    field(name, ty, Patch::default())
}

fn merge(key: &str) -> Patch {
    Patch { merge: true, merge_key: Some(key.into()), ..Patch::default() }
}

fn field(name: &str, ty: TypeId, patch: Patch) -> Field {
    Field {
        name: name.into(),
        ty,
        required: false,
        omit: Omit::Empty,
        pointer: false,
        default: None,
        patch,
        inlined: Box::default(),
    }
}
