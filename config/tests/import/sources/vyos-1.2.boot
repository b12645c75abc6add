interfaces {
    ethernet eth0 {
        address 203.0.113.1/24
        hw-id 00:53:00:00:aa:01
    }
    wireguard wg0 {
        address 10.200.0.1/24
        peer berlin {
            allowed-ips 10.201.0.0/24,10.200.0.2/32
            endpoint 198.51.100.7:51820
            pubkey xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
        }
        port 51820
        private-key default
    }
}
protocols {
    static {
        interface-route 10.201.0.0/24 {
            next-hop-interface wg0 {
            }
        }
    }
}
vpn {
    ipsec {
        esp-group ESP {
            compression disable
            lifetime 3600
            mode tunnel
            pfs enable
            proposal 1 {
                encryption aes256
                hash sha256
            }
        }
        ike-group IKE {
            close-action none
            dead-peer-detection {
                interval 15
                timeout 90
            }
            ikev2-reauth no
            lifetime 28800
            proposal 1 {
                dh-group 14
                encryption aes256
                hash sha256
            }
        }
        ipsec-interfaces {
            interface eth0
        }
        nat-traversal enable
        site-to-site {
            peer 198.51.100.7 {
                authentication {
                    id 203.0.113.1
                    mode pre-shared-secret
                    pre-shared-secret Open#Sesame
                    remote-id 198.51.100.7
                }
                connection-type initiate
                default-esp-group ESP
                ike-group IKE
                ikev2-reauth inherit
                local-address 203.0.113.1
                tunnel 0 {
                    allow-nat-networks disable
                    allow-public-networks disable
                    local {
                        prefix 10.1.0.0/16
                    }
                    remote {
                        prefix 10.2.0.1/16
                    }
                }
            }
        }
    }
}


/* Warning: Do not remove the following line. */
/* === vyatta-config-version: "config-management@1:dhcp-server@5:firewall@5:ipsec@5:nat@4:system@10:vrrp@2:webgui@1" === */
/* Release version: 1.2.8 */
