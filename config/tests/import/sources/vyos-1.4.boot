firewall {
    ipv4 {
        name WAN-IN {
            default-action "drop"
            rule 10 {
                action "accept"
                state "established"
            }
        }
    }
}
interfaces {
    ethernet eth0 {
        address "203.0.113.1/24"
        description "WAN { outside }"
    }
    loopback lo {
    }
    vti vti1 {
        address "10.254.0.1/30"
    }
    wireguard wg10 {
        address "10.200.0.1/24"
        description "To the branches"
        ip {
            adjust-mss "1380"
        }
        mtu "1420"
        peer berlin {
            address "198.51.100.7"
            allowed-ips "10.201.0.0/24"
            allowed-ips "10.200.0.2/32"
            persistent-keepalive "25"
            port "51820"
            preshared-key "IYyPlCoG5+mMmVsVEXJRXUBNjVIoy3Q8yQnxX6kZU5k="
            public-key "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
        }
        port "51820"
        private-key "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM="
        vrf "red"
    }
}
nat {
    source {
        rule 100 {
            outbound-interface {
                name "eth0"
            }
            translation {
                address "masquerade"
            }
        }
    }
}
pki {
    ca corp {
        certificate "AAAA"
    }
}
service {
    ntp {
        server time1.vyos.net {
        }
    }
    ssh {
        port "22"
    }
}
system {
    host-name "hub"
    login {
        user vyos {
            authentication {
                encrypted-password "$6$rounds=656000$QxPs.uvRfGcb$"
            }
        }
    }
}
vpn {
    ipsec {
        authentication {
            psk berlin {
                id "203.0.113.1"
                id "198.51.100.7"
                secret "it's \"open\" sesame"
            }
        }
        esp-group ESP {
            lifetime "3600"
            pfs "enable"
            proposal 1 {
                encryption "aes256gcm128"
                hash "sha256"
            }
        }
        ike-group IKE {
            close-action "start"
            dead-peer-detection {
                action "restart"
                interval "30"
            }
            key-exchange "ikev2"
            lifetime "28800"
            proposal 1 {
                dh-group "14"
                encryption "aes256gcm128"
                hash "sha256"
            }
        }
        interface "eth0"
        options {
        }
        remote-access {
            connection road {
                local-address "203.0.113.1"
            }
        }
        site-to-site {
            peer berlin {
                authentication {
                    mode "pre-shared-secret"
                    remote-id "198.51.100.7"
                }
                connection-type "initiate"
                ike-group "IKE"
                local-address "203.0.113.1"
                remote-address "198.51.100.7"
                tunnel 1 {
                    esp-group "ESP"
                    local {
                        prefix "10.1.0.0/16"
                    }
                    remote {
                        prefix "10.2.0.0/16"
                    }
                }
            }
            peer madrid {
                authentication {
                    mode "pre-shared-secret"
                    remote-id "192.0.2.50"
                }
                ike-group "IKE"
                local-address "203.0.113.1"
                remote-address "192.0.2.50"
                vti {
                    bind "vti1"
                    esp-group "ESP"
                }
            }
        }
    }
}


// Warning: Do not remove the following line.
// vyos-config-version: "bgp@5:broadcast-relay@1:firewall@15:interfaces@32:ipsec@13:system@27:wireguard@2"
// Release version: 1.4.0
