//! Server-side apply of one object.

use client::{Patch, WriteOptions};

use super::{Apply, migrate, warn_if_deleting};
use crate::Failure;
use crate::resources::Info;

/// Advice on conflicts with other field managers, appended to the error message.
const CONFLICT_HELP: &str = "
Please review the fields above--they currently have other managers. Here
are the ways you can resolve this warning:
* If you intend to manage all of these fields, please re-run the apply
  command with the `--force-conflicts` flag.
* If you do not intend to manage all of the fields, please edit your
  manifest to remove references to the fields that should keep their
  current managers.
* You may co-own fields by updating your manifest to match the existing
  value; in this case, you'll become the manager if the other manager(s)
  stop managing the field (remove it from their configuration).
See https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts";

const UNSUPPORTED_MEDIA_TYPE: u16 = 415;

impl Apply<'_> {
    pub(super) async fn apply_on_server(&mut self, info: &mut Info) -> Result<(), Failure> {
        let configuration = info.object.clone();
        let options = WriteOptions { force: self.invocation.bool("force-conflicts"), ..self.options.clone() };
        let subresource = self.invocation.text("subresource");
        let patch = Patch::Apply(configuration);
        let applied = self.client.patch(&info.target().subresource(subresource), &patch, &options).await;
        let applied = applied.map_err(|error| explain(error.into()))?;
        info.refresh(applied);
        let migration = migrate::Migration { client: &self.client, options: &self.options };
        if let Some(warning) = migration.run(info, &patch, &options).await {
            super::write_warning(self.context, &warning);
        }
        warn_if_deleting(self.context, &info.object);
        self.visited.add(&info.object);
        self.print(info, "serverside-applied")
    }
}

fn explain(failure: Failure) -> Failure {
    let Some(status) = failure.status() else { return failure };
    if status.code == UNSUPPORTED_MEDIA_TYPE {
        return Failure::new(format!("Server-side apply not available on the server: ({})", status.message));
    }
    if failure.is_conflict() {
        return Failure::new(format!("{}{CONFLICT_HELP}", status.message));
    }
    failure
}
