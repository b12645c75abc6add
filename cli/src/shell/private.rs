//! Text without what is private, to be shown to others: addresses, keys and secrets, names of hosts and users.

use regex_lite::{Captures, Regex};
use std::net::IpAddr;
use std::sync::LazyLock;

/// What stands in the place of a name.
const NAME: &str = "xxxxxx";

/// Names that are written behind these words, of a configuration in each of its forms: `community public {`, `"local-id": "a"`.
static NAMED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let words = "community|contact|domain-name|host-name|local-id|location|remote-id|user|username";
    Regex::new(&format!(r#"(^[+>-]?|[\s"])({words})("?:?\s+)("[^"]*"|'[^']*'|[^\s"'{{\[][^\s{{]*)"#)).ok()
});

/// Arguments of a task, to the end of the line.
static ARGUMENTS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(^[+>-]?|[\s"])(arguments"?:?\s+)\S.*$"#).ok());

/// What may be an address: of IPv4, or of IPv6 and of a network card.
static ADDRESS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"[0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9a-fA-F]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*").ok()
});

/// `user@host`, a key for ssh or an identity of IKE.
static MAIL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9][A-Za-z0-9.-]*").ok());

/// A text without what is private in it.
pub(super) fn stripped(text: &str) -> String {
    let (Some(named), Some(arguments), Some(address), Some(mail)) = (&*NAMED, &*ARGUMENTS, &*ADDRESS, &*MAIL)
    else {
        return String::new();
    };
    let mut communities = Communities::default();
    let line = |line: &str| {
        let shown = config::error::without_secrets(line);
        let shown = communities.hidden(&shown);
        let shown = named.replace_all(&shown, |found: &Captures<'_>| {
            format!("{}{}{}{NAME}", &found[1], &found[2], &found[3])
        });
        let shown = arguments.replace_all(&shown, format!("${{1}}${{2}}{NAME}"));
        let shown = mail.replace_all(&shown, format!("{NAME}@xxx.xxx"));
        format!("{}\n", address.replace_all(&shown, |found: &Captures<'_>| hidden(&found[0])))
    };
    text.lines().map(line).collect()
}

/// Communities of SNMP in JSON, where they are the names of objects: those one deeper than `"community": {`.
#[derive(Default)]
struct Communities {
    inside: Option<usize>,
}

impl Communities {
    fn hidden(&mut self, line: &str) -> String {
        let indent = line.len() - line.trim_start().len();
        match self.inside {
            Some(outer) if indent == outer + 2 && line.trim_start().starts_with('"') => {
                let end = line.find("\":").map_or("", |at| &line[at..]);
                return format!("{}\"{NAME}{end}", " ".repeat(indent));
            }
            Some(outer) if indent <= outer => self.inside = None,
            _ => {}
        }
        if line.trim() == "\"community\": {" {
            self.inside = Some(indent);
        }
        line.to_owned()
    }
}

/// An address without its first half; what is none stays.
fn hidden(text: &str) -> String {
    // A colon or a full stop behind an address is not of it.
    let address = if text.ends_with("::") { text } else { text.trim_end_matches([':', '.']) };
    let rest = &text[address.len()..];
    let parts: Vec<&str> = address.split(':').collect();
    let is_mac = parts.len() == 6 && parts.iter().all(|part| part.len() == 2);
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            let [_, _, third, fourth] = address.octets();
            format!("xxx.xxx.{third}.{fourth}{rest}")
        }
        Ok(IpAddr::V6(address)) => {
            let last = address.segments()[4..].iter().map(|part| format!("{part:x}")).collect::<Vec<_>>();
            format!("xxxx:xxxx:xxxx:xxxx:{}{rest}", last.join(":"))
        }
        Err(_) if is_mac => format!("xx:xx:xx:{}{rest}", parts[3..].join(":")),
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_private_is_left() {
        for (line, shown) in [
            ("peer 203.0.113.10 up", "peer xxx.xxx.113.10 up"),
            ("endpoint 203.0.113.10:51820", "endpoint xxx.xxx.113.10:51820"),
            ("peer-203.0.113.10-tunnel-1", "peer-xxx.xxx.113.10-tunnel-1"),
            ("10.0.0.0/24 <> 10.1.0.1.", "xxx.xxx.0.0/24 <> xxx.xxx.0.1."),
            ("local-address 2001:db8::1", "local-address xxxx:xxxx:xxxx:xxxx:0:0:0:1"),
            ("prefix 2001:db8::/32", "prefix xxxx:xxxx:xxxx:xxxx:0:0:0:0/32"),
            ("[2001:db8::1]:51820", "[xxxx:xxxx:xxxx:xxxx:0:0:0:1]:51820"),
            (
                "fe80::1%eth0: ::ffff:192.0.2.1",
                "xxxx:xxxx:xxxx:xxxx:0:0:0:1%eth0: xxxx:xxxx:xxxx:xxxx:0:ffff:c000:201",
            ),
            ("mac 52:54:00:12:34:56 at 10:15:30", "mac xx:xx:xx:12:34:56 at 10:15:30"),
            (
                "set vpn ipsec authentication psk a secret Open",
                "set vpn ipsec authentication psk a secret ****",
            ),
            ("        secret \"Open Sesame\"", "        secret ***** *******"),
            (
                "set service snmp community public authorization ro",
                "set service snmp community xxxxxx authorization ro",
            ),
            ("    community public {", "    community xxxxxx {"),
            ("+    community 'public'", "+    community xxxxxx"),
            (
                "set system task-scheduler task a executable arguments '--with Sesame'",
                "set system task-scheduler task a executable arguments xxxxxx",
            ),
            (r#"    arguments "--to 'the \" office' --with Sesame""#, "    arguments xxxxxx"),
            (r#"  "arguments": "--with Sesame","#, r#"  "arguments": xxxxxx"#),
            ("set system host-name gate", "set system host-name xxxxxx"),
            ("    local-id \"gate.example.org\"", "    local-id xxxxxx"),
            ("  \"remote-id\": \"gate.example.org\",", "  \"remote-id\": xxxxxx,"),
            (
                "set vpn ipsec authentication psk a id me@example.org",
                "set vpn ipsec authentication psk a id xxxxxx@xxx.xxx",
            ),
            ("interfaces wireguard wg0 mtu 1400", "interfaces wireguard wg0 mtu 1400"),
            ("5.15.0-91 kernel: user-defined", "5.15.0-91 kernel: user-defined"),
        ] {
            assert_eq!(stripped(line), format!("{shown}\n"));
        }
        let key = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";
        assert!(!stripped(&format!("  public-key {key}")).contains("YAnz"));
    }

    #[test]
    fn communities_are_hidden_in_json_too() {
        let text = "{\n  \"snmp\": {\n    \"community\": {\n      \"public\": {\n        \"network\": [\n          \"10.0.0.0/8\"\n        ]\n      }\n    },\n    \"x\": {}\n  }\n}\n";
        let shown = stripped(text);
        assert!(
            !shown.contains("public")
                && shown.contains("      \"xxxxxx\": {\n")
                && shown.contains("\"x\": {}"),
            "{shown}"
        );
        assert!(shown.contains("xxx.xxx.0.0/8"), "{shown}");
    }
}
