//! NFS volumes, mounted with the kernel's own client: no mount helper is needed.

use std::ffi::CString;
use std::io;
use std::net::ToSocketAddrs;
use std::path::Path;

use apimachinery::Value;
use rustix::mount::MountFlags;

const PORT: u16 = 2049;

/// An NFS export and its mount options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Export {
    server: String,
    path: String,
    read_only: bool,
    options: Vec<String>,
}

impl Export {
    /// Reads an `nfs` source and the mount options of its PersistentVolume, if any.
    pub(super) fn read(source: &Value, persistent: Option<&Value>) -> Self {
        let text = |field: &str| source.str_at(&[field]).unwrap_or_default().to_owned();
        let options = persistent.and_then(|spec| spec["mountOptions"].as_array()).unwrap_or_default();
        Self {
            server: text("server"),
            path: text("path"),
            read_only: source["readOnly"].as_bool().unwrap_or(false),
            options: options.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }

    /// Mounts the export; blocks until the server responds or the kernel times out.
    // DEVIATION: NFS volumes use version 4 unless their mount options specify another; there is no retry with version
    // 3.
    pub(super) fn mount(&self, target: &Path) -> io::Result<()> {
        let mut addresses = (self.server.as_str(), PORT).to_socket_addrs()?;
        let address = addresses.next().ok_or_else(|| io::Error::other("the server has no address"))?;
        let data = CString::new(self.data(&address.ip().to_string()))?;
        let source = format!("{}:{}", self.server, self.path);
        Ok(rustix::mount::mount(source.as_str(), target, "nfs", self.flags(), Some(data.as_c_str()))?)
    }

    fn flags(&self) -> MountFlags {
        let has_option = |name: &str| self.options.iter().any(|option| option == name);
        let mut flags = MountFlags::empty();
        for (name, flag) in [
            ("noatime", MountFlags::NOATIME),
            ("nodev", MountFlags::NODEV),
            ("noexec", MountFlags::NOEXEC),
            ("nosuid", MountFlags::NOSUID),
        ] {
            if has_option(name) {
                flags |= flag;
            }
        }
        if self.read_only || has_option("ro") { flags | MountFlags::RDONLY } else { flags }
    }

    /// Returns the mount data: the options that mount.nfs would determine, and the requested ones.
    fn data(&self, address: &str) -> String {
        let general = ["ro", "rw", "noatime", "nodev", "noexec", "nosuid", "defaults"];
        let mut options: Vec<&str> =
            self.options.iter().map(String::as_str).filter(|option| !general.contains(option)).collect();
        let versioned = options.iter().any(|option| option.starts_with("vers=") || option.starts_with("nfsvers="));
        if !versioned {
            options.push("vers=4.2");
        }
        format!("{},addr={address}", options.join(","))
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn nfs_mount_data_follows_the_volume() {
        let check = |source: Value, options: Value, data: &str, read_only: bool| {
            let export = Export::read(&source, Some(&value!({"mountOptions": options})));
            assert_eq!(export.data("192.0.2.1"), data);
            assert_eq!(export.flags().contains(MountFlags::RDONLY), read_only);
        };
        let source = value!({"server": "s", "path": "/p"});
        check(source.clone(), value!([]), "vers=4.2,addr=192.0.2.1", false);
        check(source.clone(), value!(["ro", "vers=4.1", "hard"]), "vers=4.1,hard,addr=192.0.2.1", true);
        check(
            value!({"server": "s", "path": "/p", "readOnly": true}),
            value!(["noatime"]),
            "vers=4.2,addr=192.0.2.1",
            true,
        );
    }
}
