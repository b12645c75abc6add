//! The files and the command line of ipsec-secgw: lines that it accepts and refuses, with its messages; traps; words.
//!
//! The expected results are those of version 22.11 of DPDK.

mod lint;
mod refused;
mod settings;
mod silent;
mod words;

use config::secgw::{CommandLine, Context, Finding, Loaded, Severity, lint as find, read};

/// Site A of two, with four ports.
const SITE_A: &str = include_str!("sources/site-a.cfg");
const SITE_B: &str = include_str!("sources/site-b.cfg");

/// A policy and an SA without a trap, to which tests add words.
const SP: &str = "sp ipv4 in esp protect 300 pri 1 sport 0:65535 dport 0:65535";
const SA: &str = "sa in 300 mode ipv4-tunnel src 192.0.2.1 dst 192.0.2.2 aead_algo aes-128-gcm \
                  aead_key 01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f:10:11:12:13:14";

/// Reads a file of which ipsec-secgw's own rules hold.
fn strictly(text: &str) -> Loaded {
    read(text.as_bytes(), &Context { strict: true, ..Context::default() })
}

/// The message of the error that ends reading, without the name of the file.
fn error(text: &str) -> Option<String> {
    let loaded = strictly(text);
    let error = loaded.findings.iter().find(|finding| finding.severity == Severity::Error)?;
    assert!(!error.fix.is_empty(), "{error:?}");
    error.in_file("f").to_string().lines().next().map(str::to_owned)
}

/// The findings of a file and of a command line, as `LINE RULE`.
fn rules(text: &str, words: Option<&str>, strict: bool) -> Vec<String> {
    let words = words.map(|words| command_line(words).expect("the words are accepted"));
    let context = words.as_ref().map_or_else(Context::default, |words| words.context(strict));
    let loaded = read(text.as_bytes(), &Context { strict, ..context });
    let name = |finding: &Finding| format!("{} {}", finding.line.unwrap_or(0), finding.rule);
    find(&loaded, words.as_ref(), strict).iter().map(name).collect()
}

fn command_line(words: &str) -> Result<CommandLine, String> {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    CommandLine::read(&words, 4).map_err(|error| error.text)
}
