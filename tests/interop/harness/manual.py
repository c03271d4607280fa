"""The commands of the program, by its help: the reference docs/commands.md, and whether commands in documents exist."""

import functools
import os
import re
import shlex
import subprocess

from .ribtide import binary


@functools.cache
def help_of(*command, short=True):
    """The help of a command of these words, as it is where no terminal says how wide it is."""
    args = [binary(), *command, "-h" if short else "--help"]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def inner(*command):
    """The sub-commands of a command."""
    found = re.search(r"^Commands:\n((?:  .*\n)+)", help_of(*command), re.MULTILINE)
    names = re.findall(r"^  (\S+)", found[1], re.MULTILINE) if found else []
    return [name for name in names if name != "help"]


def commands(*above):
    """Each command as its words, after those that contain it."""
    for name in inner(*above):
        yield (*above, name)
        yield from commands(*above, name)


#: Options that nearly every command has; the reference has them once.
COMMON = ("--socket", "--json", "-h, --help")


def reference():
    """The text of docs/commands.md below its head: the short help of each command without the common options."""
    parts = []
    for command in commands():
        about, _, rest = re.sub(r"\n  help +Print.*", "", help_of(*command)).partition("\nUsage: ")
        blocks = re.split(r"\n(?= {2,6}-)", f"Usage: {rest}".rstrip())
        kept = [block for block in blocks if not block.lstrip().startswith(COMMON)]
        text = re.sub(r"\n\nOptions:(?=\n\n|$)", "", "\n".join(kept)).rstrip()
        parts.append(f"## `ribtide {' '.join(command)}`\n\n{' '.join(about.split())}.\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def fault(text):
    """What is wrong with `ribtide …` as a document prints it, or None: a command or an option that does not exist."""
    try:
        words = shlex.split(re.split(r" (?:[|<>;]|2>|&|#|\.\.\.|…)(?: |$)", text)[0])[1:]
    except ValueError:
        return f"{text}: no command line"
    command = []
    while words and not words[0].startswith("-"):
        names = inner(*command)
        if words[0] not in names:
            if names and not re.search(r"^(?:Usage:|      ) .*\[(?!OPTIONS)[A-Z]", help_of(*command), re.MULTILINE):
                return f"{text}: there is no {words[0]}"
            break
        command.append(words.pop(0))
    text_of = help_of(*command, short=False)
    for word in words:
        option = re.match(r"--?[a-z][a-z0-9-]*", word)
        if option and not re.search(rf"(?<![\w-]){re.escape(option[0])}(?![\w-])", text_of):
            return f"{text}: {' '.join(command)} has no {option[0]}"
    return None
