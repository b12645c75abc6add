//! What OpenVPN's files may ask for, and an interface does not serve yet: one list, by the name of the directive.
//!
//! A directive of this list is refused with the reason "not served yet", and with what to do. Directives of which only some values
//! are served are in [`super::values`].

/// A directive that is not served yet, and what to do.
pub(super) type Row = (&'static str, &'static str);

const DELETE: &str = "delete the line";
const ROUTE: &str = "delete the line: routes are in the main table, without a metric";
const PUSH_DNS: &str = "write push \"dhcp-option DNS ADDRESS\", for the clients";
const PUSH: &str = "write push \"redirect-gateway def1\", for the clients";

/// The list.
pub(super) const NOT_SERVED: &[Row] = &[];

/// Directives that are served on a server alone.
pub(super) const OF_SERVER: &[Row] =
    &[("tls-verify", "delete the line, and write verify-x509-name NAME name")];

/// Directives that are served on a client alone.
pub(super) const OF_CLIENT: &[Row] = &[
    // OpenVPN refuses it too.
    ("shaper", "delete the line, and limit the interface with tc"),
    ("single-session", "delete the line: a client that has lost its session may connect again"),
    ("dhcp-option", PUSH_DNS),
    ("dns", PUSH_DNS),
    ("dns-updown", DELETE),
    ("tun-mtu-max", DELETE),
    ("ifconfig-ipv6", "write server-ipv6 NETWORK/LENGTH"),
    ("block-ipv6", "write push block-ipv6"),
    ("route-metric", ROUTE),
    ("route-table", ROUTE),
    ("route-delay", "delete the line: routes are added when the interface is there"),
    ("redirect-gateway", PUSH),
    ("redirect-private", PUSH),
];

/// Directives that are not served on a server of TLS with one peer, site to site.
pub(super) const NOT_OF_SITES: &[Row] = &[
    ("dhcp-option", "delete the line, and set the name servers of this machine"),
    ("dns", "delete the line, and set the name servers of this machine"),
    ("dns-updown", DELETE),
    // A peer that is gone, and a session that is over, would not end the process here.
    ("ping-exit", "write ping-restart SECONDS"),
    ("inactive", DELETE),
    ("session-timeout", DELETE),
    ("tls-exit", DELETE),
    ("single-session", "delete the line: a peer that has lost its session may begin again"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use config::openvpn::{Fate, Scope, rows};
    use std::collections::BTreeSet;

    /// What is served: wholly, or with the values that `values` and the conversion let pass.
    const SERVED: &str = "auth-user-pass-hashes remote proto proto-force port lport rport bind nobind float connect-retry connect-retry-max \
        resolv-retry preresolve explicit-exit-notify mssfix tun-mtu link-mtu multihome sndbuf rcvbuf mark ca cert extra-certs key \
        crl-verify capath askpass verify-x509-name x509-track x509-username-field remote-cert-tls ns-cert-type remote-cert-eku peer-fingerprint tls-auth tls-crypt tls-crypt-v2 tls-crypt-v2-max-age \
        key-direction tls-version-min tls-version-max tls-cipher tls-ciphersuites tls-groups ecdh-curve tls-cert-profile data-ciphers ncp-ciphers data-ciphers-fallback compat-mode replay-window cipher auth compress comp-lzo \
        mute-replay-warnings dev dev-type topology ifconfig txqueuelen persist-tun route route-ipv6 route-gateway \
        route-ipv6-gateway script-security setenv setenv-safe server server-ipv6 ifconfig-pool ifconfig-ipv6-pool push \
        client-config-dir ccd-exclusive duplicate-cn max-clients verify-client-cert mode client pull tls-server tls-client \
        keepalive ping ping-restart reneg-sec reneg-bytes reneg-pkts hand-window tran-window tls-timeout auth-nocache verb mute \
        persist-key override-username auth-user-pass auth-retry static-challenge tcp-nodelay tcp-queue-limit \
        log log-append syslog suppress-timestamps echo daemon user group writepid \
        nice mlock management management-client management-hold management-signal management-forget-disconnect management-up-down \
        management-query-passwords management-query-remote management-client-auth management-log-cache management-client-user \
        management-client-group status status-version remap-usr1 persist-local-ip persist-remote-ip local connect-timeout server-poll-timeout mtu-disc bind-dev \
        client-connect client-crresponse client-disconnect client-to-client learn-address tls-verify tmp-dir max-routes-per-client \
        client-cert-not-required auth-user-pass-verify auth-user-pass-optional username-as-common-name ifconfig-push-constraint \
        auth-gen-token auth-gen-token-secret ifconfig-pool-persist \
        verify-hash remote-cert-ku force-tls-key-material-export passtos tls-export-cert tls-crypt-v2-verify \
        inactive session-timeout ping-exit ping-timer-rem tls-exit single-session up down down-pre up-delay up-restart route-up route-pre-down ipchange \
        dhcp-option dns dns-updown \
        remote-random tun-mtu-max ifconfig-noexec ifconfig-ipv6 block-ipv6 route-metric route-table route-delay \
        route-noexec redirect-gateway redirect-private pull-filter route-nopull allow-pull-fqdn push-peer-info allow-recursive-routing \
        connect-freq connect-freq-initial shaper port-share max-packet-size ifconfig-pool-linear remote-random-hostname chroot";

    #[test]
    fn each_directive_that_the_reader_takes_is_served_or_refused() {
        let served: BTreeSet<&str> = SERVED.split_whitespace().collect();
        let refused: BTreeSet<&str> = NOT_SERVED.iter().map(|(name, _)| *name).collect();
        let both: Vec<&&str> = served.intersection(&refused).collect();
        assert!(both.is_empty(), "served and refused: {both:?}");
        let taken: BTreeSet<&str> = rows()
            .filter(|row| matches!(row.fate, Fate::Served { .. }) && row.scope.has(Scope::CONFIG))
            .map(|row| row.name)
            .collect();
        let known: BTreeSet<&str> = served.union(&refused).copied().collect();
        let forgotten: Vec<&&str> = taken.difference(&known).collect();
        assert!(forgotten.is_empty(), "neither served nor refused: {forgotten:?}");
        let unknown: Vec<&&str> = known.difference(&taken).collect();
        assert!(unknown.is_empty(), "not taken by the reader: {unknown:?}");
    }
}
