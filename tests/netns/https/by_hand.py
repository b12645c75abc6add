"""Requests by hand to the API over HTTPS: shapes, errors, limits. Arguments: address, port, key. Needs nothing but Python."""

import http.client
import json
import socket
import ssl
import sys
import threading
import time
import urllib.parse

ADDRESS, PORT, KEY = sys.argv[1], int(sys.argv[2]), sys.argv[3]
FORM = "application/x-www-form-urlencoded"
MTU = ["interfaces", "wireguard", "wg0", "mtu"]


def context(version=None):
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.check_hostname = False
    found.verify_mode = ssl.CERT_NONE
    if version:
        found.set_ciphers("DEFAULT@SECLEVEL=0")
        found.minimum_version = found.maximum_version = version
    return found


def send(method, path, body=b"", headers=None, version=None):
    connection = http.client.HTTPSConnection(ADDRESS, PORT, timeout=60, context=context(version))
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, json.loads(text)


def form(path, data, key=KEY):
    fields = {"data": data if isinstance(data, str) else json.dumps(data), "key": key}
    return send("POST", path, urllib.parse.urlencode(fields), {"Content-Type": FORM})


def right(path, data):
    status, answer = form(path, data)
    assert status == 200 and answer["success"] is True and answer["error"] is None, (path, data, status, answer)
    return answer["data"]


def wrong(path, data, *parts, status=400):
    found, answer = form(path, data)
    assert found == status and answer["success"] is False and answer["data"] is None, (path, data, found, answer)
    assert all(part in answer["error"] for part in parts), (parts, answer)


def retrieve():
    whole = right("/retrieve", {"op": "showConfig", "path": []})
    assert whole["interfaces"]["wireguard"]["wg0"]["address"], whole
    assert whole["service"]["https"]["api"]["keys"]["id"]["test"]["key"] == KEY, "who has a key is an administrator"
    assert right("/retrieve", {"op": "exists", "path": ["interfaces", "wireguard", "wg7"]}) is False
    wrong("/retrieve", {"op": "showConfig", "path": ["interfaces", "wireguard", "wg7"]}, "specified path is empty")
    # As curl --form sends it, and as JSON.
    parts = {"data": json.dumps({"op": "exists", "path": ["interfaces"]}), "key": KEY}
    text = "".join(
        f'--xyz\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in parts.items()
    )
    kind = {"Content-Type": "multipart/form-data; boundary=xyz"}
    assert send("POST", "/retrieve", text + "--xyz--\r\n", kind) == (200, {"success": True, "data": True, "error": None})
    body = json.dumps({"op": "exists", "path": ["interfaces"], "key": KEY})
    assert send("POST", "/retrieve", body, {"Content-Type": "application/json"})[1]["data"] is True


def configure():
    assert right("/configure", {"op": "set", "path": MTU, "value": "1300"}) is None
    assert right("/retrieve", {"op": "returnValue", "path": MTU}) == "1300"
    right("/configure", [{"op": "delete", "path": MTU}, {"op": "set", "path": MTU[:-1] + ["description", "a b"]}])
    assert right("/retrieve", {"op": "returnValues", "path": MTU}) == []
    wrong("/configure", [{"op": "set", "path": MTU + ["1"]}, {"op": "set", "path": ["frob"]}], "wg0 mtu 1]", "frob")
    assert right("/configure", {"op": "comment", "path": MTU[:-1], "value": "to the branch"}) is None
    raw = right("/retrieve", {"op": "showConfig", "path": [], "configFormat": "raw"})
    assert "/* to the branch */" in raw, raw
    right("/configure", {"op": "comment", "path": MTU[:-1], "value": ""})
    wrong("/configure", {"op": "comment", "path": ["interfaces", "wireguard", "wg7"], "value": "a"}, "wg7")
    right("/configure", {"op": "delete", "path": ["interfaces", "wireguard", "wg7"]})
    right("/configure", {"commands": [{"op": "set", "path": MTU + ["1310"]}], "confirm_time": 5, "comment": "a test"})
    wrong("/config-file", {"op": "save"}, "not confirmed")
    right("/config-file", {"op": "confirm"})
    section = {"mtu": "1320", "port": 51999}
    right("/configure-section", {"op": "set", "path": MTU[:-1], "section": section})
    assert right("/retrieve", {"op": "returnValue", "path": MTU}) == "1320"


