"""Random numbers that are the same in every version of Python: splitmix64."""

MASK = (1 << 64) - 1


class Random:
    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, n):
        return self.next() % n

    def chance(self, percent):
        return self.below(100) < percent

    def choice(self, items):
        return items[self.below(len(items))]

    def weighted(self, pairs):
        """One of (item, weight)."""
        at = self.below(sum(weight for _, weight in pairs))
        for item, weight in pairs:
            if at < weight:
                return item
            at -= weight
        raise AssertionError

    def sample(self, items, n):
        items = list(items)
        return [items.pop(self.below(len(items))) for _ in range(min(n, len(items)))]

    def shuffle(self, items):
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
