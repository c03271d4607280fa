"""The harness itself: the other daemons, without ribtide between them, hold equal tables as the tests read them. What
differs in the other tests is then ribtide's."""

import pytest
from harness import agree, family, feed4, feed6, recorded, sent
from harness.peers import LEFT, RIGHT, start, wait_count
from harness.table import GENERATED4, GENERATED6


@pytest.mark.parametrize("kind", ["frr", "gobgp"])
def test_other_daemons_agree_with_each_other(pair, kind):
    left = start("bird", pair.a, LEFT)
    right = start(kind, pair.b, RIGHT)
    feed4(pair.a)
    feed6(pair.a)
    expected = recorded()
    count = (len(expected) if expected else GENERATED4) + GENERATED6
    wait_count(left, count)
    mine = left.table()
    if expected:
        agree(expected, family(mine, six=False))
    wait_count(right, count)
    agree(sent(mine, LEFT), right.table())
