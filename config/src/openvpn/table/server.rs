//! What a server alone has.

use crate::openvpn::draft::{Draft, ServerHelper};
use crate::openvpn::given::Given;
use crate::openvpn::row::{Row, harmless, served};
use crate::openvpn::settings::{CertificateOf, ClientFile, PasswordCheck, Pool, Pool6, Token};
use crate::openvpn::verdict::Wrong;
use ipnet::{IpNet, Ipv4Net};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Rows of a server, and of the files of its clients.
pub(super) const ROWS: &[Row] = &[
    served("server", "NETWORK NETMASK [nopool]", "role, server.pool, device.addresses", |draft, given| {
        let network = given.network(0)?;
        if network.addr() != network.network() {
            let fix = format!("write server {} {}", network.network(), network.netmask());
            return Err(Wrong::new(
                format!("{} is not the first address of its network", network.addr()),
                fix,
            ));
        }
        if !(8..=29).contains(&network.prefix_len()) {
            let reason = format!("a network of length {} is too small or too large", network.prefix_len());
            return Err(Wrong::new(reason, "write server 10.8.0.0 255.255.255.0"));
        }
        let has_pool =
            given.get(2).map(|_| given.choice(2, &[("nopool", false)])).transpose()?.unwrap_or(true);
        draft.helper = Some(ServerHelper { network, has_pool });
        Ok(())
    }),
    served("server-ipv6", "NETWORK/LENGTH", "role, server.pool6, device.ipv6", |draft, given| {
        let network = given.prefix6(0, 64)?;
        if !(64..=124).contains(&network.prefix_len()) {
            let reason = format!("a network of length {} is too small or too large", network.prefix_len());
            return Err(Wrong::new(reason, "use a length from 64 to 124"));
        }
        draft.helper6 = Some(network.trunc());
        Ok(())
    }),
    served("ifconfig-pool", "FIRST LAST [NETMASK]", "server.pool", |draft, given| {
        let (first, last) = (given.ipv4(0)?, given.ipv4(1)?);
        // OpenVPN's own limit is 65,536 addresses.
        match u32::from(last).checked_sub(u32::from(first)) {
            Some(0..=65_535) => draft.server.pool = Some(Pool { first, last }),
            Some(_) => return Err(given.wrong("the pool has more than 65536 addresses")),
            None => return Err(given.wrong(format!("{last} is before {first}"))),
        }
        Ok(())
    })
    .server(),
    served("ifconfig-ipv6-pool", "FIRST/LENGTH", "server.pool6", |draft, given| {
        draft.server.pool6 = Some(Pool6 { first: given.prefix6(0, 64)? });
        Ok(())
    })
    .server(),
    served("ifconfig-pool-linear", "", "device.topology", |draft, _| {
        draft.is_linear = true;
        Ok(())
    })
    .server(),
    served("ifconfig-pool-persist", "FILE [SECONDS]", "server.leases", |draft, given| {
        draft.server.leases = Some((given.path(0)?, given.count_or(1, 600)?));
        Ok(())
    })
    .server(),
    served("push", "OPTION", "server.push", push).server().in_client_file(|client, given| {
        client.push.push(given.owned(0)?);
        Ok(())
    }),
    served("client-config-dir", "DIRECTORY", "server.client_directory", |draft, given| {
        draft.server.client_directory = Some(given.inner_path(0)?);
        Ok(())
    })
    .server(),
    served("ccd-exclusive", "", "server.only_with_file", |draft, _| {
        draft.server.only_with_file = true;
        Ok(())
    })
    .server(),
    served("client-to-client", "", "server.client_to_client", |draft, _| {
        draft.server.client_to_client = true;
        Ok(())
    })
    .server(),
    served("duplicate-cn", "", "server.duplicate_names", |draft, _| {
        draft.server.duplicate_names = true;
        Ok(())
    })
    .server(),
    served("max-clients", "NUMBER", "server.max_clients", |draft, given| {
        draft.server.max_clients = given.number(0, 1..=16_777_214)?;
        Ok(())
    })
    .server(),
    served("max-routes-per-client", "NUMBER", "server.max_routes", |draft, given| {
        draft.server.max_routes = given.count(0)?;
        Ok(())
    })
    .server(),
    served("connect-freq", "NUMBER SECONDS", "server.connect_limit", |draft, given| {
        draft.server.connect_limit =
            Some((given.number(0, 1..=u32::MAX >> 1)?, given.number(1, 1..=u32::MAX >> 1)?));
        Ok(())
    })
    .server(),
    served("connect-freq-initial", "NUMBER SECONDS", "server.initial_limit", |draft, given| {
        draft.server.initial_limit =
            Some((given.number(0, 1..=u32::MAX >> 1)?, given.number(1, 1..=u32::MAX >> 1)?));
        Ok(())
    })
    .server(),
    served("verify-client-cert", "[none|optional|require]", "server.certificate", |draft, given| {
        let known = [
            ("none", CertificateOf::None),
            ("optional", CertificateOf::Optional),
            ("require", CertificateOf::Required),
        ];
        let asked = given.get(0).map(|_| given.choice(0, &known)).transpose()?;
        draft.server.certificate = asked.unwrap_or_default();
        Ok(())
    })
    .server(),
    served("client-cert-not-required", "", "server.certificate", |draft, _| {
        draft.server.certificate = CertificateOf::None;
        Ok(())
    })
    .server(),
    served("auth-user-pass-verify", "COMMAND via-env|via-file", "server.password_check", |draft, given| {
        let is_by_environment = given.choice(1, &[("via-env", true), ("via-file", false)])?;
        draft.server.password_check = Some(PasswordCheck { command: given.command(0)?, is_by_environment });
        Ok(())
    })
    .server(),
    // Not of OpenVPN, which refuses it.
    served("auth-user-pass-hashes", "FILE", "server.password_hashes", |draft, given| {
        if !given.is_announced() {
            draft.server.password_hashes = Some(given.inner_content(0)?);
        }
        Ok(())
    })
    .block()
    .server(),
    served("auth-user-pass-optional", "", "server.password_optional", |draft, _| {
        draft.server.password_optional = true;
        Ok(())
    })
    .server(),
    served("username-as-common-name", "", "server.username_as_name", |draft, _| {
        draft.server.username_as_name = true;
        Ok(())
    })
    .server(),
    served("auth-gen-token", "[SECONDS] [RENEWAL] [external-auth]", "server.token", token).server(),
    served("auth-gen-token-secret", "FILE", "server.token", |draft, given| {
        if !given.is_announced() {
            let key = given.pem(0, &["OpenVPN auth-token server key"])?;
            draft.server.token.get_or_insert_with(Token::default).key = Some(key);
        }
        Ok(())
    })
    .block()
    .server(),
    served("ifconfig-push-constraint", "NETWORK NETMASK", "server.constraint", |draft, given| {
        draft.server.constraint = Some(given.network(0)?);
        Ok(())
    })
    .server(),
    served("tls-crypt-v2-max-age", "DAYS", "server.key_max_age_days", |draft, given| {
        draft.server.key_max_age_days = Some(given.number(0, 1..=36_500)?);
        Ok(())
    })
    .server(),
    served("port-share", "ADDRESS PORT [DIRECTORY]", "server.port_share", |draft, given| {
        let host = match given.at(0)? {
            "localhost" => IpAddr::from(Ipv4Addr::LOCALHOST),
            _ => given.parse(0, "an IP address")?,
        };
        let folder = given.get(2).map(|_| given.path(2)).transpose()?;
        draft.server.port_share = Some((SocketAddr::new(host, given.port(1)?), folder));
        Ok(())
    })
    .server(),
    served("tcp-queue-limit", "PACKETS", "server.tcp_queue", |draft, given| {
        draft.server.tcp_queue = given.number(0, 1..=u32::MAX)?;
        Ok(())
    })
    .server(),
    served("tmp-dir", "DIRECTORY", "server.temporary", |draft, given| {
        draft.server.temporary = Some(given.inner_path(0)?);
        Ok(())
    }),
    harmless(
        "stale-routes-check",
        "SECONDS [INTERVAL]",
        "no route is learned from packets: each is of a client's settings",
    )
    .server(),
    harmless("hash-size", "REAL VIRTUAL", "tables grow with the clients").server(),
    harmless("bcast-buffers", "NUMBER", "broadcasts have no buffers of their own").server(),
    served("override-username", "USER", "client file", |draft, _| {
        draft.override_username = true;
        Err(Wrong::new("one name for all clients is not served", "write it in a file of client-config-dir"))
    })
    .in_client_file(|client, given| {
        client.username = Some(given.owned(0)?);
        Ok(())
    }),
    served("ifconfig-push", "ADDRESS NETMASK|REMOTE [ALIAS]", "client file", no_setting)
        .only_in_client_file(ifconfig_push),
    served("ifconfig-ipv6-push", "ADDRESS/LENGTH [REMOTE]", "client file", no_setting).only_in_client_file(
        |client, given| {
            let remote = given.get(1).map(|_| given.ipv6(1)).transpose()?;
            client.address6 = Some((given.prefix6(0, 64)?, remote));
            Ok(())
        },
    ),
    served("iroute", "NETWORK [NETMASK]", "client file", no_setting).only_in_client_file(|client, given| {
        let net = match given.get(1) {
            Some(_) => given.network(0)?,
            None => Ipv4Net::from(given.ipv4(0)?),
        };
        client.routes.push(IpNet::V4(net.trunc()));
        Ok(())
    }),
    served("iroute-ipv6", "NETWORK/LENGTH", "client file", no_setting).only_in_client_file(
        |client, given| {
            client.routes.push(IpNet::V6(given.prefix6(0, 128)?.trunc()));
            Ok(())
        },
    ),
    served("push-reset", "", "client file", no_setting).only_in_client_file(|client, _| {
        client.reset = true;
        Ok(())
    }),
    served("push-remove", "TEXT", "client file", no_setting).only_in_client_file(|client, given| {
        client.remove.push(given.owned(0)?);
        Ok(())
    }),
    served("disable", "", "client file", no_setting).only_in_client_file(|client, _| {
        client.is_disabled = true;
        Ok(())
    }),
];

