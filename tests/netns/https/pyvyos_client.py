"""VyOS's own client library (pyvyos) with the API over HTTPS. Arguments: address, port, key."""

import sys
import warnings

warnings.filterwarnings("ignore")

from pyvyos import VyDevice

device = VyDevice(hostname=sys.argv[1], port=int(sys.argv[2]), apikey=sys.argv[3], verify=False, timeout=60)
WG0 = ["interfaces", "wireguard", "wg0"]


def right(response):
    assert response.status == 200 and not response.error, response
    return response.result


assert right(device.retrieve_show_config())["interfaces"]["wireguard"]["wg0"]["address"]
assert right(device.retrieve_show_config(path=WG0))["address"]
right(device.configure_set(path=WG0 + ["mtu", "1300"]))
assert right(device.retrieve_return_values(path=WG0 + ["mtu"])) == ["1300"]
right(device.configure_set(path=[WG0 + ["mtu", "1310"], WG0 + ["description", "by pyvyos"]]))
assert right(device.retrieve_show_config(path=WG0 + ["description"])) == {"description": "by pyvyos"}
operations = [{"op": "delete", "path": WG0 + ["mtu"]}, {"op": "set", "path": WG0 + ["port", "51999"]}]
right(device.configure_multiple_op(op_path=operations))
assert right(device.retrieve_return_values(path=WG0 + ["mtu"])) == []
assert "ostern" in right(device.show(path=["version"]))
assert "wg0" in right(device.show(path=["interfaces", "wireguard"]))
assert "Private key" in right(device.generate(path=["pki", "wireguard", "key-pair"]))
assert "Done" in right(device.config_file_save(file="/config/test300.config"))
right(device.configure_delete(path=WG0 + ["port"]))
right(device.config_file_load(file="/config/test300.config"))
assert right(device.retrieve_return_values(path=WG0 + ["port"])) == ["51999"]
right(device.configure_delete(path=WG0 + ["port"]))
assert "Done" in right(device.config_file_save())

for refused in [
    device.reset(path=["vpn", "ipsec-peer", "nobody"]),
    device.configure_set(path=WG0 + ["mtu", "1"]),
    device.configure_set(path=["frob"]),
    device.retrieve_show_config(path=["interfaces", "wireguard", "wg7"]),
    device.reboot(),
    device.poweroff(),
    device.image_add(url="http://192.0.2.1/a.iso"),
]:
    assert refused.status == 400 and refused.error, refused

stranger = VyDevice(hostname=sys.argv[1], port=int(sys.argv[2]), apikey="wrong", verify=False, timeout=60)
assert stranger.retrieve_show_config(path=WG0).status == 401
print("right")
