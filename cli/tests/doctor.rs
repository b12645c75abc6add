//! `postern doctor` on copies of machines: each problem of the guide's chapter on troubleshooting, in the form of the kernel's files, and
//! machines on which nothing is wrong.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A machine with a processor of Intel's, a QuickAssist device that works, and an IPsec gateway that uses it.
const METAL: &[(&str, &str)] = &[
    (
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) Gold 6438N\n\
         flags\t\t: fpu sse2 pclmulqdq aes avx2 sha_ni vaes\n\n",
    ),
    (
        "proc/meminfo",
        "MemTotal:       65842380 kB\nMemFree:        40000000 kB\nMemAvailable:   52000000 kB\nHugePages_Total:       0\nHugePages_Free:        0\n",
    ),
    ("proc/stat", "cpu  1000 10 500 90000 20 0 30 40 0 0\ncpu0 1000 10 500 90000 20 0 30 40 0 0\nintr 12\n"),
    (
        "proc/net/softnet_stat",
        "00a1b2c3 00000000 00000011 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000\n\
         000003e8 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000001\n",
    ),
    (
        "proc/net/snmp",
        "Ip: Forwarding DefaultTTL\nIp: 1 64\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors\n\
         Udp: 91234567 12 0 81234567 0 0 0\nUdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdpLite: 0 0 0 0 0\n",
    ),
    ("proc/net/snmp6", "Udp6InDatagrams                 \t1234\nUdp6RcvbufErrors                \t0\n"),
    ("proc/uptime", "7200.51 28000.00"),
    ("proc/sys/kernel/osrelease", "6.12.0-1-amd64"),
    ("sys/class/net/lo/mtu", "65536"),
    ("sys/class/net/eth0/mtu", "1500"),
    ("sys/class/net/eth0/operstate", "up"),
    ("sys/class/net/eth1/mtu", "9000"),
    ("sys/class/net/eth1/operstate", "down"),
    ("sys/class/net/ipsec0/mtu", "1400"),
    ("sys/class/net/wg0/mtu", "1420"),
    ("sys/class/net/vtun0/mtu", "1500"),
    ("sys/class/net/vtun0/tun_flags", "0x5001"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate"),
    ("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "0"),
    ("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "0"),
    ("sys/class/hwmon/hwmon0/name", "coretemp"),
    ("sys/class/hwmon/hwmon0/temp1_label", "Package id 0"),
    ("sys/class/hwmon/hwmon0/temp1_input", "61000"),
    ("sys/class/hwmon/hwmon0/temp1_max", "90000"),
    ("sys/class/hwmon/hwmon0/temp1_crit", "100000"),
    ("sys/bus/pci/devices/0000:3d:00.0/vendor", "0x8086"),
    ("sys/bus/pci/devices/0000:3d:00.0/device", "0x4940"),
    ("sys/bus/pci/devices/0000:3d:00.0/class", "0x0b4000"),
    ("sys/bus/pci/devices/0000:3d:00.0/qat/state", "up"),
    ("sys/bus/pci/devices/0000:3d:00.0/qat/cfg_services", "sym;asym"),
    ("sys/bus/pci/devices/0000:3d:00.0/qat_ras/errors_correctable", "3"),
    ("sys/bus/pci/devices/0000:3d:00.0/qat_ras/errors_nonfatal", "0"),
    ("sys/bus/pci/devices/0000:3d:00.0/qat_ras/errors_fatal", "0"),
    ("sys/bus/pci/devices/0000:3d:00.0/aer_dev_fatal", "Undefined 0\nDLP 0\nTOTAL_ERR_FATAL 0\n"),
    ("sys/kernel/debug/qat_4xxx_0000:3d:00.0/heartbeat/status", "0"),
    ("sys/kernel/debug/qat_4xxx_0000:3d:00.0/heartbeat/queries_sent", "9"),
    ("sys/kernel/debug/qat_4xxx_0000:3d:00.0/heartbeat/queries_failed", "0"),
    (
        "sys/kernel/debug/qat_4xxx_0000:3d:00.0/fw_counters",
        "AE          Requests        Responses\n 0:              1004              1000\n 1:               500               500\n",
    ),
    ("lib/firmware/qat_4xxx.bin.zst", ""),
    ("lib/firmware/qat_4xxx_mmp.bin.zst", ""),
    (
        "lib/modules/6.12.0-1-amd64/modules.alias",
        "# Aliases\nalias pci:v00008086d00004940sv*sd*bc*sc*i* qat_4xxx\n",
    ),
    (
        "dev/kmsg",
        "6,801,9100000,-;4xxx 0000:3d:00.0: enabling device (0140 -> 0142)\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3d:00.0\n\
         6,802,9200000,-;4xxx 0000:3d:00.0: qat_dev0 started 9 acceleration engines\n",
    ),
    (
        "etc/postern/postern.conf",
        "set system acceleration qat\nset vpn ipsec esp-group SITES proposal 1 encryption aes256gcm128\n\
         set vpn ipsec ike-group SITES dead-peer-detection interval 30\nset interfaces wireguard wg0 mtu 1420\n",
    ),
];

/// A virtual machine without an accelerator, as of a cloud.
const VIRTUAL: &[(&str, &str)] = &[
    (
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC-Milan Processor\n\
         flags\t\t: fpu sse2 pclmulqdq aes avx2 hypervisor\n",
    ),
    (
        "proc/meminfo",
        "MemTotal: 4000000 kB\nMemAvailable: 3000000 kB\nHugePages_Total: 0\nHugePages_Free: 0\n",
    ),
    ("proc/stat", "cpu  1000 10 500 90000 20 0 30 400 0 0\ncpu0 1000 10 500 90000 20 0 30 400 0 0\n"),
    ("proc/net/softnet_stat", "00001000 00000000 00000000\n"),
    (
        "proc/net/snmp",
        "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 50000 1 0 40000 0\n",
    ),
    ("sys/class/net/eth0/mtu", "1500"),
    ("sys/bus/pci/devices/0000:00:03.0/vendor", "0x1af4"),
    ("sys/bus/pci/devices/0000:00:03.0/device", "0x1000"),
    ("sys/bus/pci/devices/0000:00:03.0/class", "0x020000"),
    ("sys/devices/system/cpu/cpu0/online", "1"),
    ("etc/postern/postern.conf", "set interfaces wireguard wg0 mtu 1420\n"),
];

fn lay(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a directory")).expect("writable");
    fs::write(path, format!("{}\n", text.trim_end_matches('\n'))).expect("writable");
}

/// Lays a machine out, with its driver bound, and changes: other texts, or files that are not there.
fn machine(files: &[(&str, &str)], changes: &[(&str, Option<&str>)]) -> TempDir {
    let root = tempfile::tempdir().expect("writable");
    for (path, text) in files {
        lay(root.path(), path, text);
    }
    let device = root.path().join("sys/bus/pci/devices/0000:3d:00.0");
    if device.exists() {
        std::os::unix::fs::symlink("../../../../bus/pci/drivers/4xxx", device.join("driver"))
            .expect("writable");
    }
    for (path, text) in changes {
        let at = root.path().join(path);
        match text {
            Some(text) => lay(root.path(), path, text),
            None if at.is_dir() => fs::remove_dir_all(at).expect("it is there"),
            None => fs::remove_file(at).expect(path),
        }
    }
    root
}

fn doctor(root: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_postern"))
        .arg("doctor")
        .args(["--root", root.to_str().expect("text")])
        .args(words)
        .output()
        .expect("the program runs")
}

/// The rules that are in a state, and all that is said of them.
fn found(root: &TempDir, state: &str) -> (Vec<String>, String) {
    let output = doctor(root.path(), &["--json"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let all: Vec<Value> = serde_json::from_str(&said).expect("JSON");
    let is_it = |it: &&Value| it["state"] == state;
    let name = |it: &Value| it["rule"].as_str().expect("a name").to_owned();
    let these: Vec<&Value> = all.iter().filter(is_it).collect();
    let text = these.iter().map(ToString::to_string).collect();
    (these.into_iter().map(name).collect(), text)
}

type Changes<'a> = &'a [(&'a str, Option<&'a str>)];

/// One problem, which is told with these words, and no other one.
fn problem(files: &[(&str, &str)], changes: Changes<'_>, rule: &str, words: &[&str]) {
    let root = machine(files, changes);
    let (rules, text) = found(&root, "firing");
    assert_eq!(rules, [rule], "{changes:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
    let output = doctor(root.path(), &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("fix: "), "{said}");
}

const STATE: &str = "sys/bus/pci/devices/0000:3d:00.0/qat/state";
const DRIVER: &str = "sys/bus/pci/devices/0000:3d:00.0/driver";
const DEVICE: &str = "sys/bus/pci/devices/0000:3d:00.0";
const DEBUG: &str = "sys/kernel/debug/qat_4xxx_0000:3d:00.0";
const KMSG: &str = "dev/kmsg";
const CONFIG: &str = "etc/postern/postern.conf";
const CPUINFO: &str = "proc/cpuinfo";

#[test]
fn nothing_is_wrong_with_a_healthy_machine() {
    for files in [METAL, VIRTUAL] {
        let root = machine(files, &[]);
        let (rules, text) = found(&root, "firing");
        assert_eq!(rules, [""; 0], "{text}");
        let (rules, text) = found(&root, "unknown");
        assert_eq!(rules, ["clock-unsynchronised"], "{text}");
        let output = doctor(root.path(), &[]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("No rule of health fails"), "{said}");
        assert!(said.contains("unknown   clock-unsynchronised: because "), "{said}");
    }
}

#[test]
fn an_accelerator_that_is_not_there_is_named_with_where_to_switch_it_on() {
    let gone = (DEVICE, None);
    let debug = (DEBUG, None);
    let other = ("sys/bus/pci/devices/0000:00:1f.0/vendor", Some("0x8086"));
    problem(METAL, &[gone, debug, other], "accelerator-absent", &["6438N", "BIOS"]);
    let xeon = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 106\nmodel name : Intel(R) Xeon(R) Gold 6338\nflags : aes\n";
    problem(
        METAL,
        &[gone, debug, other, (CPUINFO, Some(xeon))],
        "accelerator-absent",
        &["acceleration qat is set"],
    );
    problem(
        VIRTUAL,
        &[(CONFIG, Some("set system acceleration qat"))],
        "accelerator-absent",
        &["virtual function"],
    );
}

#[test]
fn a_device_without_a_driver_or_firmware_is_named_with_the_module() {
    let unbound = (DRIVER, None);
    problem(
        METAL,
        &[unbound, (DEBUG, None)],
        "accelerator-without-driver",
        &["modprobe qat_4xxx", "0000:3d:00.0"],
    );
    let alias = (
        "lib/modules/6.12.0-1-amd64/modules.alias",
        Some("alias pci:v00008086d00000435sv*sd*bc*sc*i* qat_dh895xcc"),
    );
    problem(METAL, &[unbound, (DEBUG, None), alias], "accelerator-without-driver", &["no module for it"]);
    let root = machine(METAL, &[(STATE, Some("down")), ("lib/firmware/qat_4xxx.bin.zst", None)]);
    let (rules, text) = found(&root, "firing");
    assert_eq!(rules, ["accelerator-without-firmware", "accelerator-down"], "{text}");
    assert!(text.contains("no qat_4xxx.bin.") && text.contains("apt-get install firmware"), "{text}");
    let log = "3,9,1,-;4xxx 0000:3d:00.0: Direct firmware load for qat_4xxx.bin failed with error -2\n";
    let root = machine(METAL, &[(STATE, Some("down")), (KMSG, Some(log))]);
    let (rules, text) = found(&root, "firing");
    assert!(
        rules.contains(&"accelerator-without-firmware".to_owned()) && text.contains("error -2"),
        "{text}"
    );
}

/// The identities of all generations, as PF and as VF.
#[test]
fn devices_of_all_generations_are_known() {
    for id in [
        "0434", "0435", "37c8", "6f54", "19e2", "18ee", "18a0", "4940", "4942", "4944", "4946", "4948",
        "0442", "0443", "37c9", "6f55", "19e3", "18ef", "18a1", "4941", "4943", "4945", "4947", "4949",
    ] {
        let id = format!("0x{id}");
        let changes =
            [(DRIVER, None), (DEBUG, None), ("sys/bus/pci/devices/0000:3d:00.0/device", Some(&*id))];
        let (rules, text) = found(&machine(METAL, &changes), "firing");
        assert!(rules.contains(&"accelerator-without-driver".to_owned()), "{id}: {text}");
    }
}

#[test]
fn a_device_that_is_down_is_named_with_what_the_kernel_says_and_the_heat() {
    problem(
        METAL,
        &[(STATE, Some("down"))],
        "accelerator-down",
        &["0000:3d:00.0", "show environment sensors"],
    );
    let log = "[  12.5] 4xxx 0000:3d:00.0: Failed to initialize device\n";
    let hot = ("sys/class/hwmon/hwmon0/temp1_input", Some("99000"));
    let root = machine(METAL, &[(STATE, Some("down")), (KMSG, Some(log)), hot]);
    let (rules, text) = found(&root, "firing");
    assert_eq!(rules, ["accelerator-down", "processor-hot"], "{text}");
    assert!(text.contains("Failed to initialize device") && text.contains("is at 99 C"), "{text}");
    let throttled = ("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", Some("57"));
    problem(METAL, &[throttled], "processor-hot", &["57 times"]);
    let root = machine(METAL, &[throttled, ("proc/uptime", Some("1000000.00 28000.00"))]);
    assert_eq!(found(&root, "firing").0, [""; 0], "a few times in days");
    // Each processor counts those of its package.
    let one = ("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", Some("15"));
    let other = ("sys/devices/system/cpu/cpu1/thermal_throttle/package_throttle_count", Some("15"));
    assert_eq!(found(&machine(METAL, &[one, other]), "firing").0, [""; 0]);
    let hwmon = |name: &str| format!("sys/class/hwmon/hwmon0/temp1_{name}");
    let (alarm, input, critical) = (hwmon("crit_alarm"), hwmon("input"), hwmon("crit"));
    assert_eq!(found(&machine(METAL, &[(&alarm, Some("1"))]), "firing").0, [""; 0], "61 of 100 C");
    problem(METAL, &[(&alarm, Some("1")), (&input, Some("93000"))], "processor-hot", &["is at 93 C"]);
    let root = machine(METAL, &[(&input, Some("95000")), (&critical, None)]);
    assert_eq!(found(&root, "firing").0, [""; 0], "max is no limit");
    let log =
        "2,9,1,-;CPU0: Core temperature is above threshold, cpu clock is throttled (total events = 4)\n";
    problem(METAL, &[(KMSG, Some(log))], "processor-hot", &["cpu clock is throttled"]);
}

#[test]
fn ipsec_that_does_not_use_the_accelerator_is_told_why() {
    let unset = "set vpn ipsec esp-group SITES proposal 1 encryption aes256gcm128\n";
    problem(METAL, &[(CONFIG, Some(unset))], "accelerator-unused", &["set system acceleration qat"]);
    let chacha =
        "set system acceleration qat\nset vpn ipsec esp-group SITES proposal 1 encryption chacha20poly1305\n";
    problem(METAL, &[(CONFIG, Some(chacha))], "accelerator-unused", &["chacha20poly1305", "esp-group SITES"]);
    let services = ("sys/bus/pci/devices/0000:3d:00.0/qat/cfg_services", Some("dc"));
    problem(METAL, &[services], "accelerator-unused", &["not for ciphers", "cfg_services"]);
}

#[test]
fn what_makes_an_accelerated_gateway_slow_is_told() {
    let with = |line: &str| format!("set system acceleration qat\nset vpn ipsec {line}\n");
    let cbc = with(
        "esp-group SITES proposal 1 encryption aes256\nset vpn ipsec esp-group SITES proposal 1 hash sha256",
    );
    problem(METAL, &[(CONFIG, Some(&cbc))], "suite-slow", &["aes256 with sha256", "aes256gcm128"]);
    let dpd = with("ike-group SITES dead-peer-detection interval 5");
    problem(METAL, &[(CONFIG, Some(&dpd))], "detection-too-often", &["5 s of silence", "interval 30"]);
    let mtu = with("site-to-site peer berlin tunnel 1 mtu 1500");
    problem(METAL, &[(CONFIG, Some(&mtu))], "mtu-too-large", &["tunnel 1 mtu 1446", "eth0"]);
    let small = ("sys/class/net/eth0/mtu", Some("1440"));
    problem(METAL, &[small], "mtu-too-large", &["wg0", "1380"]);
    // A tunnel may use the other one, and one that is not of the configuration is not ours.
    let root = machine(METAL, &[small, ("sys/class/net/eth1/operstate", Some("up"))]);
    assert_eq!(found(&root, "firing").0, [""; 0]);
    let root = machine(METAL, &[("sys/class/net/wg7/mtu", Some("9000"))]);
    assert_eq!(found(&root, "firing").0, [""; 0]);
    let folder = "sys/devices/system/cpu/cpu0/cpufreq";
    let (governor, driver) = (format!("{folder}/scaling_governor"), format!("{folder}/scaling_driver"));
    problem(
        METAL,
        &[(&governor, Some("powersave")), (&driver, Some("acpi-cpufreq"))],
        "governor-slow",
        &["performance throughput"],
    );
    let off = "set system acceleration qat\nset interfaces wireguard wg0 disable-offload udp-gso\n";
    problem(METAL, &[(CONFIG, Some(off))], "offload-off", &["udp-gso of wg0"]);
    let drops = "00a1b2c3 00001000 00000011 00000000\n000003e8 00000020 00000000 00000000\n";
    problem(METAL, &[("proc/net/softnet_stat", Some(drops))], "backlog-drops", &["4128 packets"]);
    for few in ["00a1b2c3 00000100 00000011 00000000\n", "00000010 00000020 00000000 00000000\n"] {
        assert_eq!(found(&machine(METAL, &[("proc/net/softnet_stat", Some(few))]), "firing").0, [""; 0]);
    }
    let buffers =
        "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 1000000 1 5321 900000 5321\n";
    problem(METAL, &[("proc/net/snmp", Some(buffers))], "receive-buffer-full", &["5321 UDP datagrams"]);
    let steal = "cpu  1000 10 500 60000 20 0 30 20000 0 0\ncpu0 1000 10 500 60000 20 0 30 20000 0 0\n";
    problem(VIRTUAL, &[("proc/stat", Some(steal))], "processor-stolen", &["25%"]);
}

#[test]
fn a_governor_that_the_processor_does_not_need_is_no_problem() {
    let folder = "sys/devices/system/cpu/cpu0/cpufreq";
    let (governor, preference) =
        (format!("{folder}/scaling_governor"), format!("{folder}/energy_performance_preference"));
    let of = |value| machine(METAL, &[(&*governor, Some("powersave")), (&*preference, Some(value))]);
    assert_eq!(found(&of("balance_performance"), "firing").0, [""; 0]);
    let without = machine(METAL, &[(&*governor, Some("powersave"))]);
    assert_eq!(found(&without, "firing").0, [""; 0], "intel_pstate without HWP follows the load");
    assert_eq!(found(&of("power"), "firing").0, ["governor-slow"]);
}

#[test]
fn errors_of_a_device_are_told_from_files_and_from_the_log() {
    let debug = |name: &str| format!("{DEBUG}/{name}");
    problem(
        METAL,
        &[(&debug("heartbeat/status"), Some("-1"))],
        "accelerator-heartbeat",
        &["does not answer"],
    );
    // They were missed some day: its firmware answers.
    let root = machine(METAL, &[(&debug("heartbeat/queries_failed"), Some("4"))]);
    assert_eq!(found(&root, "firing").0, [""; 0]);
    let counters = "AE          Requests        Responses\n 0:            900000            880000\n";
    problem(METAL, &[(&debug("fw_counters"), Some(counters))], "accelerator-overflow", &["20000 requests"]);
    let fatal = ("sys/bus/pci/devices/0000:3d:00.0/qat_ras/errors_fatal", Some("1"));
    problem(METAL, &[fatal], "accelerator-error", &["qat_ras/errors_fatal"]);
    let aer = (
        "sys/bus/pci/devices/0000:3d:00.0/aer_dev_fatal",
        Some("Undefined 0\nMalformed TLP 2\nTOTAL_ERR_FATAL 2\n"),
    );
    problem(METAL, &[aer], "accelerator-error", &["aer_dev_fatal"]);
    for (line, rule) in [
        ("3,900,99,-;qat_dev0: heartbeat failed", "accelerator-heartbeat"),
        ("3,900,99,-;qat_dev0: ring buffer overflow", "accelerator-overflow"),
        ("3,900,99,-;qat_dev0: uncorrectable error detected", "accelerator-error"),
        ("3,900,99,-;Intel QAT: failed to allocate memory", "accelerator-memory"),
    ] {
        let said = line.split_once(';').expect("a record").1;
        // Where files count errors, these are what counts.
        let ras = format!("{DEVICE}/qat_ras");
        let aer = format!("{DEVICE}/aer_dev_fatal");
        let uncounted: [(&str, Option<&str>); 2] = [(&ras, None), (&aer, None)];
        let with = |more: Changes<'static>| [&uncounted[..], more].concat();
        let changes: Vec<_> = with(&[]).into_iter().chain([(KMSG, Some(line))]).collect();
        problem(METAL, &changes, rule, &[said]);
        // A copy of a machine may have the log in another file.
        let other = format!("Nov 27 10:00:00 gw kernel: [   9.1] {said}\n");
        let changes: Vec<_> =
            with(&[(KMSG, None)]).into_iter().chain([("var/log/kern.log", Some(&*other))]).collect();
        problem(METAL, &changes, rule, &[said]);
        // Without a device nobody is concerned.
        assert_eq!(found(&machine(VIRTUAL, &[(KMSG, Some(line))]), "firing").0, [""; 0], "{line}");
    }
    let line = "3,900,99,-;qat_dev0: uncorrectable error detected";
    assert_eq!(found(&machine(METAL, &[(KMSG, Some(line))]), "firing").0, [""; 0], "its files count none");
}

#[test]
fn what_is_set_of_rules_holds_and_links_lead_nowhere_outside() {
    let dpd = "set system acceleration qat\nset vpn ipsec ike-group SITES dead-peer-detection interval 5\n";
    let set = |line: &str| machine(METAL, &[(CONFIG, Some(&format!("{dpd}{line}\n")))]);
    assert_eq!(found(&set(""), "firing").0, ["detection-too-often"]);
    let of_rule = "set service health rule detection-too-often";
    assert_eq!(found(&set(&format!("{of_rule} threshold 5")), "firing").0, [""; 0]);
    assert_eq!(found(&set(&format!("{of_rule} disable")), "firing").0, [""; 0]);
    let root = machine(METAL, &[(CONFIG, None)]);
    let outside = tempfile::NamedTempFile::new().expect("writable");
    fs::write(outside.path(), dpd).expect("writable");
    std::os::unix::fs::symlink(outside.path(), root.path().join(CONFIG)).expect("writable");
    let (rules, text) = found(&root, "unknown");
    assert!(rules.contains(&"detection-too-often".to_owned()) && text.contains("is not there"), "{text}");
}

#[test]
fn no_memory_is_told() {
    let low = "MemTotal: 65842380 kB\nMemAvailable: 900000 kB\nHugePages_Total: 0\nHugePages_Free: 0\n";
    problem(METAL, &[("proc/meminfo", Some(low))], "memory-low", &["1.4%"]);
    let root = machine(METAL, &[(DRIVER, None)]);
    std::os::unix::fs::symlink("../../../bus/pci/drivers/vfio-pci", root.path().join(DRIVER))
        .expect("writable");
    // The program that has it may need no huge pages.
    assert_eq!(found(&root, "firing").0, [""; 0]);
}

#[test]
fn aes_that_is_not_seen_is_told_with_who_hides_it() {
    let guest = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 79\nmodel name : Intel(R) Xeon(R) CPU E5-2680 v4\nflags : sse2 hypervisor\n";
    problem(VIRTUAL, &[(CPUINFO, Some(guest))], "aes-missing", &["host-passthrough", "+aes"]);
    let generic = "vendor_id : GenuineIntel\ncpu family : 15\nmodel : 107\nmodel name : QEMU Virtual CPU version 2.5+\nflags : sse2 hypervisor\n";
    problem(VIRTUAL, &[(CPUINFO, Some(generic))], "aes-missing", &["host-passthrough"]);
    let metal = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 79\nmodel name : Intel(R) Xeon(R) CPU E5-2680 v4\nflags : sse2\n";
    problem(METAL, &[(CPUINFO, Some(metal))], "aes-missing", &["BIOS"]);
    let old = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 23\nmodel name : Intel(R) Core(TM)2 Duo\nflags : sse2\n";
    problem(METAL, &[(CPUINFO, Some(old))], "aes-missing", &["chacha20poly1305"]);
    let mask = (
        "etc/systemd/system/postern.service.d/crypto.conf",
        Some("[Service]\nEnvironment=OPENSSL_ia32cap=~0x200000200000000\n"),
    );
    problem(METAL, &[mask], "aes-missing", &["OPENSSL_ia32cap", "crypto.conf"]);
}

#[test]
fn a_hostile_copy_blocks_no_examination_and_shows_no_file_outside_of_it() {
    let outside = tempfile::tempdir().expect("writable");
    fs::write(outside.path().join("secret"), "model name : SECRET\nflags : aes\n").expect("writable");
    let root = machine(METAL, &[]);
    for fifo in ["proc/stat", "proc/meminfo", "proc/crypto", "proc/interrupts"] {
        let _ = fs::remove_file(root.path().join(fifo));
        let made = Command::new("mkfifo").arg(root.path().join(fifo)).status().expect("mkfifo runs");
        assert!(made.success());
    }
    fs::remove_file(root.path().join("proc/cpuinfo")).expect("it is there");
    std::os::unix::fs::symlink(outside.path().join("secret"), root.path().join("proc/cpuinfo"))
        .expect("writable");
    let path = root.path().to_str().expect("text");
    for words in [&["doctor", "--root", path, "--json"][..], &["doctor", "crypto", "--root", path]] {
        // 124 is the status of a command that does not end in time.
        let examined = Command::new("timeout")
            .args(["20", env!("CARGO_BIN_EXE_postern")])
            .args(words)
            .output()
            .expect("timeout runs");
        let said = String::from_utf8_lossy(&examined.stdout).into_owned();
        assert_ne!(examined.status.code(), Some(124), "{words:?}");
        assert!(!said.is_empty() && !said.contains("SECRET"), "{said}");
    }
    let (unknown, text) = found(&root, "unknown");
    assert!(unknown.iter().any(|rule| rule == "memory-low"), "{text}");
    assert!(text.contains("/proc/meminfo cannot be read: it is not a regular file"), "{text}");
}

#[test]
fn what_cannot_be_read_is_unknown_with_the_reason_and_never_well() {
    let empty = tempfile::tempdir().expect("writable");
    assert_eq!(found(&empty, "firing").0, [""; 0]);
    let (unknown, text) = found(&empty, "unknown");
    for rule in [
        "processor-stolen",
        "memory-low",
        "accelerator-absent",
        "accelerator-without-driver",
        "accelerator-without-firmware",
        "accelerator-down",
        "accelerator-unused",
        "accelerator-heartbeat",
        "accelerator-overflow",
        "accelerator-error",
        "accelerator-memory",
        "aes-missing",
        "processor-hot",
        "governor-slow",
        "backlog-drops",
        "receive-buffer-full",
        "suite-slow",
        "detection-too-often",
        "mtu-too-large",
        "offload-off",
        "certificate-expiring",
    ] {
        assert!(unknown.iter().any(|it| it == rule), "{rule}: {text}");
    }
    for (path, rule, why) in [
        ("sys/kernel/debug", "accelerator-heartbeat", "/sys/kernel/debug is not there"),
        (CONFIG, "suite-slow", "etc/postern/postern.conf is not there"),
        ("proc/net/snmp", "receive-buffer-full", "/proc/net/snmp is not there"),
        ("sys/devices/system/cpu/cpu0/cpufreq", "governor-slow", "scaling_governor is not there"),
        (KMSG, "accelerator-memory", "/dev/kmsg is not there"),
    ] {
        let (rules, text) = found(&machine(METAL, &[(path, None)]), "unknown");
        assert!(rules.iter().any(|it| it == rule) && text.contains(why), "{path}: {text}");
    }
}

#[test]
fn a_configuration_may_be_elsewhere_and_have_more_than_a_gateway_knows() {
    let root = machine(METAL, &[(CONFIG, None)]);
    let boot = "system {\n    acceleration {\n        qat\n    }\n    console {\n        device ttyS0 {\n            speed 115200\n        }\n    }\n}\n\
                vpn {\n    ipsec {\n        ike-group A {\n            dead-peer-detection {\n                interval 4\n            }\n        }\n    }\n}\n";
    lay(root.path(), "config/config.boot", boot);
    assert_eq!(found(&root, "firing").0, ["detection-too-often"]);
    let file = root.path().join("other.conf");
    fs::write(&file, "set system gibberish 5\nset vpn ipsec esp-group A proposal 1 encryption aes128\n")
        .expect("writable");
    let output = doctor(root.path(), &["--config", file.to_str().expect("text")]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("suite-slow") && !said.contains("detection-too-often"), "{said}");
    let nowhere = Command::new(env!("CARGO_BIN_EXE_postern"))
        .args(["doctor", "--root", "/nowhere"])
        .output()
        .expect("it runs");
    assert!(
        !nowhere.status.success() && String::from_utf8_lossy(&nowhere.stderr).contains("no such directory")
    );
}
