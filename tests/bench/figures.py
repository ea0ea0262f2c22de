# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""What rounds of measurements say, and how much they can say. Nothing here knows what was measured.

Intervals hold the true median with 95 % and make no assumption about the noise: they come from the
order of the values alone (the sign test). Fewer than six values say nothing: their interval is
everything.
"""

import math
import random
import statistics
from collections import namedtuple

NAN, INF = float("nan"), float("inf")
LEVEL = 0.95

MET, NOT_MET, UNSEEN = "met", "not met", "cannot be seen"

# A median with its quartiles, the interval that holds the true one, and from how many values.
Figure = namedtuple("Figure", "median q1 q3 low high count")


def interval(values, level=LEVEL):
    """(low, high) of the true median: the k-th values from below and above, k as large as the level allows."""
    n, tail, k = len(values), 0.0, 0
    for i in range(n):
        tail += math.comb(n, i) / 2 ** n
        if tail > (1 - level) / 2:
            break
        k = i + 1
    if not k:
        return -INF, INF
    ordered = sorted(values)
    return ordered[k - 1], ordered[n - k]


def figure(values):
    values = list(values)
    if not values:
        return Figure(NAN, NAN, NAN, -INF, INF, 0)
    if len(values) == 1:
        q1 = q3 = values[0]
    else:
        q1, _, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return Figure(statistics.median(values), q1, q3, *interval(values), len(values))


def exact(value):
    """A figure that was counted, not measured."""
    return Figure(value, value, value, value, value, 1)


def visible(noise, rounds=None):
    """The smallest difference that so many rounds can show: half the interval of rounds in which nothing
    was different, which narrows with the root of their number."""
    low, high = interval(noise)
    return (high - low) / 2 * (math.sqrt(len(noise) / rounds) if rounds else 1)


def paired(own, other):
    """The differences of two kinds of rounds that took turns: other, own, other, own, other. Each of own
    is set against the mean of those beside it, so that what drifts slowly falls out."""
    return [value - (other[i] + other[i + 1]) / 2 for i, value in enumerate(own) if i + 1 < len(other)]


def ratio(own, other, level=LEVEL):
    """The ratio of two medians with an interval by resampling (always the same for the same values)."""
    own, other = list(own), list(other)
    if not own or not other or not statistics.median(other):
        return Figure(NAN, NAN, NAN, -INF, INF, 0)
    middle = statistics.median(own) / statistics.median(other)
    if min(len(own), len(other)) < 4:
        return Figure(middle, NAN, NAN, -INF, INF, min(len(own), len(other)))
    rng, found = random.Random(1), []
    for _ in range(2000):
        below = statistics.median(rng.choices(other, k=len(other)))
        above = statistics.median(rng.choices(own, k=len(own)))
        # A denominator that may as well be 0 or less bounds nothing.
        found.append(above / below if below > 0 else INF)
    found.sort()
    cut = int(len(found) * (1 - level) / 2)
    q = len(found) // 4
    return Figure(middle, found[q], found[-q - 1], found[cut], found[-cut - 1], min(len(own), len(other)))


def below(fig, limit):
    """Is it below the limit? Only when all of its interval is."""
    if math.isnan(fig.median):
        return UNSEEN
    if fig.high < limit:
        return MET
    return NOT_MET if fig.low >= limit else UNSEEN


def above(fig, limit):
    return below(Figure(*(-v for v in fig[:5]), fig.count), -limit)


def no_loss(fig, can_see, wanted=0.01):
    """Of a ratio: no loss that the rounds show, if they would show the wanted one."""
    if math.isnan(fig.median):
        return UNSEEN
    if fig.high < 1:
        return NOT_MET
    return MET if can_see <= wanted else UNSEEN


def same(fig, value):
    """Whether the rounds leave it open that the true figure is this value."""
    return fig.low <= value <= fig.high
