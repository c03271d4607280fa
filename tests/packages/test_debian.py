"""The Debian package: what is in it, what installs it, and what removal leaves."""

import gzip
import io
import os
import re
import shutil
import subprocess
import tarfile

import pytest
from conftest import TREE, run


def members(package):
    """path → (mode, owner, group) of all files of the package."""
    tar = run_bytes("dpkg-deb", "--fsys-tarfile", package)
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return {m.name.removeprefix("./").rstrip("/"): (m.mode & 0o7777, m.uname or m.uid, m.gname or m.gid) for m in archive if not m.isdir()}


def run_bytes(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True).stdout


def commands(binary, *path):
    """Every command of the program as its help lists it, as paths of words."""
    found = [path]
    text = run(binary, *path, "--help").stdout
    _, _, listed = text.partition("\nCommands:\n")
    for name in re.findall(r"^  ([a-z][\w-]*)(?:  |$)", listed.split("\n\n")[0], re.M):
        if name != "help":
            found += commands(binary, *path, name)
    return found


def test_package_has_every_part_with_its_mode(package):
    files = members(package)
    expected = {
        "usr/bin/ribtide": 0o755,
        "etc/ribtide/ribtide.toml": 0o640,
        "usr/lib/sysusers.d/ribtide.conf": 0o644,
        "usr/share/man/man1/ribtide.1.gz": 0o644,
        "usr/share/man/man5/ribtide.toml.5.gz": 0o644,
        "usr/share/bash-completion/completions/ribtide": 0o644,
        "usr/share/zsh/vendor-completions/_ribtide": 0o644,
        "usr/share/fish/vendor_completions.d/ribtide.fish": 0o644,
        "usr/share/doc/ribtide/copyright": 0o644,
        "usr/share/doc/ribtide/changelog.Debian.gz": 0o644,
        "usr/share/doc/ribtide/libraries.txt.gz": 0o644,
        "usr/share/doc/ribtide/operations.md": 0o644,
        "usr/share/doc/ribtide/examples/prometheus/ribtide.rules.yml": 0o644,
        "usr/share/doc/ribtide/examples/grafana/ribtide.json": 0o644,
    }
    unit = [path for path in files if path.endswith("systemd/system/ribtide.service")]
    assert len(unit) == 1
    for path, mode in expected.items():
        # Documents may be packed.
        found = files.get(path) or files.get(path + ".gz")
        assert found, f"{path} is missing"
        assert found[0] == mode and found[1] in ("root", 0) and found[2] in ("root", 0), (path, found)
    writable = [path for path, (mode, *_) in files.items() if mode & 0o022 or mode & 0o6000]
    assert not writable, writable


def test_package_has_the_examples_of_the_deployments(contents):
    pages = [page.read_text() for page in (TREE / "docs/deployments").glob("*.md")]
    blocks = [block for page in pages for block in re.findall(r"^```toml\n(.*?)^```$", page, re.M | re.S)]
    folder = contents / "usr/share/doc/ribtide/examples"
    files = sorted(folder.glob("*.toml"))
    assert len(blocks) == len(files) == 6
    assert sorted(blocks) == sorted(file.read_text() for file in files)
    assert {"peering-edge", "route-reflector", "route-server", "leaf", "host"} <= {file.stem for file in files}
    # That of the route server names files of the IRR.
    for file in files:
        if file.stem != "route-server":
            assert "valid" in run(contents / "usr/bin/ribtide", "check", "-c", file).stdout


def test_installed_configuration_is_valid_and_so_are_its_comments(contents, tmp_path):
    binary, file = contents / "usr/bin/ribtide", contents / "etc/ribtide/ribtide.toml"
    assert "valid" in run(binary, "check", "-c", file).stdout
    head, _, rest = file.read_text().partition("[router]")
    everything = tmp_path / "ribtide.toml"
    everything.write_text("[router]" + re.sub(r"^# ", "", rest, flags=re.M))
    assert "1 neighbour" in run(binary, "check", "-c", everything).stdout


