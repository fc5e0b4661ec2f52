//! ResourceQuota: enforces the limits of a namespace exactly.
//!
//! The usage of a write is added to the quota's status in the transaction of the write itself. A concurrent change of
//! the quota fails the transaction, and the sum is computed again. Upstream updates the quota first, and a controller
//! corrects the usage if the write fails later.

use std::collections::{BTreeMap, BTreeSet};

use api::amounts::{self, Amounts};
use api::kind::Kind;
use api::quota::scopes::{self, Scope};
use api::quota::usage;
use api::resources::{PERSISTENT_VOLUME_CLAIMS, PODS, RESOURCE_CLAIMS, SERVICES};
use api::view::Pod;
use api_registry::strategy::{self, Target};
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{Str, Value};

use super::{Attributes, Effect, Operation, Plugin, View};

/// Field manager of quota updates; upstream's name.
const MANAGER: &str = "kube-apiserver";

#[derive(Default)]
pub(crate) struct ResourceQuota {
    limited: Vec<LimitedResource>,
}

/// A resource that may only be consumed if a quota covers it.
struct LimitedResource {
    group: String,
    plural: String,
    /// Substrings of resource names.
    contains: Vec<String>,
    /// Scopes that require a quota with the same scope.
    scopes: Vec<Value>,
}

impl LimitedResource {
    fn is(&self, attributes: &Attributes<'_>) -> bool {
        attributes.kind.group == self.group && attributes.kind.plural == self.plural
    }
}

impl ResourceQuota {
    /// Parses the plugin's configuration.
    pub(crate) fn of(config: &Value) -> Self {
        let limited = |entry: &Value| LimitedResource {
            group: entry.text_at(&["apiGroup"]).to_owned(),
            plural: entry.text_at(&["resource"]).to_owned(),
            contains: entry
                .list_at(&["matchContains"])
                .iter()
                .filter_map(|substring| substring.as_str().map(str::to_owned))
                .collect(),
            scopes: entry.list_at(&["matchScopes"]).to_vec(),
        };
        Self { limited: config.list_at(&["limitedResources"]).iter().map(limited).collect() }
    }

    /// Rejects objects that consume a limited resource that no quota covers.
    fn check_covered(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        covered: &BTreeSet<Str>,
    ) -> Result<(), Status> {
        let limits: Vec<&String> = self
            .limited
            .iter()
            .filter(|limited| limited.is(attributes))
            .flat_map(|limited| &limited.contains)
            .collect();
        if limits.is_empty() {
            return Ok(());
        }
        let used = usage::of(&attributes.kind.group, &attributes.kind.plural, object, attributes.now);
        let is_limited = |name: &&Str| limits.iter().any(|substring| name.contains(substring.as_str()));
        let bare: Vec<&str> =
            used.keys().filter(is_limited).filter(|name| !covered.contains(*name)).map(Str::as_str).collect();
        if bare.is_empty() {
            return Ok(());
        }
        Err(attributes.forbidden(object, format!("insufficient quota to consume: {}", bare.join(","))))
    }

    /// Rejects objects in a limited scope that no quota covers.
    fn check_scopes(&self, attributes: &Attributes<'_>, object: &Value, quotas: &[Value]) -> Result<(), Status> {
        let (group, plural) = (attributes.kind.group.as_str(), attributes.kind.plural.as_str());
        let here = self.limited.iter().filter(|limited| limited.is(attributes));
        let limited = here.flat_map(|limited| limited.scopes.iter().map(Scope::of));
        let is_covered = |scope: &Scope<'_>| {
            let mut of_quotas = quotas.iter().flat_map(scopes::of_quota);
            of_quotas.any(|have| have.name == scope.name && have.matches(group, plural, object))
        };
        let bare: Vec<String> = limited
            .filter(|scope| scope.matches(group, plural, object) && !is_covered(scope))
            .map(|scope| scope.to_string())
            .collect();
        if bare.is_empty() {
            return Ok(());
        }
        Err(attributes.forbidden(object, format!("insufficient quota to match these scopes: [{}]", bare.join(" "))))
    }
}

impl Plugin for ResourceQuota {
    fn charges(&self, attributes: &Attributes<'_>, view: &dyn View) -> bool {
        !attributes.namespace.is_empty()
            && is_counted(attributes)
            && !view.stored("", "resourcequotas", attributes.namespace, "").is_empty()
    }

    fn charge(&self, attributes: &Attributes<'_>, object: &Value, view: &dyn View) -> Result<Vec<Effect>, Status> {
        if attributes.namespace.is_empty() || !is_counted(attributes) {
            return Ok(Vec::new());
        }
        let (mut matching, mut covered) = (Vec::new(), BTreeSet::new());
        let quotas = view.stored("", "resourcequotas", attributes.namespace, "");
        for quota in &quotas {
            let hard = amounts::read(quota.at(&["status", "hard"]));
            let counted: Vec<Str> = hard
                .keys()
                .filter(|name| usage::counts(&attributes.kind.group, &attributes.kind.plural, name))
                .cloned()
                .collect();
            if counted.is_empty() || !scopes::match_all(quota, &attributes.kind.group, &attributes.kind.plural, object)
            {
                continue;
            }
            check(attributes, object, quota, &counted)?;
            covered.extend(counted);
            matching.push((quota, hard));
        }
        self.check_covered(attributes, object, &covered)?;
        self.check_scopes(attributes, object, &quotas)?;
        if matching.is_empty() {
            return Ok(Vec::new());
        }
        let usage = Usage::of(attributes, object)?;
        let mut effects = Vec::new();
        for (quota, hard) in matching {
            effects.extend(charge(attributes, object, quota, &hard, usage.added_to(attributes, quota))?);
        }
        Ok(effects)
    }
}

