//! Plugin sets of a scheduler profile: the defaults, `multiPoint`, and the sets per extension point.

use apimachinery::{At, Str};

use super::Error;

/// An extension point of the scheduling framework, in upstream's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

use Point::{Bind, Filter, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve, Score};

const POINTS: &[(Point, &str, &str)] = &[
    (PreEnqueue, "preEnqueue", "PreEnqueuePlugin"),
    (QueueSort, "queueSort", "QueueSortPlugin"),
    (PreFilter, "preFilter", "PreFilterPlugin"),
    (Filter, "filter", "FilterPlugin"),
    (PostFilter, "postFilter", "PostFilterPlugin"),
    (PreScore, "preScore", "PreScorePlugin"),
    (Score, "score", "ScorePlugin"),
    (Reserve, "reserve", "ReservePlugin"),
    (Point::Permit, "permit", "PermitPlugin"),
    (PreBind, "preBind", "PreBindPlugin"),
    (Bind, "bind", "BindPlugin"),
    (Point::PostBind, "postBind", "PostBindPlugin"),
];

/// All plugins in default order, with default weight and extension points.
pub(super) const PLUGINS: &[(&str, i64, &[Point])] = &[
    ("SchedulingGates", 0, &[PreEnqueue]),
    ("PrioritySort", 0, &[QueueSort]),
    ("NodeUnschedulable", 0, &[Filter]),
    ("NodeName", 0, &[Filter]),
    ("TaintToleration", 3, &[Filter, PreScore, Score]),
    ("NodeAffinity", 2, &[PreFilter, Filter, PreScore, Score]),
    ("NodePorts", 0, &[PreFilter, Filter]),
    ("NodeResourcesFit", 1, &[PreFilter, Filter, PreScore, Score]),
    ("VolumeRestrictions", 0, &[PreFilter, Filter]),
    ("NodeVolumeLimits", 0, &[PreFilter, Filter]),
    ("VolumeBinding", 0, &[PreFilter, Filter, Reserve, PreBind]),
    ("VolumeZone", 0, &[PreFilter, Filter]),
    ("PodTopologySpread", 2, &[PreFilter, Filter, PreScore, Score]),
    ("InterPodAffinity", 2, &[PreFilter, Filter, PreScore, Score]),
    ("DynamicResources", 2, &[PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind]),
    ("DefaultPreemption", 0, &[PreEnqueue, PostFilter]),
    ("NodeResourcesBalancedAllocation", 1, &[PreScore, Score]),
    ("ImageLocality", 1, &[Score]),
    ("DefaultBinder", 0, &[Bind]),
    ("NodeDeclaredFeatures", 0, &[PreFilter, Filter]),
];

/// A `PluginSet`: the plugins enabled and disabled at one extension point or at `multiPoint`.
#[derive(Clone, Debug, Default)]
struct Set {
    enabled: Vec<(Str, i64)>,
    disabled: Vec<Str>,
}

/// A plugin of a profile and the extension points at which it is enabled. A list of them is in filter order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SelectedPlugin {
    pub name: Str,
    pub gates: bool,
    /// Whether PreFilter runs.
    pub pre_filters: bool,
    pub filters: bool,
    /// Whether PostFilter runs, that is, when no node is feasible.
    pub post_filters: bool,
    pub weight: i64,
}

/// Returns the plugins that remain enabled after `plugins` of a profile is applied to the defaults.
pub(super) fn chosen(profile: &str, plugins: &At<'_>) -> Result<Vec<SelectedPlugin>, Error> {
    let defaults = PLUGINS.iter().map(|(name, weight, _)| (Str::from(*name), *weight)).collect();
    let defaults = Set { enabled: defaults, disabled: Vec::new() };
    let multi = merge(defaults, read(&plugins.get("multiPoint")));
    let mut lists = Vec::with_capacity(POINTS.len());
    for (point, field, interface) in POINTS {
        lists.push((*point, expand(*point, interface, &multi, &read(&plugins.get(field)))?));
    }
    let list = |point| lists.iter().find(|(have, _)| *have == point).map_or(&[][..], |(_, list)| list.as_slice());
    match list(QueueSort) {
        [] => return Err(profile_error(profile, "no queue sort plugin is enabled")),
        [_] => {}
        _ => return Err(profile_error(profile, "only one queue sort plugin can be enabled")),
    }
    if list(Bind).is_empty() {
        let message = format!("at least one bind plugin is needed for profile with scheduler name {profile:?}");
        return Err(profile_error(profile, &message));
    }
    let mut all: Vec<SelectedPlugin> = Vec::new();
    // DEVIATION: the sets of preScore, reserve, permit, preBind and postBind are decoded and validated but have no
    // effect: a plugin that filters or scores nodes always runs its steps before binding, too.
    for point in [Filter, PreFilter, Score, PreEnqueue, PostFilter] {
        for (name, weight) in list(point) {
            let at = all.iter().position(|have| have.name == *name).unwrap_or_else(|| {
                all.push(SelectedPlugin { name: name.clone(), ..SelectedPlugin::default() });
                all.len() - 1
            });
            match point {
                Score => all[at].weight = if *weight == 0 { 1 } else { *weight },
                PreEnqueue => all[at].gates = true,
                PostFilter => all[at].post_filters = true,
                PreFilter => all[at].pre_filters = true,
                _ => all[at].filters = true,
            }
        }
    }
    Ok(all)
}

fn read(set: &At<'_>) -> Set {
    let name = |plugin: At<'_>| Str::from(plugin.get("name").str());
    Set {
        enabled: set.get("enabled").items().map(|it| (it.get("name").str().into(), it.get("weight").int())).collect(),
        disabled: set.get("disabled").items().map(name).collect(),
    }
}