def test_every_command_has_a_page_without_warnings(contents):
    binary = contents / "usr/bin/ribtide"
    found = commands(binary)
    assert ("show", "bgp", "neighbor") in found and len(found) > 40
    pages = {path.name for path in (contents / "usr/share/man").glob("man*/*")}
    assert pages == {"-".join(("ribtide", *path)) + ".1.gz" for path in found} | {"ribtide.toml.5.gz"}
    for page in sorted((contents / "usr/share/man").glob("man*/*")):
        text = gzip.decompress(page.read_bytes())
        # `break`: a line whose words are too long to be spread over the width of the page.
        done = subprocess.run(["groff", "-man", "-ww", "-Wbreak", "-Tutf8", "-Kutf8", "-z"], input=text, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b""), f"{page.name}: {done.stderr.decode()}"


def test_bash_completes_commands_and_options(contents):
    script = f"""
set -e
source {contents}/usr/share/bash-completion/completions/ribtide
complete -p ribtide > /dev/null
COMP_WORDS=(ribtide show b) COMP_CWORD=2
_ribtide ribtide b show
echo "${{COMPREPLY[@]}}"
"""
    assert {"bgp", "bfd", "bmp"} <= set(run("bash", "-c", script).stdout.split())
    for shell, file in [("zsh", "zsh/vendor-completions/_ribtide"), ("fish", "fish/vendor_completions.d/ribtide.fish")]:
        if shutil.which(shell):
            run(shell, "-n", contents / "usr/share" / file)


def test_licences_name_every_library(contents):
    text = gzip.decompress((contents / "usr/share/doc/ribtide/libraries.txt.gz").read_bytes()).decode()
    lock = (TREE / "Cargo.lock").read_text()
    versions = dict(re.findall(r'name = "(\w[\w-]*)"\nversion = "([^"]+)"', lock))
    for name in ("hashbrown", "axum", "clap", "serde", "mimalloc"):
        assert re.search(rf"^{name} [\d.]+: .*(MIT|Apache)", text, re.M), name
    assert f"tokio {versions['tokio']}: " in text
    assert "proptest" not in text.partition("====")[0], "of the tests only"
    assert "Copyright (c)" in text


