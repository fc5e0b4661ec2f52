//! `cargo xtask catalogue [types.json]`: writes the facts about Kubernetes' API types into the source tree.
//!
//! The source is a JSON file with the tags of Kubernetes' Go types. The product is a text file that parses fast and
//! diffs well; its grammar is described at its top, and `api::catalogue` reads it.

mod supplement;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::root;

const HEADER: &str = "\
# Facts about the API types of Kubernetes 1.36.4, from its Go types. Written by `cargo xtask catalogue`: do not edit.
#
# package ALIAS PATH    opens a Go package, whose types follow; another package's types are ALIAS.NAME
# string NAME           a string with a name of its own
# special NAME          a type with its own JSON and protobuf forms
# named NAME TYPE       a list or map with a name of its own; `wrapped`: protobuf gives it a message with items = 1
# struct NAME [atomic]  a struct, whose fields follow
# \tJSON NUMBER TYPE …  a field: `+` for JSON if inlined, `-` for NUMBER if not in protobuf, `*` before the type of a
#                       pointer; then required, omitempty, omitzero, =DEFAULT, patch:STRATEGY, key:MERGEKEY
# kinds GROUP/VERSION   opens a version, whose kinds follow: \\tKIND TYPE
#
# TYPE: [KIND=ITEMDEFAULT]ITEM is a list, {KEY=VALUEDEFAULT}VALUE a map, TYPE:MAPTYPE says how apply merges it.
";

/// Reads the facts, and writes the catalogue into the `api` crate.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let root = root();
    let source = args.first().map_or_else(|| root.join("../shared/reference/types.json"), PathBuf::from);
    let target = root.join("crates/api/src/catalogue.txt");
    let json = std::fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
    let facts: Value = serde_json::from_slice(&json).with_context(|| format!("{} is not JSON", source.display()))?;
    let text = render(&facts)?;
    std::fs::write(&target, &text).with_context(|| format!("cannot write {}", target.display()))?;
    println!("{}: {} lines, {} bytes", target.display(), text.lines().count(), text.len());
    Ok(())
}

/// The content of the catalogue by Go package.
#[derive(Default)]
struct Facts {
    packages: BTreeMap<String, Package>,
    kinds: BTreeMap<(String, String), String>,
}

#[derive(Default)]
struct Package {
    path: String,
    /// Lines of each type by its name.
    types: BTreeMap<String, String>,
}

fn render(source: &Value) -> anyhow::Result<String> {
    let mut facts = Facts::default();
    let types = source["types"].as_object().context("`types` is missing")?;
    for (path, ty) in types {
        // The envelope of protobuf objects is not part of an object: the codec handles it.
        if path.starts_with("apimachinery/pkg/runtime.") && !path.ends_with(".RawExtension") {
            continue;
        }
        let (package, name) = split(path)?;
        let lines = declaration(package, name, ty).with_context(|| format!("type {path}"))?;
        facts.declare(package, name, lines);
    }
    for (path, ty) in source["kinds"].as_object().context("`kinds` is missing")? {
        let (version, kind) = path.rsplit_once('/').with_context(|| format!("kind {path}"))?;
        let (package, name) = split(ty.as_str().with_context(|| format!("kind {path}"))?)?;
        facts.kinds.insert((version.to_owned(), kind.to_owned()), format!("{}.{name}", alias(package)));
    }
    supplement::add(&mut facts)?;
    Ok(facts.text())
}

impl Facts {
    fn declare(&mut self, package: &str, name: &str, lines: String) {
        let entry = self.packages.entry(alias(package).to_owned()).or_default();
        entry.path = format!("k8s.io/{package}");
        entry.types.insert(name.to_owned(), lines);
    }

    fn text(&self) -> String {
        let mut out = HEADER.to_owned();
        for (alias, package) in &self.packages {
            let _ = writeln!(out, "package {alias} {}", package.path);
            out.extend(package.types.values().map(String::as_str));
        }
        let mut open = "";
        for ((version, kind), ty) in &self.kinds {
            if version != open {
                let _ = writeln!(out, "kinds {version}");
                open = version;
            }
            let _ = writeln!(out, "\t{kind} {ty}");
        }
        out
    }
}

/// Returns the lines that declare one type.
fn declaration(package: &str, name: &str, ty: &Value) -> anyhow::Result<String> {
    known_keys(ty, &["is", "fields", "mapType"])?;
    match ty["is"].as_str() {
        Some("string") => return Ok(format!("string {name}\n")),
        Some("special") => return Ok(format!("special {name}\n")),
        // The discriminator of `IntOrString`, which is a special form.
        Some("int64") if name == "Type" => return Ok(String::new()),
        Some(other) => bail!("`is` has an unknown value {other}"),
        None => {}
    }
    if supplement::SPECIAL.contains(&name) {
        return Ok(format!("special {name}\n"));
    }
    let mut out = format!("struct {name}");
    if let Some(kind) = ty["mapType"].as_str() {
        ensure!(kind == "atomic", "`mapType` of a type has an unknown value {kind}");
        out.push_str(" atomic");
    }
    out.push('\n');
    for field in ty["fields"].as_array().into_iter().flatten() {
        field_line(&mut out, package, name, field).with_context(|| format!("field {field}"))?;
    }
    Ok(out)
}

