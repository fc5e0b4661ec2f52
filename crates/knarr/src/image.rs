//! `knarr image`: the images of this machine.

mod meter;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use image::{Config, Credentials, Host, Name, Recipe, Registries, Store};
use meter::Meter;

/// Its commands.
pub fn arguments(command: Command) -> Command {
    let names = |help: &'static str| Arg::new("name").required(true).action(ArgAction::Append).help(help);
    let path = |name: &'static str, help: &'static str| Arg::new(name).value_parser(value_parser!(PathBuf)).help(help);
    let data_dir = Arg::new("data-dir")
        .long("data-dir")
        .default_value("/var/lib/knarr")
        .value_parser(value_parser!(PathBuf))
        .global(true)
        .help("Where the runtime keeps everything");
    command
        .subcommand_required(true)
        .arg(data_dir)
        .subcommand(Command::new("ls").about("List images"))
        .subcommand(
            Command::new("pull")
                .about("Pull images from their registries")
                .arg(names("Images"))
                .arg(Arg::new("creds").long("creds").value_name("USER:PASSWORD"))
                .arg(crate::cri::registry_mirror()),
        )
        .subcommand(
            Command::new("import")
                .about("Import an OCI layout or docker archive: a directory, or a tar archive of any compression")
                .arg(path("path", "The directory or archive").required(true))
                .arg(Arg::new("as").long("as").value_name("NAME").help("For an image that has no name in it")),
        )
        .subcommand(
            Command::new("export")
                .about("Write images as an OCI layout in a tar archive")
                .arg(names("Images"))
                .arg(path("output", "The archive").short('o').long("output").required(true)),
        )
        .subcommand(
            Command::new("build")
                .about("Make an image of one layer from a directory or a single program")
                .arg(Arg::new("name").required(true))
                .arg(path("from", "A directory, which becomes the root, or a program").required(true))
                .arg(Arg::new("entrypoint").long("entrypoint").action(ArgAction::Append).help("A word of the command"))
                .arg(Arg::new("env").long("env").value_name("NAME=VALUE").action(ArgAction::Append))
                .arg(Arg::new("user").long("user").default_value(""))
                .arg(Arg::new("workdir").long("workdir").default_value("")),
        )
        .subcommand(Command::new("rm").about("Forget images").arg(names("Images")))
        .subcommand(
            Command::new("prune").about("Free the disk of what no image refers to (while the runtime is stopped)"),
        )
}

/// Does one of them.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let root = matches.get_one::<PathBuf>("data-dir").expect("it has a default").join("runtime");
    std::fs::create_dir_all(&root).with_context(|| format!("make {}", root.display()))?;
    let store = Store::open(&root.join("images"))?;
    let executor = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the executor")?;
    let (name, matches) = matches.subcommand().expect("clap requires a command");
    executor.block_on(async {
        match name {
            "ls" => list(&store)?,
            "pull" => pull(&store, matches).await?,
            "import" => import(&store, matches).await?,
            "export" => export(&store, matches).await?,
            "build" => build(&store, matches).await?,
            "rm" => remove(&store, matches)?,
            "prune" => {
                ensure!(
                    is_idle(&root),
                    "containers are there, whose layers must stay: stop the runtime and remove them"
                );
                let freed = store.collect(&BTreeSet::new()).await?;
                println!("{} bytes freed", freed.bytes);
            }
            other => bail!("no command {other}"),
        }
        Ok(())
    })
}

/// Mirrors as given on the command line.
pub fn registries(matches: &ArgMatches) -> anyhow::Result<Registries> {
    let mut registries = Registries::default();
    for text in matches.get_many::<String>("registry-mirror").into_iter().flatten() {
        let (registry, host) =
            text.split_once('=').with_context(|| format!("--registry-mirror {text}: not REGISTRY=HOST"))?;
        let host = match host.strip_prefix("http://") {
            Some(address) => Host { address: address.to_owned(), plain_http: true },
            None => Host::of(host.trim_start_matches("https://")),
        };
        registries.mirrors.entry(registry.to_owned()).or_default().push(host);
    }
    Ok(registries)
}

