//! NodeRestriction for tokens: a kubelet can request tokens of its pods' service accounts, for audiences that the pods
//! specify.

use api::resources::{CSI_DRIVERS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS};
use apimachinery::GroupResource;
use apimachinery::Value;
use apimachinery::go;
use apimachinery::meta::Meta;
use apimachinery::status::{GroupName, Status};
use auth::node::audience::{self, Source};
use auth::{Resource, Target};

use super::super::pods::spec;
use super::{AdmissionResult, KubeletRequest};

impl KubeletRequest<'_> {
    pub(super) fn token(&self) -> AdmissionResult {
        let bound = &self.object["spec"]["boundObjectRef"];
        let (name, uid) = (bound.text_at(&["name"]), bound.text_at(&["uid"]));
        if bound.text_at(&["apiVersion"]) != "v1" || bound.text_at(&["kind"]) != "Pod" || name.is_empty() {
            return self.forbid("node requested token not bound to a pod");
        }
        if uid.is_empty() {
            return self.forbid("node requested token with a pod binding without a uid");
        }
        let Some(pod) = self.view.object(PODS, self.attributes.namespace, name) else {
            return Err(Status::not_found(GroupName::new("", "pods"), name));
        };
        if Meta::of(&pod).uid() != uid {
            return self.forbid(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
                 been deleted and then recreated"
            ));
        }
        if spec(&pod).text_at(&["nodeName"]) != self.node {
            return self.forbid("node requested token bound to a pod scheduled on a different node");
        }
        self.token_audience(&pod)
    }

    fn token_audience(&self, pod: &Value) -> AdmissionResult {
        let audience = match audience::requested(self.object) {
            Ok(audience) => audience,
            Err(error) => return self.forbid(error),
        };
        match self.names_audience(pod, audience) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => {
                return self.forbid(format!("error validating audience {}: {error}", go::quote(audience)));
            }
        }
        let attributes = self.attributes;
        let resource = Resource {
            version: "v1",
            resource: audience,
            namespace: attributes.namespace,
            name: attributes.name,
            ..Resource::default()
        };
        let target = Target::Resource(resource);
        if self.view.allows(&auth::Attributes { user: attributes.user, verb: audience::VERB, target }) {
            return Ok(());
        }
        let (user, audience) = (&attributes.user.name, go::quote(audience));
        self.forbid(format!("{user} is not authorized to request tokens for audience {audience}"))
    }

    /// Whether the pod specifies the audience in a projected volume or through a CSI driver's token requests. Fails if
    /// no source matches and one of the drivers is unknown.
    fn names_audience(&self, pod: &Value, audience: &str) -> Result<bool, String> {
        if audience::is_projected(pod, audience) {
            return Ok(true);
        }
        let mut errors = Vec::new();
        for source in audience::sources(pod) {
            match self.is_requested_by(&source, audience) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => errors.push(error),
            }
        }
        match errors.as_slice() {
            [] => Ok(false),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }

    fn is_requested_by(&self, source: &Source<'_>, audience: &str) -> Result<bool, String> {
        let get = |resource: GroupResource, namespace: &str, name: &str| {
            let found = self.view.object(resource, namespace, name);
            found.ok_or_else(|| Status::not_found(GroupName::new(resource.group, resource.plural), name).message)
        };
        let driver = match source {
            Source::Driver(driver) => (*driver).to_owned(),
            Source::Claim(claim) => {
                let claim = get(PERSISTENT_VOLUME_CLAIMS, self.attributes.namespace, claim)?;
                let volume = get(PERSISTENT_VOLUMES, "", spec(&claim).text_at(&["volumeName"]))?;
                match audience::driver_of(spec(&volume)) {
                    Some(driver) => driver.to_owned(),
                    None => return Ok(false),
                }
            }
        };
        Ok(audience::is_requested_by(&*get(CSI_DRIVERS, "", &driver)?, audience))
    }
}