def test_unit_is_accepted_by_systemd(contents, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing")
    [unit] = contents.glob("**/systemd/system/ribtide.service")
    text = unit.read_text()
    assert text == (TREE / "contrib/ribtide.service").read_text()
    # The program is not installed here: its own path is the only change.
    copy = tmp_path / "ribtide.service"
    copy.write_text(text.replace("/usr/bin/ribtide", str(contents / "usr/bin/ribtide")))
    done = run("systemd-analyze", "verify", "--man=no", copy)
    about = [line for line in (done.stdout + done.stderr).splitlines() if "ribtide" in line]
    assert not about, about


def test_lintian_has_no_error(package):
    if shutil.which("lintian") is None:
        pytest.skip("lintian is missing")
    done = run("lintian", "--allow-root", "--fail-on", "error", "--tag-display-limit", "0", package, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout


def next_version(package, folder):
    """The same package as a later version with another example configuration."""
    tree = folder / "next"
    run("dpkg-deb", "-R", package, tree)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", "Version: 99.0.0", control.read_text(), flags=re.M))
    with (tree / "etc/ribtide/ribtide.toml").open("a") as file:
        file.write("\n# A line of the next version.\n")
    out = folder / "next.deb"
    run("dpkg-deb", "--root-owner-group", "-b", tree, out)
    return out


def test_install_upgrade_remove_and_purge(package, debian, tmp_path):
    """In a Debian system of its own, without systemd as its first process."""
    later = next_version(package, tmp_path)
    for file, name in [(package, "now.deb"), (later, "later.deb")]:
        shutil.copy(file, debian / "root" / name)

    def inside(*command, check=True):
        return run("chroot", debian, *command, check=check, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"})

    groups = lambda: dict(re.findall(r"^([\w-]+):[^:]*:(\d+):", (debian / "etc/group").read_text(), re.M))  # noqa: E731
    configuration = debian / "etc/ribtide/ribtide.toml"
    inside("dpkg", "-i", "/root/now.deb")
    group = int(groups()["ribtide"])
    assert re.search(r"^ribtide:[^:]*:\d+:\d+:.*:/usr/sbin/nologin$", (debian / "etc/passwd").read_text(), re.M)
    state = configuration.stat()
    assert (state.st_mode & 0o7777, state.st_uid, state.st_gid) == (0o640, 0, group)
    assert (debian / "etc/ribtide").stat().st_gid == group
    assert "ribtide 0." in inside("ribtide", "--version").stdout
    assert "valid" in inside("ribtide", "check").stdout
    # The service may read it, and another user not.
    assert inside("setpriv", "--reuid=ribtide", "--regid=ribtide", "--clear-groups", "cat", "/etc/ribtide/ribtide.toml").stdout
    assert inside("setpriv", "--reuid=daemon", "--regid=daemon", "--clear-groups", "cat", "/etc/ribtide/ribtide.toml", check=False).returncode != 0
    enabled = [path for path in (debian / "etc/systemd/system").glob("**/ribtide.service")]
    assert not enabled, "the installation enables nothing"

    # An upgrade keeps the administrator's text, group and mode.
    configuration.write_text(configuration.read_text().replace("65000", "65123"))
    os.chown(configuration, 0, 0)
    configuration.chmod(0o600)
    inside("dpkg", "--force-confold", "-i", "/root/later.deb")
    assert "65123" in configuration.read_text() and "next version" not in configuration.read_text()
    state = configuration.stat()
    assert (state.st_mode & 0o7777, state.st_gid) == (0o600, 0)
    assert "AS 65123" in inside("ribtide", "check").stdout

    written = debian / "var/lib/ribtide/table.mrt"
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_bytes(b"routes")
    inside("dpkg", "-r", "ribtide")
    assert not (debian / "usr/bin/ribtide").exists() and not list((debian / "usr/share/man/man1").glob("ribtide*"))
    assert "65123" in configuration.read_text() and written.exists()
    inside("dpkg", "-P", "ribtide")
    assert not (debian / "etc/ribtide").exists() and not written.parent.exists()
    assert "ribtide" in groups(), "files elsewhere may be the user's"
    left = [path for path in debian.glob("usr/**/*ribtide*")]
    assert not left, left


def test_container_file_copies_what_is_there():
    """The form of the file and its paths; no image is here to build it on."""
    known = {"FROM", "WORKDIR", "COPY", "RUN", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
    lines = re.sub(r"\\\n", " ", (TREE / "Containerfile").read_text()).splitlines()
    instructions = [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
    assert {name for name, _ in instructions} <= known and instructions[0][0] == "FROM"
    stages = [words.split(" AS ")[1] for name, words in instructions if name == "FROM" and " AS " in words]
    for name, words in instructions:
        if name != "COPY":
            continue
        *sources, _ = words.split()
        if sources[0].startswith("--from="):
            assert sources.pop(0).removeprefix("--from=") in stages
            assert sources == ["/src/target/release/ribtide"]
        else:
            assert all((TREE / source).exists() for source in sources), sources
    [(_, entry)] = [i for i in instructions if i[0] == "ENTRYPOINT"]
    [(_, words)] = [i for i in instructions if i[0] == "CMD"]
    unit = (TREE / "contrib/ribtide.service").read_text()
    assert " ".join(eval(entry) + eval(words)) == re.search(r"^ExecStart=(.*)$", unit, re.M).group(1)


@pytest.mark.parametrize("release, says", [
    ('ID=fedora', "dnf install gcc glibc-devel"),
    ('ID=alpine', "apk add gcc musl-dev"),
    ('ID="endeavouros"\nID_LIKE="arch"', "pacman -S gcc"),
    ('ID=unknown', "install a C compiler"),
])
def test_setup_names_packages_of_a_system_without_apt(release, says, tmp_path):
    """scripts/setup on a system that has neither apt-get, compiler nor cargo."""
    if os.geteuid() != 0:
        pytest.skip("this needs root")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for tool in ("bash", "env", "id", "grep", "cat"):
        (bin_folder / tool).symlink_to(shutil.which(tool))
    file = tmp_path / "os-release"
    file.write_text(release + "\n")
    script = f"mount --bind {file} /etc/os-release && PATH={bin_folder} HOME=/nonexistent exec {bin_folder}/bash {TREE}/scripts/setup run"
    done = run("unshare", "--mount", "bash", "-c", script, check=False)
    assert done.returncode == 1 and says in done.stderr and "rustup" in done.stderr, done.stderr
