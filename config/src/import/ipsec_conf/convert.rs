//! A `conn` of ipsec.conf as a connection of swanctl.conf: the same settings under other names, each with its place.

use super::secrets::identity;
use super::words::{CHILD, CONNECTION, Dialect, SIDE, WITHOUT_EFFECT};
use super::{implied, renamed};
use crate::import::place::{Origin, SyntaxError, error};
use crate::import::report::Draft;
use crate::import::section::{Section, Setting};
use std::net::IpAddr;
use zeroize::Zeroizing;

/// The addresses of the sides, and which of them is ours.
struct Orientation {
    local: &'static str,
    remote: &'static str,
    is_said: bool,
}

fn orientation(conn: &Section, local: &[IpAddr]) -> Orientation {
    let is_ours = |side: &str| {
        let value = conn.value(side).unwrap_or_default();
        value == "%defaultroute" || value.parse().is_ok_and(|address| local.contains(&address))
    };
    let is_right = is_ours("right") && !is_ours("left");
    let (local, remote) = if is_right { ("right", "left") } else { ("left", "right") };
    Orientation { local, remote, is_said: is_ours(local) }
}

/// A connection with its children, or none if it is not to be loaded.
pub(super) fn connection(
    mut conn: Section,
    dialect: Dialect,
    local: &[IpAddr],
    draft: &mut Draft,
) -> Result<Option<Section>, SyntaxError> {
    let auto = conn.take("auto");
    if auto.as_ref().is_none_or(|auto| &**auto.value == "ignore") {
        let why = "it is not loaded: auto is not set, or ignore";
        if let Some(auto) = &auto {
            draft.leave(&auto.origin, why, "set auto=add, and import again");
        }
        conn.refuse(draft, false, why, "set auto=add, and import again");
        return Ok(None);
    }
    let sides = orientation(&conn, local);
    let mut connection = Section::new(conn.name.clone(), conn.origin.clone());
    let mut child = Section::new(conn.name.clone(), conn.origin.clone());
    version(&mut conn, &mut connection);
    let mut parts = [("local", sides.local), ("remote", sides.remote)].map(|(name, side)| {
        let mut part = Section::new(name, conn.origin.clone());
        address(&mut conn, side, name, &sides, &mut connection, &mut part, draft);
        credentials(&mut conn, side, name, &mut part, draft);
        second_round(&mut conn, side, name).into_iter().chain([part]).collect::<Vec<_>>()
    });
    authentication(&mut conn, dialect, &mut parts);
    virtual_addresses(&mut conn, &sides, dialect, &mut connection, draft);
    times(&mut conn, dialect, &mut connection, &mut child, draft);
    dead_peers(&mut conn, dialect, &mut connection, &mut child, draft);
    names(&mut conn, CONNECTION, &mut connection);
    names(&mut conn, CHILD, &mut child);
    kinds(&mut conn, auto, &mut child);
    for (section, name) in [(&mut connection, "proposals"), (&mut child, "esp_proposals")] {
        strict(section, name);
    }
    if dialect == Dialect::Libreswan && child.value("pfs").is_none() {
        child.settings.push(implied(&conn.origin, "pfs", "yes"));
    }
    for (name, why) in WITHOUT_EFFECT {
        conn.take(name).into_iter().for_each(|setting| draft.translate(&setting.origin, &[], *why));
    }
    let mut children = Section::new("children", conn.origin.clone());
    children.sections = networks(&mut conn, &sides, &child, draft)?;
    connection.sections = parts.into_iter().flatten().chain([children]).collect();
    scripts(&mut conn, &sides, draft);
    // Settings that no step above has taken are reported with the connection.
    connection.settings.append(&mut conn.settings);
    Ok(Some(connection))
}

/// Moves settings to a section, under its names for them. Where a setting has two names, the first counts.
fn names(conn: &mut Section, table: &[(&str, &str)], to: &mut Section) {
    for (name, renames) in table {
        if to.value(renames).is_none()
            && let Some(setting) = conn.take(name)
        {
            to.settings.push(renamed(setting, renames));
        }
    }
}

fn version(conn: &mut Section, connection: &mut Section) {
    for name in ["keyexchange", "ikev2"] {
        let Some(setting) = conn.take(name) else { continue };
        let version = match setting.value.as_str() {
            "ikev1" | "no" | "never" => "1",
            "ikev2" | "insist" | "yes" => "2",
            _ => "0",
        };
        let value = Zeroizing::new(version.to_owned());
        connection.put(Setting { name: "version".to_owned(), value, ..setting });
    }
}

