"""`ribtide support`: what is in the bundle, and that no secret of the configuration is."""

import json
import pathlib
import stat
import subprocess
import tarfile
import tomllib

from harness import Host, Ribtide, binary, wait_for
from harness.config import HEAD, LAB

PASSWORD, TOKEN, COMMENT = "hunter2-password", "0123456789abcdef-token", "hunter2-comment"


def members(path):
    """name → bytes of the files of a bundle."""
    with tarfile.open(path) as archive:
        return {member.name.removeprefix("ribtide-support/"): archive.extractfile(member).read() for member in archive}


def test_bundle_has_the_state_and_no_secret(host, folder):
    (pathlib.Path(folder) / "token").write_text(TOKEN + "\n")
    (pathlib.Path(folder) / "token").chmod(0o600)
    router = Ribtide(host, HEAD + f"""
[bgp.group.feeds]
type = "external"
import = ["accept"]
export = ["accept"]
dynamic-neighbors = ["198.19.0.0/24"]

[bgp.group.peers]
type = "external"
peer-asn = 65100
password = "{PASSWORD}"   # {COMMENT}
neighbor = [{{ address = "198.19.1.1", description = "the other" }}, {{ address = "198.19.1.2", password = "{PASSWORD}-2" }}]

[fib]
""" + LAB)
    host.feeds.start("blast", binary(), "blast", "--to", f"{Host.FEED_SIDE}:179", "--from", Host.FEEDS[0],
                     "--ipv4", 100, "--quiet")
    wait_for("the table is there", lambda: router.count() == 100)
    # Its last table is [api].
    router.config.write_text(router.config.read_text() + f'http = "127.0.0.1:8099"\ntoken-file = "{folder}/token"\n')
    bundle = pathlib.Path(folder) / "bundle.tar.gz"
    said = router.text("support", str(bundle), "-c", str(router.config))
    assert "without passwords and keys" in said and stat.S_IMODE(bundle.stat().st_mode) == 0o600
    files = members(bundle)
    for name, content in files.items():
        for secret in (PASSWORD, TOKEN, COMMENT):
            assert secret.encode() not in content, f"{name} has {secret}"
    configuration = tomllib.loads(files["ribtide.toml"].decode())
    assert configuration["bgp"]["group"]["peers"]["password"] == "********"
    assert configuration["router"]["asn"] == 65001
    summary = json.loads(files["api/bgp-summary.json"])
    assert summary["asn"] == 65001 and summary["established"] == 1
    assert len(json.loads(files["api/routes.json"])["routes"]) == 100
    # The log that the router keeps: standard error may go anywhere.
    assert "the session is up" in files["api/log.json"].decode()
    assert b"the other" in files["api/bgp-neighbors.json"]
    assert b"ribtide_bgp_neighbor_up{" in files["metrics.txt"]
    assert b"Linux version" in files["system/proc/version"] and files["version.txt"].startswith(b"ribtide ")


def test_bundle_without_a_router_names_what_is_missing(folder):
    bundle = pathlib.Path(folder) / "bundle.tar.gz"
    subprocess.run([binary(), "support", bundle, "-c", f"{folder}/none.toml", "--socket", f"{folder}/none.sock"], check=True)
    files = members(bundle)
    errors = files["errors.txt"].decode()
    assert "none.toml" in errors and "no router answers" in errors and "version.txt" in files
    assert not any(name.startswith("api/") for name in files)
