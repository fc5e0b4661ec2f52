//! Audiences for which a kubelet may request service account tokens: only those that its pods use.

use apimachinery::Value;
use apimachinery::meta::Meta;

/// The verb that allows a kubelet other audiences.
pub const VERB: &str = "request-serviceaccounts-token-audience";

/// A request for more than one audience.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("node may only request 0 or 1 audiences")]
pub struct TooMany;

/// Returns the audience of a TokenRequest; empty for the API server's audiences.
pub fn requested(request: &Value) -> Result<&str, TooMany> {
    match request.list_at(&["spec", "audiences"]) {
        [] => Ok(""),
        [one] => Ok(one.as_str().unwrap_or_default()),
        _ => Err(TooMany),
    }
}

/// Whether a projected volume of the pod has a token for the audience.
pub fn is_projected(pod: &Value, audience: &str) -> bool {
    volumes(pod).any(|volume| {
        let sources = volume.list_at(&["projected", "sources"]);
        let mut tokens =
            sources.iter().filter_map(|source| source.get("serviceAccountToken").filter(|token| !token.is_null()));
        tokens.any(|token| token.text_at(&["audience"]) == audience)
    })
}

/// The CSI driver of a pod's volume, which may request tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// The volume names the driver.
    Driver(&'a str),
    /// The volume is a claim, and its PersistentVolume names the driver.
    Claim(String),
}

/// In-tree volume types that are migrated to CSI drivers.
const MIGRATED: &[(&str, &str)] = &[
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("portworxVolume", "pxd.portworx.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
];

/// Returns the CSI drivers of a pod's volumes.
pub fn sources(pod: &Value) -> impl Iterator<Item = Source<'_>> {
    volumes(pod).filter_map(|volume| {
        if volume.at(&["ephemeral", "volumeClaimTemplate"]).is_some_and(|template| !template.is_null()) {
            let name = volume.text_at(&["name"]);
            return Some(Source::Claim(format!("{}-{name}", Meta::of(pod).name())));
        }
        let claim = volume.str_at(&["persistentVolumeClaim", "claimName"]);
        claim.map(|claim| Source::Claim(claim.to_owned())).or_else(|| driver_of(volume).map(Source::Driver))
    })
}

/// Returns the CSI driver of a pod's volume, or of the `spec` of a PersistentVolume.
pub fn driver_of(volume: &Value) -> Option<&str> {
    let migrated = MIGRATED.iter().find(|(kind, _)| volume.get(kind).is_some_and(|value| !value.is_null()));
    volume.str_at(&["csi", "driver"]).or(migrated.map(|(_, driver)| *driver))
}

/// Whether a CSIDriver requests tokens for the audience.
pub fn is_requested_by(driver: &Value, audience: &str) -> bool {
    let requests = driver.list_at(&["spec", "tokenRequests"]);
    requests.iter().any(|request| request.text_at(&["audience"]) == audience)
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.list_at(&["spec", "volumes"]).iter()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn pod_uses_audiences_of_volumes_and_csi_drivers() {
        let pod = value!({"spec": {"volumes": [
            {"projected": {"sources": [{"serviceAccountToken": {"audience": "vault"}}, {"serviceAccountToken": {}}]}},
            {"csi": {"driver": "secrets.example"}},
            {"persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            {"azureFile": {"shareName": "s"}},
            {"emptyDir": {}},
        ]}, "metadata": {"name": "p"}});
        assert!(is_projected(&pod, "vault") && is_projected(&pod, ""));
        assert!(!is_projected(&pod, "other"));
        assert!(!is_projected(&value!({}), ""));
        let claim = |name: &str| Source::Claim(name.to_owned());
        let (own, migrated) = (Source::Driver("secrets.example"), Source::Driver("file.csi.azure.com"));
        assert_eq!(sources(&pod).collect::<Vec<_>>(), [own, claim("data"), claim("p-scratch"), migrated]);
        let driver = value!({"spec": {"tokenRequests": [{"audience": "gcp"}]}});
        assert!(is_requested_by(&driver, "gcp") && !is_requested_by(&driver, ""));
    }

    #[test]
    fn only_one_audience_may_be_requested() {
        let check =
            |audiences: Value, expect| assert_eq!(requested(&value!({"spec": {"audiences": audiences}})), expect);
        check(Value::Null, Ok(""));
        check(value!(["a"]), Ok("a"));
        check(value!(["a", "b"]), Err(TooMany));
    }
}
