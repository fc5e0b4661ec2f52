//! The manifests directory: applies the objects in its files, and deletes those that are no longer there.
//!
//! ```text
//! files ──read──> Directory ──resolve──┐
//!                 discovery ───────────┴─> Desired ──┐
//!                 members of the ApplySet, others ───┴─plan──> Plan ──execute──> server-side apply, delete
//!                                                                       └──> parent: report, Events
//! ```
//!
//! The objects of a directory are an ApplySet (KEP-3659), whose parent is a ConfigMap. What a directory has created is
//! known from the cluster alone: each member has the label of the set and the name of its file as an annotation.
//!
//! # Invariants
//!
//! - An object is deleted only if this directory created it, and a file without it was read completely. *Enforced by*
//!   `objects_are_deleted_only_if_their_file_was_read_without_them`.
//! - The parent names the kind of an object before the object is applied, so that every member is found later.
//!   *Enforced by* `parent_names_all_kinds_before_objects_are_applied`.

mod cluster;
mod directory;
mod document;
mod execute;
mod plan;
mod report;
mod run;

pub use report::{MANAGER, REPORT, reports};
pub use run::{Config, run};
