//! Configurations of other programs. Each line that comes of one is of the grammar, and each entry of the report has its place.

use config::Text;
use config::export;
use config::import::{Format, NoFiles, Source, Wanted, import};

fn source(name: &str, data: &[u8]) -> Source {
    let text = Text::read_from(data).expect("memory");
    Source { name: name.to_owned(), text }
}

fn check(format: Format, sources: &[Source]) {
    match import(format, sources, &NoFiles, &["192.0.2.2".parse().expect("literal")]) {
        Ok(imported) => {
            let text = imported.text.as_str().expect("it comes of UTF-8");
            assert!(config::parse(text).is_ok(), "{text}");
            // What is in no section of ipsec.secrets has the place of the file.
            assert!(imported.entries.iter().all(|entry| !entry.place.file.is_empty()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Files of wg-quick.
pub fn wg_quick(data: &[u8]) {
    check(Format::WgQuick, &[source("wg0.conf", data)]);
}

/// swanctl.conf.
pub fn swanctl(data: &[u8]) {
    check(Format::Swanctl, &[source("swanctl.conf", data)]);
}

/// ipsec.conf, and behind a zero byte ipsec.secrets.
pub fn ipsec_conf(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let [conf, secrets] = [(); 2].map(|()| parts.next().unwrap_or_default());
    check(Format::IpsecConf, &[source("ipsec.conf", conf), source("ipsec.secrets", secrets)]);
}

/// Configurations of VyOS and EdgeOS.
pub fn router(data: &[u8]) {
    for format in [Format::Vyos, Format::EdgeOs] {
        check(format, &[source("config.boot", data)]);
    }
}

/// UCI of OpenWrt. A configuration that comes of it can be written as UCI, from which it comes again.
pub fn uci(data: &[u8]) {
    for wanted in [Wanted::All, Wanted::Own] {
        check(Format::Uci(wanted), &[source("network", data)]);
    }
    if let Ok(imported) = import(Format::Uci(Wanted::Own), &[source("network", data)], &NoFiles, &[]) {
        let tree = config::parse(imported.text.as_str().expect("it comes of UTF-8")).expect("it was checked");
        assert!(export::uci(&tree).is_ok());
    }
}
