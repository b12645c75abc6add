//! Messages of snmpd to its sub-agent, and what they are answered.

use gateway::facts::model::{Drop, Facts, Tunnel};
use gateway::health::model::Health;
use gateway::snmp::agentx::{HEADER, Header};
use gateway::snmp::mib::{Mib, Numbers};
use gateway::snmp::session::{Next, answer};

/// A message, with what follows its header cut to the length that this names.
pub fn messages(data: &[u8]) {
    let Ok(Some(header)) = Header::parse(data) else { return };
    let payload = &data[HEADER..];
    let Ok(message) = header.message(&payload[..payload.len().min(header.length)]) else { return };
    let facts = Facts { tunnels: vec![Tunnel::default()], drops: vec![Drop::default()], ..Facts::default() };
    let mib = Mib::new(&facts, &Health::default(), &Numbers::default().assign(&facts.tunnels));
    if let Next::Send(bytes) = answer(&header, &message, &mib) {
        let sent = Header::parse(&bytes).ok().flatten();
        // Answers may be longer than requests.
        if let Some(sent) = sent {
            assert_eq!((sent.packet, HEADER + sent.length), (header.packet, bytes.len()));
        }
    }
}
