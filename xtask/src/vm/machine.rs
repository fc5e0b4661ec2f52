//! A VM: its qemu process, its disk, and the channel on which scripts run.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};

use super::image::Image;
use super::network::Port;

/// Time limit of a boot until the VM accepts scripts, on a busy host.
const BOOT_MAX: Duration = Duration::from_secs(600);

/// Time limit for qemu to open its sockets.
const QEMU_START_MAX: Duration = Duration::from_secs(30);

/// Properties of a VM.
pub(super) struct Spec {
    pub name: &'static str,
    /// Address with the prefix length of its network.
    pub address: &'static str,
    pub memory_mib: u32,
    /// Offset of the VM's clock at power-on.
    pub clock_offset_seconds: i64,
}

/// A VM that can be powered on and off. Dropping it kills its process.
pub(super) struct Machine {
    spec: &'static Spec,
    dir: PathBuf,
    share: PathBuf,
    port: Port,
    running: Option<Running>,
    scripts: usize,
}

struct Running {
    qemu: Child,
    commands: UnixStream,
    responses: BufReader<UnixStream>,
}

/// Exit code and output of a script.
pub(super) struct ScriptOutput {
    pub code: i32,
    pub output: String,
}

impl Machine {
    /// Creates a VM that is powered off. `dir` contains its disk and sockets, `share` is mounted as `/lab` in all VMs.
    pub(super) fn new(
        spec: &'static Spec,
        image: &Image,
        dir: &Path,
        share: &Path,
        port: Port,
    ) -> anyhow::Result<Self> {
        let machine =
            Self { spec, dir: dir.join(spec.name), share: share.to_path_buf(), port, running: None, scripts: 0 };
        fs::create_dir_all(&machine.dir)?;
        let backed_by = image.disk.display().to_string();
        let disk = machine.dir.join("disk.qcow2");
        let made = Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b", &backed_by])
            .arg(&disk)
            .status()
            .context("cannot start qemu-img")?;
        ensure!(made.success(), "qemu-img failed: {made}");
        Ok(machine)
    }

    /// Powers the VM on and waits until it accepts scripts.
    pub(super) fn power_on(&mut self, image: &Image) -> anyhow::Result<()> {
        let socket = self.dir.join("commands");
        fs::remove_file(&socket).ok();
        // The process is killed with this one, however this one exits.
        let qemu = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(self.arguments(image, &socket))
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start qemu")?;
        let mut qemu = KillOnDrop(Some(qemu));
        let commands = connect(&socket, Instant::now() + QEMU_START_MAX)?;
        let responses = BufReader::new(commands.try_clone()?);
        let qemu = qemu.0.take().context("it was just started")?;
        self.running = Some(Running { qemu, commands, responses });
        self.wait_for_boot()
    }

    /// Waits until the VM accepts scripts, also after a reboot.
    pub(super) fn wait_for_boot(&mut self) -> anyhow::Result<()> {
        let name = self.spec.name;
        let deadline = Instant::now() + BOOT_MAX;
        loop {
            let line =
                self.read_line(deadline).with_context(|| format!("{name} did not boot: {}", self.console_end()))?;
            // The line may start with a response of an earlier script that the reboot cut off.
            if line.ends_with("ready") {
                return Ok(());
            }
        }
    }

    /// Powers the VM off without a shutdown: unwritten data is lost.
    pub(super) fn power_off(&mut self) -> anyhow::Result<()> {
        if let Some(mut running) = self.running.take() {
            running.qemu.kill().context("cannot kill qemu")?;
            running.qemu.wait()?;
        }
        Ok(())
    }

    /// Runs a shell script as root and waits until it exits.
    pub(super) fn run(&mut self, script: &str, limit: Duration) -> anyhow::Result<ScriptOutput> {
        self.scripts += 1;
        let name = format!("{}-{}.sh", self.spec.name, self.scripts);
        fs::write(self.share.join(&name), script)?;
        let deadline = Instant::now() + limit;
        self.send(&name)?;
        let code = loop {
            let line = self.read_line(deadline)?;
            if let Some(code) = line.strip_prefix(&format!("done {name} ")) {
                break code.parse().with_context(|| format!("{line:?} has no exit code"))?;
            }
        };
        let output = fs::read(self.share.join(format!("{name}.out"))).unwrap_or_default();
        Ok(ScriptOutput { code, output: String::from_utf8_lossy(&output).into_owned() })
    }

    /// Starts a script that reboots the VM, and waits for the boot.
    pub(super) fn run_and_boot(&mut self, script: &str) -> anyhow::Result<()> {
        self.scripts += 1;
        let name = format!("{}-{}.sh", self.spec.name, self.scripts);
        fs::write(self.share.join(&name), script)?;
        self.send(&name)?;
        self.wait_for_boot()
    }