fn address(
    conn: &mut Section,
    side: &'static str,
    name: &str,
    sides: &Orientation,
    connection: &mut Section,
    part: &mut Section,
    draft: &mut Draft,
) {
    let Some(mut setting) = conn.take(side) else { return };
    if name == "local" && !sides.is_said {
        let why = "it is taken to be this gateway; otherwise import with --local ADDRESS";
        draft.translate(&setting.origin, &[], why);
    }
    let text = match setting.value.as_str() {
        "%defaultroute"
        | "%any"
        | "%any4"
        | "%any6"
        | "%opportunistic"
        | "%group"
        | "%opportunisticgroup" => "%any",
        // strongSwan also accepts other addresses then.
        text => text.strip_prefix('%').unwrap_or(text),
    };
    if name == "remote" && text != "%any" && conn.value(&format!("{side}id")).is_none() {
        part.settings.push(implied(&setting.origin, "id", text));
    }
    setting.value = Zeroizing::new(text.to_owned());
    connection.settings.push(renamed(setting, &format!("{name}_addrs")));
    if let Some(port) = conn.take(&format!("{side}ikeport")) {
        connection.settings.push(renamed(port, &format!("{name}_port")));
    }
}

/// The identity of a side, and what it shows.
fn credentials(conn: &mut Section, side: &str, name: &str, part: &mut Section, draft: &mut Draft) {
    for (word, renames) in SIDE {
        // Whose authority signed our own certificate does not matter here.
        if name == "local" && *word == "ca" {
            continue;
        }
        let Some(mut setting) = conn.take(&format!("{side}{word}")) else { continue };
        let text = setting.value.as_str();
        let text = match (*word, text) {
            ("id", "%fromcert" | "%cert")
            | ("rsasigkey" | "sigkey" | "pubkey", "%cert" | "%dnsondemand" | "%none") => {
                draft.translate(&setting.origin, &[], "it is the certificate that counts");
                continue;
            }
            ("ca", "%same") => {
                draft.translate(&setting.origin, &[], "the authorities that are trusted are named");
                continue;
            }
            ("id", text) if text.starts_with('%') && text != "%any" => {
                text.trim_start_matches('%').to_owned()
            }
            ("id", text) => identity(text),
            (_, text) => text.to_owned(),
        };
        setting.value = Zeroizing::new(text);
        part.settings.push(renamed(setting, renames));
    }
}

/// A second authentication of a side, which is not served.
fn second_round(conn: &mut Section, side: &str, name: &str) -> Option<Section> {
    let names = ["auth2", "id2", "cert2", "ca2"];
    let found: Vec<Setting> = names.iter().filter_map(|word| conn.take(&format!("{side}{word}"))).collect();
    let first = found.first()?.origin.clone();
    let mut section = Section::new(format!("{name}-2"), first);
    section.settings = found;
    Some(section)
}

fn authentication(conn: &mut Section, dialect: Dialect, parts: &mut [Vec<Section>; 2]) {
    let authby = conn.take("authby").or_else(|| conn.take("auth"));
    let method = |text: &str| match text {
        "secret" | "psk" => "psk".to_owned(),
        "pubkey" | "rsasig" | "ecdsasig" | "rsa" | "ecdsa" => "pubkey".to_owned(),
        text if dialect == Dialect::Libreswan
            && text.split(',').all(|it| it.starts_with("rsa") || it.starts_with("ecdsa")) =>
        {
            "pubkey".to_owned()
        }
        text => text.to_owned(),
    };
    for part in parts.iter_mut().flatten() {
        match (part.value("auth").map(method), &authby) {
            (Some(found), _) => {
                let setting = part.settings.iter_mut().find(|setting| setting.name == "auth");
                if let Some(setting) = setting {
                    setting.value = Zeroizing::new(found);
                }
            }
            (None, Some(authby)) => {
                let value = Zeroizing::new(method(&authby.value));
                part.settings.push(Setting { name: "auth".to_owned(), value, origin: authby.origin.clone() });
            }
            (None, None) => part.settings.push(implied(&part.origin.clone(), "auth", "pubkey")),
        }
    }
}

