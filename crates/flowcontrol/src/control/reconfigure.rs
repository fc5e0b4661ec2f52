//! Reconfiguration: replaces all flow schemas and priority levels in one step.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::time::Time;
use apimachinery::{Str, Value, value};

use super::{Classification, Flow, FlowControl, Level, Ticket};
use crate::Moment;
use crate::bootstrap;
use crate::demand::Demand;
use crate::dropped::DroppedRequests;
use crate::flow_schema::FlowSchema;
use crate::level::{self, CATCH_ALL, EXEMPT, LevelSpec, Limits};
use crate::metrics::Series;
use crate::queues::Queues;

/// The result of a reconfiguration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReconfigureResult {
    /// The requests that may now execute.
    pub admitted: Vec<Ticket>,
    /// Invalid priority levels, which are ignored.
    pub ignored: Vec<InvalidLevel>,
    /// The status condition of each flow schema, in the order of the objects.
    pub conditions: Vec<Condition>,
}

/// An invalid priority level.
#[derive(Clone, Debug, PartialEq)]
pub struct InvalidLevel {
    pub name: Str,
    pub error: level::Error,
}

/// The Dangling condition of a flow schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub flow_schema: Str,
    /// The priority level that the schema refers to.
    pub priority_level: Str,
    /// Whether that level does not exist.
    pub is_dangling: bool,
}

impl Condition {
    /// Returns the condition for the FlowSchema's status. The caller writes it only if status, reason or message
    /// change.
    pub fn to_value(&self, now: Time) -> Value {
        let (status, reason, end) = if self.is_dangling {
            ("True", "NotFound", "but there is no such object")
        } else {
            ("False", "Found", "and it exists")
        };
        let level = apimachinery::go::quote(&self.priority_level);
        let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level} {end}");
        value!({
            "type": "Dangling", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": (now.to_string()),
        })
    }
}

impl FlowControl {
    /// Replaces the configuration by these FlowSchema and PriorityLevelConfiguration objects. Missing mandatory objects
    /// are substituted. A removed level stays until it is idle.
    pub fn reconfigure(&mut self, schemas: &[Value], levels: &[Value], now: Moment) -> ReconfigureResult {
        let mut result = ReconfigureResult::default();
        let mut specs = Vec::new();
        for object in levels {
            match LevelSpec::from_object(object) {
                Ok(spec) => specs.push(spec),
                Err(error) => result.ignored.push(InvalidLevel { name: name(object), error }),
            }
        }
        let mandatory = bootstrap::mandatory_levels();
        let known: BTreeSet<Str> = specs.iter().map(|spec| spec.name.clone()).collect();
        result.conditions = schemas.iter().map(|object| condition(object, &known)).collect();
        specs.extend(mandatory.into_iter().filter(|spec| !known.contains(&spec.name)));
        self.take_levels(specs, now);
        self.take_schemas(schemas, &known);
        self.drop_unused_series();
        result.admitted = self.divide(now);
        result
    }

    /// Removes a quiescing level once it is idle, and divides its seats among the others.
    pub(super) fn reap(&mut self, id: u32, now: Moment, admitted: &mut Vec<Ticket>) {
        let slot = &mut self.levels[id as usize];
        if slot.as_ref().is_some_and(|level| level.quiescing && level.queues.is_idle()) {
            *slot = None;
            admitted.extend(self.divide(now));
        }
    }

    fn take_levels(&mut self, specs: Vec<LevelSpec>, now: Moment) {
        for level in self.levels.iter_mut().flatten() {
            level.quiescing = true;
        }
        for spec in specs {
            let have = self.levels.iter_mut().flatten().find(|level| level.spec.name == spec.name);
            if let Some(level) = have {
                (level.spec, level.quiescing) = (spec, false);
                continue;
            }
            let level = Level::new(spec, now);
            match self.levels.iter_mut().find(|slot| slot.is_none()) {
                Some(free) => *free = Some(level),
                None => self.levels.push(Some(level)),
            }
        }
        for slot in &mut self.levels {
            if slot.as_ref().is_some_and(|level| level.quiescing && level.queues.is_idle()) {
                *slot = None;
            }
        }
    }

