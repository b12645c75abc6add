//! An initiator that can say whatever it likes: it knows the protocol and, where a test lets it, the secret.

use crate::network::{B, Datagram, Network};
use crate::support::{esp_offer, ike_offer, net};
use crypto::SecretBytes;
use crypto::exchange::{Group, PrivateShare};
use crypto::prf::Prf;
use std::net::SocketAddr;
use std::time::Duration;
use tunnel::ikev2::keys::{IkeKeys, Nonces, Role, Signed, Spis, shared_key_mac};
use tunnel::ikev2::message::numbers::{method, notify};
use tunnel::ikev2::message::{
    Authentication, Body, Delete, Envelope, Exchange, Header, Identification, KeyExchange, Message, Notify,
    Payload, Payloads, ProposalSpi, emit, emit_clear,
};
use tunnel::ikev2::proposal::{EspOffer, IkeOffer};

/// The SPI that Mallory receives ESP with.
pub const SPI: u32 = 0x1234_5678;

pub struct Mallory {
    pub address: SocketAddr,
    /// Where it sends.
    pub to: SocketAddr,
    pub spi: u64,
    /// Whether it says that a NAT is before it.
    pub claims_nat: bool,
    /// And one before B.
    pub claims_nat_of_other: bool,
    /// The body of its identification.
    pub identity: &'static [u8],
    pub secret: &'static [u8],
    share: PrivateShare,
    nonce: [u8; 32],
    first: Vec<u8>,
    answer: Vec<u8>,
    pub spis: Spis,
    keys: Option<IkeKeys>,
    pub next: u32,
}

/// What came back, opened.
pub struct Reply {
    first: u8,
    chain: Vec<u8>,
}

impl Reply {
    pub fn payloads(&self) -> Payloads<'_> {
        Payloads::parse(self.first, &self.chain).expect("what is answered is well formed")
    }

    /// The type of the first error.
    pub fn error(&self) -> Option<u16> {
        self.payloads().error()
    }
}

pub fn share() -> PrivateShare {
    Group::X25519.generate(&mut crypto::random::System::default())
}

impl Mallory {
    /// One who has not said anything yet, at the address of host A.
    pub fn new() -> Self {
        Self {
            address: "192.0.2.1:500".parse().expect("literal"),
            to: "192.0.2.2:500".parse().expect("literal"),
            spi: 0x4d61_6c6c_6f72_7900,
            claims_nat: false,
            claims_nat_of_other: false,
            identity: b"\x02\0\0\0host1.example",
            secret: b"a secret of both",
            share: share(),
            nonce: [9; 32],
            first: Vec::new(),
            answer: Vec::new(),
            spis: Spis { initiator: 0, responder: 0 },
            keys: None,
            next: 1,
        }
    }

    /// The same at another address.
    pub fn at(address: SocketAddr) -> Self {
        Self { address, ..Self::new() }
    }

    /// One who has been through IKE_SA_INIT with B.
    pub fn half_open(network: &mut Network) -> Self {
        Self::half_open_at(network, Self::new().address)
    }

    /// One at another address.
    pub fn half_open_at(network: &mut Network, address: SocketAddr) -> Self {
        Self::at(address).begin(network)
    }

    /// Goes through IKE_SA_INIT with B, with a cookie if one is asked for.
    pub fn begin(self, network: &mut Network) -> Self {
        self.try_begin(network).expect("it is answered")
    }

    /// The same; `None` if B does not answer.
    pub fn try_begin(mut self, network: &mut Network) -> Option<Self> {
        self.answer = self.init_with_cookie(network)?;
        self.derive();
        Some(self)
    }

    /// Sends an honest first message, again with a cookie if B asks for one; returns what B answers at last.
    pub fn init_with_cookie(&mut self, network: &mut Network) -> Option<Vec<u8>> {
        let payloads = self.init_payloads();
        let answer = self.init(network, &payloads).pop()?;
        let Ok(Message { body: Body::Clear(read), .. }) = Message::parse(&answer) else { panic!("clear") };
        match read.notify(notify::COOKIE) {
            Some(cookie) => {
                let cookie = vec![Payload::Notify(Notify::new(notify::COOKIE, cookie.data))];
                self.init(network, &[cookie, payloads].concat()).pop()
            }
            None => Some(answer),
        }
    }