fn list(store: &Store) -> anyhow::Result<()> {
    println!("{:<60} {:<14} {:>12}", "NAME", "ID", "SIZE");
    for builtin in crate::builtin::images()? {
        let name = builtin.name.to_string();
        if store.find(&name).is_none() {
            println!("{name:<60} {:<14} {:>12}", "<built in>", builtin.bytes());
        }
    }
    for image in store.list() {
        let id = &image.id.hex()[..12];
        for name in image.names.iter().map(String::as_str).chain(image.names.is_empty().then_some("<none>")) {
            println!("{name:<60} {id:<14} {:>12}", image.size);
        }
    }
    Ok(())
}

/// A built-in image, made if it was not yet.
async fn builtin(store: &Store, name: &str) -> anyhow::Result<Option<Arc<image::Image>>> {
    match crate::builtin::images()?.iter().find(|builtin| builtin.is_called(name)) {
        Some(builtin) => Ok(Some(store.provide(builtin).await?)),
        None => Ok(None),
    }
}

async fn pull(store: &Store, matches: &ArgMatches) -> anyhow::Result<()> {
    let credentials = match matches.get_one::<String>("creds") {
        None => Credentials::Anonymous,
        Some(text) => {
            let (user, password) = text.split_once(':').context("--creds: not USER:PASSWORD")?;
            Credentials::Basic { user: user.to_owned(), password: password.to_owned() }
        }
    };
    let registries = registries(matches)?;
    for name in names(matches) {
        let image = match builtin(store, name).await? {
            Some(image) => image,
            None => {
                let meter = Arc::new(Meter::new(name));
                let tell = Arc::clone(&meter);
                let tell = Arc::new(move |step: image::Step| tell.told(&step));
                let pulled = store.pull_telling(&Name::parse(name)?, &credentials, &registries, tell).await;
                meter.finish();
                pulled?
            }
        };
        println!("{name} {}", image.id);
    }
    Ok(())
}

async fn import(store: &Store, matches: &ArgMatches) -> anyhow::Result<()> {
    let name = matches.get_one::<String>("as").map(|name| Name::parse(name)).transpose()?;
    let path = matches.get_one::<PathBuf>("path").expect("clap requires it");
    for image in store.import(path, name.as_ref()).await? {
        for name in &image.names {
            println!("{name} {}", image.id);
        }
    }
    Ok(())
}

async fn export(store: &Store, matches: &ArgMatches) -> anyhow::Result<()> {
    let path = matches.get_one::<PathBuf>("output").expect("clap requires it");
    let mut found = Vec::new();
    for name in names(matches) {
        let image = builtin(store, name).await?.or_else(|| store.find(name));
        found.push(image.with_context(|| format!("image {name} not found"))?);
    }
    let images: Vec<&image::Image> = found.iter().map(AsRef::as_ref).collect();
    let file = File::create(path).with_context(|| format!("write {}", path.display()))?;
    Ok(store.export(&images, file)?)
}

async fn build(store: &Store, matches: &ArgMatches) -> anyhow::Result<()> {
    let words = |name: &str| matches.get_many::<String>(name).into_iter().flatten().cloned().collect::<Vec<_>>();
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let from = matches.get_one::<PathBuf>("from").expect("clap requires it");
    let mut entrypoint = words("entrypoint");
    let to = if from.is_dir() {
        PathBuf::from("/")
    } else {
        let name = from.file_name().with_context(|| format!("{} is no program", from.display()))?;
        let to = PathBuf::from("/").join(name);
        if entrypoint.is_empty() {
            entrypoint.push(to.display().to_string());
        }
        to
    };
    let config =
        Config { entrypoint, env: words("env"), user: text("user"), working_dir: text("workdir"), ..Config::default() };
    let recipe = Recipe { copies: vec![(from.clone(), to)], config, ..Recipe::default() };
    let image = store.build(&Name::parse(&text("name"))?, &recipe).await?;
    println!("{}", image.id);
    Ok(())
}

fn remove(store: &Store, matches: &ArgMatches) -> anyhow::Result<()> {
    for name in names(matches) {
        let parsed = Name::parse(name);
        match parsed {
            Ok(parsed) if store.find(name).is_some() && parsed.tagged().is_some() => store.untag(&parsed)?,
            _ => ensure!(store.remove(name)?.is_some(), "image {name} not found"),
        }
    }
    Ok(())
}

fn names(matches: &ArgMatches) -> impl Iterator<Item = &String> {
    matches.get_many::<String>("name").into_iter().flatten()
}

/// No container stands on a layer.
fn is_idle(root: &std::path::Path) -> bool {
    std::fs::read_dir(root.join("containers")).map_or(true, |mut entries| entries.next().is_none())
}
