//! Which plug-ins a profile asks what: the defaults, what the configuration changes in them, and the sets by point.

use machinery::{At, Str};

use super::Error;

/// A moment of placing a pod at which plug-ins are asked, in upstream's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
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

/// The plug-ins there are, in the order and with the weights of the defaults, and where each has something to say.
pub const PLUGINS: &[(&str, i64, &[Point])] = &[
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

/// The plug-ins of one point, or of all, as they are written.
#[derive(Clone, Debug, Default)]
struct Set {
    enabled: Vec<(Str, i64)>,
    disabled: Vec<Str>,
}

/// What each plug-in of a profile is asked, in the order in which they judge nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    pub name: Str,
    pub gates: bool,
    /// Whether it is asked about the pod before any node is looked at.
    pub pre_filters: bool,
    pub filters: bool,
    /// Whether it is asked when no node can take a pod.
    pub post_filters: bool,
    pub weight: i64,
}

/// The plug-ins that `plugins` of a profile leave enabled.
pub fn chosen(profile: &str, plugins: &At<'_>) -> Result<Vec<Chosen>, Error> {
    let defaults = PLUGINS.iter().map(|(name, weight, _)| (Str::from(*name), *weight)).collect();
    let defaults = Set { enabled: defaults, disabled: Vec::new() };
    let multi = merge(defaults, read(&plugins.get("multiPoint")));
    let mut lists = Vec::with_capacity(POINTS.len());
    for (point, field, interface) in POINTS {
        lists.push((*point, expand(*point, interface, &multi, &read(&plugins.get(field)))?));
    }
    let list = |point| lists.iter().find(|(have, _)| *have == point).map_or(&[][..], |(_, list)| list.as_slice());
    match list(QueueSort) {
        [] => return Err(refused(profile, "no queue sort plugin is enabled")),
        [_] => {}
        _ => return Err(refused(profile, "only one queue sort plugin can be enabled")),
    }
    if list(Bind).is_empty() {
        let why = format!("at least one bind plugin is needed for profile with scheduler name {profile:?}");
        return Err(refused(profile, &why));
    }
    let mut all: Vec<Chosen> = Vec::new();
    // DEVIATION: the sets of preScore, reserve, permit, preBind and postBind are read and judged, and change nothing:
    // a plug-in that judges or ranks nodes also does what it must before a pod is bound.
    for point in [Filter, PreFilter, Score, PreEnqueue, PostFilter] {
        for (name, weight) in list(point) {
            let at = all.iter().position(|have| have.name == *name).unwrap_or_else(|| {
                all.push(Chosen { name: name.clone(), ..Chosen::default() });
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

/// What is left of the defaults, what was configured anew in its old place, and what was added.
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

/// The plug-ins of one point: those named both here and for all points first, then those of all points, then the rest.
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

fn refused(profile: &str, why: &str) -> Error {
    Error::Plugin(format!("creating profile for scheduler name {profile}: {why}"))
}

#[cfg(test)]
mod tests {
    use machinery::{Value, value};

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
    fn without_a_word_all_are_asked_in_their_order() {
        let all = names(&Value::Null).unwrap();
        assert_eq!(all.len(), 14);
        assert_eq!(all[..3], ["NodeUnschedulable", "NodeName", "TaintToleration"]);
        assert_eq!(weight(&Value::Null, "TaintToleration"), 3);
    }

    #[test]
    fn plugins_can_be_taken_away_at_one_point_or_at_all() {
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
    fn a_plugin_that_is_named_at_a_point_goes_first_there_with_its_weight() {
        let set = value!({"filter": {"enabled": [{"name": "NodePorts"}]},
            "score": {"enabled": [{"name": "ImageLocality", "weight": 7}]}});
        assert_eq!(names(&set).unwrap()[0], "NodePorts");
        assert_eq!(weight(&set, "ImageLocality"), 7);
        let zero = value!({"multiPoint": {"enabled": [{"name": "ImageLocality"}]}});
        assert_eq!(weight(&zero, "ImageLocality"), 1, "no weight means one");
    }

    #[test]
    fn what_does_not_exist_or_does_not_fit_is_refused() {
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
