//! C files and DPDK's headers in, `libpostern_dpdk.so` out, beside the programs of the profile. Without the headers a warning, and no library.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for variable in ["CC", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    for file in ["shim.h", "ports.c", "crypto.c", "double.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    if env::var_os("CARGO_FEATURE_BUILD").is_none() {
        return;
    }
    let is_asked_for_double = env::var_os("CARGO_FEATURE_DOUBLE").is_some();
    let double = is_asked_for_double.then_some(("libpostern_dpdk_double.so", ["ports.c", "double.c"]));
    let libraries = [("libpostern_dpdk.so", ["ports.c", "crypto.c"])].into_iter().chain(double);
    for (name, sources) in libraries {
        if let Err(reason) = build(name, &sources) {
            println!("cargo:warning={name} is not built, and DPDK cannot be used: {reason}");
            return;
        }
    }
}

fn build(name: &str, sources: &[&str]) -> Result<(), String> {
    if env::var("TARGET") != env::var("HOST") {
        return Err("it is built only for the machine that builds it".to_owned());
    }
    // Another DPDK needs another library.
    for folder in pkg_config("--variable=pcfiledir")? {
        println!("cargo:rerun-if-changed={folder}/libdpdk.pc");
    }
    let flags = pkg_config("--cflags")?;
    let libraries = pkg_config("--libs")?;
    let made = folder("OUT_DIR")?.join(name);
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O3", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-shared"]);
    command.args(&flags).args(sources).arg("-o").arg(&made);
    command.args(["-Wl,--as-needed", "-Wl,-z,defs,-z,relro,-z,now"]).args(&libraries);
    let output = command.output().map_err(|error| format!("cc: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // A warning of cargo is one line.
        return Err(format!("cc fails: {}", said.lines().take(3).collect::<Vec<_>>().join(" | ")));
    }
    for place in places()? {
        replace(&made, &place.join(name)).map_err(|error| format!("{}: {error}", place.display()))?;
    }
    Ok(())
}

fn pkg_config(what: &str) -> Result<Vec<String>, String> {
    let output = Command::new("pkg-config").args([what, "libdpdk"]).output();
    let output = output.map_err(|error| format!("pkg-config: {error}"))?;
    if !output.status.success() {
        return Err("pkg-config does not find libdpdk (Debian: libdpdk-dev)".to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect())
}

fn folder(variable: &str) -> Result<PathBuf, String> {
    env::var_os(variable).map(PathBuf::from).ok_or_else(|| format!("{variable} is not set"))
}

/// The folders of programs and of tests: `OUT_DIR` is PROFILE/build/PACKAGE/out.
fn places() -> Result<[PathBuf; 2], String> {
    let out = folder("OUT_DIR")?;
    let profile = out.ancestors().nth(3).ok_or("OUT_DIR is not where cargo has it")?;
    Ok([profile.to_owned(), profile.join("deps")])
}

/// A program may have the old one mapped: it keeps it.
fn replace(from: &Path, to: &Path) -> std::io::Result<()> {
    let new = to.with_extension("new");
    std::fs::copy(from, &new)?;
    std::fs::rename(&new, to)
}
