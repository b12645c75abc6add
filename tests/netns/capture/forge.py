# Waits for a data packet of WireGuard to an address, and sends forgeries with its receiver index: the tag is wrong.
import socket
import struct
import sys

address = sys.argv[1]
wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
wire.settimeout(20)
while True:
    packet = wire.recv(4096)
    header = (packet[0] & 15) * 4
    udp = packet[header:]
    if packet[0] >> 4 == 4 and packet[9] == 17 and socket.inet_ntoa(packet[16:20]) == address and udp[8:9] == b"\x04":
        break
message = udp[8:]
(counter,) = struct.unpack("<Q", message[8:16])
forged = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for more in range(1, 4):
    forged.sendto(message[:8] + struct.pack("<Q", counter + 100 + more) + b"\xee" * 48, (address, 51820))
