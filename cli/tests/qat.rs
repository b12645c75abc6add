//! QuickAssist devices as operators see them, on trees of files in the formats of the kernel's documentation and of Intel's
//! drivers: `tests/qat/*.tree`. No number may come from anywhere else.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Lays a tree out: `== PATH` and the text of the file, or `== PATH -> TARGET`.
fn machine(name: &str) -> TempDir {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/qat/{name}.tree"));
    let text = fs::read_to_string(&file).expect("the tree is committed");
    let root = tempfile::tempdir().expect("writable");
    for part in text.split("== ").skip(1) {
        let (head, content) = part.split_once('\n').expect("a path");
        let (path, target) =
            head.split_once(" -> ").map_or((head, None), |(path, target)| (path, Some(target)));
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("writable");
        match target {
            Some(target) => std::os::unix::fs::symlink(target, &path).expect("writable"),
            None => fs::write(&path, content).expect("writable"),
        }
    }
    root
}

fn ask(root: &TempDir, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_postern"))
        .args(["show", "system", "acceleration", "qat"])
        .args(line.split_whitespace())
        .args(["--api", "/nonexistent/postern.sock"])
        .env("POSTERN_ROOT", root.path())
        .output()
        .expect("the program runs")
}

fn text(root: &TempDir, line: &str) -> String {
    let output = ask(root, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn a_machine_without_a_device_says_what_it_has_instead() {
    let root = machine("none");
    assert_eq!(
        text(&root, ""),
        "Intel QuickAssist Technology not detected\nNo QAT devices found on this system.\n\
         AES-NI CPU instructions: Available (fallback to software crypto with hardware AES)\n"
    );
    assert_eq!(text(&root, "status"), "QAT Device Status:\nTotal Devices: 0\nActive Devices: 0\n");
    let refused = ask(&root, "device qat_dev0 flows");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("there is no QAT device qat_dev0\n  fix: "), "{said}");
}

#[test]
fn an_atom_with_the_driver_of_the_kernel_is_shown_in_the_layout_of_the_guide() {
    let root = machine("c3xxx");
    assert_eq!(
        text(&root, ""),
        "Intel QuickAssist Technology acceleration detected\nDevices:\n  qat_dev0: Ready\nStatus: Available\n\
         Driver Version: 0.6.0\nFirmware Version: n/a (in-tree driver)\n"
    );
    assert_eq!(
        text(&root, "status"),
        "QAT Device Status:\nDevice qat_dev0:\n  State: up\n  Node Id: 0\n  Device Type: c3xxx\n  Model: Atom C3xxx\n\
         \x20 PCI Address: 0000:01:00.0\n  Driver: c3xxx\n  Services: sym (Crypto)\n  Instances: 4\n\
         \x20 Firmware: n/a (in-tree driver)\nTotal Devices: 1\nActive Devices: 1\n"
    );
    assert_eq!(
        text(&root, "device qat_dev0 flows"),
        "QAT Device qat_dev0 Flow Statistics:\nCrypto Operations:\n  Encryption Requests: n/a\n  Decryption Requests: n/a\n\
         \x20 Authentication Requests: n/a\n  Total Operations: 2,902,213\n  Encryption Bytes: n/a\n  Decryption Bytes: n/a\n\
         \x20 Total Bytes Processed: n/a\nCompression Operations:\n  Compression Requests: n/a\n  Decompression Requests: n/a\n\
         \x20 Total Bytes Compressed: n/a\nPerformance:\n  Operations/sec: 0\n  Throughput: n/a\n  Average Latency: n/a\nErrors: 0\n"
    );
    let detail = text(&root, "device 0000:01:00.0 flows detail");
    assert!(
        detail.contains(
            "Total Operations: 2,902,213  [/sys/kernel/debug/qat_c3xxx_0000:01:00.0/fw_counters: requests"
        ),
        "{detail}"
    );
    assert!(detail.contains(
        "Errors: 0  [/sys/kernel/debug/qat_c3xxx_0000:01:00.0/heartbeat/queries_failed (heartbeat)]"
    ));
    assert!(detail.contains("Throughput: n/a  [no file of this driver has it]"), "{detail}");
    let interrupts = text(&root, "interrupts");
    assert!(
        interrupts.lines().count() == 3 && interrupts.contains("qat0-bundle0") && !interrupts.contains("PME")
    );
}

#[test]
fn the_driver_of_intel_tells_its_firmware_and_a_device_that_hangs_is_not_active() {
    let root = machine("c62x-out-of-tree");
    let status = text(&root, "status");
    assert!(
        status.contains("Total Devices: 3\nActive Devices: 2\n") && status.contains("  Firmware: 4.18.1\n"),
        "{status}"
    );
    assert!(status.contains("  Services: cy;dc (Crypto and Compression)\n  Instances: 3\n"), "{status}");
    assert!(status.contains("Device qat_dev2:\n  State: not responding\n  Node Id: 1\n"), "{status}");
    let overview = text(&root, "");
    assert!(
        overview.contains("  qat_dev2: not responding\nStatus: Available\nDriver Version: 4.24.0\n"),
        "{overview}"
    );
    let flows = text(&root, "device qat_dev0 flows");
    assert!(flows.contains("Total Operations: 521,275\n") && flows.ends_with("Errors: 0\n"), "{flows}");
    assert!(text(&root, "device qat_dev2 flows").ends_with("Errors: 3\n"));
    let configuration = text(&root, "device qat_dev1 config");
    assert!(configuration.starts_with("[GENERAL]\nServicesEnabled = cy;dc\n"), "{configuration}");
}

#[test]
fn a_xeon_d_is_found_under_its_short_address() {
    let root = machine("xeon-d");
    let status = text(&root, "status");
    assert!(status.contains("  State: up\n") && status.contains("  Device Type: d15xx\n"), "{status}");
    assert!(text(&root, "device qat_dev0 flows").contains("Total Operations: 108,224\n"));
    assert!(text(&root, "device qat_dev0 flows").ends_with("Errors: n/a\n"), "this driver counts none");
}

#[test]
fn the_fourth_generation_measures_itself() {
    let root = machine("4xxx");
    let status = text(&root, "status");
    // The driver's number is in the name of the interrupt: the other device gets the number that is left.
    assert!(
        status.contains("Device qat_dev1:\n  State: up\n")
            && status.contains("Device qat_dev0:\n  State: down\n"),
        "{status}"
    );
    assert!(status.contains("  Services: dc (Compression)\n  Instances: n/a (64 ring pairs)\n"), "{status}");
    let flows = text(&root, "device qat_dev1 flows");
    for line in
        ["Total Operations: 5,804,436", "Throughput: 9120 Mbps", "Average Latency: 0.023 ms", "Errors: 2"]
    {
        assert!(flows.contains(line), "{line}: {flows}");
    }
    let detail = text(&root, "device qat_dev1 flows detail");
    assert!(detail.contains("telemetry/device_data: bw_in, what the device writes over PCIe]"), "{detail}");
    assert!(detail.contains("qat_ras/errors_correctable (correctable) + "), "{detail}");
    let idle = text(&root, "device qat_dev0 flows");
    assert!(idle.contains("Total Operations: n/a\n") && idle.contains("Operations/sec: n/a\n"), "{idle}");
}

#[test]
fn virtual_functions_are_told_apart_by_who_has_them() {
    let root = machine("virtual-functions");
    let status = text(&root, "status");
    assert!(
        status.contains("Device qat_dev0:\n  State: up\n  Node Id: -1\n  Device Type: c6xxvf\n"),
        "{status}"
    );
    assert!(
        status.contains("  State: lent to a program\n") && status.contains("  State: no driver\n"),
        "{status}"
    );
    assert!(status.ends_with("Total Devices: 3\nActive Devices: 1\n"), "{status}");
    let refused = ask(&root, "device qat_dev1 config");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("dev_cfg\n  fix: ask as root"), "{said}");
}

#[test]
fn scripts_get_the_same_as_json() {
    let root = machine("4xxx");
    let json =
        |line: &str| -> Value { serde_json::from_str(&text(&root, &format!("{line} --json"))).expect(line) };
    assert_eq!((json("status")["total"].as_u64(), json("status")["active"].as_u64()), (Some(2), Some(1)));
    assert_eq!(json("")["devices"][1]["services"], "sym;asym");
    let lines = json("device qat_dev1 flows");
    let line = lines
        .as_array()
        .expect("lines")
        .iter()
        .find(|line| line["name"] == "Throughput")
        .expect("it is there");
    assert!(
        line["value"] == "9120 Mbps"
            && line["source"].as_str().is_some_and(|from| from.contains("device_data"))
    );
    assert!(json("interrupts")["lines"].as_array().is_some_and(|lines| lines.len() == 2));
}
