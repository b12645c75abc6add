//! A stock Debian kernel in an emulated machine, of this processor or of ARM, which boots into a script of ours.

use lab::{Lab, Process, has_program, wait_until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The programs of busybox that scripts use.
const APPLETS: &str = "sh mount insmod cat ip ping nc md5sum sed dd sleep echo ls poweroff hostname killall chmod mkdir ln grep mknod";

/// What is emulated.
pub struct Board {
    emulator: &'static str,
    /// Arguments of qemu.
    machine: &'static [&'static str],
    /// Arguments of the kernel: where its console is.
    boot: &'static str,
}

/// One of this processor.
pub const X86: Board = Board {
    emulator: "qemu-system-x86_64",
    machine: &["-m", "512"],
    // On a busy host the timer is too late for the kernel's check of it, and it gives up.
    boot: "console=ttyS0 no_timer_check",
};

/// A small router: one core of 64-bit ARM. 128 of its 256 MB hold the program in a RAM disk, as tests have it.
pub const ARM64: Board = Board {
    emulator: "qemu-system-aarch64",
    machine: &["-M", "virt", "-cpu", "cortex-a53", "-m", "256"],
    boot: "console=ttyAMA0",
};

/// An older one: one core of 32-bit ARM, whose kernel has no addresses beyond 4 GB.
pub const ARM32: Board = Board {
    emulator: "qemu-system-arm",
    machine: &["-M", "virt,highmem=off", "-cpu", "cortex-a15", "-m", "256"],
    boot: "console=ttyAMA0",
};

impl Board {
    /// The program that emulates it.
    pub fn emulator(&self) -> &'static str {
        self.emulator
    }
}

/// The folder of the kernel and its modules; says aloud if that, or a program that is `needed`, is missing.
pub fn kernel(needed: &[&str]) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.peers/kernel");
    let programs = ["qemu-system-x86_64", "cpio", "busybox"].iter().chain(needed);
    let missing: Vec<&str> = programs.copied().filter(|program| !has_program(program)).collect();
    if !folder.join("order-ipsec").is_file() || !missing.is_empty() {
        crate::support::skip(&format!(
            "needs a Debian kernel in .peers (make setup), and {}",
            missing.join(", ")
        ));
        return None;
    }
    Some(folder)
}

/// The configuration of one of two sites, `ours` being 1 or 2, with the `set` lines of its ESP proposal.
pub fn site(ours: u8, connection_type: &str, esp: &str) -> String {
    let theirs = 3 - ours;
    format!(
        "{esp}set vpn ipsec ike-group I proposal 1 encryption aes256gcm128
set vpn ipsec ike-group I proposal 1 prf prfsha256
set vpn ipsec ike-group I proposal 1 dh-group 31
set vpn ipsec authentication psk b id 192.0.2.1
set vpn ipsec authentication psk b id 192.0.2.2
set vpn ipsec authentication psk b secret 'of a test'
set vpn ipsec site-to-site peer b authentication mode pre-shared-secret
set vpn ipsec site-to-site peer b authentication local-id 192.0.2.{ours}
set vpn ipsec site-to-site peer b authentication remote-id 192.0.2.{theirs}
set vpn ipsec site-to-site peer b connection-type {connection_type}
set vpn ipsec site-to-site peer b ike-group I
set vpn ipsec site-to-site peer b local-address 192.0.2.{ours}
set vpn ipsec site-to-site peer b remote-address 192.0.2.{theirs}
set vpn ipsec site-to-site peer b tunnel 1 esp-group E
set vpn ipsec site-to-site peer b tunnel 1 local prefix 10.{ours}.0.0/24
set vpn ipsec site-to-site peer b tunnel 1 remote prefix 10.{theirs}.0.0/24
"
    )
}

/// What a machine is started with.
pub struct Start<'a> {
    /// What it runs on.
    pub board: &'a Board,
    /// The purpose for which modules are loaded: `wireguard`, `ipsec`, `ike`, `crypto` or `plain`.
    pub modules: &'a str,
    /// Programs that are taken in, with their libraries: names, or paths.
    pub programs: &'a [PathBuf],
    /// A folder whose content is taken in as it is.
    pub tree: Option<&'a Path>,
    /// What it does once the modules are loaded.
    pub script: &'a str,
    /// Arguments of qemu.
    pub hardware: &'a [&'a str],
}

/// A network card on the TAP interface `outside` of its namespace.
pub const NETWORK: &[&str] =
    &["-netdev", "tap,id=net,ifname=outside,script=no,downscript=no", "-device", "virtio-net-pci,netdev=net"];