/// Merges `custom` into the defaults: redefined plugins keep their default position, other enabled plugins follow.
fn merge(defaults: Set, custom: Set) -> Set {
    let mut added = custom.enabled;
    let mut enabled = Vec::new();
    if !custom.disabled.iter().any(|name| name == "*") {
        for (name, weight) in defaults.enabled.into_iter().filter(|(name, _)| !custom.disabled.contains(name)) {
            match added.iter().position(|(have, _)| *have == name) {
                Some(at) => enabled.push(added.remove(at)),
                None => enabled.push((name, weight)),
            }
        }
    }
    enabled.extend(added);
    Set { enabled, disabled: custom.disabled }
}

/// Returns the plugins of one extension point: first those named both here and in `multiPoint`, then the other
/// `multiPoint` plugins, then the rest.
fn expand(point: Point, interface: &str, multi: &Set, own: &Set) -> Result<Vec<(Str, i64)>, Error> {
    let has = |name: &Str| PLUGINS.iter().find(|(have, ..)| have == name).map(|(_, _, points)| points.contains(&point));
    for (at, (name, _)) in own.enabled.iter().enumerate() {
        match has(name) {
            None => return Err(Error::Plugin(format!("{interface} {name:?} does not exist"))),
            Some(false) => return Err(Error::Plugin(format!("plugin {name:?} does not extend {interface} plugin"))),
            Some(true) if own.enabled[..at].iter().any(|(before, _)| before == name) => {
                return Err(Error::Plugin(format!("plugin {name:?} already registered as {interface:?}")));
            }
            Some(true) => {}
        }
    }
    if own.disabled.iter().any(|name| name == "*") {
        return Ok(own.enabled.clone());
    }
    let mut everywhere = Vec::new();
    for (name, weight) in &multi.enabled {
        match has(name) {
            None => return Err(Error::Plugin(format!("{interface} {name:?} does not exist"))),
            Some(true) if !own.disabled.contains(name) => everywhere.push((name.clone(), *weight)),
            Some(_) => {}
        }
    }
    let is_in = |list: &[(Str, i64)], name: &Str| list.iter().any(|(have, _)| have == name);
    let (mut list, rest): (Vec<_>, Vec<_>) =
        own.enabled.iter().cloned().partition(|(name, _)| is_in(&everywhere, name));
    everywhere.retain(|(name, _)| !is_in(&own.enabled, name));
    list.extend(everywhere);
    list.extend(rest);
    Ok(list)
}

fn profile_error(profile: &str, message: &str) -> Error {
    Error::Plugin(format!("creating profile for scheduler name {profile}: {message}"))
}

#[cfg(test)]
mod tests {
    use apimachinery::{Value, value};

    use super::*;

    fn names(plugins: &Value) -> Result<Vec<String>, String> {
        let chosen = chosen("default-scheduler", &At::root(plugins)).map_err(|error| error.to_string())?;
        Ok(chosen.iter().filter(|it| it.filters).map(|it| it.name.to_string()).collect())
    }

    fn weight(plugins: &Value, name: &str) -> i64 {
        let chosen = chosen("default-scheduler", &At::root(plugins)).unwrap();
        chosen.iter().find(|it| it.name == name).map_or(-1, |it| it.weight)
    }

    #[test]
    fn default_plugins_are_enabled_in_upstream_order() {
        let all = names(&Value::Null).unwrap();
        assert_eq!(all.len(), 14);
        assert_eq!(all[..3], ["NodeUnschedulable", "NodeName", "TaintToleration"]);
        assert_eq!(weight(&Value::Null, "TaintToleration"), 3);
    }

    #[test]
    fn plugins_can_be_disabled_at_one_extension_point_or_at_all() {
        let one = value!({"score": {"disabled": [{"name": "TaintToleration"}]}});
        assert_eq!(weight(&one, "TaintToleration"), 0);
        assert!(names(&one).unwrap().contains(&"TaintToleration".to_owned()));
        let all = value!({"multiPoint": {"disabled": [{"name": "TaintToleration"}]}});
        assert!(!names(&all).unwrap().contains(&"TaintToleration".to_owned()));
        let only = value!({"filter": {"enabled": [{"name": "NodeName"}], "disabled": [{"name": "*"}]},
            "preFilter": {"disabled": [{"name": "*"}]}});
        assert_eq!(names(&only).unwrap(), ["NodeName"]);
    }

    #[test]
    fn plugins_enabled_at_an_extension_point_run_first_with_their_weight() {
        let set = value!({"filter": {"enabled": [{"name": "NodePorts"}]},
            "score": {"enabled": [{"name": "ImageLocality", "weight": 7}]}});
        assert_eq!(names(&set).unwrap()[0], "NodePorts");
        assert_eq!(weight(&set, "ImageLocality"), 7);
        let zero = value!({"multiPoint": {"enabled": [{"name": "ImageLocality"}]}});
        assert_eq!(weight(&zero, "ImageLocality"), 1, "no weight means one");
    }

    #[test]
    fn unknown_plugins_and_wrong_extension_points_are_rejected() {
        let check = |plugins: Value, expect: &str| assert_eq!(names(&plugins).unwrap_err(), expect);
        check(value!({"filter": {"enabled": [{"name": "X"}]}}), "FilterPlugin \"X\" does not exist");
        check(
            value!({"filter": {"enabled": [{"name": "ImageLocality"}]}}),
            "plugin \"ImageLocality\" does not extend FilterPlugin plugin",
        );
        check(
            value!({"bind": {"disabled": [{"name": "*"}]}}),
            "creating profile for scheduler name default-scheduler: at least one bind plugin is needed for profile \
             with scheduler name \"default-scheduler\"",
        );
    }
}
