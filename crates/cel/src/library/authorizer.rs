//! What the user of a request, or a service account, may do: the host answers.

use std::fmt;
use std::sync::Arc;

use super::opaque::Opaque;
use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

/// Answers questions of authorization. Called while an expression runs, so it must not wait.
pub trait Authorizer: Send + Sync {
    /// Whether it is allowed.
    fn authorize(&self, question: &Check) -> Decision;
}

/// Who may be asked about.
pub struct Principal {
    authorizer: Arc<dyn Authorizer>,
    /// The service account, none for the user of the request.
    service_account: Option<(Box<str>, Box<str>)>,
}

/// A question, as far as it has been put.
#[derive(Clone)]
pub struct Check {
    principal: Arc<Principal>,
    /// A path such as `/healthz`, if it is about one.
    pub path: Option<Box<str>>,
    /// The API group.
    pub group: Box<str>,
    /// The resource in plural.
    pub resource: Box<str>,
    /// The subresource, or nothing.
    pub subresource: Box<str>,
    /// The namespace, or nothing.
    pub namespace: Box<str>,
    /// The object's name, or nothing.
    pub name: Box<str>,
    /// A field selector as written, or nothing.
    pub field_selector: Box<str>,
    /// A label selector as written, or nothing.
    pub label_selector: Box<str>,
    /// The verb.
    pub verb: Box<str>,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: Box<str>,
    /// What went wrong while asking, if anything.
    pub error: Option<Box<str>>,
}

/// The functions.
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
    row("Decision.allowed() -> bool", Cost::Unit, |args| answer(args, |decision| Val::Bool(decision.allowed))),
    row("Decision.reason() -> string", Cost::Unit, |args| answer(args, |decision| Val::text(&*decision.reason))),
    row("Decision.errored() -> bool", Cost::Unit, |args| answer(args, |decision| Val::Bool(decision.error.is_some()))),
    row("Decision.error() -> string", Cost::Unit, |args| {
        answer(args, |decision| Val::text(decision.error.as_deref().unwrap_or_default()))
    }),
];

/// Since selectors can be part of a question.
pub const SELECTORS: &[Row] = &[
    row("ResourceCheck.fieldSelector(string) -> ResourceCheck", Cost::Selector, |args| {
        refine(args, |check, text| check.field_selector = text)
    }),
    row("ResourceCheck.labelSelector(string) -> ResourceCheck", Cost::Selector, |args| {
        refine(args, |check, text| check.label_selector = text)
    }),
];

impl Check {
    /// The namespace and name of the service account it is about, none for the user of the request.
    pub fn service_account(&self) -> Option<(&str, &str)> {
        self.principal.service_account.as_ref().map(|(namespace, name)| (&**namespace, &**name))
    }
}

impl<'a> Val<'a> {
    /// The variable `authorizer`: the user of the request, asked about through the host.
    pub fn authorizer(authorizer: Arc<dyn Authorizer>) -> Self {
        Val::Opaque(Opaque::Authorizer(Arc::new(Principal { authorizer, service_account: None })))
    }

    /// The variable `authorizer.requestResource`: a question about the resource of the request.
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
    if !machinery::names::dns1123_subdomain(name).is_empty() {
        return Err(Failure::message("Invalid service account name"));
    }
    if !machinery::names::dns1123_label(namespace).is_empty() {
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

fn answer<'a>(args: Args<'_, 'a>, of: impl Fn(&Decision) -> Val<'a>) -> Result<Val<'a>> {
    match args.args {
        [Val::Opaque(Opaque::Decision(decision))] => Ok(of(decision)),
        _ => Err(Failure::no_overload()),
    }
}