/// Virtual addresses, given or asked for: they make a connection one of clients.
fn virtual_addresses(
    conn: &mut Section,
    sides: &Orientation,
    dialect: Dialect,
    connection: &mut Section,
    draft: &mut Draft,
) {
    if let Some(own) = conn.take(&format!("{}sourceip", sides.local)) {
        if dialect == Dialect::Libreswan && !own.value.starts_with('%') {
            let why = "the system chooses the source address of packets of this gateway";
            draft.leave(&own.origin, why, "ip route replace PREFIX dev ipsec0 src ADDRESS");
        } else {
            connection.settings.push(renamed(own, "vips"));
        }
    }
    let pools = ["sourceip", "addresspool"].map(|word| conn.take(&format!("{}{word}", sides.remote)));
    connection.settings.extend(pools.into_iter().flatten().map(|setting| renamed(setting, "pools")));
}

fn times(
    conn: &mut Section,
    dialect: Dialect,
    connection: &mut Section,
    child: &mut Section,
    draft: &mut Draft,
) {
    let (rekey, reauth, life) = (conn.take("rekey"), conn.take("reauth"), conn.take("ikelifetime"));
    let never = rekey.as_ref().filter(|setting| setting.is_no());
    let again = match &reauth {
        Some(setting) => setting.is_yes(),
        None => dialect == Dialect::StrongSwan,
    };
    let origin = life.as_ref().map_or(&conn.origin, |life| &life.origin).clone();
    if let Some(never) = never {
        connection.settings.push(renamed(implied(&never.origin, "", "0"), "rekey_time"));
        child.settings.push(renamed(implied(&never.origin, "", "0"), "rekey_time"));
        if let Some(life) = &life {
            draft.translate(&life.origin, &[], "the IKE SA is not rekeyed");
        }
    } else {
        let seconds = if dialect == Dialect::StrongSwan { "3h" } else { "8h" };
        let value = life.as_ref().map_or(seconds, |life| life.value.as_str());
        connection.settings.push(implied(&origin, if again { "reauth_time" } else { "rekey_time" }, value));
        if let Some(rekey) = &rekey {
            draft.take(&rekey.origin, &[]);
        }
    }
    let why = "an IKE SA is replaced by a new one, or only gets new keys";
    if let Some(reauth) = &reauth {
        draft.translate(&reauth.origin, &[], why);
    }
}

fn dead_peers(
    conn: &mut Section,
    dialect: Dialect,
    connection: &mut Section,
    child: &mut Section,
    draft: &mut Draft,
) {
    let [action, delay, timeout] = ["dpdaction", "dpddelay", "dpdtimeout"].map(|name| conn.take(name));
    let is_on = match (&action, dialect) {
        (Some(action), Dialect::StrongSwan) => &**action.value != "none",
        (None, Dialect::StrongSwan) => false,
        (_, Dialect::Libreswan) => delay.is_some(),
    };
    if !is_on {
        let all = [action, delay, timeout].into_iter().flatten();
        all.for_each(|setting| draft.translate(&setting.origin, &[], "nothing looks for dead peers"));
        return;
    }
    let origin = action.as_ref().map_or(&conn.origin, |action| &action.origin).clone();
    let delay = delay.unwrap_or_else(|| implied(&origin, "", "30s"));
    connection.settings.push(renamed(delay, "dpd_delay"));
    connection.settings.extend(timeout.map(|timeout| renamed(timeout, "dpd_timeout")));
    child.settings.extend(action.map(|action| renamed(action, "dpd_action")));
}

/// When a connection starts, and what it does with packets.
fn kinds(conn: &mut Section, auto: Option<Setting>, child: &mut Section) {
    if let Some(mut auto) = auto {
        let action = match auto.value.as_str() {
            "start" | "up" => "start",
            "route" | "ondemand" => "trap",
            _ => "none",
        };
        auto.value = Zeroizing::new(action.to_owned());
        child.settings.push(renamed(auto, "start_action"));
    }
    if let Some(mut kind) = conn.take("type") {
        let mode = match kind.value.as_str() {
            "passthrough" => "pass",
            "reject" => "drop",
            other => other,
        };
        kind.value = Zeroizing::new(mode.to_owned());
        child.settings.push(renamed(kind, "mode"));
    }
    if conn.value("phase2") == Some("ah")
        && let Some(phase2) = conn.take("phase2")
    {
        child.settings.push(renamed(phase2, "ah_proposals"));
    }
}

