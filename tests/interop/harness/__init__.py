"""The programs of the tests: namespaces, ribtide, other daemons, Redis."""

from .daemons import Bird, Exabgp, Frr, Gobgp, Openbgpd, Redis, need
from .host import TIMEOUT_FACTOR, CommandFailed, Host, Pair, Process, settled, wait_for
from .netlink import Messages
from .reflector import Reflector
from .ribtide import Ribtide, binary, blast, full_table, feed_options
from .table import FEED_ASN, NOT_SHOWN, Route, agree, family, recorded, sent

__all__ = ["Bird", "Exabgp", "Frr", "Gobgp", "Openbgpd", "Redis", "need", "TIMEOUT_FACTOR", "CommandFailed", "Host", "Pair", "Process", "settled", "wait_for", "Messages", "Reflector", "Ribtide",
           "binary", "full_table", "blast", "feed_options",
           "FEED_ASN", "NOT_SHOWN", "Route", "agree", "family", "recorded", "sent"]
