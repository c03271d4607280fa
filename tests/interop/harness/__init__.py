"""What the tests run: namespaces, ribtide, other daemons, Redis."""

from .daemons import Bird, Frr, Gobgp, Redis
from .host import Host, Pair, Process, wait_for
from .ribtide import Ribtide, binary, run_tool
from .table import Route, load_table, source

__all__ = ["Bird", "Frr", "Gobgp", "Redis", "Host", "Pair", "Process", "wait_for", "Ribtide", "binary", "run_tool",
           "Route", "load_table", "source"]
