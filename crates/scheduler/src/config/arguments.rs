//! `pluginConfig` of a scheduler profile: strict decoding, upstream's validation, and construction of the plugins.

use std::collections::BTreeSet;
use std::time::Duration;

use apimachinery::field::Error as Finding;
use apimachinery::{At, Errors, Str, Value, names};

use super::Error;
use super::plugins::SelectedPlugin;
use super::types::conform_to;
use crate::framework::Plugin;
use crate::plugins::{
    AffinityToNodes, BalancedAllocation, DefaultConstraints, DefaultPreemption, DynamicResources, Fit, ImageLocality,
    InterPodAffinity, NodeDeclaredFeatures, NodeName, NodePorts, NodeUnschedulable, NodeVolumeLimits, SchedulingGates,
    Strategy, TaintToleration, TopologySpread, VolumeBinding, VolumeRestrictions, VolumeZone,
};
use crate::pod::{NodeAffinity, Policy, Spread, WhenUnsatisfiable};
use crate::profile::{EnabledPlugin, Patience};

const VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// Plugins of earlier API versions that no longer exist.
const REMOVED: &[&str] = &["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];
const STRATEGIES: &[&str] = &["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];

/// The decoded arguments of a profile's plugins.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    fit: Option<Value>,
    balance: Option<Value>,
    affinity: Option<Value>,
    pods: Option<Value>,
    spread: Option<Value>,
    preemption: Option<Value>,
    volumes: Option<Value>,
    devices: Option<Value>,
    /// Resources managed by extenders that the scheduler ignores (`ignoredByScheduler`).
    pub uncounted: Vec<Str>,
}

impl Arguments {
    /// Decodes `pluginConfig` of a profile.
    pub(super) fn read(list: &At<'_>, findings: &mut Errors) -> Result<Self, Error> {
        let mut this = Self::default();
        let mut seen = BTreeSet::new();
        for item in list.items() {
            let name = item.get("name").str();
            if !seen.insert(name.to_owned()) {
                findings.push(Finding::duplicate(item.path(), name));
            }
            if REMOVED.contains(&name) {
                let detail =
                    format!("was invalid in version \"v1\" (KubeSchedulerConfiguration is version {VERSION:?})");
                findings.push(Finding::invalid(item.path(), name, detail));
            } else if let Some(kind) = kind_of(name) {
                let args = read_one(item.get("args").value(), kind)?;
                validate(name, &At::new(&args, item.path().field("args")), findings);
                if let Some(slot) = this.slot(name) {
                    *slot = Some(args);
                }
            }
        }
        Ok(this)
    }

    /// Constructs the plugin with its arguments; `None` for sorting, binding and preemption plugins.
    pub(super) fn enabled(&self, chosen: &SelectedPlugin) -> Option<EnabledPlugin> {
        let plugin: Box<dyn Plugin> = match chosen.name.as_str() {
            "SchedulingGates" => Box::new(SchedulingGates),
            "NodeUnschedulable" => Box::new(NodeUnschedulable),
            "NodeName" => Box::new(NodeName),
            "TaintToleration" => Box::new(TaintToleration),
            "NodeAffinity" => Box::new(self.affinity()),
            "NodePorts" => Box::new(NodePorts),
            "NodeResourcesFit" => Box::new(self.fit()),
            "VolumeRestrictions" => Box::new(VolumeRestrictions),
            "NodeVolumeLimits" => Box::new(NodeVolumeLimits),
            "VolumeBinding" => Box::new(VolumeBinding),
            "VolumeZone" => Box::new(VolumeZone),
            "PodTopologySpread" => Box::new(TopologySpread::new(self.spread())),
            "InterPodAffinity" => Box::new(self.pods()),
            "DynamicResources" => Box::new(DynamicResources),
            "NodeResourcesBalancedAllocation" => Box::new(self.balance()),
            "ImageLocality" => Box::new(ImageLocality),
            "NodeDeclaredFeatures" => Box::new(NodeDeclaredFeatures),
            _ => return None,
        };
        let SelectedPlugin { gates, pre_filters, filters, weight, .. } = *chosen;
        Some(EnabledPlugin { plugin, gates, pre_filters, filters, weight })
    }

    pub(super) fn preemption(&self) -> DefaultPreemption {
        let mut made = DefaultPreemption::default();
        let number = |field: &str| self.preemption.as_ref()?.get(field)?.as_int()?.try_into().ok();
        made.candidates_percentage = number("minCandidateNodesPercentage").unwrap_or(made.candidates_percentage);
        made.candidates_min = number("minCandidateNodesAbsolute").unwrap_or(made.candidates_min);
        made
    }

    /// Returns the timeouts of the steps before binding.
    pub(super) fn timeouts(&self) -> Patience {
        let absent = Patience::default();
        let seconds = self.volumes.as_ref().and_then(|args| args.get("bindTimeoutSeconds")?.as_int()?.try_into().ok());
        let timeout = self.devices.as_ref().and_then(|args| super::duration(args.str_at(&["bindingTimeout"])?));
        Patience {
            volumes: seconds.map_or(absent.volumes, Duration::from_secs),
            devices: timeout.unwrap_or(absent.devices),
        }
    }

    fn slot(&mut self, name: &str) -> Option<&mut Option<Value>> {
        Some(match name {
            "NodeResourcesFit" => &mut self.fit,
            "NodeResourcesBalancedAllocation" => &mut self.balance,
            "NodeAffinity" => &mut self.affinity,
            "InterPodAffinity" => &mut self.pods,
            "PodTopologySpread" => &mut self.spread,
            "DefaultPreemption" => &mut self.preemption,
            "VolumeBinding" => &mut self.volumes,
            "DynamicResources" => &mut self.devices,
            _ => return None,
        })
    }

    fn affinity(&self) -> AffinityToNodes {
        let added = self.affinity.as_ref().and_then(|args| args.get("addedAffinity"));
        AffinityToNodes { added: NodeAffinity::new(added) }
    }

    fn fit(&self) -> Fit {
        let mut made = self.fit.as_ref().map_or_else(Fit::default, fit);
        made.ignored.extend(self.uncounted.iter().cloned());
        made
    }

    fn balance(&self) -> BalancedAllocation {
        let resources = self.balance.as_ref().map(|args| weights(&At::root(args).get("resources"))).unwrap_or_default();
        if resources.is_empty() {
            return BalancedAllocation::default();
        }
        BalancedAllocation { resources: resources.into_iter().map(|(name, _)| name).collect() }
    }

    fn pods(&self) -> InterPodAffinity {
        let Some(args) = &self.pods else { return InterPodAffinity::default() };
        let weight = args.get("hardPodAffinityWeight").and_then(Value::as_int);
        InterPodAffinity {
            hard_weight: weight.and_then(|weight| weight.try_into().ok()).unwrap_or(1),
            ignores_preferences_of_others: At::root(args).get("ignorePreferredTermsOfExistingPods").bool(),
        }
    }

    fn spread(&self) -> DefaultConstraints {
        let Some(args) = &self.spread else { return DefaultConstraints::System };
        let args = At::root(args);
        if is_system(&args) {
            return DefaultConstraints::System;
        }
        let policy = |text: &str, absent| match text {
            "Honor" => Policy::Honor,
            "Ignore" => Policy::Ignore,
            _ => absent,
        };
        let number = |at: &At<'_>, absent| if at.is_present() { at.int().try_into().unwrap_or(absent) } else { absent };
        let constraint = |it: At<'_>| Spread {
            max_skew: number(&it.get("maxSkew"), 1),
            topology_key: it.get("topologyKey").str().into(),
            when: match it.get("whenUnsatisfiable").str() {
                "ScheduleAnyway" => WhenUnsatisfiable::ScheduleAnyway,
                _ => WhenUnsatisfiable::DoNotSchedule,
            },
            selector: apimachinery::labels::Selector::Nothing,
            min_domains: number(&it.get("minDomains"), 1),
            node_affinity: policy(it.get("nodeAffinityPolicy").str(), Policy::Honor),
            node_taints: policy(it.get("nodeTaintsPolicy").str(), Policy::Ignore),
        };
        DefaultConstraints::List(args.get("defaultConstraints").items().map(constraint).collect())
    }
}