    fn take_schemas(&mut self, objects: &[Value], known: &BTreeSet<Str>) {
        let mut schemas: Vec<FlowSchema> = objects.iter().map(FlowSchema::from_object).collect();
        schemas.retain(|schema| known.contains(&schema.level));
        schemas.sort_by(|a, b| a.order().cmp(&b.order()));
        let mandatory = bootstrap::mandatory_schemas();
        for (name, at_end) in [(EXEMPT, false), (CATCH_ALL, true)] {
            if schemas.iter().all(|schema| schema.name != name) {
                let imagined = mandatory.iter().find(|schema| schema.name == name).expect("the schema is mandatory");
                schemas.insert(if at_end { schemas.len() } else { 0 }, imagined.clone());
            }
        }
        self.flows.clear();
        for schema in schemas {
            let flow = self.flow_for(schema);
            self.flows.push(flow);
        }
    }

    fn flow_for(&mut self, schema: FlowSchema) -> Flow {
        let is_named = |level: &Option<Level>| level.as_ref().is_some_and(|level| level.spec.name == schema.level);
        let level = self.levels.iter().position(is_named).expect("schemas without a level were removed above");
        let spec = &self.levels[level].as_ref().expect("the level was found above").spec;
        let classification = Arc::new(Classification {
            flow_schema: schema.name.clone(),
            flow_schema_uid: schema.uid.clone(),
            priority_level: spec.name.clone(),
            priority_level_uid: spec.uid.clone(),
        });
        let is_same = |series: &Series| series.flow_schema == schema.name && series.priority_level == spec.name;
        let series = self.series.iter().position(is_same).unwrap_or_else(|| {
            self.series.push(Series::new(spec.name.clone(), schema.name.clone()));
            self.series.len() - 1
        });
        Flow { schema, level, series: series as u32, classification }
    }

    /// Drops the metrics series that no flow and no request uses.
    fn drop_unused_series(&mut self) {
        let mut used: BTreeSet<u32> = self.flows.iter().map(|flow| flow.series).collect();
        used.extend(
            self.levels.iter().flatten().flat_map(|level| level.queues.records()).map(|record| record.tag.series),
        );
        if used.len() == self.series.len() {
            return;
        }
        let moved =
            |old: u32| used.iter().position(|series| *series == old).expect("only series in use are looked up") as u32;
        for flow in &mut self.flows {
            flow.series = moved(flow.series);
        }
        for level in self.levels.iter_mut().flatten() {
            level.queues.renumber_series(moved);
        }
        let mut at = 0;
        self.series.retain(|_| {
            at += 1;
            used.contains(&(at - 1))
        });
    }

    /// Computes the limits of each level from its shares, then reallocates by demand.
    fn divide(&mut self, now: Moment) -> Vec<Ticket> {
        let shares: f64 = self.levels.iter().flatten().map(|level| f64::from(level.spec.shares)).sum();
        for level in self.levels.iter_mut().flatten() {
            let limits = level.spec.limits(self.total, shares);
            if level.limits == Limits::default() {
                level.current = limits.nominal - (limits.nominal - limits.lower) / 2;
            }
            level.limits = limits;
            level.seats_max = level.spec.seats_max(limits.nominal);
        }
        self.adjust(now)
    }
}

impl Level {
    fn new(spec: LevelSpec, now: Moment) -> Self {
        let queues = Queues::new(spec.discipline, 0, now);
        Self {
            spec,
            limits: Limits::default(),
            current: 0,
            seats_max: None,
            queues,
            demand: Demand::default(),
            target: 0.0,
            dropped: DroppedRequests::default(),
            quiescing: false,
        }
    }
}

fn condition(object: &Value, known: &BTreeSet<Str>) -> Condition {
    let schema = FlowSchema::from_object(object);
    let is_dangling = !known.contains(&schema.level);
    Condition { flow_schema: schema.name, priority_level: schema.level, is_dangling }
}

fn name(object: &Value) -> Str {
    object.text_at(&["metadata", "name"]).into()
}
