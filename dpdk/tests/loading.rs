//! Libraries that are not the right one are refused, by their numbers. They are made here: DPDK is not needed.

use dpdk::{Library, LoadError};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The number of the interface that this program needs.
const INTERFACE: u32 = 2;

/// A library whose identity has these numbers, and which has no other function.
fn library(folder: &Path, [interface, built, running]: [u32; 3]) -> PathBuf {
    let text = format!(
        "#include <stdint.h>\n\
         void postern_identify(uint32_t *identity)\n\
         {{ identity[0] = {interface}; identity[1] = {built}; identity[2] = {running}; }}\n"
    );
    let (source, made) = (folder.join("double.c"), folder.join("double.so"));
    std::fs::write(&source, text).expect("it can be written");
    compile(&made, &[&source]);
    made
}

/// Makes a library of sources and of other libraries, which it needs by their names.
fn compile(made: &Path, from: &[&Path]) {
    let name = made.file_name().expect("it has one").to_string_lossy();
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-Wl,--no-as-needed", &format!("-Wl,-soname,{name}"), "-o"]);
    let status = command.arg(made).args(from).status();
    assert!(status.expect("there is a compiler: Rust links with it").success());
}

fn refused(path: &Path) -> String {
    Library::open(path).map(|library| library.version().to_owned()).expect_err("it is refused").to_string()
}

#[test]
fn another_abi_of_dpdk_is_refused_by_its_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = refused(&library(folder.path(), [INTERFACE, 23, 24]));
    assert!(said.contains("was built for ABI 23 of DPDK, and the installed DPDK has ABI 24"), "{said}");
    assert!(said.contains("\n  fix: build it again"), "{said}");
}

#[test]
fn a_dpdk_that_is_not_installed_is_named_with_its_abi() {
    let folder = tempfile::tempdir().expect("a folder");
    let (empty, needed) = (folder.path().join("empty.c"), folder.path().join("librte_eal.so.99"));
    std::fs::write(&empty, "int rte_nothing(void) { return 0; }\n").expect("it can be written");
    compile(&needed, &[&empty]);
    let made = folder.path().join("double.so");
    compile(&made, &[&empty, &needed]);
    std::fs::remove_file(&needed).expect("it is there");
    let said = refused(&made);
    assert!(
        said.contains("it was built for ABI 99 of DPDK, and librte_eal.so.99 is not installed"),
        "{said}"
    );
}

#[test]
fn another_interface_is_refused_by_its_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = refused(&library(folder.path(), [INTERFACE + 1, 24, 24]));
    let numbers =
        format!("its interface has number {}, and this program needs number {INTERFACE}", INTERFACE + 1);
    assert!(said.contains(&numbers), "{said}");
}

#[test]
fn a_library_without_the_functions_and_a_file_that_is_none_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = refused(&library(folder.path(), [INTERFACE, 24, 24]));
    assert!(said.contains("postern_start"), "{said}");
    let text = folder.path().join("text");
    std::fs::write(&text, "no library").expect("it can be written");
    assert!(matches!(Library::open(&text), Err(LoadError::Refused { .. })));
}

#[test]
fn a_library_that_is_nowhere_is_missing_with_what_to_do() {
    let said = LoadError::Missing(vec!["/opt/x/libpostern_dpdk.so".into()]).to_string();
    assert!(said.contains("fix: ") && said.contains("--features dpdk") && said.ends_with("/opt/x"), "{said}");
}
