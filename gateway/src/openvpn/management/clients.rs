//! What the client of the management interface is told about clients of a server: `>CLIENT:` with variables.

use crate::openvpn::control_thread::ClientEvent;
use crate::openvpn::scripts::Environment;
use ipnet::IpNet;
use zeroize::Zeroizing;

/// The message about an event. No value has two lines: [`Environment`] has no control characters.
pub fn told(event: &ClientEvent) -> Zeroizing<String> {
    match event {
        ClientEvent::Asked { client, key, is_renewal, environment } => {
            let kind = if *is_renewal { "REAUTH" } else { "CONNECT" };
            with_variables(&format!("{kind},{client},{key}"), environment)
        }
        ClientEvent::Established { client, environment } => {
            with_variables(&format!("ESTABLISHED,{client}"), environment)
        }
        ClientEvent::Disconnected { client, environment } => {
            with_variables(&format!("DISCONNECT,{client}"), environment)
        }
        ClientEvent::Address { client, prefix, is_primary } => Zeroizing::new(format!(
            ">CLIENT:ADDRESS,{client},{},{}\n",
            address(*prefix),
            u8::from(*is_primary)
        )),
        ClientEvent::Response { client, key, text, environment } => {
            with_variables(&format!("CR_RESPONSE,{client},{key},{text}"), environment)
        }
    }
}

fn with_variables(head: &str, environment: &Environment) -> Zeroizing<String> {
    let length: usize = environment.iter().map(|(name, value)| name.len() + value.len() + 16).sum();
    // A string that grows leaves copies behind, and one may be a password.
    let mut text = Zeroizing::new(String::with_capacity(head.len() + length + 64));
    let mut add = |parts: &[&str]| parts.iter().for_each(|part| text.push_str(part));
    add(&[">CLIENT:", head, "\n"]);
    for (name, value) in environment.iter() {
        add(&[">CLIENT:ENV,", name, "=", value, "\n"]);
    }
    add(&[">CLIENT:ENV,END\n"]);
    text
}

/// An address, or a network: that of IPv4 with its mask.
fn address(prefix: IpNet) -> String {
    match prefix {
        _ if prefix.prefix_len() == prefix.max_prefix_len() => prefix.addr().to_string(),
        IpNet::V4(network) => format!("{}/{}", network.network(), network.netmask()),
        IpNet::V6(network) => network.trunc().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_of_a_client_adds_a_line() {
        let mut environment = Environment::default();
        environment.set("common_name", "anna\r\n>CLIENT:ESTABLISHED,7");
        environment.set("IV_GUI_VER\n>X", "1\n>CLIENT:ENV,END");
        environment.set("password", "se\"cr,et=");
        let event = ClientEvent::Asked { client: 0, key: 1, is_renewal: false, environment };
        assert_eq!(
            *told(&event),
            ">CLIENT:CONNECT,0,1\n>CLIENT:ENV,IV_GUI_VERX=1_>CLIENT:ENV,END\n\
             >CLIENT:ENV,common_name=anna__>CLIENT:ESTABLISHED,7\n>CLIENT:ENV,password=se\"cr,et=\n>CLIENT:ENV,END\n"
        );
        assert!(!format!("{event:?}").contains("cr,et"));
    }

    #[test]
    fn addresses_are_written_as_openvpn_writes_them() {
        for (prefix, text) in [
            ("10.8.0.2/32", "10.8.0.2,1"),
            ("10.20.0.0/16", "10.20.0.0/255.255.0.0,0"),
            ("fd00:8::1000/128", "fd00:8::1000,1"),
            ("fd00:9::/64", "fd00:9::/64,0"),
        ] {
            let prefix: IpNet = prefix.parse().expect("literal");
            let is_primary = prefix.prefix_len() == prefix.max_prefix_len();
            let event = ClientEvent::Address { client: 4, prefix, is_primary };
            assert_eq!(*told(&event), format!(">CLIENT:ADDRESS,4,{text}\n"));
        }
    }
}
