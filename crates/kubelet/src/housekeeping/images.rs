//! Image garbage collection: unused images are removed when the disk is too full or when they exceed the maximum age.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use node_api::cri::v1;
use tokio::time::Instant;

use crate::config::Config;
use crate::context::Context;
use crate::usage::Disk;

/// An unused image.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnusedImage {
    id: String,
    bytes: u64,
    /// Time since the image was last seen in use.
    age: Duration,
}

/// Removes the unused images that `plan` selects. `unused` stores the time since which each image is unused.
pub(super) async fn collect(context: &Context, unused: &mut BTreeMap<String, Instant>, pressing: bool) {
    let mut client = context.runtime.images.clone();
    let images = client.list_images(v1::ListImagesRequest::default()).await;
    let containers = context.runtime.runtime.clone().list_containers(v1::ListContainersRequest::default()).await;
    let (Ok(images), Ok(containers)) = (images, containers) else { return };
    let used: BTreeSet<String> = containers
        .into_inner()
        .containers
        .into_iter()
        .flat_map(|container| [container.image_id, container.image_ref, container.image.unwrap_or_default().image])
        .collect();
    let mut candidates: Vec<UnusedImage> = Vec::new();
    for image in images.into_inner().images {
        let names = image.repo_digests.iter().chain(&image.repo_tags).chain([&image.id]);
        if image.pinned || names.into_iter().any(|name| used.contains(name)) {
            continue;
        }
        let since = unused.entry(image.id.clone()).or_insert_with(Instant::now);
        candidates.push(UnusedImage { id: image.id, bytes: image.size, age: since.elapsed() });
    }
    unused.retain(|id, _| candidates.iter().any(|image| image.id == *id));
    for image in plan(&context.config, candidates, Disk::of(&context.config.root_dir), pressing) {
        let spec = v1::ImageSpec { image: image.id.clone(), ..Default::default() };
        match client.remove_image(v1::RemoveImageRequest { image: Some(spec) }).await {
            Ok(_) => tracing::info!(image = image.id, bytes = image.bytes, "removed an unused image"),
            Err(status) => tracing::warn!(image = image.id, status = status.message(), "failed to remove an image"),
        }
    }
}

/// Returns the images to remove, the longest unused first.
fn plan(config: &Config, mut candidates: Vec<UnusedImage>, disk: Disk, pressing: bool) -> Vec<UnusedImage> {
    candidates.sort_by_key(|image| std::cmp::Reverse(image.age));
    let taken = disk.capacity - disk.available;
    let full = u128::from(taken) * 100 >= u128::from(disk.capacity.max(1)) * u128::from(config.image_gc_high);
    let goal = u128::from(disk.capacity) * u128::from(config.image_gc_low) / 100;
    // Under disk pressure all unused images are removed before a pod is evicted.
    let mut to_free = match (pressing, full) {
        (true, _) => u128::MAX,
        (false, true) => u128::from(taken).saturating_sub(goal),
        (false, false) => 0,
    };
    candidates.retain(|image| {
        let old = !config.image_gc_max_age.is_zero() && image.age > config.image_gc_max_age;
        let goes = old || to_free > 0 && image.age >= config.image_gc_min_age;
        if goes {
            to_free = to_free.saturating_sub(image.bytes.into());
        }
        goes
    });
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_unused_images_are_removed_first_and_expired_ones_always() {
        let check = |percent: u64, max_age: u64, pressing: bool, expect: &[&str]| {
            let mut config = Config::new("n");
            config.image_gc_max_age = Duration::from_secs(max_age);
            let image = |id: &str, age| UnusedImage { id: id.to_owned(), bytes: 5, age: Duration::from_secs(age) };
            let candidates = vec![image("new", 60), image("old", 1000), image("older", 2000)];
            let disk = Disk { capacity: 100, available: 100 - percent, ..Disk::default() };
            let found: Vec<String> =
                plan(&config, candidates, disk, pressing).into_iter().map(|image| image.id).collect();
            assert_eq!(found, expect, "{percent} {max_age} {pressing}");
        };
        check(84, 0, false, &[]);
        check(85, 0, false, &["older"]);
        check(95, 0, false, &["older", "old"]);
        check(84, 0, true, &["older", "old"]);
        check(10, 1500, false, &["older"]);
        check(10, 30, false, &["older", "old", "new"]);
    }
}
