"""The faults of `make mutants`, as data: each is a small replacement of text in one file."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEYS = {"name", "file", "before", "after", "breaks", "tests", "survives"}


@dataclass(frozen=True)
class Fault:
    """A fault: with `after` instead of `before` in `file`, one of `tests` must fail."""

    name: str
    file: str
    before: str
    after: str
    # What goes wrong, as one sentence.
    breaks: str
    # Arguments of `cargo test`, one string for each command.
    tests: tuple[str, ...]
    # Why no test can notice it, for a fault that is known to survive.
    survives: str = ""

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
            faults.append(Fault(**{**entry, "tests": tuple(entry["tests"])}))
    return faults