    fn send(&mut self, script: &str) -> anyhow::Result<()> {
        let name = self.spec.name;
        let running = self.running.as_mut().with_context(|| format!("{name} is off"))?;
        writeln!(running.commands, "{script}").with_context(|| format!("{name} does not accept scripts"))
    }

    /// Returns the next line from the VM.
    fn read_line(&mut self, deadline: Instant) -> anyhow::Result<String> {
        let name = self.spec.name;
        let running = self.running.as_mut().with_context(|| format!("{name} is off"))?;
        let mut line = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "{name} did not respond in time");
            running.responses.get_ref().set_read_timeout(Some(left))?;
            match running.responses.read_until(b'\n', &mut line) {
                Ok(0) => bail!("{name} powered off unexpectedly"),
                Ok(_) => return Ok(String::from_utf8_lossy(&line).trim().to_owned()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read from {name}")),
            }
        }
    }

    /// Returns the last lines of the serial console.
    fn console_end(&self) -> String {
        let console = fs::read(self.dir.join("console")).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let lines: Vec<&str> = console.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn arguments(&self, image: &Image, socket: &Path) -> Vec<String> {
        let Spec { name, address, memory_mib, clock_offset_seconds } = self.spec;
        let own = |file: &str| self.dir.join(file).display().to_string();
        let last = address.split(['.', '/']).nth(3).unwrap_or("1");
        let append = format!(
            "root=/dev/vda rw console=ttyS0 quiet net.ifnames=0 systemd.show_status=0 systemd.hostname={name} vm.address={address}"
        );
        let clock = match clock_offset_seconds {
            0 => "base=utc".to_owned(),
            offset => format!("base={}", utc(SystemTime::now(), *offset)),
        };
        let options: [(&str, String); 17] = [
            ("-accel", "tcg,thread=multi".to_owned()),
            ("-cpu", "max".to_owned()),
            ("-smp", "2".to_owned()),
            ("-m", memory_mib.to_string()),
            ("-display", "none".to_owned()),
            ("-serial", format!("file:{}", own("console"))),
            ("-rtc", clock),
            ("-kernel", image.kernel.display().to_string()),
            ("-initrd", image.initrd.display().to_string()),
            ("-append", append),
            ("-drive", format!("file={},format=qcow2,if=virtio", own("disk.qcow2"))),
            ("-device", "virtio-rng-pci".to_owned()),
            ("-device", "virtio-serial-pci".to_owned()),
            ("-chardev", format!("socket,id=commands,path={},server=on,wait=off", socket.display())),
            ("-device", "virtserialport,chardev=commands,name=commands".to_owned()),
            ("-virtfs", format!("local,path={},mount_tag=lab,security_model=none,id=lab", self.share.display())),
            (
                "-netdev",
                format!(
                    "dgram,id=net,local.type=unix,local.path={},remote.type=unix,remote.path={}",
                    self.port.machine.display(),
                    self.port.hub.display()
                ),
            ),
        ];
        let mut arguments = vec!["-nodefaults".to_owned(), "-no-user-config".to_owned()];
        arguments.extend(options.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
        arguments.extend(["-device".to_owned(), format!("virtio-net-pci,netdev=net,mac=52:54:00:00:00:{last:0>2}")]);
        arguments
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Err(error) = self.power_off() {
            eprintln!("{}: {error:#}", self.spec.name);
        }
    }
}

/// A process that is killed on drop unless it was taken out.
struct KillOnDrop(Option<Child>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn connect(socket: &Path, deadline: Instant) -> anyhow::Result<UnixStream> {
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline => return Err(error).context("qemu did not start"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Formats a time for qemu's `-rtc`.
fn utc(now: SystemTime, offset_seconds: i64) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = i64::try_from(since).unwrap_or(0) + offset_seconds;
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (mut year, mut day) = (1970, days);
    let length = |year: i64| if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) { 366 } else { 365 };
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    let mut month = 1;
    for days in [31, length(year) - 337, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}T{:02}:{:02}:{:02}", day + 1, second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rtc_times_are_in_utc() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(utc(at(0), 0), "1970-01-01T00:00:00");
        assert_eq!(utc(at(1_709_210_096), 0), "2024-02-29T12:34:56");
        assert_eq!(utc(at(1_709_210_096), 86_400), "2024-03-01T12:34:56");
        assert_eq!(utc(at(1_709_210_096), -3_600), "2024-02-29T11:34:56");
        assert_eq!(utc(at(1_735_689_599), 1), "2025-01-01T00:00:00");
    }
}
