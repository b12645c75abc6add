//! What is asked about clients, beside their certificates.

use super::{Refusals, environment, keys, seconds};
use crate::openvpn::passwords::{HashFile, Users};
use crate::openvpn::settings::{Access, PasswordWay};
use crate::openvpn::tokens::Tokens;
use config::openvpn::OpenVpn;
use config::openvpn::settings::{Connection, Material, Server, Token};
use crypto::SecretBytes;
use crypto::random::System;
use std::time::Duration;

/// What is asked about clients.
pub(super) fn access(settings: &OpenVpn, own: &Server, link: &Connection, refusals: &mut Refusals) -> Access {
    let longest = Duration::from_secs(settings.timers.hand_window_seconds.into());
    let by_environment = own.password_check.as_ref().is_some_and(|check| check.is_by_environment);
    let authorities = settings.tls.authority.as_ref().and_then(|it| keys::authorities(it, refusals));
    Access {
        longest,
        // As in OpenVPN: half of the time until keys are renewed.
        longest_pending: longest.max(Duration::from_secs(settings.timers.renegotiate_seconds.into()) / 2),
        password_way: if by_environment { PasswordWay::Environment } else { PasswordWay::File },
        hashes: own.password_hashes.as_ref().and_then(|file| hashes(file, refusals)),
        is_password_optional: own.password_optional,
        uses_user_name: own.username_as_name,
        asks_management: settings.management.as_ref().is_some_and(|management| management.client_auth),
        max_routes: own.max_routes as usize,
        constraint: own.constraint,
        // The secret alone makes no tokens, as in OpenVPN.
        tokens: own
            .token
            .as_ref()
            .filter(|_| refusals.has("auth-gen-token"))
            .and_then(|token| tokens(settings, token, refusals)),
        renew: None,
        exports_certificates: settings.scripts.certificates.is_some(),
        requires_exporter: settings.data.force_exporter,
        authorities: authorities.unwrap_or_default(),
        name_fields: keys::name_fields(settings, refusals),
        tracked: keys::tracked(settings, refusals),
        environment: environment::about_clients(settings, link, refusals),
    }
}

fn hashes(file: &Material, refusals: &mut Refusals) -> Option<HashFile> {
    let name = file.file.as_ref().map_or_else(|| "[inline]".to_owned(), |file| file.display().to_string());
    match Users::read(&name, file.bytes()) {
        Ok(users) => Some(HashFile { name, users }),
        Err(error) => {
            let fix = "write NAME:HASH in each line, as printed by htpasswd -nB NAME; openssl passwd -6 prints a hash";
            refusals.wrong("auth-user-pass-hashes", error.to_string(), fix);
            None
        }
    }
}

/// The length of a key file of tokens, and the place of the HMAC's key in it.
const TOKEN_KEY: (usize, std::ops::Range<usize>) = (128, 64..96);

fn tokens(settings: &OpenVpn, token: &Token, refusals: &mut Refusals) -> Option<Tokens> {
    let key = match &token.key {
        Some(material) => {
            let sections = keys::sections("auth-gen-token-secret", material, refusals)?;
            let der =
                sections.first().map(|section| section.der.expose()).filter(|der| der.len() == TOKEN_KEY.0);
            let Some(der) = der else {
                let fix = "make it with openvpn --genkey auth-token FILE";
                refusals.wrong("auth-gen-token-secret", "the key has not 128 bytes".to_owned(), fix);
                return None;
            };
            SecretBytes::new(der[TOKEN_KEY.1].to_vec())
        }
        None => SecretBytes::random(TOKEN_KEY.1.len(), &mut System::default()),
    };
    let keys = seconds(settings.timers.renegotiate_seconds);
    let interval = token.renewal_seconds.and_then(seconds);
    // Clients get one with their keys in any case.
    let interval = interval.filter(|interval| keys.is_none_or(|keys| *interval < keys));
    Some(Tokens::new(key, seconds(token.lifetime_seconds), interval.or(keys), interval, token.is_external))
}
