"""The harness itself: the other daemons, without ribtide between them, hold equal tables as the
tests read them. So a difference in the other tests is caused by ribtide."""

import pytest
from harness import agree, blast, sent
from harness.peers import LEFT, RIGHT, start, wait_count


@pytest.mark.parametrize("kinds", [("bird", "frr"), ("frr", "gobgp"), ("gobgp", "bird")])
def test_other_daemons_agree_with_each_other(pair, kinds):
    left, right = start(kinds[0], pair.a, LEFT), start(kinds[1], pair.b, RIGHT)
    blast(pair.a, 3000, 1000)
    wait_count(left, 4000)
    wait_count(right, 4000)
    mine = left.table()
    assert any(r.communities for r in mine.values())
    agree(sent(mine, LEFT), right.table())