def files():
    assert "Done" in right("/config-file", {"op": "save", "file": "/config/test.config"})
    right("/configure", {"op": "set", "path": MTU + ["1330"]})
    right("/config-file", {"op": "load", "file": "/config/test.config"})
    assert right("/retrieve", {"op": "returnValue", "path": MTU}) == "1320"
    right("/config-file", {"op": "merge", "string": "set interfaces wireguard wg0 mtu 1340\n"})
    assert right("/retrieve", {"op": "returnValue", "path": MTU}) == "1340"
    for name in ["/etc/passwd", "/config/../a", "../a", "http://192.0.2.1/a"]:
        for op in ["save", "load"]:
            wrong("/config-file", {"op": op, "file": name}, "files are kept in one folder")
    assert "Done" in right("/config-file", {"op": "save"})


def operational():
    assert "ostern" in right("/show", {"op": "show", "path": ["version"]})
    assert "Private key" in right("/generate", {"op": "generate", "path": ["wireguard", "default-keypair"]})
    wrong("/reset", {"op": "reset", "path": ["vpn", "ipsec-peer", "nobody"]}, "nobody")
    wrong("/show", {"op": "show", "path": ["frob"]}, "Invalid command")
    wrong("/show", {"op": "show", "path": ["log"]}, "fix: ")
    wrong("/reboot", {"op": "reboot", "path": ["now"]}, "fix: systemctl reboot")
    wrong("/image", {"op": "add", "url": "http://192.0.2.1/"}, "package")


def shapes():
    wrong("/retrieve", "{", "Failed to parse JSON")
    wrong("/retrieve", {"op": "returnValue"}, "missing 'path' field")
    assert right("/retrieve", {"op": "showConfig"}) == right("/retrieve", {"op": "showConfig", "path": []})
    wrong("/retrieve", {"path": []}, "missing 'op' field")
    wrong("/frob", {"op": "show", "path": []}, "there is no /frob", status=404)
    assert send("GET", "/retrieve")[0] == 405
    assert send("POST", "/retrieve", "key=" + KEY, {"Content-Type": FORM})[0] == 422
    assert send("POST", "/show", "a" * 70_000, {"Content-Type": FORM})[0] == 413
    anonymous = send("GET", "/info")[1]["data"]
    known = send("GET", "/info", headers={"X-API-Key": KEY})[1]["data"]
    assert anonymous["version"] == "Postern" and known["version"].startswith("Postern 0."), (anonymous, known)


def typed():
    bearer = {"Authorization": "Bearer " + KEY, "Content-Type": "application/json"}
    status, now = send("GET", "/v1/configuration", headers=bearer)
    assert status == 200 and now["revision"] > 0, now
    edit = lambda value: json.dumps({"base": now["revision"], "edits": [f"set interfaces wireguard wg0 mtu {value}"]})
    assert send("POST", "/v1/configuration/commit", edit(1350), bearer)[0] == 200
    status, answer = send("POST", "/v1/configuration/commit", edit(1360), bearer)
    assert status == 409 and "conflicts" in answer, (status, answer)
    newest = send("GET", "/v1/configuration/revisions", headers=bearer)[1][0]
    assert newest["user"] == "test" and newest["via"] == "api", newest
    assert send("POST", "/v1/configuration/saved", "{}", bearer)[0] == 404
    # Packets and the log as they come are for clients on the machine.
    for local in ("capture/wg0", "log"):
        status, answer = send("GET", f"/v1/local/{local}", headers=bearer)
        assert status == 404 and "not served over HTTPS" in answer["error"], answer
    tree = "/v1/configuration/tree"
    status, read = send("GET", tree, headers=bearer)
    assert status == 200 and read["interfaces"]["wireguard"]["wg0"]["mtu"] == 1350, read
    mtu = lambda value: json.dumps({"interfaces": {"wireguard": {"wg0": {"mtu": value}}}})
    status, answer = send("PATCH", tree + "?user=root&comment=typed", mtu(1370), bearer)
    assert status == 200, (status, answer)
    newest = send("GET", "/v1/configuration/revisions", headers=bearer)[1][0]
    assert (newest["user"], newest["comment"]) == ("test", "typed"), newest
    stale = {**bearer, "If-Match": f'"{now["revision"]}"'}
    status, answer = send("PATCH", tree, mtu(1380), stale)
    assert status == 409 and answer["conflicts"], (status, answer)
    assert send("PUT", tree, json.dumps(read), bearer)[0] == 428
    document = send("GET", "/v1/openapi.json", headers=bearer)[1]
    assert document["paths"][tree]["patch"] and send("GET", tree)[0] == 401
    assert send("GET", "/v1/configuration")[0] == 401


