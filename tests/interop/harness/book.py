"""Pages of the book that a test plays: a shell with network, mounts and processes of its own, and the page's blocks.

    <!-- cause            A comment that begins so has lines that the shell runs unseen: they cause what the page shows.
    COMMAND -->
    <!-- not run: WHY --> The next block is not run.
    <!-- numbers differ --> Every number of the next block differs from run to run.
    ```sh                 Lines that the shell runs; none may fail.
    ```text               What the last line of the block before prints, if this directly follows.
    ```console            The same in one block: `$ COMMAND`, and what it prints.

What differs from run to run is compared as equal (`MASKS`). A command that only reads runs again until the output is that
of the page, because a reader waits, too."""

import os
import pathlib
import re
import secrets
import subprocess
import time

from .host import TIMEOUT_FACTOR
from .ribtide import binary

#: What differs from run to run, and what it is compared as.
MASKS = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"), "2026-11-30T14:02:11.000000Z"),
    (re.compile(r"\b(nhid|pid|uid) \d+"), r"\1 N"),
    (re.compile(r"\b0x[0-9a-f]+\b"), "0xN"),
    (re.compile(r"\b(\d+(\.\d+)? ?(ms|µs|s|m|h|d)|\d+[dhm]\d+[hms]|\d+h\d+m\d+s)\b"), "T"),
    (re.compile(r"\b\d+ (shard thread|reader|update thread)s?\b"), r"N \1s"),
    (re.compile(r"[ \t]+"), " "),
]
#: Seconds in which the output of a command becomes that of the page.
TIMEOUT = 30


def masked(text, numbers=False):
    """The text with what differs from run to run as one word; with `numbers`, every number."""
    for pattern, by in MASKS:
        text = pattern.sub(by, text)
    if numbers:
        text = re.sub(r"\d[\d,.]*", "N", text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


class Shell:
    """A shell in namespaces of its own, in which `/run` is empty and `ribtide` is the program under test."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "bin" / "ribtide").symlink_to(binary())
        self.log = open(folder / "shell.log", "w+")
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE, stdout=self.log, stderr=subprocess.STDOUT, cwd=folder, text=True,
            env={**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}:/usr/sbin:/sbin", "HOME": str(folder), "COLUMNS": "160", "LC_ALL": "C.UTF-8"})
        self.run("mount -t tmpfs tmpfs /run")
        self.run("ip link set lo up")

    def run(self, lines, timeout=40):
        """What these lines print, and the status of the last one. Jobs in the background print into it too, unless redirected."""
        mark = secrets.token_hex(8)
        begin = self.log.seek(0, os.SEEK_END)
        self.process.stdin.write(f"{lines}\necho; echo {mark} $?\n")
        self.process.stdin.flush()
        end = time.monotonic() + timeout * TIMEOUT_FACTOR
        while True:
            self.log.seek(begin)
            text, found, status = self.log.read().partition(f"\n{mark} ")
            if found and status.endswith("\n"):
                return text, int(status)
            assert self.process.poll() is None and time.monotonic() < end, f"{lines}\n{text[-2000:]}"
            time.sleep(0.05)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


#: A block, and the comments that the player obeys.
BLOCKS = re.compile(r"^<!-- cause\n(?P<cause>.*?) ?-->$|^(?P<skip><!-- not run: [^>]*-->)$|(?P<numbers><!-- numbers differ -->)$|^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
                    re.MULTILINE | re.DOTALL)


class Page:
    """A page of the book, played from its begin to its end."""

    def __init__(self, name, shell):
        self.path = pathlib.Path(__file__).resolve().parents[3] / "docs" / name
        self.shell, self.played = shell, 0

    def play(self):
        """Runs the page's blocks, and fails where one fails or prints something else than the page. RECORD=1 writes what was printed
        into the page instead."""
        text = self.path.read_text()
        out, at, skip, last = [], 0, False, None
        self.numbers = False
        for block in BLOCKS.finditer(text):
            between = text[at:block.start()]
            out.append(between)
            at = block.end()
            new = block[0]
            if block["cause"] is not None:
                self.works(block["cause"])
            elif block["skip"] or block["numbers"]:
                skip, self.numbers = bool(block["skip"]), bool(block["numbers"])
                out.append(new)
                continue
            elif not skip and block["kind"] == "sh":
                last = block["text"]
                # What is compared with the next block is the output of the last command; an indented one or a here-document
                # has several lines.
                follows = re.match(r"\n\n?(?:[^\n`]+\n\n?)?```text\n", text[at:])
                if follows:
                    *before, last = last.rstrip("\n").rsplit("\n", 1)
                    self.works("".join(before))
                else:
                    self.works(last)
                    last = None
            elif not skip and block["kind"] == "text" and last is not None:
                new, last = f"```text\n{self.prints(last, block['text'])}```", None
            elif not skip and block["kind"] == "console":
                new = "```console\n"
                for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
                    command, _, expected = part.partition("\n")
                    new += f"$ {command}\n{self.prints(command, expected)}"
                new += "```"
            skip = self.numbers = False
            out.append(new)
        if os.environ.get("RECORD"):
            self.path.write_text("".join(out) + text[at:])

    def works(self, lines):
        """Runs lines of which none may fail."""
        if lines.strip():
            text, status = self.shell.run(f"FAILED=; trap 'FAILED=\"$BASH_COMMAND\"' ERR\n{lines}\ntrap - ERR; echo $FAILED; test -z \"$FAILED\"")
            assert status == 0, f"{self.path.name}: a line fails:\n{lines}\n{text}"
            self.played += 1

    def prints(self, command, expected):
        """The output of a command, which must become that of the page."""
        self.played += 1
        once = not re.match(r"(ip netns exec \S+ )?(ribtide (show|explain|check|route-check|policy)\b|ip -|redis-cli )", command)
        end = time.monotonic() + TIMEOUT * TIMEOUT_FACTOR
        if os.environ.get("RECORD"):
            time.sleep(1)
        while True:
            text = self.shell.run(command)[0].replace(str(self.shell.folder), "/root")
            text = text.rstrip("\n") + "\n" if text.strip() else ""
            if masked(text, self.numbers) == masked(expected, self.numbers):
                # The text of the page stays as it is.
                return expected
            if os.environ.get("RECORD"):
                return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
            if once or time.monotonic() > end:
                assert masked(text, self.numbers) == masked(expected, self.numbers), f"{self.path.name}: $ {command}\n{text}\nand not\n{expected}"
            time.sleep(0.5)