/// Removes the mark of strictness, which is how it always is here.
fn strict(section: &mut Section, name: &str) {
    let setting = section.settings.iter_mut().find(|setting| setting.name == name);
    let Some(setting) = setting else { return };
    setting.value = Zeroizing::new(setting.value.trim_end_matches('!').to_owned());
}

/// A child for each pair of networks; strongSwan has lists of them, libreswan a tunnel for each.
fn networks(
    conn: &mut Section,
    sides: &Orientation,
    child: &Section,
    draft: &mut Draft,
) -> Result<Vec<Section>, SyntaxError> {
    let all = [("local_ts", sides.local), ("remote_ts", sides.remote)].map(|(name, side)| {
        let ports = conn.take(&format!("{side}protoport"));
        let kind = ports.as_ref().map(|ports| format!("[{}]", ports.value.as_str())).unwrap_or_default();
        let with_kind = |network: &str| {
            if network.contains('[') { network.to_owned() } else { format!("{network}{kind}") }
        };
        if let Some(several) = conn.take(&format!("{side}subnets")) {
            if let Some(ports) = &ports {
                draft.translate(&ports.origin, &[], "it is for all networks");
            }
            let list = several.value.trim_matches(['{', '}', ' ']).split([',', ' ', '\t']);
            let list = list.filter(|network| !network.is_empty()).map(with_kind);
            return list.map(|network| vec![implied(&several.origin, name, &network)]).collect::<Vec<_>>();
        }
        let Some(one) = conn.take(&format!("{side}subnet")) else {
            let dynamic = ports.map(|ports| vec![implied(&ports.origin, name, &with_kind("dynamic"))]);
            return vec![dynamic.unwrap_or_default()];
        };
        if let Some(ports) = &ports {
            draft.translate(&ports.origin, &[], "it is for all networks");
        }
        let networks = one.list().map(with_kind).collect::<Vec<_>>().join(",");
        vec![vec![implied(&one.origin, name, &networks)]]
    });
    let mut children = Vec::new();
    let [ours, theirs] = all;
    check_number(conn, &ours, &theirs)?;
    for (local, remote) in ours.iter().flat_map(|ours| theirs.iter().map(move |theirs| (ours, theirs))) {
        let mut one = child.clone();
        if !children.is_empty() {
            one.name = format!("{}-{}", child.name, children.len() + 1);
        }
        one.settings.extend(local.iter().chain(remote).cloned());
        children.push(one);
    }
    Ok(children)
}

/// The maximum number of tunnels that one connection stands for.
const MOST_CHILDREN: usize = 256;

/// Refuses networks of both sides that make too many tunnels: a tunnel that is left out is one without protection.
fn check_number(conn: &Section, ours: &[Vec<Setting>], theirs: &[Vec<Setting>]) -> Result<(), SyntaxError> {
    let count = ours.len().saturating_mul(theirs.len());
    if count <= MOST_CHILDREN {
        return Ok(());
    }
    let longest = if ours.len() > theirs.len() { ours } else { theirs };
    let first = longest.first().and_then(|network| network.first());
    let Origin { place, option } = first.map_or(&conn.origin, |setting| &setting.origin);
    let reason = format!("{option}: these networks make {count} tunnels, and {MOST_CHILDREN} are the most");
    let (name, word) = (&conn.name, option.rsplit(' ').next().unwrap_or_default());
    let fix = format!(
        "name a part of them here, and the others in another section: conn {name}-2, with also={name} and {word}={{...}}"
    );
    Err(error(place.clone(), &reason, &fix))
}

/// What both programs do with scripts and the firewall.
fn scripts(conn: &mut Section, sides: &Orientation, draft: &mut Draft) {
    for side in [sides.local, sides.remote] {
        for word in ["firewall", "hostaccess", "updown"] {
            let Some(setting) = conn.take(&format!("{side}{word}")) else { continue };
            if setting.is_no() || &**setting.value == "%disabled" {
                draft.take(&setting.origin, &[]);
                continue;
            }
            let why = "Postern sets no rules of a firewall, and runs no scripts";
            draft.leave_open(
                &setting.origin,
                why,
                "set the rules in nftables.conf: ipsec0 has the packets in clear",
            );
        }
        if let Some(any) = conn.take(&format!("{side}allowany")) {
            let why = "a peer is accepted from every address, as its identity counts";
            draft.translate(&any.origin, &[], why);
        }
    }
}
