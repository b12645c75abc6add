//! Lists: what data packets and TLS may use here, and where the default routes lead. Scripts read names from lines behind the first
//! empty one.

use crate::{Outcome, version};
use config::openvpn::settings::{DataCipher, Digest, Group, Suite};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) fn version() {
    // Scripts take the second word.
    println!(
        "OpenVPN 2.6 as Postern {} serves it, {} [SSL (rustls)] [AEAD]",
        version::VERSION,
        version::TARGET
    );
    print!("{}", version::text());
}

pub(super) fn ciphers() {
    println!("The following ciphers may be used in --data-ciphers, beside none, which encrypts nothing:\n");
    for cipher in DataCipher::ALL.iter().filter(|cipher| **cipher != DataCipher::None) {
        let bits = if *cipher == DataCipher::ChaCha20Poly1305 { "256" } else { &cipher.name()[4..7] };
        let block = if *cipher == DataCipher::ChaCha20Poly1305 { "stream cipher" } else { "128 bit block" };
        println!("{}  ({bits} bit key, {block})", cipher.name());
    }
    println!();
}

pub(super) fn digests() {
    println!("The following digests may be used in --auth, for CBC ciphers and tls-auth:\n");
    for digest in Digest::ALL {
        let bits = match digest {
            Digest::Sha1 => 160,
            Digest::Sha256 => 256,
            Digest::Sha384 => 384,
            Digest::Sha512 => 512,
            Digest::None => continue,
        };
        println!("{} {bits} bit digest size", digest.name());
    }
    println!();
}

pub(super) fn suites() {
    println!("Cipher suites of TLS, the preferred first.");
    for (is_tls13, title) in
        [(true, "For TLS 1.3 and newer (--tls-ciphersuites):"), (false, "For TLS 1.2 (--tls-cipher):")]
    {
        println!("\n{title}\n");
        for suite in Suite::ALL.iter().filter(|suite| suite.is_tls13() == is_tls13) {
            println!("{}", suite.name());
        }
    }
    println!();
}

pub(super) fn groups() {
    println!("The following groups may be used in --tls-groups:\n");
    for group in Group::ALL {
        println!("{}", group.name());
    }
    println!();
}

pub(super) fn engines() {
    println!("Engines are chosen by measurement, and not by --engine. This machine has:\n");
    println!("{}", version::engines(&crypto::choice::find()));
}

pub(super) fn gateways() -> Outcome {
    let v4 = std::fs::read_to_string("/proc/net/route")?;
    // A kernel without IPv6 has no such file.
    let v6 = std::fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    for (address, interface) in v4.lines().filter_map(gateway_v4).chain(v6.lines().filter_map(gateway_v6)) {
        let name = if address.is_ipv4() { "ROUTE_GATEWAY" } else { "ROUTE6_GATEWAY" };
        println!("{name} {address} IFACE={interface}");
    }
    Ok(())
}

/// The gateway of a default route, in a line of `/proc/net/route`: interface, destination, gateway, ..., the mask as the eighth.
fn gateway_v4(line: &str) -> Option<(IpAddr, &str)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [interface, "00000000", gateway, .., "00000000", _, _, _] = words[..] else { return None };
    let gateway = u32::from_str_radix(gateway, 16).ok().filter(|gateway| *gateway != 0)?;
    Some((Ipv4Addr::from(gateway.to_ne_bytes()).into(), interface))
}

/// The same in a line of `/proc/net/ipv6_route`: destination, its length, two words, gateway, ..., interface.
fn gateway_v6(line: &str) -> Option<(IpAddr, &str)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [destination, "00", _, _, gateway, .., interface] = words[..] else { return None };
    let value = |word| u128::from_str_radix(word, 16).ok();
    let gateway = value(gateway).filter(|gateway| *gateway != 0 && value(destination) == Some(0))?;
    Some((Ipv6Addr::from_bits(gateway).into(), interface))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_are_found_among_those_of_the_kernel() {
        let gateway = u32::from_ne_bytes([192, 0, 2, 1]);
        let line =
            |destination, mask| format!("eth0\t{destination}\t{gateway:08X}\t0003\t0\t0\t0\t{mask}\t0\t0\t0");
        let found = line("00000000", "00000000");
        assert_eq!(gateway_v4(&found), Some(([192, 0, 2, 1].into(), "eth0")));
        assert_eq!(gateway_v4(&line("000200C0", "00FFFFFF")), None);
        let zero = "0".repeat(32);
        let gateway = "fd000000000000000000000000000001";
        let line = format!("{zero} 00 {zero} 00 {gateway} 00000400 00000003 00000000 00000003     eth1");
        assert_eq!(gateway_v6(&line), "fd00::1".parse().ok().map(|address| (address, "eth1")));
        assert_eq!(gateway_v6(&line.replace(gateway, &zero)), None);
    }
}
