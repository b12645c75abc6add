"""Answers with scapy's ESP (scapy.layers.ipsec), one line for each question:

    crypt key icv auth key esn sequence mode inner esp  ->  opened sealed

`opened` is the inner packet of `esp`, `sealed` what scapy makes of `inner` with the IV of `esp`. All bytes are in hex;
`-` stands for none, `error` for what does not authenticate.
"""

import copy
import struct
import sys

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import AUTH_ALGOS, ESP, SecurityAssociation
from scapy.packet import raw

SPI = 0xC0DE0001


class WithSuffix:
    """A MAC that also covers the high half of the sequence number, which scapy knows only for AH."""

    def __init__(self, mac, suffix):
        self.mac, self.suffix = mac, suffix

    def update(self, data):
        self.mac.update(data)

    def finalize(self):
        self.mac.update(self.suffix)
        return self.mac.finalize()


def with_suffix(algorithm, suffix):
    extended = copy.copy(algorithm)
    extended.new_mac = lambda key: WithSuffix(algorithm.new_mac(key), suffix)
    return extended


def family(packet):
    return IP if packet[0] >> 4 == 4 else IPv6


def association(crypt, key, icv, auth, auth_key, esn, mode, inner):
    outer = IP(src="192.0.2.1", dst="192.0.2.2") if mode == "tunnel" else None
    sa = SecurityAssociation(
        ESP, spi=SPI, crypt_algo=crypt, crypt_key=key, crypt_icv_size=icv or None,
        auth_algo=auth, auth_key=auth_key, tunnel_header=outer,
        esn_en=esn is not None, esn=esn or 0)
    if auth and esn is not None:
        sa.auth_algo = with_suffix(AUTH_ALGOS[auth], struct.pack("!L", esn))
    return sa


def outer_header(inner, mode):
    """What stands before the ESP packet: of transport mode, the header of the inner one."""
    if mode == "tunnel":
        return IP(src="192.0.2.1", dst="192.0.2.2", proto=50)
    header = family(inner)(inner)
    header.remove_payload()
    if header.version == 4:
        header.proto = 50
    else:
        header.nh = 50
    return header


def opened(sa, inner, esp, mode):
    packet = outer_header(inner, mode)
    return raw(sa.decrypt(packet / ESP(esp)))


def sealed(sa, inner, esp, sequence):
    iv = esp[8:8 + sa.crypt_algo.iv_size]
    packet = sa.encrypt(family(inner)(inner), seq_num=sequence, iv=iv)
    return raw(packet[ESP])


def gmac(key, esn, inner, esp):
    """RFC 4543, which scapy does not have: a GCM of nothing, over the packet up to its tag."""
    high = b"" if esn is None else struct.pack("!L", esn)
    covered = esp[:4] + high + esp[4:-16]
    tag = AESGCM(key[:-4]).encrypt(key[-4:] + esp[8:16], b"", covered)
    padding = 2 + esp[-18]
    return esp[16:-16 - padding], esp[:-16] + tag


def answer(line):
    crypt, key, icv, auth, auth_key, esn, sequence, mode, inner, esp = line.split()
    key, auth_key, inner, esp = (bytes.fromhex(text.replace("-", "")) for text in (key, auth_key, inner, esp))
    crypt, auth = (None if name == "-" else name for name in (crypt, auth))
    esn = None if esn == "-" else int(esn)
    if crypt == "AES-GMAC":
        return gmac(key, esn, inner, esp)
    # cryptography makes whole tags of GCM only: a short one is the beginning of it.
    cut = 16 - int(icv) if crypt == "AES-GCM" else 0
    sa = association(crypt, key, 0 if cut else int(icv), auth, auth_key, esn, mode, inner)
    mine = sealed(sa, inner, esp, int(sequence))
    theirs = esp
    if cut:
        whole, mine = mine, mine[:-cut]
        theirs = esp + whole[len(esp):]
    return opened(sa, inner, theirs, mode), mine


for line in sys.stdin:
    try:
        print(*(part.hex() for part in answer(line)), flush=True)
    except Exception as error:
        print("error", repr(error).replace("\n", " ").replace(" ", "_"), flush=True)