def parallel():
    """Clients that change the same at once: each is carried out whole, one after the other."""
    outcomes = []

    def client(value):
        changes = [{"op": "set", "path": MTU + [str(value)]}, {"op": "set", "path": MTU[:-1] + ["port", str(50_000 + value)]}]
        outcomes.append(form("/configure", changes))

    threads = [threading.Thread(target=client, args=[value]) for value in range(1400, 1408)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert [status for status, _ in outcomes] == [200] * 8, outcomes
    last = int(right("/retrieve", {"op": "returnValue", "path": MTU}))
    assert int(right("/retrieve", {"op": "returnValue", "path": MTU[:-1] + ["port"]})) == 50_000 + last


def begin(head, body):
    """Sends a request whose body goes on; the connection."""
    stream = context().wrap_socket(socket.create_connection((ADDRESS, PORT), timeout=60))
    stream.sendall(f"POST {head}\r\nHost: a\r\nContent-Type: application/json\r\n".encode() + body)
    return stream


def long_bodies():
    """Long requests: those without a key take no room of clients with one."""
    slow = begin("/configure HTTP/1.1", b"Content-Length: 100000\r\n\r\n{")
    operation = {"op": "set", "path": MTU, "value": "1390", "pad": "x" * 70_000}
    found, answer = form("/configure", operation)
    assert found == 503 and "Authorization" in answer["error"], (found, answer)
    bearer = {"Authorization": "Bearer " + KEY, "Content-Type": "application/json"}
    status, answer = send("POST", "/configure", json.dumps(operation), bearer)
    assert status == 200, (status, answer)
    slow.close()
    # A key of a header is checked before the body, which is not asked for.
    refused = begin("/v1/configuration/commit HTTP/1.1", b"Expect: 100-continue\r\nContent-Length: 100000\r\n\r\n")
    assert refused.recv(12) == b"HTTP/1.1 401"
    status, answer = send("POST", "/v1/reload", "x" * 700_000, bearer)
    assert status == 413 and answer["error"] and answer["fix"], (status, answer)
    status, answer = send("POST", "/v1/configuration/commit", '{"base": 1}', bearer)
    assert status == 400 and answer["fix"], (status, answer)
    for line in ["a " * 60_000, "x" * 14_000_000]:
        begun = time.monotonic()
        edit = json.dumps({"base": 1, "edits": ["set " + line]})
        assert send("POST", "/v1/configuration/commit", edit, bearer)[0] == 422
        assert time.monotonic() - begun < 10, "it takes more than its length"


def transport():
    for version in [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]:
        assert send("GET", "/info", version=version)[0] == 200, version
    try:
        send("GET", "/info", version=ssl.TLSVersion.TLSv1_1)
        raise AssertionError("TLS 1.1 was accepted")
    except ssl.SSLError:
        pass
    plain = socket.create_connection((ADDRESS, PORT), timeout=60)
    plain.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    answer = b""
    while part := plain.recv(4096):
        answer += part
    assert answer.startswith(b"HTTP/1.1 400 ") and b"speaks HTTPS" in answer, answer


def wrong_keys():
    statuses = []
    while 429 not in statuses and len(statuses) < 60:
        statuses.append(form("/retrieve", {"op": "exists", "path": []}, key=f"guess-{len(statuses)}")[0])
    assert statuses[:10] == [401] * 10 and statuses[-1] == 429, statuses
    assert form("/retrieve", {"op": "exists", "path": []})[0] == 429, "a right key is not told from a wrong one"


for part in [retrieve, configure, files, operational, shapes, typed, parallel, long_bodies, transport, wrong_keys]:
    part()
    print(part.__name__, "right", flush=True)