fn fit(args: &Value) -> Fit {
    let mut made = Fit::default();
    let args = At::root(args);
    let texts = |field: &str| args.get(field).items().map(|it| it.str().into()).collect();
    made.ignored = texts("ignoredResources");
    made.ignored_groups = texts("ignoredResourceGroups");
    let scoring = args.get("scoringStrategy");
    let points = scoring.get("requestedToCapacityRatio");
    let shape = points.get("shape");
    let points = shape.items().map(|point| (point.get("utilization").int(), point.get("score").int())).collect();
    made.strategy = match scoring.get("type").str() {
        "MostAllocated" => Strategy::MostAllocated,
        "RequestedToCapacityRatio" => Strategy::RequestedToCapacityRatio(points),
        _ => Strategy::LeastAllocated,
    };
    let resources = weights(&scoring.get("resources"));
    if !resources.is_empty() {
        made.resources = resources;
    }
    made
}

/// Returns the type of the plugin's arguments; `None` if the plugin takes none.
fn kind_of(plugin: &str) -> Option<&'static str> {
    Some(match plugin {
        "DefaultPreemption" => "DefaultPreemptionArgs",
        "DynamicResources" => "DynamicResourcesArgs",
        "InterPodAffinity" => "InterPodAffinityArgs",
        "NodeAffinity" => "NodeAffinityArgs",
        "NodeResourcesBalancedAllocation" => "NodeResourcesBalancedAllocationArgs",
        "NodeResourcesFit" => "NodeResourcesFitArgs",
        "PodTopologySpread" => "PodTopologySpreadArgs",
        "VolumeBinding" => "VolumeBindingArgs",
        _ => return None,
    })
}

