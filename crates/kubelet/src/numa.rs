//! NUMA nodes of the host: their CPUs and memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cpus::parse_list;
use crate::memory::allocator::Amount;

const ROOT: &str = "/sys/devices/system/node";

/// Returns the NUMA node of each CPU.
pub(crate) fn of_processors() -> BTreeMap<u32, u32> {
    let mut found = BTreeMap::new();
    for (node, dir) in nodes(Path::new(ROOT)) {
        let list = fs::read_to_string(dir.join("cpulist")).unwrap_or_default();
        found.extend(parse_list(&list).unwrap_or_default().into_iter().map(|cpu| (cpu, node)));
    }
    found
}

/// Returns the memory of each NUMA node by kind. A host without NUMA information has one node with all memory.
pub(crate) fn memory(machine_bytes: u64) -> BTreeMap<u32, BTreeMap<String, Amount>> {
    let found = memory_at(Path::new(ROOT));
    if found.is_empty() {
        return BTreeMap::from([(0, BTreeMap::from([("memory".to_owned(), machine_bytes)]))]);
    }
    found
}

fn memory_at(root: &Path) -> BTreeMap<u32, BTreeMap<String, Amount>> {
    let mut all = BTreeMap::new();
    for (node, dir) in nodes(root) {
        let mut kinds = BTreeMap::new();
        let mut in_pages = 0;
        for entry in fs::read_dir(dir.join("hugepages")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let size = name.to_str().and_then(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok());
            let Some(kib) = size.filter(|kib: &u64| *kib > 0) else { continue };
            let count = fs::read_to_string(entry.path().join("nr_hugepages")).unwrap_or_default();
            let bytes = count.trim().parse::<u64>().unwrap_or(0) * kib * 1024;
            in_pages += bytes;
            kinds.insert(format!("hugepages-{}", page_name(kib)), bytes);
        }
        let text = fs::read_to_string(dir.join("meminfo")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.split_once("MemTotal:")).map(|(_, rest)| rest);
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        if let Some(kib) = kib {
            kinds.insert("memory".to_owned(), (kib * 1024).saturating_sub(in_pages));
            all.insert(node, kinds);
        }
    }
    all
}

/// Returns a huge page size as in resource names: `2Mi`, `1Gi`.
fn page_name(kib: u64) -> String {
    match kib {
        kib if kib % (1 << 20) == 0 => format!("{}Gi", kib >> 20),
        kib if kib % (1 << 10) == 0 => format!("{}Mi", kib >> 10),
        kib => format!("{kib}Ki"),
    }
}

fn nodes(root: &Path) -> BTreeMap<u32, PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let number = |path: PathBuf| Some((path.file_name()?.to_str()?.strip_prefix("node")?.parse().ok()?, path));
    entries.filter_map(|entry| number(entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numa_nodes_are_read_from_sysfs() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("node0/meminfo", "Node 0 MemTotal:       4096 kB\nNode 0 MemFree: 1 kB\n");
        write("node0/hugepages/hugepages-2048kB/nr_hugepages", "1\n");
        write("node1/meminfo", "Node 1 MemTotal:       1024 kB\n");
        write("node1/hugepages/hugepages-1048576kB/nr_hugepages", "0\n");
        write("node2/meminfo", "nonsense");
        write("online", "0-1");
        let amounts = |list: &[(&str, Amount)]| list.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
        let expect: BTreeMap<u32, BTreeMap<String, Amount>> = BTreeMap::from([
            (0, amounts(&[("hugepages-2Mi", 2 << 20), ("memory", 2 << 20)])),
            (1, amounts(&[("hugepages-1Gi", 0), ("memory", 1 << 20)])),
        ]);
        assert_eq!(memory_at(dir.path()), expect);
        assert_eq!(memory_at(&dir.path().join("absent")), BTreeMap::new());
        assert!(memory(7).values().all(|kinds| kinds.contains_key("memory")));
    }
}
