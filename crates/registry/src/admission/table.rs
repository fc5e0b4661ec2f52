//! All plug-ins by name, in the order in which they run.

use std::collections::BTreeSet;

use super::Plugin;
use super::limit_ranger::LimitRanger;
use super::namespace_lifecycle::NamespaceLifecycle;
use super::priority::Priority;
use super::resource_quota::ResourceQuota;
use super::service_account::ServiceAccount;
use super::storage_protection::StorageObjectInUseProtection;
use super::toleration_seconds::DefaultTolerationSeconds;

/// What the flags say: `--enable-admission-plugins` and `--disable-admission-plugins`.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// On besides those that are on anyway.
    pub enable: Vec<String>,
    /// Off, also if on by default.
    pub disable: Vec<String>,
}

/// What is wrong with the flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// There is no such plug-in.
    #[error("{flag} plugin {name:?} is unknown")]
    Name {
        /// The flag that names it.
        flag: &'static str,
        /// The name.
        name: String,
    },
    /// The same plug-in is to be on and off.
    #[error("[{}] in enable-admission-plugins and disable-admission-plugins overlapped", .0.join(" "))]
    Both(Vec<String>),
}

type Make = fn() -> Box<dyn Plugin>;

/// One plug-in.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub name: &'static str,
    pub default: Default,
    /// How it is made; `None` for what asks over the network, which is not made here.
    pub make: Option<Make>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Default {
    On,
    Off,
}

macro_rules! rows {
    ($($name:ident: $default:ident $(= $make:expr)?),* $(,)?) => {
        &[$(Row { name: stringify!($name), default: Default::$default, make: rows!(@make $($make)?) }),*]
    };
    (@make) => { None };
    (@make $make:expr) => { Some(|| Box::new($make)) };
}

/// Later ones see what earlier ones made of an object: defaults come before what counts or judges them, and quota is
/// last, so that nothing is charged for what another one refuses.
const ROWS: &[Row] = rows![
    NamespaceLifecycle: On = NamespaceLifecycle,
    LimitRanger: On = LimitRanger,
    ServiceAccount: On = ServiceAccount,
    Priority: On = Priority,
    DefaultTolerationSeconds: On = DefaultTolerationSeconds,
    StorageObjectInUseProtection: On = StorageObjectInUseProtection,
    ResourceQuota: On = ResourceQuota,
];

/// The plug-ins that flags ask for.
pub(super) fn rows(flags: &Flags) -> Result<Vec<Row>, Unknown> {
    let known = |name: &String| ROWS.iter().any(|row| row.name == name);
    for (flag, names) in [("enable-admission-plugins", &flags.enable), ("disable-admission-plugins", &flags.disable)] {
        if let Some(name) = names.iter().find(|name| !known(name)) {
            return Err(Unknown::Name { flag, name: name.clone() });
        }
    }
    let enable: BTreeSet<&String> = flags.enable.iter().collect();
    let disable: BTreeSet<&String> = flags.disable.iter().collect();
    let both: Vec<String> = enable.intersection(&disable).map(|name| (*name).clone()).collect();
    if !both.is_empty() {
        return Err(Unknown::Both(both));
    }
    let named = |names: &[String], row: &Row| names.iter().any(|name| name == row.name);
    let on = |row: &&Row| named(&flags.enable, row) || row.default == Default::On && !named(&flags.disable, row);
    Ok(ROWS.iter().filter(on).copied().collect())
}

/// What no flag turns off.
pub(super) fn always() -> Vec<Box<dyn Plugin>> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Chain;

    fn check(enable: &[&str], disable: &[&str], expect: Result<(&[&str], &[&str]), &str>) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let chain = Chain::of(&Flags { enable: owned(enable), disable: owned(disable) });
        match (chain, expect) {
            (Ok(chain), Ok((on, off))) => {
                assert!(on.iter().all(|name| chain.has(name)) && !off.iter().any(|name| chain.has(name)));
            }
            (Err(error), Err(text)) => assert_eq!(error.to_string(), text),
            (found, expect) => panic!("{:?} instead of {expect:?}", found.err()),
        }
    }

    #[test]
    fn flags_turn_plugins_on_and_off_and_must_know_them() {
        check(&[], &[], Ok((&["NamespaceLifecycle", "ResourceQuota"], &["AlwaysDeny", "NamespaceExists"])));
        check(&["AlwaysDeny"], &["Priority"], Ok((&["AlwaysDeny"], &["Priority"])));
        check(&["Nope"], &[], Err(r#"enable-admission-plugins plugin "Nope" is unknown"#));
        check(&[], &["Nope"], Err(r#"disable-admission-plugins plugin "Nope" is unknown"#));
        check(
            &["Priority"],
            &["Priority"],
            Err("[Priority] in enable-admission-plugins and disable-admission-plugins overlapped"),
        );
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
    }
}
