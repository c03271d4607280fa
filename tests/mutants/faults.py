"""The faults of `make mutants`, as data: each is a small replacement of text in one file."""

import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEYS = {"name", "file", "before", "after", "breaks", "tests", "survives"}


@dataclass(frozen=True)
class TestCommand:
    """One command of `cargo test`."""

    text: str
    # The package and its targets, which are what is built.
    targets: str
    # Parts of the names of tests; none: all tests of the targets.
    filters: set[str]

    @staticmethod
    def parse(text: str) -> "TestCommand":
        words, targets, filters = iter(shlex.split(text)), [], set()
        for word in words:
            if word in ("-p", "--test"):
                targets += [word, next(words)]
            elif word.startswith("-"):
                targets.append(word)
            else:
                filters.add(word)
        return TestCommand(text, shlex.join(targets), filters)

    def names(self, test: str) -> bool:
        """Whether it runs a test of this name."""
        return not self.filters or any(part in test for part in self.filters)


@dataclass(frozen=True)
class Fault:
    """A fault: with `after` instead of `before` in `file`, one of `tests` must fail."""

    name: str
    file: str
    before: str
    after: str
    # What goes wrong, as one sentence.
    breaks: str
    # What `cargo test` runs: targets, and parts of the names of tests; one string for each command.
    tests: tuple[str, ...]
    # Why no test can notice it, for a fault that is known to survive.
    survives: str = ""
    # The file of faults that has it, such as `pure`.
    group: str = ""

    def commands(self) -> list[TestCommand]:
        """The test commands."""
        return [TestCommand.parse(text) for text in self.tests]

    def places(self, root: Path = ROOT) -> int:
        """How often the text of the fault is in its file; it applies only if that is once."""
        path = root / self.file
        return path.read_text().count(self.before) if path.is_file() else 0

    def text(self, root: Path = ROOT) -> str:
        """The file with the fault."""
        return (root / self.file).read_text().replace(self.before, self.after, 1)


def read(folder: Path = HERE / "faults") -> list[Fault]:
    """All faults, by file of faults, so that neighbours rebuild the same crate."""
    faults = []
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["fault"]:
            if unknown := set(entry) - KEYS:
                raise ValueError(f"{path.name}: {entry.get('name')} has the unknown keys {sorted(unknown)}")
            faults.append(Fault(**{**entry, "tests": tuple(entry["tests"]), "group": path.stem}))
    return faults
