firewall {
    all-ping enable
    name WAN_LOCAL {
        default-action drop
        rule 10 {
            action accept
            protocol udp
        }
    }
}
interfaces {
    ethernet eth0 {
        address dhcp
        duplex auto
    }
    wireguard wg0 {
        address 192.168.33.1/24
        description "Branch offices"
        listen-port 51820
        mtu 1420
        peer xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg= {
            allowed-ips 192.168.33.101/32,10.201.0.0/24
            description "Berlin office"
            endpoint 198.51.100.7:51820
            persistent-keepalive 15
        }
        peer bQXiIwDbjusJsEXJdUW6jti8XjI3330SteGSGHLcin4= {
            allowed-ips 192.168.33.102/32
        }
        private-key /config/auth/wg.key
        route-allowed-ips true
    }
}
service {
    gui {
        https-port 443
    }
}
system {
    host-name edge
    login {
        user ubnt {
            level admin
        }
    }
}
vpn {
    ipsec {
        allow-access-to-local-interface disable
        auto-firewall-nat-exclude enable
        esp-group FOO0 {
            compression disable
            lifetime 3600
            mode tunnel
            pfs enable
            proposal 1 {
                encryption aes128
                hash sha1
            }
        }
        ike-group FOO0 {
            ikev2-reauth no
            key-exchange ikev1
            lifetime 28800
            proposal 1 {
                dh-group 14
                encryption aes128
                hash sha1
            }
        }
        site-to-site {
            peer 192.0.2.1 {
                authentication {
                    mode pre-shared-secret
                    pre-shared-secret OpenSesame
                }
                connection-type initiate
                description "Peer of the head office"
                ike-group FOO0
                ikev2-reauth inherit
                local-address 203.0.113.1
                tunnel 1 {
                    allow-nat-networks disable
                    allow-public-networks disable
                    esp-group FOO0
                    local {
                        prefix 192.168.1.0/24
                    }
                    remote {
                        prefix 172.16.1.0/24
                    }
                }
            }
        }
    }
}


/* Warning: Do not remove the following line. */
/* === vyatta-config-version: "config-management@1:conntrack@1:cron@1:dhcp-relay@1:dhcp-server@4:firewall@5:ipsec@5:nat@3:qos@1:quagga@2:suspend@1:system@5:ubnt-l2tp@1:ubnt-pptp@1:ubnt-udapi-server@1:ubnt-unms@2:ubnt-util@1:vrrp@1:vyatta-netflow@1:webgui@1:webproxy@1:zone-policy@1" === */
/* Release version: v2.0.9-hotfix.7.5622762.230615.1131 */
