//! A guide to acceleration, for VyOS: each of its blocks that concerns IPsec, loaded as it stands, and a tunnel by it.
//!
//! `tests/interop/guide/` has the `set` lines of the blocks, nothing changed and nothing left out. What a block lacks to
//! be a whole configuration is in a file beside it, `*.more.set`: a group needs a peer that uses it. charon is told what
//! a VyOS with the same lines, seen from the other side, would tell it: its defaults where a line is missing.

use super::{Ours, TheirSa, all, pings, reaches, site_labs};
use lab::Lab;
use lab::strongswan::StrongSwan;
use serde_json::Value;

macro_rules! lines {
    ($name:literal) => {
        include_str!(concat!("../guide/", $name))
    };
}

/// A block, and what is to come of it.
struct Block {
    name: &'static str,
    /// Its lines, and all others that it needs.
    lines: [&'static str; 2],
    /// The gateways, and a network behind each: ours, and charon's.
    gateways: [&'static str; 2],
    networks: [&'static str; 2],
    secret: &'static str,
    /// Who begins: the lines say `respond` where it is charon.
    calls: Caller,
    /// As VyOS hands them on to charon.
    proposals: [&'static str; 2],
    /// As charon shows them of IKE, and of ESP after a rekeying: with the group that `pfs` asks for.
    agreed: [&'static str; 2],
    /// As we show them of ESP, then.
    suite: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    We,
    Charon,
    OurFirstPacket,
}

const BLOCKS: &[Block] = &[
    Block {
        name: "with an accelerator",
        lines: [lines!("01-offloaded.set"), ""],
        gateways: ["198.51.100.10", "203.0.113.10"],
        networks: ["10.0.1.0/24", "10.0.2.0/24"],
        secret: "YourStrongPSK",
        calls: Caller::We,
        proposals: ["aes256gcm128-sha256-modp2048", "aes256gcm128-sha256-modp2048"],
        agreed: ["AES_GCM_16-256/PRF_HMAC_SHA2_256/MODP_2048", "ESP:AES_GCM_16-256/MODP_2048"],
        suite: "aes256gcm128-modp2048",
    },
    Block {
        name: "without an accelerator",
        lines: [lines!("02-software.set"), ""],
        gateways: ["10.129.0.10", "10.128.0.10"],
        networks: ["10.129.1.0/24", "10.128.1.0/24"],
        secret: "YandexCloudVPNKey",
        calls: Caller::We,
        proposals: ["aes256-sha256-modp2048", "aes256-sha256-modp2048"],
        agreed: [
            "AES_CBC-256/HMAC_SHA2_256_128/PRF_HMAC_SHA2_256/MODP_2048",
            "ESP:AES_CBC-256/HMAC_SHA2_256_128/MODP_2048",
        ],
        suite: "aes256-sha256-modp2048",
    },
    Block { name: "two proposals, called", calls: Caller::Charon, ..RESPOND },
    Block {
        name: "two proposals, the second of which both have, called",
        calls: Caller::Charon,
        proposals: [RESPOND.proposals[0], "aes256-sha256-modp2048"],
        agreed: [RESPOND.agreed[0], "ESP:AES_CBC-256/HMAC_SHA2_256_128/MODP_2048"],
        suite: "aes256-sha256-modp2048",
        ..RESPOND
    },
    Block { name: "two proposals, calls for a packet", calls: Caller::OurFirstPacket, ..RESPOND },
    // A line that belongs to the first block: the guide has it for slow tunnels.
    Block {
        name: "smaller packets",
        lines: [lines!("04-smaller-packets.set"), lines!("01-offloaded.set")],
        gateways: ["198.51.100.10", "203.0.113.10"],
        networks: ["10.0.1.0/24", "10.0.2.0/24"],
        secret: "YourStrongPSK",
        calls: Caller::We,
        proposals: ["aes256gcm128-sha256-modp2048", "aes256gcm128-sha256-modp2048"],
        agreed: ["AES_GCM_16-256/PRF_HMAC_SHA2_256/MODP_2048", "ESP:AES_GCM_16-256/MODP_2048"],
        suite: "aes256gcm128-modp2048",
    },
    // A group for ESP alone.
    Block {
        name: "much at once",
        lines: [lines!("05-high-throughput.set"), lines!("05-high-throughput.more.set")],
        proposals: ["aes128gcm128-sha256-modp2048", "aes128gcm128-sha1"],
        agreed: ["AES_GCM_16-128/PRF_HMAC_SHA2_256/MODP_2048", "ESP:AES_GCM_16-128"],
        suite: "aes128gcm128",
        ..GROUPS_ALONE
    },
    // Its group for IKE has no proposal: VyOS leaves the choice to charon.
    Block {
        name: "little delay",
        lines: [lines!("06-low-latency.set"), lines!("06-low-latency.more.set")],
        proposals: ["default", "aes128gcm64-sha1-modp2048"],
        agreed: ["", "ESP:AES_GCM_8-128/MODP_2048"],
        suite: "aes128gcm64-modp2048",
        ..GROUPS_ALONE
    },
    // Its proposals name no hash: VyOS says sha1, which beside GCM is a pseudorandom function alone.
    Block {
        name: "much security",
        lines: [lines!("07-max-security.set"), lines!("07-max-security.more.set")],
        proposals: ["aes256gcm128-sha1-modp4096", "aes256gcm128-sha1-modp4096"],
        agreed: ["AES_GCM_16-256/PRF_HMAC_SHA1/MODP_4096", "ESP:AES_GCM_16-256/MODP_4096"],
        suite: "aes256gcm128-modp4096",
        ..GROUPS_ALONE
    },
];

const RESPOND: Block = Block {
    name: "",
    lines: [lines!("03-respond.set"), ""],
    gateways: ["185.185.186.10", "185.185.185.10"],
    networks: ["192.168.10.0/24", "192.168.20.0/24"],
    secret: "VKCloudBareMetal2025",
    calls: Caller::Charon,
    proposals: ["aes256gcm128-sha256-modp2048", "aes256gcm128-sha1-modp2048,aes256-sha256-modp2048"],
    agreed: ["AES_GCM_16-256/PRF_HMAC_SHA2_256/MODP_2048", "ESP:AES_GCM_16-256/MODP_2048"],
    suite: "aes256gcm128-modp2048",
};

/// What the files beside blocks without a peer have in common.
const GROUPS_ALONE: Block = Block {
    gateways: ["192.0.2.10", "192.0.2.20"],
    networks: ["10.1.0.0/24", "10.2.0.0/24"],
    secret: "a secret of both sites",
    calls: Caller::We,
    ..RESPOND
};

/// The SPI that we receive with.
fn spi(daemon: &Ours) -> Value {
    daemon.peers()[0]["tunnels"][0]["sas"][0]["spi_in"].clone()
}

impl Block {
    /// Both gateways with the addresses that the lines name, and a way between them.
    fn lab(&self) -> Option<Lab> {
        let lab = site_labs(&["a", "b"])?;
        let [ours, theirs] = self.gateways.map(|address| format!("{address}/32"));
        lab.connect(("a", "outside", &ours), ("b", "outside", &theirs)).expect("veth exists");
        for (site, own, other) in [("a", 0, 1), ("b", 1, 0)] {
            lab.ip(site, &format!("route add {} dev outside", self.gateways[other])).expect("a route");
            lab.ip(site, &format!("address add {}/24 dev lo", self.inside(own))).expect("an address");
        }
        Some(lab)
    }

    /// The first address of a network.
    fn inside(&self, site: usize) -> String {
        self.networks[site].replace(".0/24", ".1")
    }

    fn swanctl(&self) -> String {
        let ([our_gateway, their_gateway], [ike, esp]) = (self.gateways, self.proposals);
        let ([our_network, their_network], secret) = (self.networks, self.secret);
        let start = if self.calls == Caller::Charon { "start" } else { "none" };
        format!(
            "connections {{ site {{\n version = 2\n local_addrs = {their_gateway}\n remote_addrs = {our_gateway}\n\
             proposals = {ike}\n encap = yes\n\
             local {{ auth = psk\n id = {their_gateway}\n }}\n remote {{ auth = psk\n id = {our_gateway}\n }}\n\
             children {{ net {{ local_ts = {their_network}\n remote_ts = {our_network}\n esp_proposals = {esp}\n\
             start_action = {start}\n }} }}\n }} }}\n\
             secrets {{ ike-site {{ id-1 = {their_gateway}\n id-2 = {our_gateway}\n secret = \"{secret}\"\n }} }}\n"
        )
    }

    /// Pings both ways, as large as fit: with headers 1400 bytes, what the guide sets and what we have by ourselves.
    fn carries(&self, lab: &Lab, both: impl Fn() -> String) {
        for (from, other) in [("a", 1), ("b", 0)] {
            let options = ["-c", "3", "-i", "0.1", "-W", "10", "-s", "1372", "-M", "do"];
            let counts = pings(lab, from, &self.inside(other), &options);
            assert_eq!(counts, (3, 3), "{} from {from}\n{}", self.name, both());
        }
    }

    fn brings_up_a_tunnel(&self) {
        let Some((lab, daemon, charon)) = self.joined() else { return };
        self.carries(&lab, || daemon.tell(&charon));
        self.replaces_keys(&lab, &daemon, &charon);
        self.carries(&lab, || daemon.tell(&charon));
    }

    fn joined(&self) -> Option<(Lab, Ours, StrongSwan)> {
        let mut lab = self.lab()?;
        let configuration = self.lines.concat();
        let (charon, daemon) = if self.calls == Caller::Charon {
            let daemon = Ours::start(&mut lab, "a", &configuration);
            (StrongSwan::start(&mut lab, "b", &self.swanctl(), "").expect("it starts"), daemon)
        } else {
            let charon = StrongSwan::start(&mut lab, "b", &self.swanctl(), "").expect("it starts");
            (charon, Ours::start(&mut lab, "a", &configuration))
        };
        if self.calls == Caller::OurFirstPacket {
            let answered = reaches(&lab, "a", &self.inside(1));
            assert!(answered, "{}: it waits for its key\n{}", self.name, daemon.tell(&charon));
        }
        daemon.wait_for_tunnels(&lab, &charon);
        Some((lab, daemon, charon))
    }

    /// Has charon ask for new keys: the group of `pfs` is used only then.
    fn replaces_keys(&self, lab: &Lab, daemon: &Ours, charon: &StrongSwan) {
        let before = spi(daemon);
        charon.swanctl(lab, &["--rekey", "--child", "net"]).expect("it begins");
        daemon.wait(charon, "there are new keys", || spi(daemon) != before);
        daemon.wait_for_tunnels(lab, charon);
        let (peer, listed): (Value, _) = (daemon.peers()[0].clone(), charon.sas(lab).expect("it answers"));
        assert_eq!(peer["tunnels"][0]["sas"][0]["suite"], self.suite, "{}: {peer:#}", self.name);
        for agreed in self.agreed {
            let is_shown = listed.lines().any(|line| line.ends_with(agreed));
            assert!(is_shown, "{}: no {agreed} in\n{listed}", self.name);
        }
        let [sa] = &*TheirSa::all(&listed) else { panic!("{}: {listed}", self.name) };
        assert_eq!([&*sa.remote, &*sa.local], self.networks, "{}", self.name);
    }
}

#[test]
fn every_block_of_a_guide_brings_up_a_tunnel() {
    all(BLOCKS, |block| block.name, Block::brings_up_a_tunnel);
}

/// What the guide does when an accelerator has died, and what it promises of that.
#[test]
fn the_tunnel_outlives_the_accelerator() {
    let block = &BLOCKS[0];
    let Some((lab, daemon, charon)) = block.joined() else { return };
    let before = spi(&daemon);
    daemon.reload(&[block.lines[0], "delete system acceleration qat\n"].concat());
    block.carries(&lab, || daemon.tell(&charon));
    assert_eq!(spi(&daemon), before, "it is the same");
}
