//! Requests to the process that changes settings of the machine, and what it writes for them.

use config::settings::Machine;
use config::settings::machine::Part;
use gateway::machine::helper::render;
use gateway::machine::request::Request;
use serde_json::json;

/// What a line of a file may begin with.
type Words = &'static [&'static str];

const SNMP: Words = &[
    "agentaddress ",
    "master agentx",
    "agentXSocket /",
    "agentXPerms 0660 0755 -1 ",
    "sysContact ",
    "sysLocation ",
    "sysDescr ",
    "view postern included .1",
    "view postern excluded .1",
    "view postern-rw included .1",
    "rocommunity ",
    "rocommunity6 ",
    "rwcommunity ",
    "rwcommunity6 ",
    "trap2sink ",
    "exactEngineID 0x",
    "view view-",
    "createUser ",
    "rouser ",
    "rwuser ",
    "trapsess -v 3 -u ",
    "[snmp] clientaddr ",
];
const ROTATION: Words = &[
    "/var/log/",
    "\trotate ",
    "\tsize ",
    "\tmissingok",
    "\tnotifempty",
    "\tcompress",
    "\tpostrotate",
    "\t\t/usr/lib/",
    "\tendscript",
    "}",
];
const DHCP: Words = &[
    "bind-dynamic",
    "no-hosts",
    "port=0",
    "dhcp-leasefile=/",
    "dhcp-authoritative",
    "dhcp-range=set:net",
    "dhcp-option=tag:net",
    "dhcp-host=",
];
const DNS: Words = &[
    "bind-dynamic",
    "no-hosts",
    "cache-size=",
    "listen-address=",
    "bogus-priv",
    "domain-needed",
    "no-resolv",
    "server=",
];
const UNIT: Words = &[
    "[Unit]",
    "[Service]",
    "[Timer]",
    "[Install]",
    "Description=",
    "Type=oneshot",
    "Environment=PATH=/usr/local/sbin:",
    "ExecStart=\"/",
    "AccuracySec=1s",
    "OnCalendar=",
    "WantedBy=timers.target",
];

/// A request, or the lines of one for each part.
pub fn requests(data: &[u8]) {
    if let Ok(request) = Request::parse(data) {
        write(&request.machine);
    }
    let lines = String::from_utf8_lossy(data);
    for part in Part::ALL {
        let request = json!({ "verb": "apply", "part": part.to_string(), "lines": lines, "owner": "/a" });
        if let Ok(request) = Request::parse(request.to_string().as_bytes()) {
            write(&request.machine);
        }
    }
}

/// No value ends its line, or begins another one.
fn write(machine: &Machine) {
    if let Some(snmp) = &machine.snmp {
        let text = render::snmp(snmp, true, &render::Agents { sockets: vec!["/a".to_owned()], group: 7 });
        check(&text, SNMP);
        for line in text.lines().filter(|line| line.starts_with("ro") || line.starts_with("rw")) {
            assert_eq!(line.split_whitespace().count(), 5, "{line}");
        }
        // Passwords stand between quotes, and end none.
        for line in
            text.lines().filter(|line| line.starts_with("createUser ") || line.starts_with("trapsess "))
        {
            assert!(!line.contains('\\') && line.matches('"').count() % 2 == 0, "{line}");
        }
    }
    if let Some(syslog) = &machine.syslog {
        for line in render::syslog(syslog).lines() {
            let is_right = match line.split_once(" action(") {
                Some((filter, action)) => !filter.contains(['"', ' ']) && action.ends_with("\")"),
                None => line.starts_with("global(") || line.starts_with("module("),
            };
            assert!(is_right && line.matches('"').count() % 2 == 0, "{line}");
        }
        check(&render::rotation(syslog, true), ROTATION);
    }
    if let Some(text) = machine.dhcp.as_deref().and_then(render::dhcp) {
        check(&text, DHCP);
        // A name is the last word of its line, and no further one.
        for line in text.lines().filter(|line| line.starts_with("dhcp-host=")) {
            assert_eq!(line.split(',').count(), 3, "{line}");
        }
    }
    if let Some(dns) = &machine.dns {
        let text = render::dns(dns);
        check(&text, DNS);
        for line in text.lines().filter(|line| line.starts_with("server=/")) {
            assert!(line.matches('/').count() == 2 && line.matches('#').count() == 1, "{line}");
        }
    }
    let tasks: Vec<_> = machine.tasks.iter().map(|(name, task)| (name.clone(), task.clone())).collect();
    let crontab = render::crontab(&tasks);
    for ((name, task), lines) in tasks.iter().zip(crontab.lines().skip(2).collect::<Vec<_>>().chunks(2)) {
        let words = std::iter::once(&task.path).chain(&task.arguments).cloned().collect::<Vec<_>>();
        assert_eq!(lines[0], format!("# {name}"));
        assert_eq!(words_of_cron(lines[1]), Some(words), "{}", lines[1]);
    }
    assert_eq!(crontab.lines().count(), 2 + 2 * tasks.len());
    for (name, task) in &tasks {
        check(&render::task_service(name, task), UNIT);
        check(&render::task_timer(name, task), UNIT);
    }
}