fn read_one(args: &Value, kind: &str) -> Result<Value, Error> {
    let given = args.str_at(&["kind"]).unwrap_or(kind);
    if given != kind {
        return Err(Error::Kind { kind: given.to_owned(), version: VERSION.to_owned() });
    }
    let mut args = args.clone();
    let unknown = conform_to(&mut args, kind).map_err(Error::Decode)?;
    super::strict(&unknown, Vec::new())?;
    Ok(args)
}

fn validate(name: &str, args: &At<'_>, findings: &mut Errors) {
    match name {
        "DefaultPreemption" => validate_preemption(args, findings),
        "InterPodAffinity" => {
            let weight = args.get("hardPodAffinityWeight");
            in_range(&weight, 0..=100, "not in valid range [0, 100]", findings);
        }
        "NodeResourcesBalancedAllocation" => validate_balance(args, findings),
        "NodeResourcesFit" => validate_fit(args, findings),
        "PodTopologySpread" => validate_spread(args, findings),
        "VolumeBinding" => {
            let timeout = args.get("bindTimeoutSeconds");
            let detail = "invalid BindTimeoutSeconds, should not be a negative value";
            in_range(&timeout, 0..=i64::MAX, detail, findings);
            if args.get("shape").is_present() {
                let detail = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
                findings.push(args.get("shape").invalid(detail));
            }
        }
        "DynamicResources" => validate_devices(args, findings),
        _ => {}
    }
}

fn validate_devices(args: &At<'_>, findings: &mut Errors) {
    for (field, least, detail) in [
        ("filterTimeout", Duration::ZERO, "must be zero or positive"),
        ("bindingTimeout", Duration::from_secs(1), "must be at least 1 second"),
    ] {
        let at = args.get(field);
        if at.is_present() && super::duration(at.str()).is_none_or(|given| given < least) {
            findings.push(at.invalid(detail));
        }
    }
}

fn validate_preemption(args: &At<'_>, findings: &mut Errors) {
    let (percentage, absolute) = (args.get("minCandidateNodesPercentage"), args.get("minCandidateNodesAbsolute"));
    in_range(&percentage, 0..=100, "not in valid range [0, 100]", findings);
    in_range(&absolute, 0..=i64::MAX, "not in valid range [0, inf)", findings);
    if [&percentage, &absolute].iter().all(|it| it.is_present() && it.int() == 0) {
        findings.push(percentage.invalid("cannot be zero at the same time as minCandidateNodesAbsolute"));
        findings.push(absolute.invalid("cannot be zero at the same time as minCandidateNodesPercentage"));
    }
}

fn validate_balance(args: &At<'_>, findings: &mut Errors) {
    let mut seen = BTreeSet::new();
    for item in args.get("resources").items() {
        if !seen.insert(item.get("name").str().to_owned()) {
            findings.push(item.get("name").duplicate());
        }
        let weight = item.get("weight");
        in_range(&weight, 1..=1, "must be 1", findings);
    }
}