    /// One who has been through IKE_AUTH as well.
    pub fn established(network: &mut Network) -> Self {
        let mut this = Self::half_open(network);
        let reply = this.authenticate(network);
        assert_eq!(reply.error(), None);
        assert_eq!(network.hosts[B].installed.len(), 1);
        this
    }

    /// What an honest initiator begins with.
    pub fn init_payloads(&self) -> Vec<Payload<'static>> {
        let public: &'static [u8] = self.share.public().to_vec().leak();
        let mut list = vec![
            Payload::Sa(IkeOffer::propose(&[ike_offer()], ProposalSpi::None)),
            Payload::Ke(KeyExchange { group: 31, public }),
            Payload::Nonce(&[9; 32]),
        ];
        // Hashes of addresses that are not those of the datagram. Without any it knows nothing of NAT.
        let kinds = [
            (self.claims_nat, notify::NAT_DETECTION_SOURCE_IP),
            (self.claims_nat_of_other, notify::NAT_DETECTION_DESTINATION_IP),
        ];
        for (_, kind) in kinds.into_iter().filter(|(claims, _)| *claims) {
            list.push(Payload::Notify(Notify::new(kind, &[7; 20])));
        }
        list
    }

    /// Sends a first message; returns what B answers.
    pub fn init(&mut self, network: &mut Network, payloads: &[Payload<'_>]) -> Vec<Vec<u8>> {
        self.first = emit_clear(&self.header(Exchange::IkeSaInit, 0), payloads);
        let first = self.first.clone();
        self.send(network, first)
    }

    fn derive(&mut self) {
        let message = Message::parse(&self.answer).expect("well formed");
        let Body::Clear(payloads) = message.body else { panic!("in the clear") };
        let theirs = payloads.ke.expect("success").public;
        let shared = self.share.agree(theirs).expect("valid");
        let suite = IkeOffer::select(&[ike_offer()], &payloads.sa.expect("success")).expect("ours").suite;
        self.spis = Spis { initiator: self.spi, responder: message.header.responder_spi };
        let nonces = Nonces { initiator: &self.nonce, responder: payloads.nonce.expect("success") };
        self.keys = Some(IkeKeys::first(&suite, Role::Initiator, self.spis, nonces, &shared));
    }

    pub fn header(&self, exchange: Exchange, message_id: u32) -> Header {
        Header {
            initiator_spi: self.spi,
            responder_spi: self.spis.responder,
            exchange,
            from_initiator: true,
            is_response: false,
            message_id,
        }
    }

    /// Puts bytes before B; returns what it sends back.
    pub fn send(&self, network: &mut Network, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let before = network.log.len();
        network.arrive(Datagram { from: self.address, to: self.to, bytes });
        network.run(Duration::from_millis(1));
        network.log[before..].iter().map(|(_, datagram)| datagram.bytes.clone()).collect()
    }

    pub fn seal(&mut self, header: &Header, envelope: Envelope, first: u8, chain: &[u8]) -> Vec<u8> {
        let keys = self.keys.as_mut().expect("half open");
        keys.sealer.seal(header, first, envelope, chain, &mut crypto::random::System::default())
    }

    pub fn open(&self, datagram: &[u8]) -> Reply {
        let Ok(Message { body: Body::Encrypted(sealed), .. }) = Message::parse(datagram) else {
            panic!("it is encrypted");
        };
        let chain = self.keys.as_ref().expect("half open").opener.open(&sealed).expect("authentic");
        Reply { first: sealed.first, chain }
    }

    /// Sends a request with the next number; `None` if B is silent.
    pub fn ask(
        &mut self,
        network: &mut Network,
        exchange: Exchange,
        payloads: &[Payload<'_>],
    ) -> Option<Reply> {
        let (first, chain) = emit(payloads);
        self.ask_raw(network, exchange, first, &chain)
    }

    /// The same with bytes for payloads.
    pub fn ask_raw(
        &mut self,
        network: &mut Network,
        exchange: Exchange,
        first: u8,
        chain: &[u8],
    ) -> Option<Reply> {
        let header = self.header(exchange, self.next);
        let datagram = self.seal(&header, Envelope::Whole, first, chain);
        let answers = self.send(network, datagram);
        let answer = answers.iter().find(|bytes| {
            let (header, ..) = Header::parse(bytes).expect("well formed");
            header.is_response && header.message_id == self.next
        })?;
        self.next += 1;
        Some(self.open(answer))
    }

    /// Answers B's request of this number; returns what B sends then.
    pub fn respond(
        &mut self,
        network: &mut Network,
        exchange: Exchange,
        message_id: u32,
        payloads: &[Payload<'_>],
    ) -> Vec<Vec<u8>> {
        let (first, chain) = emit(payloads);
        let header = Header { is_response: true, ..self.header(exchange, message_id) };
        let datagram = self.seal(&header, Envelope::Whole, first, &chain);
        self.send(network, datagram)
    }

    /// What an honest initiator authenticates with.
    pub fn auth_payloads(&self) -> Vec<Payload<'static>> {
        let mut list = self.proof_payloads();
        list.extend(child_payloads(&[esp_offer()]));
        list
    }

    /// The same without a wish for a child.
    pub fn proof_payloads(&self) -> Vec<Payload<'static>> {
        let identity = self.identity;
        let Ok(Message { body: Body::Clear(payloads), .. }) = Message::parse(&self.answer) else {
            panic!("in the clear");
        };
        let nonce = payloads.nonce.expect("success");
        let key = &self.keys.as_ref().expect("half open").proof.local;
        let octets = Signed { message: &self.first, nonce, identity }.octets(Prf::HmacSha256, key);
        let secret = SecretBytes::new(self.secret.to_vec());
        let data = shared_key_mac(Prf::HmacSha256, &secret, &octets).expose().to_vec().leak();
        vec![
            Payload::IdI(Identification::parse(identity).expect("ours")),
            Payload::Auth(Authentication { method: method::SHARED_KEY, data }),
        ]
    }

    /// Replaces the IKE SA from another address, where an accomplice sees the answer, and goes on in the new one.
    pub fn rekey(&mut self, network: &mut Network, source: SocketAddr) {
        let own = std::mem::replace(&mut self.address, source);
        assert_eq!(self.try_rekey(network), None);
        self.address = own;
    }

    /// Replaces the IKE SA; returns the error if that is refused.
    pub fn try_rekey(&mut self, network: &mut Network) -> Option<u16> {
        let (spi, share, nonce) = (self.spi + 1, share(), [5; 32]);
        let payloads = [
            Payload::Sa(IkeOffer::propose(&[ike_offer()], ProposalSpi::Ike(spi))),
            Payload::Nonce(&nonce),
            Payload::Ke(KeyExchange { group: 31, public: share.public() }),
        ];
        let reply = self.ask(network, Exchange::CreateChildSa, &payloads).expect("it is answered");
        let payloads = reply.payloads();
        if let Some(error) = payloads.error() {
            return Some(error);
        }
        let proposals = payloads.sa.as_ref().expect("success");
        let suite = IkeOffer::select(&[ike_offer()], proposals).expect("ours").suite;
        let ProposalSpi::Ike(responder) = proposals[0].spi else { panic!("it has an SPI") };
        let shared = share.agree(payloads.ke.expect("success").public).expect("valid");
        let spis = Spis { initiator: spi, responder };
        let nonces = Nonces { initiator: &nonce, responder: payloads.nonce.expect("success") };
        // An honest peer deletes the old one.
        let old = self.keys.take().expect("half open");
        let new = IkeKeys::rekeyed(&old.root, &suite, Role::Initiator, spis, nonces, &shared);
        self.keys = Some(old);
        self.ask(network, Exchange::Informational, &[Payload::Delete(Delete::Ike)]).expect("it is answered");
        self.keys = Some(new);
        (self.spi, self.spis, self.next) = (spi, spis, 0);
        None
    }

    /// Goes on on the ports for NAT.
    pub fn float(&mut self) {
        self.address.set_port(4500);
        self.to.set_port(4500);
    }

    pub fn authenticate(&mut self, network: &mut Network) -> Reply {
        let payloads = self.auth_payloads();
        self.ask(network, Exchange::IkeAuth, &payloads).expect("it is answered")
    }
}

/// A wish for a child, without a nonce.
pub fn child_payloads(offers: &[EspOffer]) -> Vec<Payload<'static>> {
    vec![
        Payload::Sa(EspOffer::propose(offers, SPI)),
        Payload::TsI(vec![net("10.1.0.0", "10.1.0.255")]),
        Payload::TsR(vec![net("10.2.0.0", "10.2.0.255")]),
    ]
}

/// The same for CREATE_CHILD_SA.
pub fn create_payloads() -> Vec<Payload<'static>> {
    let mut list = child_payloads(&[esp_offer()]);
    list.push(Payload::Nonce(&[7; 32]));
    list
}