/// The words that a program gets of a line of cron; none if the command ends early, or has anything but quoted words.
fn words_of_cron(line: &str) -> Option<Vec<String>> {
    let mut command = line.split_once(" root ")?.1.chars().peekable();
    let mut read = String::new();
    while let Some(character) = command.next() {
        match (character, command.peek()) {
            ('\\', Some('%' | '\\')) => read.extend(command.next()),
            // All behind it is the input of the command.
            ('%', _) => return None,
            _ => read.push(character),
        }
    }
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in read.chars() {
        match (character, quote) {
            (_, Some(open)) if character == open => quote = None,
            (_, Some('\'')) | ('\'', Some(_)) => word.get_or_insert_default().push(character),
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (' ', None) => words.extend(word.take()),
            // A shell would give it a meaning.
            _ => return None,
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

fn check(text: &str, words: Words) {
    for line in text.lines() {
        assert!(words.iter().any(|word| line.starts_with(word)), "{line:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::print::quoted;

    /// What could end a line, a quotation or a word in a file of another program, lead to another file, or be a command there.
    const NASTY: &[&str] = &[
        "",
        " ",
        "a b",
        "\t",
        "'",
        "\"",
        "a'b",
        "a\"b",
        "'; id '",
        "\"; id \"",
        "'$(id)'",
        "$(id)",
        "`id`",
        "$HOME",
        "\\",
        "a\\",
        "\\n",
        "%",
        "%n",
        "a%b",
        "\\%",
        ";",
        "a;id",
        "a|id",
        "a&id",
        "a>/etc/x",
        "#",
        "# a",
        "*",
        "?",
        "{",
        "}",
        "{}",
        "[snmp] clientaddr ::1",
        "(",
        ")",
        "..",
        "../a",
        "/",
        "/a/../b",
        "//",
        "-x",
        "--",
        "a,b",
        "a=b",
        "a:b",
        "\u{202e}",
        "\u{e4}",
        "-V view",
        ".1",
        "0",
        "-1",
    ];
    /// What no value may have: it ends a line for some program.
    const ENDS: &[&str] =
        &["\n", "\r", "\0", "\u{b}", "\u{c}", "\u{1b}", "\u{7f}", "\u{85}", "\u{2028}", "\u{2029}"];

    /// A name in the place of each that the user chooses.
    fn name_of(word: &str) -> &str {
        match word {
            "<community>" => "public",
            "<address>" => "10.0.0.1",
            "<facility>" => "all",
            "<file>" => "a.log",
            "<user>" => "root",
            "<task>" => "a",
            "<name>" | "<range>" => "LAN",
            "<prefix>" => "10.0.0.0/24",
            "<host>" => "printer",
            "<domain>" => "a.example",
            word => word,
        }
    }

    /// Lines that write a value into a file, if it is right: as the value of a node, or as the name that a path ends in.
    fn lines(path: &str, value: &str) -> String {
        let named = |path: &str| path.split(' ').map(name_of).collect::<Vec<_>>().join(" ");
        let task = |name: &str| {
            let task = format!("set system task-scheduler task {name}");
            let times = if path.ends_with("crontab-spec") {
                String::new()
            } else {
                format!(
                    "{task} interval 1d
"
                )
            };
            format!(
                "{task} executable path /config/scripts/a.sh
{times}"
            )
        };
        let value = quoted(value);
        let network = "set service dhcp-server shared-network-name LAN subnet 10.0.0.0/24";
        let dns = "set service dns forwarding";
        let beside = match path.split(' ').nth(1) {
            Some("dhcp-server") if path.contains("<prefix> ") => format!(
                "{network} range LAN start 10.0.0.10\n{network} range LAN stop 10.0.0.20\n\
                 {network} static-mapping printer mac 02:00:5e:10:00:01\n\
                 {network} static-mapping printer ip-address 10.0.0.9\n"
            ),
            Some("dns") => format!("{dns} listen-address 10.0.0.1\n{dns} name-server 10.0.0.1\n"),
            _ => String::new(),
        };
        // What makes a chosen name whole.
        let more: &[&str] = match path.rsplit(' ').next() {
            Some("<host>") => &["mac 02:00:5e:10:00:02", "ip-address 10.0.0.7"],
            Some("<range>") => &["start 10.0.0.30", "stop 10.0.0.40"],
            Some("<name>") => {
                &["subnet 10.0.0.0/24 range 0 start 10.0.0.10", "subnet 10.0.0.0/24 range 0 stop 10.0.0.20"]
            }
            Some("<domain>") => &["name-server 10.0.0.1"],
            _ => &[],
        };
        match path.strip_suffix('>').and_then(|path| path.rsplit_once(' ')) {
            Some((before, _)) if !more.is_empty() => {
                let before = named(before);
                let lines = more.iter().map(|more| format!("set {before} {value} {more}\n"));
                [beside].into_iter().chain(lines).collect()
            }
            Some(("system task-scheduler task", _)) => task(&value),
            Some((before, _)) if before.starts_with("system syslog") && !before.ends_with("facility") => {
                format!(
                    "set {} {value} facility all level err
",
                    named(before)
                )
            }
            Some((before, _)) => format!(
                "set {} {value}
",
                named(before)
            ),
            None if path.starts_with("system task-scheduler") => format!(
                "{}set {} {value}
",
                task("a"),
                named(path)
            ),
            None => format!(
                "{beside}set {} {value}
",
                named(path)
            ),
        }
    }

    /// Paths whose last word is followed by a value, and those that end in a name.
    fn leaves(part: Part) -> Vec<&'static str> {
        let begin = format!("{part} ");
        let values =
            config::schema::nodes().filter(|node| node.kind.value_type().is_some()).map(|node| node.path);
        let names = config::schema::tags().map(|tag| tag.path);
        values.chain(names).filter(|path| path.starts_with(&begin) || *path == begin.trim_end()).collect()
    }

    #[test]
    fn no_value_of_any_leaf_breaks_out_of_its_place_in_a_file() {
        let (mut taken, mut refused) = (0, 0);
        for part in Part::ALL {
            let leaves = leaves(part);
            // Forwarding is on or off, and has no values.
            assert!(!leaves.is_empty() || matches!(part, Part::Ip | Part::Ipv6), "{part}");
            for path in leaves {
                let long = ["a".repeat(300), "\u{e4}".repeat(150), "a ".repeat(150)];
                let ends =
                    ENDS.iter().flat_map(|end| [format!("a{end}b"), format!("{end}a"), format!("a{end}")]);
                for value in ends.chain(long) {
                    assert!(Machine::read(part, &lines(path, &value)).is_err(), "{path}: {value:?}");
                    refused += 1;
                }
                for value in NASTY {
                    if let Ok(machine) = Machine::read(part, &lines(path, value)) {
                        write(&machine);
                        taken += 1;
                    }
                }
            }
        }
        assert!(taken > 100 && refused > 500, "{taken} values were written, {refused} refused");
    }
}