fn field_line(out: &mut String, package: &str, owner: &str, field: &Value) -> anyhow::Result<()> {
    known_keys(
        field,
        &[
            "json",
            "inline",
            "proto",
            "type",
            "pointer",
            "required",
            "omitempty",
            "omitzero",
            "default",
            "itemDefault",
            "format",
            "listType",
            "listMapKeys",
            "mapType",
            "patchStrategy",
            "patchMergeKey",
        ],
    )?;
    let json = if is(field, "inline") { "+" } else { field["json"].as_str().context("no JSON name")? };
    // Only the field number of the protobuf tag is used: the wire type follows from the Go type.
    let number = field["proto"].as_str().map_or(Some("-"), |tag| tag.split(',').nth(1)).context("no number")?;
    let pointer = if is(field, "pointer") { "*" } else { "" };
    let ty = match supplement::named(&format!("{}.{owner}", alias(package)), json, field["type"].as_str()) {
        Some(named) => {
            ensure!(field["listType"].is_null() && field["mapType"].is_null(), "a named type with list or map type");
            local(package, named).to_owned()
        }
        None => type_text(package, field)?,
    };
    write!(out, "\t{json} {number} {pointer}{ty}")?;
    for flag in ["required", "omitempty", "omitzero"] {
        if is(field, flag) {
            write!(out, " {flag}")?;
        }
    }
    if let Some(default) = field.get("default") {
        write!(out, " ={}", word(default)?)?;
    }
    for (key, short) in [("patchStrategy", "patch"), ("patchMergeKey", "key")] {
        if let Some(value) = field[key].as_str() {
            write!(out, " {short}:{value}")?;
        }
    }
    out.push('\n');
    Ok(())
}

/// Returns the type of a field with its merge strategy.
fn type_text(package: &str, field: &Value) -> anyhow::Result<String> {
    let source = field["type"].as_str().context("no type")?;
    let default = field.get("itemDefault").map(word).transpose()?.map_or(String::new(), |json| format!("={json}"));
    let mut ty = if let Some(item) = source.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let keys = field["listMapKeys"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let kind = match field["listType"].as_str() {
            None => String::new(),
            Some(kind @ ("atomic" | "set")) => kind.to_owned(),
            Some("map") => format!("map,{}", keys.collect::<Vec<_>>().join(",")),
            Some(other) => bail!("unknown list type {other}"),
        };
        format!("[{kind}{default}]{}", scalar(package, item)?)
    } else if let Some(map) = source.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        let (key, value) = map.split_once(':').context("a map without a value")?;
        format!("{{{}{default}}}{}", scalar(package, key)?, scalar(package, value)?)
    } else {
        scalar(package, source)?
    };
    if let Some(kind) = field["mapType"].as_str() {
        ensure!(matches!(kind, "atomic" | "granular"), "unknown map type {kind}");
        ty.push(':');
        ty.push_str(kind);
    }
    if let Some(format) = field["format"].as_str() {
        let implied = match source.trim_matches(['[', ']']) {
            "int32" => "int32",
            "int64" => "int64",
            "float64" => "double",
            "bytes" => "byte",
            other => bail!("format {format} on {other}"),
        };
        ensure!(format == implied, "format {format} differs from the type {source}");
    }
    Ok(ty)
}

fn scalar(package: &str, ty: &str) -> anyhow::Result<String> {
    match ty {
        "bool" | "int32" | "int64" | "float64" | "string" | "bytes" | "interface" => Ok(ty.to_owned()),
        _ => {
            let (home, name) = split(ty)?;
            Ok(local(package, &format!("{}.{name}", alias(home))).to_owned())
        }
    }
}

/// Shortens `core/v1.Pod` to `Pod` inside of core/v1.
fn local<'a>(package: &str, ty: &'a str) -> &'a str {
    ty.strip_prefix(alias(package)).and_then(|rest| rest.strip_prefix('.')).unwrap_or(ty)
}

/// Shortens `api/core/v1` to `core/v1`, `apimachinery/pkg/apis/meta/v1` to `meta/v1`.
fn alias(package: &str) -> &str {
    let prefixes =
        ["api/", "apimachinery/pkg/apis/", "apimachinery/pkg/api/", "apimachinery/pkg/util/", "apimachinery/pkg/"];
    let staged = |path: &'static str| package.strip_prefix(path);
    prefixes
        .into_iter()
        .chain(["apiextensions-apiserver/pkg/apis/", "kube-aggregator/pkg/apis/"])
        .find_map(staged)
        .unwrap_or(package)
}

/// Splits a Go type into package and name.
fn split(path: &str) -> anyhow::Result<(&str, &str)> {
    let (package, name) = path.rsplit_once('.').with_context(|| format!("{path} has no package"))?;
    ensure!(package.contains('/'), "{path} has no package");
    Ok((package, name))
}

fn is(field: &Value, key: &str) -> bool {
    field[key].as_bool().unwrap_or(false)
}

/// Returns a value as JSON without spaces, as the grammar requires.
fn word(value: &Value) -> anyhow::Result<String> {
    let json = value.to_string();
    ensure!(!json.contains([' ', ']', ':']) && (!json.contains('}') || json == "{}"), "{json} is not one word");
    Ok(json)
}

/// Fails on an unknown key, so that no fact is dropped silently.
fn known_keys(facts: &Value, known: &[&str]) -> anyhow::Result<()> {
    let keys = facts.as_object().context("not an object")?;
    match keys.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => bail!("unknown fact {key}"),
        None => Ok(()),
    }
}
