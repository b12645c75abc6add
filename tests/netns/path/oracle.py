"""Asks a STAMP reflector, or is one, with the packets of scapy: RFC 8762 and RFC 8972 as another implementation reads them.

oracle.py ask ADDRESS      prints a line for each claim that holds, and fails at the first that does not
oracle.py flood ADDRESS N  sends so many probes, and prints how many were answered
oracle.py reflect ADDRESS PORT   answers probes for ever
"""

import random
import socket
import sys
import time

from scapy.config import conf

conf.verb = 0
from scapy.contrib.stamp import (  # noqa: E402
    ErrorEstimate,
    STAMPSessionReflectorTestUnauthenticated as Reflected,
    STAMPSessionSenderTestUnauthenticated as Probe,
)
from scapy.layers.inet import UDP  # noqa: E402

PORT = 862
# RFC 4330: from 1900 to 1970.
EPOCH = 2208988800


def read(data):
    """scapy finds the length of TLVs in the UDP header."""
    return UDP(bytes(UDP(sport=PORT, dport=40000) / data))[Reflected]


def ask(address):
    plug = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    plug.settimeout(5)
    plug.connect((address, PORT))
    for sequence in range(3):
        sent = Probe(seq=sequence, ts=time.time() + EPOCH, ssid=77, err_estimate=ErrorEstimate(S=1, scale=3, multiplier=5))
        plug.send(bytes(sent))
        data = plug.recv(2000)
        assert len(data) == len(bytes(sent)) == 44, len(data)
        got = read(data)
        assert (got.seq, got.seq_sender, got.ssid) == (sequence, sequence, 77), got.show(dump=True)
        assert data[24:38] == bytes(sent)[:14], "number, timestamp and error estimate of the sender"
        assert got.err_estimate.multiplier > 0, "RFC 4656 section 4.1.2"
        assert 0 < got.ttl_sender <= 255 and data[38:40] == b"\0\0" and data[41:44] == b"\0\0\0"
        received, answered = (int.from_bytes(data[at : at + 8], "big") / 2**32 for at in (16, 4))
        assert received <= answered < received + 5, (received, answered)
        assert abs(answered - EPOCH - time.time()) < 5, "its clock is the same"
    print("probes are reflected")
    # Padding, an unknown TLV, and one that is longer than the packet.
    tlvs = bytes([0x80, 1, 0, 6]) + b"abcdef" + bytes([0x80, 240, 0, 2, 1, 2]) + bytes([0x80, 1, 0, 99, 7])
    plug.send(bytes(Probe(seq=9)) + tlvs)
    data = plug.recv(2000)
    flags = bytes([0, 1, 0, 6]) + b"abcdef" + bytes([0x80, 240, 0, 2, 1, 2]) + bytes([0x40, 1, 0, 99, 7])
    assert data[44:] == flags, data[44:].hex()
    print("TLVs come back with their flags")
    plug.settimeout(1)
    random.seed(1)
    for length in [0, 1, 43]:
        plug.send(random.randbytes(length))
    try:
        plug.recv(2000)
        raise SystemExit("what is too short is answered")
    except TimeoutError:
        print("what is too short is not answered")
    for length in [44, 45, 47, 48, 100, 1200]:
        plug.send(random.randbytes(length))
        assert len(plug.recv(2000)) == length, "an answer is never longer"
    print("garbage is answered with as many bytes")
    plug.send(bytes(Probe(seq=10)))
    answer = plug.recv(2000)
    plug.send(answer)
    try:
        plug.recv(2000)
        raise SystemExit("an answer is answered")
    except TimeoutError:
        print("what a reflector sent is not answered")
    other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    other.bind(("", PORT))
    other.settimeout(1)
    other.sendto(bytes(Probe(seq=1)), (address, PORT))
    try:
        other.recv(2000)
        raise SystemExit("a reflector is answered")
    except TimeoutError:
        print("another reflector is not answered")


def flood(address, count):
    plug = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    plug.settimeout(1)
    begun = time.monotonic()
    for sequence in range(count):
        plug.sendto(bytes(Probe(seq=sequence)), (address, PORT))
    answered = 0
    try:
        while True:
            plug.recv(2000)
            answered += 1
    except TimeoutError:
        print(answered, time.monotonic() - begun)


def reflect(address, port):
    plug = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    plug.bind((address, port))
    while True:
        data, source = plug.recvfrom(2000)
        received = time.time() + EPOCH
        # Without TLVs, whose length scapy looks up in a packet around it.
        asked = Probe(data[:44])
        answer = Reflected(
            seq=asked.seq,
            ts=time.time() + EPOCH,
            ssid=0,
            ts_rx=received,
            seq_sender=asked.seq,
            ttl_sender=64,
        )
        # The sender's own bytes: scapy would round its timestamp.
        answer = bytearray(bytes(answer))
        answer[28:38] = data[4:14]
        plug.sendto(bytes(answer) + data[44:], source)


if __name__ == "__main__":
    verb, where, *rest = sys.argv[1:]
    {"ask": ask, "flood": flood, "reflect": reflect}[verb](where, *map(int, rest))
