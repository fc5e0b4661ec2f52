//! Disk image of all VMs: Debian 12, built by mmdebstrap and cached.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::process::exec;

/// Debian release with kernel 6.1, systemd 252 and cgroup v2.
const SUITE: &str = "bookworm";

/// Packages installed in a VM.
const PACKAGES: &[&str] = &[
    "busybox-static",
    "ca-certificates",
    "curl",
    "dbus",
    "iproute2",
    "kmod",
    "kubernetes-client",
    "linux-image-amd64",
    "nfs-common",
    "nfs-kernel-server",
    "nftables",
    "procps",
    "systemd-sysv",
    "udev",
];

/// Size of the file system; the file is sparse.
const DISK_SIZE: &str = "8G";

/// Files of the image that are not part of a package.
const FILES: &[(&str, &str)] = &[
    (
        "etc/fstab",
        "/dev/vda / ext4 errors=remount-ro 0 1\nlab /lab 9p trans=virtio,version=9p2000.L,msize=524288,cache=none 0 0\n",
    ),
    // Only the modules that the initramfs needs, which makes it a quarter of its usual size.
    ("etc/initramfs-tools/conf.d/vm", "MODULES=list\nCOMPRESS=zstd\n"),
    ("etc/modules-load.d/vm.conf", "9p\n9pnet_virtio\nvirtio_net\n"),
    (
        "etc/systemd/system/vm-network.service",
        "[Unit]
Description=The address of the kernel command line
Before=network-pre.target network-online.target network.target
Wants=network-pre.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /usr/local/lib/vm/network
[Install]
WantedBy=multi-user.target network-online.target
",
    ),
    (
        "usr/local/lib/vm/network",
        "set -eu
address=$(sed -n 's/.*vm.address=\\([^ ]*\\).*/\\1/p' /proc/cmdline)
ip link set eth0 up
ip address replace \"$address\" dev eth0
ip route replace default via \"${address%.*}.254\"
",
    ),
    (
        "etc/systemd/system/vm-commands.service",
        "[Unit]
Description=Scripts from outside
RequiresMountsFor=/lab
After=network.target
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh /usr/local/lib/vm/commands
Restart=always
RestartSec=1
KillMode=process
[Install]
WantedBy=multi-user.target
",
    ),
    // Protocol: a line names a script, its output goes to a file beside it, a line returns its exit code. If the port
    // appears after the service has started, the service is restarted.
    (
        "usr/local/lib/vm/commands",
        "port=/dev/virtio-ports/commands
[ -c $port ] || exit 1
exec 3<>$port
echo ready >&3
while read -r script <&3; do
    /bin/sh \"/lab/$script\" >\"/lab/$script.out\" 2>&1 </dev/null 3>&-
    echo \"done $script $?\" >&3
done
",
    ),
];

/// Runs in the root of the image after its packages are installed.
const CUSTOMIZE: &str = r#"
for module in virtio_pci virtio_blk ext4 crc32c_generic; do echo $module; done >>"$1/etc/initramfs-tools/modules"
chroot "$1" update-initramfs -u
chroot "$1" systemctl enable vm-network vm-commands
chroot "$1" systemctl disable nfs-server.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
chroot "$1" useradd --create-home user
mkdir "$1/lab"
: >"$1/etc/machine-id"
"#;

/// A disk image and its kernel. VMs never change them.
pub(super) struct Image {
    pub disk: PathBuf,
    pub kernel: PathBuf,
    pub initrd: PathBuf,
}

impl Image {
    /// Returns the image below `cache`. Builds it if it does not exist, was built from another recipe, or `fresh` is
    /// set.
    pub(super) fn open_or_build(cache: &Path, fresh: bool) -> anyhow::Result<Self> {
        let dir = cache.join(SUITE);
        let image = Self { disk: dir.join("disk"), kernel: dir.join("vmlinuz"), initrd: dir.join("initrd.img") };
        let made_by = dir.join("recipe");
        let recipe = format!("{SUITE} {PACKAGES:?} {DISK_SIZE} {FILES:?} {CUSTOMIZE}");
        if !fresh && fs::read_to_string(&made_by).is_ok_and(|made_by| made_by == recipe) {
            println!("using the image in {}; --fresh makes it again", dir.display());
            return Ok(image);
        }
        remove(&dir)?;
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        image.build(&dir)?;
        // Written last: an image whose build was interrupted has no recipe.
        fs::write(&made_by, recipe).with_context(|| format!("cannot write {}", made_by.display()))?;
        Ok(image)
    }

    fn build(&self, dir: &Path) -> anyhow::Result<()> {
        let (files, root) = (dir.join("files"), dir.join("root"));
        for (path, text) in FILES {
            let path = files.join(path);
            fs::create_dir_all(path.parent().context("every file has a directory")?)?;
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let packages = format!("--include={}", PACKAGES.join(","));
        let add_files = format!("--customize-hook=cp -r {}/. \"$1\"", files.display());
        let customize = format!("--customize-hook={CUSTOMIZE}");
        let without =
            ["doc", "info", "locale", "man"].map(|kind| format!("--dpkgopt=path-exclude=/usr/share/{kind}/*"));
        let mut args = vec!["--variant=minbase", "--quiet", &packages, &add_files, &customize];
        args.extend(without.iter().map(String::as_str));
        let to = root.display().to_string();
        args.extend([SUITE, &to]);
        exec("mmdebstrap", &args, &[])?;
        for (name, to) in [("vmlinuz-", &self.kernel), ("initrd.img-", &self.initrd)] {
            let from = only_file(&root.join("boot"), name)?;
            fs::copy(&from, to).with_context(|| format!("cannot copy {}", from.display()))?;
        }
        let disk = self.disk.display().to_string();
        exec("mke2fs", &["-q", "-t", "ext4", "-d", &to, &disk, DISK_SIZE], &[])?;
        remove(&root)?;
        remove(&files)
    }
}

/// Returns the only file of a directory whose name starts with `prefix`.
fn only_file(dir: &Path, prefix: &str) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut found = entries.collect::<Result<Vec<_>, _>>()?;
    found.retain(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    ensure!(found.len() == 1, "{} has {} files called {prefix}*, not one", dir.display(), found.len());
    Ok(found.remove(0).path())
}

fn remove(dir: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}
