#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 1500
"""kill -9 of the recorder at random instants, from the first write to the last: the file can be read
up to the last second, and the target goes on. DLBPF_KILLS sets how many (20); a failure names the
seed, DLBPF_SEED."""

import os
import random
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check  # noqa: E402
from test_record import program, started, train  # noqa: E402

KILLS = int(os.environ.get("DLBPF_KILLS", "20"))
SEED = int(os.environ.get("DLBPF_SEED", str(random.SystemRandom().randrange(1 << 30))))

# A frame is written when it is a second old; the recorder looks every 100 ms at the latest, and the
# machine that tests may be busy.
LATE_NS = 2_500_000_000


def when(rnd, n):
    """Seconds after the start of the recorder: around the making of the file, within a frame, and
    across the frames' ends."""
    return (rnd.uniform(0.0, 0.6), rnd.uniform(0.6, 2.0), rnd.uniform(1.5, 4.0))[n % 3]


def one(pid, trace, rnd, n, counts):
    if os.path.exists(trace):
        os.unlink(trace)
    delay = when(rnd, n)
    # Now and then it is killed while it ends, with the index to be written.
    ends = n % 5 == 4
    options = ["-d", f"{int(delay * 1000) + 1}ms"] if ends else []
    p = subprocess.Popen([dlbpf.DLBPF, "record", "-q", "-o", trace, *options, "-p", str(pid)], stdin=subprocess.DEVNULL)
    time.sleep(delay + (rnd.uniform(0.2, 0.8) if ends else 0))
    killed = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    p.send_signal(signal.SIGKILL)
    ended = p.wait() != -signal.SIGKILL
    if not os.path.exists(trace) or not os.path.getsize(trace):
        counts["no file yet"] += 1
        return
    found = dlbpf.info(trace)
    check(found["trace"]["damaged_frames"] == 0, f"{found['trace']['damaged_frames']} damaged frames after {delay:.3f} s")
    if ended:
        counts["ended first"] += 1
        return
    if not found["trace"]["events"]:
        check(killed - found["meta"]["start_ts"] < LATE_NS, f"no events after {delay:.3f} s")
        counts["header only"] += 1
        return
    # A first frame may hold nothing but what was found at the start.
    last = max([found["meta"]["start_ts"], *(e["ts"] for e in dlbpf.dump(trace, "switch"))])
    check(killed - last < LATE_NS, f"the last {(killed - last) / 1e6:.0f} ms are missing after {delay:.3f} s")
    dlbpf.report(trace)
    counts["readable"] += 1


def kills():
    counts = {"no file yet": 0, "header only": 0, "readable": 0, "ended first": 0}
    rnd = random.Random(SEED)
    with dlbpf.scratch() as where, program(train("--workers", "2", "--seconds", "1000")) as p:
        pid = started(p)
        for n in range(KILLS):
            try:
                one(pid, os.path.join(where, "t.dlbpf"), rnd, n, counts)
            except AssertionError as e:
                raise AssertionError(f"kill {n} of DLBPF_SEED={SEED}: {e}")
            check(p.poll() is None, "the target died with its recorder")
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    check(counts["readable"] >= KILLS // 5, f"the instants were badly chosen: {counts}")


def main():
    tests = dlbpf.Tests("record_")
    tests.run(f"killed_{KILLS}_times", kills)
    tests.exit()


if __name__ == "__main__":
    main()
