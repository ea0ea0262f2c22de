# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The slope of charged time over lost time, and how sure it is.

Both are measured, both with the machine's noise, so an ordinary regression of one on the other is
biased towards 0. The dose is not noisy and was set by us, runs of all doses are interleaved: it is
the instrument (Wald 1940; two-stage least squares with one instrument):

    slope = cov(dose, charged) / cov(dose, lost)

Its interval is the one of Fieller (1954), which needs no small-noise approximation: all slopes b for
which charged - b * lost does not depend on the dose at the 95 % level.
"""

import dataclasses
import math

# Student's t, two-sided 95 %, by degrees of freedom.
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
       11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131, 16: 2.120, 18: 2.101, 20: 2.086, 22: 2.074,
       26: 2.056, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980}


def t95(df):
    return T95[max(k for k in T95 if k <= df)]


@dataclasses.dataclass
class Slope:
    value: float
    low: float
    high: float

    def __str__(self):
        return f"{self.value:.2f} ({self.low:.2f} .. {self.high:.2f})"

    def meets(self, low, high):
        """The interval and [low, high] overlap: the measurement does not contradict it."""
        return self.low <= high and self.high >= low


def fit(dose, lost, charged):
    """The three lists are by run. ValueError where the dose did not cost any time."""
    n = len(dose)
    if n < 4 or len(set(dose)) < 2:
        raise ValueError("needs runs of at least two doses")
    mean = lambda v: sum(v) / n  # noqa: E731
    md, mx, my = mean(dose), mean(lost), mean(charged)
    sdd = sum((d - md) ** 2 for d in dose)
    sdx = sum((d - md) * (x - mx) for d, x in zip(dose, lost))
    sdy = sum((d - md) * (y - my) for d, y in zip(dose, charged))
    if sdx <= 0:
        raise ValueError("the idle time does not grow with the dose")
    value = sdy / sdx
    low, high = fieller(dose, lost, charged, (md, mx, my), (sdd, sdx, sdy))
    return Slope(value, low, high)


def fieller(dose, lost, charged, means, sums):
    """Residuals of lost and charged on the dose level (each dose has a mean of its own: neither need
    be a straight line in the dose) give the noise."""
    levels = sorted(set(dose))
    df = len(dose) - len(levels)
    if df < 1:
        return of_one_round(dose, lost, charged, means, sums)
    vxx = vyy = vxy = 0.0
    for level in levels:
        xs = [x for d, x in zip(dose, lost) if d == level]
        ys = [y for d, y in zip(dose, charged) if d == level]
        mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
        vxx += sum((x - mx) ** 2 for x in xs)
        vyy += sum((y - my) ** 2 for y in ys)
        vxy += sum((x - mx) * (y - my) for x, y in zip(xs, ys))
    sdd, sdx, sdy = sums
    g = t95(df) ** 2 * sdd / df
    a, b, c = sdx * sdx - g * vxx, sdx * sdy - g * vxy, sdy * sdy - g * vyy
    root = b * b - a * c
    if a <= 0 or root < 0:
        return -math.inf, math.inf
    root = math.sqrt(root)
    return (b - root) / a, (b + root) / a


def of_one_round(dose, lost, charged, means, sums):
    """One run of each dose: what the line leaves over is the noise, and a bend would be, too."""
    (_, mx, my), (sdd, sdx, sdy) = means, sums
    value, df = sdy / sdx, len(dose) - 2
    left = sum((y - my - value * (x - mx)) ** 2 for x, y in zip(lost, charged))
    half = t95(df) * math.sqrt(left / df * sdd) / sdx
    return value - half, value + half
