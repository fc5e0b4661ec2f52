//! Host properties: capacity, identity and versions, as reported by the kernel.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

/// The properties of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    pub cpus: i64,
    pub memory_bytes: i64,
    pub swap_bytes: i64,
    /// Size of the filesystem of the kubelet's directory.
    pub disk_bytes: i64,
    /// Huge pages by page size, in bytes.
    pub hugepages: Vec<(String, i64)>,
    /// From `/etc/machine-id`.
    pub machine_id: String,
    /// DMI product UUID; the machine ID if the host has none.
    pub system_uuid: String,
    /// Changes at every boot.
    pub boot_id: String,
    /// Kernel version.
    pub kernel: String,
    /// Name of the distribution, for display.
    pub os: String,
    /// GOARCH name of the CPU architecture.
    pub architecture: &'static str,
}

impl Machine {
    /// Reads the host's properties; unreadable ones are empty.
    pub fn read(root_dir: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let memory = text("/proc/meminfo");
        let disk = rustix::fs::statvfs(root_dir);
        Self {
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as i64),
            memory_bytes: field(&memory, "MemTotal:").unwrap_or(0) * 1024,
            swap_bytes: field(&memory, "SwapTotal:").unwrap_or(0) * 1024,
            disk_bytes: disk.map_or(0, |disk| (disk.f_blocks * disk.f_frsize) as i64),
            hugepages: hugepages(),
            machine_id: text("/etc/machine-id"),
            system_uuid: Some(text("/sys/class/dmi/id/product_uuid"))
                .filter(|id| !id.is_empty())
                .unwrap_or_else(|| text("/etc/machine-id")),
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            os: os_name(&text("/etc/os-release")),
            architecture: match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            },
        }
    }
}

/// Returns the host name in lower case, which upstream uses as default node name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().trim().to_ascii_lowercase()
}

/// Returns the source address of the default route.
pub fn default_address() -> Option<IpAddr> {
    let from = |bind: &str, to: &str| {
        let socket = UdpSocket::bind(bind).ok()?;
        // Connecting a UDP socket sends nothing; the kernel only selects the route.
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
    };
    from("0.0.0.0:0", "192.0.2.1:9").or_else(|| from("[::]:0", "[2001:db8::1]:9"))
}

fn field(text: &str, name: &str) -> Option<i64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn hugepages() -> Vec<(String, i64)> {
    let entries = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let mut found: Vec<(String, i64)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let kib: i64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let count: i64 = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
            let size = if kib % (1 << 20) == 0 { format!("{}Gi", kib >> 20) } else { format!("{}Mi", kib >> 10) };
            Some((size, count * kib * 1024))
        })
        .collect();
    found.sort();
    found
}

fn os_name(release: &str) -> String {
    let line = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or_default().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_of_this_host_are_read() {
        let machine = Machine::read(Path::new("/"));
        assert!(machine.cpus > 0 && machine.memory_bytes > 1 << 20 && machine.disk_bytes > 1 << 20, "{machine:?}");
        assert!(!machine.kernel.is_empty() && !machine.boot_id.is_empty(), "{machine:?}");
        assert_eq!(os_name("A=b\nPRETTY_NAME=\"Some Linux 1\"\n"), "Some Linux 1");
    }
}
