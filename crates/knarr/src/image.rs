//! `knarr image`: the images of this host's nodes.

mod meter;
mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use image_store::{Config, Credentials, Name, Recipe, Store};

use crate::output::outln;
use crate::registry_flags;
use meter::Meter;
use nodes::Node;

pub(crate) fn arguments(command: Command) -> Command {
    let names = |help: &'static str| Arg::new("name").required(true).action(ArgAction::Append).help(help);
    let path = |name: &'static str, help: &'static str| Arg::new(name).value_parser(value_parser!(PathBuf)).help(help);
    let data_dir = Arg::new("data-dir")
        .long("data-dir")
        .default_value("/var/lib/knarr")
        .value_parser(value_parser!(PathBuf))
        .global(true)
        .help("Data directory of a cluster, or of `knarr cri`");
    let node = Arg::new("node")
        .long("node")
        .value_name("NAME")
        .global(true)
        .help("Only this node [default: all nodes of the cluster on this host]");
    command
        .subcommand_required(true)
        .arg(data_dir)
        .arg(node)
        .subcommand(Command::new("ls").about("List images"))
        .subcommand(
            Command::new("pull")
                .about("Pull images from their registries")
                .arg(names("Names of images"))
                .arg(Arg::new("creds").long("creds").value_name("USER:PASSWORD"))
                .args(registry_flags::arguments()),
        )
        .subcommand(
            Command::new("import")
                .about("Import an OCI layout or docker archive: a directory, or a tar archive of any compression. Nodes keep the image until it is removed")
                .arg(path("path", "Directory or archive to import").required(true))
                .arg(Arg::new("as").long("as").value_name("NAME").help("Name of an image without a name in the archive")),
        )
        .subcommand(
            Command::new("export")
                .about("Write images to a tar archive in OCI layout")
                .arg(names("Names of images"))
                .arg(path("output", "Archive to write").short('o').long("output").required(true)),
        )
        .subcommand(
            Command::new("build")
                .about("Build an image of one layer from a directory or a single executable, with modes, owners and capabilities")
                .arg(Arg::new("name").required(true))
                .arg(path("from", "Directory, which becomes the root file system, or executable").required(true))
                .arg(Arg::new("entrypoint").long("entrypoint").action(ArgAction::Append).help("Element of the entrypoint (repeatable)"))
                .arg(Arg::new("env").long("env").value_name("NAME=VALUE").action(ArgAction::Append))
                .arg(Arg::new("user").long("user").default_value(""))
                .arg(Arg::new("workdir").long("workdir").default_value("")),
        )
        .subcommand(Command::new("rm").about("Remove images").arg(names("Names of images")))
        .subcommand(
            Command::new("prune").about("Delete unreferenced layers (while the runtime is stopped)"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let data_dir = matches.get_one::<PathBuf>("data-dir").expect("it has a default");
    let nodes = nodes::open(data_dir, matches.get_one::<String>("node").map(String::as_str))?;
    let executor = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the Tokio runtime")?;
    let (name, matches) = matches.subcommand().expect("clap requires a command");
    executor.block_on(async {
        match name {
            "ls" => list(&nodes)?,
            "pull" => pull(&nodes, matches).await?,
            "import" => import(&nodes, matches).await?,
            "export" => export(&nodes, matches).await?,
            "build" => build(&nodes, matches).await?,
            "rm" => remove(&nodes, matches)?,
            "prune" => prune(&nodes).await?,
            other => bail!("unknown command {other}"),
        }
        Ok(())
    })
}

/// Lists images. With several nodes, a column names the nodes that have each image.
fn list(nodes: &[Node]) -> anyhow::Result<()> {
    let mut rows: BTreeMap<(String, String, u64), Vec<&str>> = BTreeMap::new();
    for Node { name: node, store, .. } in nodes {
        for builtin in crate::builtin::images()? {
            let name = builtin.name.to_string();
            if store.find(&name).is_none() {
                rows.entry((name, "<built in>".to_owned(), builtin.bytes())).or_default().push(node);
            }
        }
        for image in store.list() {
            let id = &image.id.hex()[..12];
            for name in image.names.iter().map(String::as_str).chain(image.names.is_empty().then_some("<none>")) {
                rows.entry((name.to_owned(), id.to_owned(), image.size)).or_default().push(node);
            }
        }
    }
    let on = |nodes_with: &[&str]| {
        if nodes.len() == 1 { String::new() } else { format!("  {}", nodes_with.join(",")) }
    };
    outln!("{:<60} {:<14} {:>12}{}", "NAME", "ID", "SIZE", on(&["NODES"]));
    for ((name, id, size), nodes_with) in rows {
        outln!("{name:<60} {id:<14} {size:>12}{}", on(&nodes_with));
    }
    Ok(())
}

/// Deletes unreferenced layers on each node.
async fn prune(nodes: &[Node]) -> anyhow::Result<()> {
    for node in nodes {
        ensure!(
            is_idle(&node.root),
            "node {} has containers that use layers: stop the runtime and remove them first",
            node.name
        );
    }
    for Node { name, store, .. } in nodes {
        let freed = store.collect(&BTreeSet::new()).await?;
        outln!("freed {} bytes on node {name}", freed.bytes);
    }
    Ok(())
}

/// Returns a built-in image, and creates it on first use.
async fn builtin(store: &Store, name: &str) -> anyhow::Result<Option<Arc<image_store::Image>>> {
    match crate::builtin::images()?.iter().find(|builtin| builtin.is_called(name)) {
        Some(builtin) => Ok(Some(store.provide(builtin).await?)),
        None => Ok(None),
    }
}

async fn pull(nodes: &[Node], matches: &ArgMatches) -> anyhow::Result<()> {
    let store = &nodes[0].store;
    let credentials = match matches.get_one::<String>("creds") {
        None => Credentials::Anonymous,
        Some(text) => {
            let (user, password) = text.split_once(':').context("--creds: not of the form USER:PASSWORD")?;
            Credentials::Basic { user: user.to_owned(), password: password.to_owned() }
        }
    };
    let registries = registry_flags::open(matches)?.current();
    for name in names(matches) {
        if builtin(store, name).await?.is_some() {
            for node in nodes {
                builtin(&node.store, name).await?;
            }
            outln!("{name} is built in, on {}", nodes::names(nodes));
            continue;
        }
        let image = {
            let meter = Arc::new(Meter::new(name));
            let on_progress = Arc::clone(&meter);
            let on_progress = Arc::new(move |step: image_store::PullProgress| on_progress.update(&step));
            let pulled = store.pull_telling(&Name::parse(name)?, &credentials, &registries, on_progress).await;
            meter.finish();
            pulled?
        };
        nodes::spread(nodes, &image).await?;
        outln!("{name} {} on {}", image.id, nodes::names(nodes));
    }
    Ok(())
}

async fn import(nodes: &[Node], matches: &ArgMatches) -> anyhow::Result<()> {
    let name = matches.get_one::<String>("as").map(|name| Name::parse(name)).transpose()?;
    let path = matches.get_one::<PathBuf>("path").expect("clap requires it");
    for image in nodes[0].store.import(path, name.as_ref()).await? {
        nodes::spread(nodes, &image).await?;
        for name in &image.names {
            outln!("{name} {} on {}", image.id, nodes::names(nodes));
        }
    }
    Ok(())
}

async fn export(nodes: &[Node], matches: &ArgMatches) -> anyhow::Result<()> {
    let path = matches.get_one::<PathBuf>("output").expect("clap requires it");
    let node = nodes.iter().find(|node| names(matches).all(|name| node.store.find(name).is_some()));
    let store = &node.unwrap_or(&nodes[0]).store;
    let mut found = Vec::new();
    for name in names(matches) {
        let image = builtin(store, name).await?.or_else(|| store.find(name));
        found.push(image.with_context(|| format!("image {name} not found"))?);
    }
    let images: Vec<&image_store::Image> = found.iter().map(AsRef::as_ref).collect();
    let file = File::create(path).with_context(|| format!("failed to write {}", path.display()))?;
    Ok(store.export(&images, file)?)
}

async fn build(nodes: &[Node], matches: &ArgMatches) -> anyhow::Result<()> {
    let values = |name: &str| matches.get_many::<String>(name).into_iter().flatten().cloned().collect::<Vec<_>>();
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let from = matches.get_one::<PathBuf>("from").expect("clap requires it");
    let mut entrypoint = values("entrypoint");
    let to = if from.is_dir() {
        PathBuf::from("/")
    } else {
        let name = from.file_name().with_context(|| format!("{} is not an executable", from.display()))?;
        let to = PathBuf::from("/").join(name);
        if entrypoint.is_empty() {
            entrypoint.push(to.display().to_string());
        }
        to
    };
    let config = Config {
        entrypoint,
        env: values("env"),
        user: text("user"),
        working_dir: text("workdir"),
        ..Config::default()
    };
    let recipe = Recipe { copies: vec![(from.clone(), to)], config, ..Recipe::default() };
    let image = nodes[0].store.build(&Name::parse(&text("name"))?, &recipe).await?;
    nodes::spread(nodes, &image).await?;
    outln!("{} on {}", image.id, nodes::names(nodes));
    Ok(())
}

/// Removes images from every node that has them.
fn remove(nodes: &[Node], matches: &ArgMatches) -> anyhow::Result<()> {
    for name in names(matches) {
        let mut found = false;
        for store in nodes.iter().map(|node| &node.store).filter(|store| store.find(name).is_some()) {
            found = true;
            match Name::parse(name) {
                Ok(parsed) if parsed.tagged().is_some() => store.untag(&parsed)?,
                _ => drop(store.remove(name)?),
            }
        }
        ensure!(found, "image {name} not found on {}", nodes::names(nodes));
    }
    Ok(())
}

fn names(matches: &ArgMatches) -> impl Iterator<Item = &String> {
    matches.get_many::<String>("name").into_iter().flatten()
}

/// Whether the runtime has no containers, which may use layers.
fn is_idle(root: &std::path::Path) -> bool {
    std::fs::read_dir(root.join("containers")).map_or(true, |mut entries| entries.next().is_none())
}