/// The row stands for files of clients only: the scope lets nothing else pass.
fn no_setting(_: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    Err(given.wrong("it may stand only in a file of client-config-dir"))
}

fn push(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let option = given.at(0)?;
    if option.contains(['\n', '\r']) {
        return Err(given.wrong("the option has several lines"));
    }
    // Framing and topology are those of this server.
    match option.split_whitespace().next() {
        Some("comp-lzo" | "compress") => draft.warn("it is not pushed: packets are not compressed"),
        Some("topology") => {}
        _ => draft.server.push.push(option.to_owned()),
    }
    Ok(())
}

fn token(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let token = draft.server.token.get_or_insert_with(Token::default);
    token.lifetime_seconds = given.count_or(0, 0)?;
    for index in 1..3 {
        match given.get(index) {
            Some("external-auth") => token.is_external = true,
            Some(_) => token.renewal_seconds = Some(given.count(index)?),
            None => {}
        }
    }
    Ok(())
}

/// The second address is a netmask, or with the topologies `net30` and `p2p` the other end.
fn ifconfig_push(client: &mut ClientFile, given: &Given<'_>) -> Result<(), Wrong> {
    let (address, second) = (given.ipv4(0)?, given.ipv4(1)?);
    client.address = Some((address, second));
    Ok(())
}