/// Whether the write can change the usage.
fn is_counted(attributes: &Attributes<'_>) -> bool {
    match (attributes.operation, attributes.subresource) {
        (Operation::Create, "") => true,
        (Operation::Update, "") => {
            [SERVICES, PERSISTENT_VOLUME_CLAIMS, RESOURCE_CLAIMS].iter().any(|it| attributes.is(*it))
        }
        (Operation::Update, "resize") => attributes.is(PODS),
        _ => false,
    }
}

/// Checks that a pod specifies all resources that the quota limits, and that the quota's current usage is known.
fn check(attributes: &Attributes<'_>, object: &Value, quota: &Value, counted: &[Str]) -> Result<(), Status> {
    let name = Meta::of(quota).name();
    if attributes.is(PODS)
        && let Some(missing) = usage::missing(Pod(object), counted)
    {
        return Err(attributes.forbidden(object, format!("failed quota: {name}: must specify {missing}")));
    }
    let used = amounts::read(quota.at(&["status", "used"]));
    if counted.iter().any(|resource| !used.contains_key(resource)) {
        let message = format!("status unknown for quota: {name}, resources: {}", counted.join(","));
        return Err(attributes.forbidden(object, message));
    }
    Ok(())
}

/// The usage of an object that is written. Resources with an amount of zero are omitted.
struct Usage {
    /// All of it, which a quota is charged that did not count the object before.
    whole: Amounts,
    /// The difference from the old object.
    delta: Amounts,
}

impl Usage {
    fn of(attributes: &Attributes<'_>, object: &Value) -> Result<Self, Status> {
        let used_by = |object| usage::of(&attributes.kind.group, &attributes.kind.plural, object, attributes.now);
        let mut whole = used_by(object);
        let negative: Vec<&str> =
            whole.iter().filter(|(_, amount)| amount.is_negative()).map(|(name, _)| name.as_str()).collect();
        if !negative.is_empty() {
            let message = format!("quota usage is negative for resource(s): {}", negative.join(","));
            return Err(attributes.forbidden(object, message));
        }
        let mut delta = whole.clone();
        for (name, before) in replaced(attributes).map(used_by).unwrap_or_default() {
            let now = delta.get(&name).copied().unwrap_or_default();
            delta.insert(name, now.sub(before));
        }
        for amounts in [&mut whole, &mut delta] {
            amounts.retain(|_, amount| !amount.is_zero());
        }
        Ok(Self { whole, delta })
    }

    /// Returns the usage that the write adds to a quota whose scopes match the written object.
    fn added_to(&self, attributes: &Attributes<'_>, quota: &Value) -> &Amounts {
        let (group, plural) = (&attributes.kind.group, &attributes.kind.plural);
        match replaced(attributes) {
            Some(old) if !scopes::match_all(quota, group, plural, old) => &self.whole,
            _ => &self.delta,
        }
    }
}

/// Returns the object that an update replaces.
fn replaced<'a>(attributes: &Attributes<'a>) -> Option<&'a Value> {
    attributes.old.filter(|_| attributes.operation == Operation::Update)
}

/// Returns the updated quota, or `None` if the write adds nothing that the quota counts.
fn charge(
    attributes: &Attributes<'_>,
    object: &Value,
    quota: &Value,
    hard: &Amounts,
    delta: &Amounts,
) -> Result<Option<Effect>, Status> {
    let requested: BTreeMap<_, _> = delta.iter().filter(|(name, _)| hard.contains_key(*name)).collect();
    if requested.is_empty() {
        return Ok(None);
    }
    let mut used = amounts::read(quota.at(&["status", "used"]));
    let (mut requested_amounts, mut have, mut limited) = (Vec::new(), Vec::new(), Vec::new());
    for (name, amount) in requested {
        let before = used.get(name).copied().unwrap_or_default();
        let after = before.add(*amount);
        if after > hard[name] {
            requested_amounts.push(format!("{name}={amount}"));
            have.push(format!("{name}={before}"));
            limited.push(format!("{name}={}", hard[name]));
        }
        used.insert(name.clone(), after);
    }
    if requested_amounts.is_empty() {
        return Ok(Some(updated(attributes, quota, &used)));
    }
    let (name, requested_amounts, have, limited) =
        (Meta::of(quota).name(), requested_amounts.join(","), have.join(","), limited.join(","));
    let message = format!("exceeded quota: {name}, requested: {requested_amounts}, used: {have}, limited: {limited}");
    Err(attributes.forbidden(object, message))
}

/// Returns the status update of a quota.
fn updated(attributes: &Attributes<'_>, quota: &Value, used: &Amounts) -> Effect {
    let kind: Kind = api::core::resource_quota::kind();
    let mut object = quota.clone();
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("used", amounts::write(used));
    }
    let target = Target {
        kind: &kind,
        version: &kind.versions[0],
        namespace: attributes.namespace,
        name: Meta::of(quota).name(),
        subresource: "status",
        manager: MANAGER,
    };
    let object = strategy::own(&target, Some(quota), object, attributes.now);
    Effect { kind, object }
}

#[cfg(test)]
mod tests;
