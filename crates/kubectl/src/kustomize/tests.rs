//! Builds of small kustomizations, with expectations from `kubectl kustomize`.

use std::fs;

use super::*;

/// Builds the kustomization in `top` of a tree of files.
fn run(files: &[(&str, &str)]) -> Result<String, String> {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let (_, outcome) = build(&root.path().join("top"), Restriction::RootOnly);
    let root_path = fs::canonicalize(root.path()).unwrap().display().to_string();
    outcome.map(|objects| to_yaml(&objects)).map_err(|error| error.to_string().replace(&root_path, ""))
}

#[track_caller]
fn check(files: &[(&str, &str)], expect: &str) {
    assert_eq!(run(files).unwrap(), expect);
}

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: 'nginx:1', envFrom: [{configMapRef: {name: cfg}}]}
";

#[test]
fn generated_names_have_kustomizes_hash_and_references_follow() {
    check(
        &[
            (
                "top/kustomization.yaml",
                "{resources: [d.yaml], namePrefix: p-, configMapGenerator: [{name: cfg, literals: [a=b]}]}",
            ),
            ("top/d.yaml", DEPLOYMENT),
        ],
        "\
apiVersion: v1
data:
  a: b
kind: ConfigMap
metadata:
  name: p-cfg-4h2mbtbbt6
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: p-web
spec:
  selector:
    matchLabels:
      app: web
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
      - envFrom:
        - configMapRef:
            name: p-cfg-4h2mbtbbt6
        image: nginx:1
        name: c
",
    );
}

#[test]
fn overlays_change_namespace_labels_images_and_replicas() {
    check(
        &[
            (
                "top/kustomization.yaml",
                "{resources: [../base], namespace: prod, labels: [{pairs: {t: x}, includeSelectors: true}], \
                 images: [{name: nginx, newTag: '2'}], replicas: [{name: web, count: 3}]}",
            ),
            ("base/kustomization.yml", "resources: [d.yaml]"),
            ("base/d.yaml", DEPLOYMENT),
        ],
        "\
apiVersion: apps/v1
kind: Deployment
metadata:
  labels:
    t: x
  name: web
  namespace: prod
spec:
  replicas: 3
  selector:
    matchLabels:
      app: web
      t: x
  template:
    metadata:
      labels:
        app: web
        t: x
    spec:
      containers:
      - envFrom:
        - configMapRef:
            name: cfg
        image: nginx:2
        name: c
",
    );
}

#[test]
fn patches_find_resources_by_their_original_name() {
    check(
        &[
            (
                "top/kustomization.yaml",
                "{resources: [../base], patches: [{path: p.yaml}, {target: {kind: ConfigMap}, \
                 patch: '[{\"op\": \"add\", \"path\": \"/data/b\", \"value\": \"2\"}]'}]}",
            ),
            ("top/p.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: changed}}"),
            ("base/kustomization.yaml", "{resources: [c.yaml], namePrefix: p-}"),
            ("base/c.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: yes, c: '3'}}"),
        ],
        "\
apiVersion: v1
data:
  a: changed
  b: \"2\"
  c: \"3\"
kind: ConfigMap
metadata:
  name: p-a
",
    );
}

#[test]
fn components_change_the_resources_of_their_user() {
    check(
        &[
            ("top/kustomization.yaml", "{resources: [c.yaml], components: [../comp]}"),
            ("top/c.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"),
            (
                "comp/kustomization.yaml",
                "{apiVersion: kustomize.config.k8s.io/v1alpha1, kind: Component, commonAnnotations: {x: z}}",
            ),
        ],
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations:\n    x: z\n  name: a\n",
    );
}

#[test]
fn replacements_copy_fields() {
    check(
        &[
            (
                "top/kustomization.yaml",
                "{resources: [c.yaml], replacements: [{source: {kind: Secret, fieldPath: data.port}, targets: \
                 [{select: {kind: ConfigMap}, fieldPaths: [data.url], options: {delimiter: ':', index: 1}}]}]}",
            ),
            (
                "top/c.yaml",
                "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {url: 'host:80'}}\n---\n\
                 {apiVersion: v1, kind: Secret, metadata: {name: a}, data: {port: '8080'}}",
            ),
        ],
        "apiVersion: v1\ndata:\n  url: host:8080\nkind: ConfigMap\nmetadata:\n  name: a\n---\n\
         apiVersion: v1\ndata:\n  port: \"8080\"\nkind: Secret\nmetadata:\n  name: a\n",
    );
}

#[test]
fn failures_have_kustomizes_messages() {
    let check = |file: &str, expect: &str| {
        assert_eq!(run(&[("top/kustomization.yaml", file), ("out.txt", "x")]).unwrap_err(), expect, "{file}");
    };
    check("foo: bar", "invalid Kustomization: json: unknown field \"foo\"");
    check("", "kustomization.yaml is empty");
    check(
        "resources: foo",
        "invalid Kustomization: json: cannot unmarshal string into Go struct field Kustomization.resources of type []string",
    );
    check(
        "configMapGenerator: [{name: a, files: [../out.txt]}]",
        "loading KV pairs: file sources: [../out.txt]: security; file '/out.txt' is not in or below '/top'",
    );
    check(
        "resources: [.]",
        "accumulating resources: accumulation err='accumulating resources from '.': '/top' must resolve to a file': \
         cycle detected: candidate root '/top' contains visited root '/top'",
    );
    check("vars: [{name: A}]", "the field 'vars' in /top is not supported: use replacements");
}
