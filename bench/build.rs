//! Notes for which processor the program is built: on 32-bit ARM the compiler does not tell the program that it may use NEON.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(built_with_neon)");
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let features = std::env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    println!("cargo:rustc-env=POSTERN_CPU={}", options(&flags, "target-cpu=").last().unwrap_or_default());
    let is_told = options(&flags, "target-feature=").any(|list| list.split(',').any(|it| it == "+neon"));
    if is_told || features.split(',').any(|it| it == "neon") {
        println!("cargo:rustc-cfg=built_with_neon");
    }
}

/// The values of a codegen option, which follows `-C` with or without a space.
fn options<'a>(flags: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    flags.split('\u{1f}').filter_map(move |flag| flag.strip_prefix("-C").unwrap_or(flag).strip_prefix(name))
}
