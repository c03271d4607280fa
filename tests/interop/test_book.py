"""The book (docs/SUMMARY.md): its commands run as they are printed, and print what the page shows; commands and settings that it
names exist; docs/commands.md is the help of the program.

RECORD=1 writes the outputs into the pages instead."""

import json
import os
import pathlib
import re
import subprocess

import pytest

from harness import Bird, CommandFailed, Frr, binary, need
from harness.book import Page, Shell
from harness.manual import commands, fault, help_of, reference

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
#: Pages of measurements and decisions have commands of their date.
PAGES = [DOCS.parent / "README.md", *DOCS.glob("*.md"), *DOCS.glob("deployments/*.md"), *DOCS.glob("documents/*.md")]
HEAD = """# Commands

Every command and its options, from the help of the program: `ribtide COMMAND --help` says more, and
`ribtide man DIR` writes manual pages. Most commands also have `--socket PATH`, the router's Unix
socket, and `--json`. Which command answers which question: [operations](operations.md).

"""


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.mark.parametrize("name, commands", [
    ("getting-started.md", 20),
    pytest.param("troubleshooting.md", 20, marks=pytest.mark.long),
    # What makes or installs a package is not played: its fences name no language.
    ("installation.md", 1),
])
def test_page_prints_what_it_shows(shell, name, commands):
    page = Page(name, shell)
    page.play()
    assert page.played >= commands, "the page has lost its commands"


def test_reference_of_commands_is_the_help():
    path = DOCS / "commands.md"
    text = HEAD + reference()
    if os.environ.get("RECORD"):
        path.write_text(text)
    assert path.read_text() == text, "stale; RECORD=1 writes it again"


def test_help_is_for_users():
    """No link of Rust's documentation comes through to the long help, which docs/commands.md does not have."""
    of = {command: help_of(*command, short=False) for command in commands()}
    links = [f"{' '.join(command)}: {link}" for command, text in of.items() for link in re.findall(r"\[`[^`]*`\]", text)]
    assert len(of) > 50 and not links, "\n".join(links)


def printed_commands(text):
    """Each `ribtide …` in backticks or in a fenced block, in one line."""
    for fence in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from re.findall(r"^(?:\$ )?(ribtide [^\n]*)", re.sub(r"\\\n *", "", fence), re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (" ".join(found.split()) for found in re.findall(r"`(ribtide [^`]+)`", prose))


def test_commands_in_documents_exist():
    found = [(path.name, command) for path in PAGES if path.name != "commands.md" for command in printed_commands(path.read_text())]
    assert len(found) > 200, "documents have commands"
    faults = [f"{name}: {problem}" for name, command in found if (problem := fault(command))]
    assert not faults, "\n".join(faults)


def test_commands_that_do_not_exist_are_noticed():
    assert fault("ribtide show bgp neighbour 192.0.2.1") and fault("ribtide show route --longest") and fault("ribtide shew")
    assert not fault("ribtide show route 192.0.2.0/24 --longer | head")
    assert ("show", "bgp", "neighbor") in commands()


def objects(schema, node):
    """The objects that a node of the schema may be: itself, or what it refers to."""
    if "$ref" in node:
        yield from objects(schema, schema["$defs"][node["$ref"].rsplit("/", 1)[1]])
    for part in [*node.get("anyOf", []), *node.get("oneOf", []), *node.get("allOf", [])]:
        yield from objects(schema, part)
    if isinstance(node.get("items"), dict):
        yield from objects(schema, node["items"])
    if isinstance(node.get("additionalProperties"), dict):
        yield from objects(schema, node["additionalProperties"])
    if "properties" in node:
        yield node


def is_setting(schema, path):
    """Whether a dotted path of keys is that of a setting, from the root or from some table."""
    nodes = [schema, *schema["$defs"].values()]
    for key in path.split("."):
        nodes = [inner["properties"][key] for node in nodes for inner in objects(schema, node) if key in inner["properties"]]
    return bool(nodes)


def test_settings_of_the_translation_exist():
    schema = json.loads(subprocess.run([binary(), "schema"], capture_output=True, text=True, check=True).stdout)
    text = (DOCS / "translation.md").read_text()
    rows = re.search(r"^## Settings\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)[1]
    cells = [row.rstrip("| ").rsplit("|", 1)[1] for row in rows.splitlines() if row.startswith("| `")]
    paths = [path for cell in cells for path in re.findall(r"`([a-z][a-z.-]*)(?: = [^`]*)?`", cell)]
    assert len(cells) > 30 and len(paths) >= len(cells)
    assert not [path for path in paths if not is_setting(schema, path)]
    assert not is_setting(schema, "bgp.multipaths") and not is_setting(schema, "fib.bgp"), "the test can fail"


def test_neighbor_in_three_languages(tmp_path):
    need("/usr/lib/frr/bgpd")
    need("bird")
    text = (DOCS / "translation.md").read_text()
    checks = {
        "frr": ["/usr/lib/frr/bgpd", "-C", "-f"],
        "bird": ["bird", "-p", "-c"],
        "toml": [binary(), "check", "-c"],
    }
    for language, check in checks.items():
        file = tmp_path / f"page.{language}"
        file.write_text(re.search(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1])
        done = subprocess.run([*check, file], capture_output=True, text=True)
        assert done.returncode == 0 and "warning" not in done.stderr, f"{language}: {done.stdout}{done.stderr}"
    for prefix, result in (("203.0.113.64/26", "accept"), ("203.0.113.64/30", "reject"), ("198.51.100.0/24", "reject")):
        subprocess.run([binary(), "policy", "test", tmp_path / "page.toml", prefix, "--import", "--expect", result], check=True,
                       capture_output=True)


#: What stands for an argument in the columns of FRR and BIRD, and an argument. `R` is one of each program's expressions.
ARGUMENTS = {"A": "192.0.2.2", "P": "192.0.2.0/24", "C": "65001:1", "NAME": "customer", "R": "65001"}


def test_commands_of_frr_and_bird_in_the_translation_exist(host):
    text = (DOCS / "translation.md").read_text()
    frr = Frr(host, bfdd="", bgpd="router bgp 65001\n bgp router-id 10.0.0.1\n neighbor 192.0.2.2 remote-as 65010\n")
    bird = Bird(host, re.search(r"^```bird\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1].replace("device { }", "device { } protocol bfd { }")
                .replace("import filter", "import keep filtered; import filter"))

    def refused(run, command):
        try:
            output = run(command)
        except CommandFailed as failed:
            output = str(failed)
        return re.search(r"Unknown command|Ambiguous|incomplete|syntax error|No such command|expected", output)

    assert refused(frr.query, "show bgp sumary") and refused(bird.query, "show protocolls"), "the test can fail"
    rows = re.search(r"^## Commands\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)[1].splitlines()
    tried = 0
    for row in rows:
        cells = row.strip("| ").split(" | ")
        # Debian's FRR has the module for the RPKI in a package of its own; `...` and FILE stand for more.
        for column, run in ((1, frr.query), (2, bird.query)):
            for command in re.findall(r"`((?:show|clear|restart|reload|configure|echo)\b[^`]*)`", cells[column] if len(cells) > 2 else ""):
                if "rpki" in command or "..." in command:
                    continue
                command = re.sub(r"\b(NAME|[APCR])\b", lambda found: ARGUMENTS[found[1]], command)
                if run == bird.query:
                    command = command.replace("65001:1", "(65001,1)")
                tried += 1
                assert not refused(run, command), command
    assert tried > 30