fn validate_fit(args: &At<'_>, findings: &mut Errors) {
    for item in args.get("ignoredResources").items() {
        findings.extend(names::qualified_name(item.str()).into_iter().map(|detail| item.invalid(detail)));
    }
    for item in args.get("ignoredResourceGroups").items() {
        if item.str().contains('/') {
            findings.push(item.invalid("resource group name can't contain '/'"));
        }
        findings.extend(names::qualified_name(item.str()).into_iter().map(|detail| item.invalid(detail)));
    }
    let scoring = args.get("scoringStrategy");
    if scoring.is_absent() {
        return;
    }
    let kind = scoring.get("type");
    if kind.is_present() && !STRATEGIES.contains(&kind.str()) {
        findings.push(kind.not_supported(STRATEGIES));
    }
    for item in scoring.get("resources").items() {
        let weight = item.get("weight");
        let detail = format!("resource weight of {} not in valid range (0, 100]", item.get("name").str());
        in_range(&weight, 1..=100, &detail, findings);
    }
    let ratio = scoring.get("requestedToCapacityRatio");
    match (kind.str(), ratio.is_present()) {
        ("RequestedToCapacityRatio", false) => {
            findings.push(ratio.required("must be specified when type is RequestedToCapacityRatio"));
        }
        ("RequestedToCapacityRatio", true) => validate_shape(&ratio.get("shape"), findings),
        (_, true) => findings.push(ratio.forbidden("must be nil when type is not RequestedToCapacityRatio")),
        (_, false) => {}
    }
}

fn validate_shape(shape: &At<'_>, findings: &mut Errors) {
    if shape.is_empty() {
        findings.push(shape.required("at least one point must be specified"));
    }
    let mut last = None;
    for point in shape.items() {
        let utilization = point.get("utilization").int();
        if last.is_some_and(|last| last >= utilization) {
            findings.push(point.get("utilization").invalid("values must be sorted in increasing order"));
            break;
        }
        last = Some(utilization);
    }
    for point in shape.items() {
        in_range(&point.get("utilization"), 0..=100, "not in valid range [0, 100]", findings);
        in_range(&point.get("score"), 0..=10, "not in valid range [0, 10]", findings);
    }
}

fn validate_spread(args: &At<'_>, findings: &mut Errors) {
    let (kind, list) = (args.get("defaultingType"), args.get("defaultConstraints"));
    if !matches!(kind.str(), "" | "System" | "List") {
        findings.push(kind.not_supported(&["System", "List"]));
    } else if is_system(args) && !list.is_empty() {
        findings.push(Finding::invalid(kind.path(), "System", "when .defaultConstraints are not empty"));
    }
    let mut seen = BTreeSet::new();
    for it in list.items() {
        in_range(&it.get("maxSkew"), 1..=i64::MAX, "not in valid range (0, inf)", findings);
        let (key, when) = (it.get("topologyKey"), it.get("whenUnsatisfiable"));
        if key.is_empty() {
            findings.push(key.required("can not be empty"));
        } else {
            findings.extend(names::qualified_name(key.str()).into_iter().map(|detail| key.invalid(detail)));
        }
        match when.str() {
            "" => findings.push(when.required("can not be empty")),
            "DoNotSchedule" | "ScheduleAnyway" => {}
            _ => findings.push(when.not_supported(&["DoNotSchedule", "ScheduleAnyway"])),
        }
        if it.get("labelSelector").is_present() {
            let detail = "constraint must not define a selector, as they deduced for each pod";
            findings.push(it.get("labelSelector").forbidden(detail));
        }
        if !seen.insert((key.str().to_owned(), when.str().to_owned())) {
            findings.push(Finding::duplicate(it.path(), format!("{{{}, {}}}", key.str(), when.str())));
        }
    }
}

/// Whether `defaultingType` is `System`. If unset, listed constraints imply `List`.
fn is_system(args: &At<'_>) -> bool {
    match args.get("defaultingType").str() {
        "" => args.get("defaultConstraints").is_empty(),
        kind => kind == "System",
    }
}

fn in_range(at: &At<'_>, range: std::ops::RangeInclusive<i64>, detail: &str, findings: &mut Errors) {
    if at.is_present() && !range.contains(&at.int()) {
        findings.push(at.invalid(detail));
    }
}

/// Reads resources with weights; a missing weight is 1.
fn weights(list: &At<'_>) -> Vec<(Str, i64)> {
    let weight = |it: &At<'_>| if it.get("weight").int() == 0 { 1 } else { it.get("weight").int() };
    list.items().map(|it| (it.get("name").str().into(), weight(&it))).collect()
}
