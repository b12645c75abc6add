//! The programs that a configuration names.

use crate::openvpn::scripts::{Hook, Program, Programs};
use config::openvpn::OpenVpn;
use config::openvpn::settings::{Command, Revocation};
use std::path::PathBuf;

/// The programs, by when they are run.
pub(super) fn programs(settings: &OpenVpn) -> Programs {
    let scripts = &settings.scripts;
    let check = settings.server.as_ref().and_then(|server| server.password_check.as_ref());
    let named: [(Hook, Option<&Command>); 13] = [
        (Hook::Up, scripts.up.as_ref()),
        (Hook::Down, scripts.down.as_ref()),
        (Hook::RouteUp, scripts.route_up.as_ref()),
        (Hook::RoutePreDown, scripts.route_pre_down.as_ref()),
        (Hook::IpChange, scripts.ip_change.as_ref()),
        (Hook::DnsUpDown, scripts.dns.as_ref()),
        (Hook::ClientConnect, scripts.client_connect.as_ref()),
        (Hook::ClientDisconnect, scripts.client_disconnect.as_ref()),
        (Hook::ClientResponse, scripts.client_response.as_ref()),
        (Hook::LearnAddress, scripts.learn_address.as_ref()),
        (Hook::TlsVerify, scripts.tls_verify.as_ref()),
        (Hook::TlsCryptV2Verify, scripts.tls_crypt_v2_verify.as_ref()),
        (Hook::AuthUserPassVerify, check.map(|check| &check.command)),
    ];
    let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let program = |command: &Command| Program {
        path: folder.join(&command.program),
        arguments: command.arguments.clone(),
        owner: None,
    };
    let by_hook = named.into_iter().filter_map(|(hook, command)| Some((hook, program(command?))));
    let file = |hook, path: Option<&PathBuf>| {
        Some((hook, Program { path: folder.join(path?), arguments: Vec::new(), owner: None }))
    };
    let server = settings.server.as_ref();
    let list = settings.tls.revocation.as_ref();
    let list = list.and_then(|revocation| match revocation {
        Revocation::List(material) => material.file.as_ref(),
        Revocation::Directory(path) => Some(path),
    });
    let hashes = server.and_then(|it| it.password_hashes.as_ref()).and_then(|hashes| hashes.file.as_ref());
    let leases = server.and_then(|it| it.leases.as_ref()).filter(|(_, seconds)| *seconds != 0);
    let files = [
        file(Hook::ClientFile, server.and_then(|it| it.client_directory.as_ref())),
        file(Hook::Revocations, list),
        file(Hook::PasswordHashes, hashes),
        file(Hook::Leases, leases.map(|(path, _)| path)),
    ];
    let by_hook = by_hook.chain(files.into_iter().flatten());
    let temporary = settings.server.as_ref().and_then(|server| server.temporary.clone());
    Programs {
        by_hook: by_hook.collect(),
        temporary: folder.join(temporary.unwrap_or_else(std::env::temp_dir)),
        certificates: scripts.certificates.as_ref().map(|certificates| folder.join(certificates)),
        environment: scripts.environment.clone(),
        folder,
    }
}
