//! Tasks of the command line of OpenVPN that serve nothing: lists, keys, and the test of the ciphers.

mod genkey;
mod lists;
mod self_test;

use crate::{Failure, Outcome};
use clap::CommandFactory;

/// The directives of a command line, each with its arguments.
type Given<'a> = Vec<(&'a str, &'a [String])>;

type Run = fn(&Given<'_>) -> Outcome;

/// Each task: the directive that names it, directives that may stand beside it, and what carries it out.
const TASKS: &[(&str, &[&str], Run)] = &[
    ("help", &[], |_| help()),
    ("version", &[], |_| print(lists::version)),
    ("show-ciphers", &[], |_| print(lists::ciphers)),
    ("show-digests", &[], |_| print(lists::digests)),
    ("show-tls", &["tls-cert-profile", "tls-cipher", "tls-ciphersuites"], |_| print(lists::suites)),
    ("show-curves", &[], |_| print(lists::groups)),
    ("show-groups", &[], |_| print(lists::groups)),
    ("show-engines", &[], |_| print(lists::engines)),
    ("show-gateway", &[], |_| lists::gateways()),
    ("genkey", &["secret", "tls-crypt-v2"], genkey::run),
    ("test-crypto", &["secret", "cipher", "auth"], self_test::run),
];

/// Prints a list.
#[expect(clippy::unnecessary_wraps, reason = "other tasks fail")]
fn print(list: fn()) -> Outcome {
    list();
    Ok(())
}

/// Directives that may stand beside each task, without an effect on it.
const BESIDE: &[&str] = &["verb", "providers", "engine", "prng"];

/// Carries out the task of a command line, if it has one.
pub(super) fn run(directives: &[String]) -> Option<Outcome> {
    let given = parse(directives);
    let is_given = |name: &str| given.iter().any(|(other, _)| *other == name);
    let (name, known, run) = TASKS.iter().find(|(name, ..)| is_given(name))?;
    let is_known = |other: &str| other == *name || known.contains(&other) || BESIDE.contains(&other);
    if let Some((other, _)) = given.iter().find(|(other, _)| !is_known(other)) {
        let text = format!("{other}: it has no effect beside --{name}\n  fix: delete it");
        return Some(Err(text.into()));
    }
    Some(run(&given))
}

/// Directives begin with two dashes. Words before the first are the name of a file, which has no tasks.
fn parse(directives: &[String]) -> Given<'_> {
    let starts = |from: usize| (from..directives.len()).find(|index| directives[*index].starts_with("--"));
    let mut given = Given::new();
    let mut next = starts(0).filter(|index| *index == 0);
    while let Some(index) = next {
        next = starts(index + 1);
        let arguments = &directives[index + 1..next.unwrap_or(directives.len())];
        given.push((&directives[index][2..], arguments));
    }
    given
}

/// The first argument of a directive.
fn argument<'a>(given: &Given<'a>, name: &str) -> Option<&'a str> {
    let (_, arguments) = given.iter().find(|(other, _)| *other == name)?;
    arguments.first().map(String::as_str)
}

/// Scripts look for a directive in the help, as `--data-ciphers`.
fn help() -> Outcome {
    let mut command = crate::Cli::command();
    let command = command.find_subcommand_mut("openvpn").ok_or("the command has no help")?;
    print!("{}\nDirectives:\n", command.render_help());
    for row in config::openvpn::rows() {
        println!("{}", format!("--{} {}", row.name, row.usage).trim_end());
    }
    Ok(())
}

/// Writes a new file that this user alone can read; without a name, to the standard output.
fn write_key(name: Option<&str>, text: &str) -> Outcome {
    use std::io::Write;
    let Some(name) = name else {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        return Ok(out.flush()?);
    };
    let written = if name.starts_with("/dev/") {
        std::fs::OpenOptions::new()
            .write(true)
            .open(name)
            .and_then(|mut file| file.write_all(text.as_bytes()))
    } else {
        disk::write(name.as_ref(), &disk::Wanted::private(text.as_bytes()))
    };
    written.map_err(|error| Failure::from(format!("{name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_file_or_a_tunnel_is_no_task() {
        for line in ["client.conf", "--config client.conf", "--dev tun --remote a --verb 3", "--show-nothing"]
        {
            assert!(run(&words(line)).is_none(), "{line}");
        }
    }

    #[test]
    fn what_has_no_effect_beside_a_task_is_refused() {
        let outcome = run(&words("--show-ciphers --remote a 1194")).expect("a task");
        assert!(outcome.is_err_and(|error| error.to_string().starts_with("remote: it has no effect")));
    }

    #[test]
    fn each_task_is_a_directive_that_a_file_may_not_have() {
        for (name, beside, _) in TASKS {
            let row = config::openvpn::find(name).unwrap_or_else(|| panic!("{name}"));
            assert!(matches!(row.fate, config::openvpn::Fate::Refused { .. }), "{name}");
            assert!(beside.iter().chain(BESIDE).all(|name| config::openvpn::find(name).is_some()), "{name}");
        }
    }

    #[test]
    fn words_belong_to_the_directive_before_them() {
        let line = words("--genkey tls-crypt-v2-client c.key AAAA --tls-crypt-v2 s.key");
        let given = parse(&line);
        assert_eq!(
            given.iter().map(|(name, rest)| (*name, rest.len())).collect::<Vec<_>>(),
            [("genkey", 3), ("tls-crypt-v2", 1)]
        );
        assert_eq!(argument(&given, "tls-crypt-v2"), Some("s.key"));
    }
}
