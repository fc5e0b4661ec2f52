//! Authorizer library: authorization checks for the user of a request or for a service account.

use std::fmt;
use std::sync::Arc;

use super::opaque::Opaque;
use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

/// Decides authorization checks. Called during an evaluation, so it must not block.
pub trait Authorizer: Send + Sync {
    fn authorize(&self, question: &Check) -> Decision;
}

/// The subject of authorization checks.
pub struct Principal {
    authorizer: Arc<dyn Authorizer>,
    /// Namespace and name of the service account; [`None`] for the user of the request.
    service_account: Option<(Box<str>, Box<str>)>,
}

/// An authorization check under construction.
#[derive(Clone)]
pub struct Check {
    principal: Arc<Principal>,
    /// A non-resource path such as `/healthz`, if the check is for one.
    pub path: Option<Box<str>>,
    pub group: Box<str>,
    /// The plural resource name.
    pub resource: Box<str>,
    /// May be empty, like the following fields except `verb`.
    pub subresource: Box<str>,
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub field_selector: Box<str>,
    pub label_selector: Box<str>,
    pub verb: Box<str>,
}

/// The result of an authorization check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: Box<str>,
    /// The error of the authorizer, if any.
    pub error: Option<Box<str>>,
}

pub const ROWS: &[Row] = &[
    row("Authorizer.path(string) -> PathCheck", Cost::Unit, path),
    row("Authorizer.group(string) -> GroupCheck", Cost::Unit, group),
    row("Authorizer.serviceAccount(string, string) -> Authorizer", Cost::Unit, service_account),
    row("GroupCheck.resource(string) -> ResourceCheck", Cost::Unit, |args| refine(args, |c, text| c.resource = text)),
    row("ResourceCheck.subresource(string) -> ResourceCheck", Cost::Unit, |args| {
        refine(args, |c, text| c.subresource = text)
    }),
    row("ResourceCheck.namespace(string) -> ResourceCheck", Cost::Unit, |args| {
        refine(args, |c, text| c.namespace = text)
    }),
    row("ResourceCheck.name(string) -> ResourceCheck", Cost::Unit, |args| refine(args, |c, text| c.name = text)),
    row("PathCheck.check(string) -> Decision", Cost::Fixed(350_000), check),
    row("ResourceCheck.check(string) -> Decision", Cost::Fixed(350_000), check),
    row("Decision.allowed() -> bool", Cost::Unit, |args| read_decision(args, |decision| Val::Bool(decision.allowed))),
    row("Decision.reason() -> string", Cost::Unit, |args| read_decision(args, |decision| Val::text(&*decision.reason))),
    row("Decision.errored() -> bool", Cost::Unit, |args| {
        read_decision(args, |decision| Val::Bool(decision.error.is_some()))
    }),
    row("Decision.error() -> string", Cost::Unit, |args| {
        read_decision(args, |decision| Val::text(decision.error.as_deref().unwrap_or_default()))
    }),
];

/// The functions for selectors in checks.
pub const SELECTORS: &[Row] = &[
    row("ResourceCheck.fieldSelector(string) -> ResourceCheck", Cost::Selector, |args| {
        refine(args, |check, text| check.field_selector = text)
    }),
    row("ResourceCheck.labelSelector(string) -> ResourceCheck", Cost::Selector, |args| {
        refine(args, |check, text| check.label_selector = text)
    }),
];

impl Check {
    /// Returns namespace and name of the service account; [`None`] for the user of the request.
    pub fn service_account(&self) -> Option<(&str, &str)> {
        self.principal.service_account.as_ref().map(|(namespace, name)| (&**namespace, &**name))
    }
}

impl<'a> Val<'a> {
    /// Returns the variable `authorizer`, which checks the user of the request.
    pub fn authorizer(authorizer: Arc<dyn Authorizer>) -> Self {
        Val::Opaque(Opaque::Authorizer(Arc::new(Principal { authorizer, service_account: None })))
    }

    /// Returns the variable `authorizer.requestResource`, a check for the resource of the request.
    pub fn resource_check(authorizer: Arc<dyn Authorizer>, about: impl FnOnce(&mut Check)) -> Self {
        let mut check = Check::new(Arc::new(Principal { authorizer, service_account: None }));
        about(&mut check);
        Val::Opaque(Opaque::ResourceCheck(Arc::new(check)))
    }
}

impl Check {
    fn new(principal: Arc<Principal>) -> Self {
        Self {
            principal,
            path: None,
            group: Box::default(),
            resource: Box::default(),
            subresource: Box::default(),
            namespace: Box::default(),
            name: Box::default(),
            field_selector: Box::default(),
            label_selector: Box::default(),
            verb: Box::default(),
        }
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Principal").field("service_account", &self.service_account).finish_non_exhaustive()
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Check").field("principal", &self.principal).field("verb", &self.verb).finish_non_exhaustive()
    }
}

fn principal<'c>(args: Args<'c, '_>) -> Result<&'c Arc<Principal>> {
    match &args.args[0] {
        Val::Opaque(Opaque::Authorizer(principal)) => Ok(principal),
        _ => Err(Failure::no_overload()),
    }
}

fn path<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let path = args.str(1)?;
    if path.is_empty() {
        return Err(Failure::message("path must not be empty"));
    }
    let check = Check { path: Some(path.into()), ..Check::new(principal(args)?.clone()) };
    Ok(Val::Opaque(Opaque::PathCheck(Arc::new(check))))
}

fn group<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let check = Check { group: args.str(1)?.into(), ..Check::new(principal(args)?.clone()) };
    Ok(Val::Opaque(Opaque::GroupCheck(Arc::new(check))))
}

fn service_account<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let (namespace, name) = (args.str(1)?, args.str(2)?);
    if !apimachinery::names::dns1123_subdomain(name).is_empty() {
        return Err(Failure::message("Invalid service account name"));
    }
    if !apimachinery::names::dns1123_label(namespace).is_empty() {
        return Err(Failure::message("Invalid service account namespace"));
    }
    let authorizer = principal(args)?.authorizer.clone();
    let service_account = Some((namespace.into(), name.into()));
    Ok(Val::Opaque(Opaque::Authorizer(Arc::new(Principal { authorizer, service_account }))))
}

fn refine<'a>(args: Args<'_, 'a>, set: impl Fn(&mut Check, Box<str>)) -> Result<Val<'a>> {
    let (Val::Opaque(Opaque::GroupCheck(check) | Opaque::ResourceCheck(check)), text) = (&args.args[0], args.str(1)?)
    else {
        return Err(Failure::no_overload());
    };
    let mut check = Check::clone(check);
    set(&mut check, text.into());
    Ok(Val::Opaque(Opaque::ResourceCheck(Arc::new(check))))
}

fn check<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let (Val::Opaque(Opaque::PathCheck(check) | Opaque::ResourceCheck(check)), verb) = (&args.args[0], args.str(1)?)
    else {
        return Err(Failure::no_overload());
    };
    let question = Check { verb: verb.into(), ..Check::clone(check) };
    let decision = question.principal.authorizer.authorize(&question);
    Ok(Val::Opaque(Opaque::Decision(Arc::new(decision))))
}

fn read_decision<'a>(args: Args<'_, 'a>, of: impl Fn(&Decision) -> Val<'a>) -> Result<Val<'a>> {
    match args.args {
        [Val::Opaque(Opaque::Decision(decision))] => Ok(of(decision)),
        _ => Err(Failure::no_overload()),
    }
}