/// A running machine.
pub struct Machine {
    console: PathBuf,
    pub process: Process,
    _directory: TempDir,
}

/// Packs busybox, programs with their libraries, the modules and the script into what the kernel boots from.
fn initramfs(directory: &Path, kernel: &Path, start: &Start<'_>) {
    let root = directory.join("root");
    for folder in ["bin", "modules", "proc", "dev", "sys", "tmp", "lib64", "lib/x86_64-linux-gnu"] {
        std::fs::create_dir_all(root.join(folder)).expect("a directory");
    }
    if start.tree.is_none_or(|tree| !tree.join("bin/busybox").exists()) {
        std::fs::copy(which("busybox"), root.join("bin/busybox")).expect("a copy");
    }
    for name in APPLETS.split(' ') {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).expect("a link");
    }
    for program in start.programs {
        let path = if program.is_absolute() { program.clone() } else { which(&program.to_string_lossy()) };
        take(&path, &root);
    }
    if let Some(tree) = start.tree {
        let copied = Command::new("cp").arg("-rT").args([tree, &root]).status().expect("cp runs");
        assert!(copied.success());
    }
    for entry in std::fs::read_dir(kernel).expect("it is there").flatten() {
        if entry.path().is_file() && entry.file_name() != "vmlinuz" {
            std::fs::copy(entry.path(), root.join("modules").join(entry.file_name())).expect("a copy");
        }
    }
    let load = format!(
        "#!/bin/sh\n\
         mount -t proc proc /proc; mount -t devtmpfs dev /dev; mount -t sysfs sys /sys\n\
         for module in $(cat /modules/order-{}); do insmod /modules/$module || echo FAILED $module; done\n",
        start.modules
    );
    std::fs::write(root.join("init"), load + start.script).expect("a file");
    let pack = "chmod 755 init && find . | cpio --quiet -o -H newc > ../initramfs";
    assert!(Command::new("sh").args(["-c", pack]).current_dir(&root).status().expect("sh runs").success());
}

/// Copies a program, without the lines of its source, and the libraries it needs.
pub fn take(program: &Path, root: &Path) {
    let name = program.file_name().expect("a program has a name");
    // With them ours is 150 MB: an emulated machine has to unpack it into a RAM disk of half its memory.
    let strip = ["--strip-debug", "-o"];
    let stripped = Command::new("strip").args(strip).arg(root.join("bin").join(name)).arg(program).status();
    assert!(stripped.expect("strip runs").success(), "{}", program.display());
    let libraries = Command::new("ldd").arg(program).output().expect("ldd runs");
    for word in
        String::from_utf8_lossy(&libraries.stdout).split_whitespace().filter(|word| word.starts_with('/'))
    {
        let target = root.join(word.trim_start_matches('/'));
        std::fs::create_dir_all(target.parent().expect("it has one")).expect("a directory");
        std::fs::copy(word, target).expect("a copy");
    }
}

fn which(name: &str) -> PathBuf {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .expect("it was seen")
}

impl Machine {
    /// Starts it in a namespace.
    pub fn boot(lab: &mut Lab, namespace: &str, kernel: &Path, start: &Start<'_>) -> Self {
        let directory = TempDir::new().expect("a directory");
        initramfs(directory.path(), kernel, start);
        let console = directory.path().join("console");
        let board = start.board;
        let mut command = lab.command(namespace, board.emulator);
        command
            .args(["-accel", "tcg", "-nographic", "-no-reboot"])
            .args(board.machine)
            .args(["-append", &format!("{} loglevel=1 panic=-1", board.boot)])
            .arg("-kernel")
            .arg(kernel.join("vmlinuz"))
            .arg("-initrd")
            .arg(directory.path().join("initramfs"))
            .args(start.hardware)
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&console).expect("a file"))
            .stderr(Stdio::null());
        let process = lab.start(&mut command).expect("qemu starts");
        Self { console, process, _directory: directory }
    }

    /// All that it has said.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.console).unwrap_or_default()).replace('\r', "")
    }

    /// Waits until it says something.
    pub fn says(&self, what: &str, patience: Duration) {
        wait_until(patience, || self.said().contains(what))
            .unwrap_or_else(|_| panic!("no {what} in\n{}", self.said()));
    }

    /// The word after a word that it said, counted from the last time.
    pub fn word_after(&self, what: &str) -> Option<String> {
        let said = self.said();
        let rest = &said[said.rfind(what)? + what.len()..];
        Some(rest.split_whitespace().next()?.to_owned())
    }
}
