#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Writes the seeds of fuzz_gpu_ring: well-formed rings of every kind, and the known tricks."""

import os
import struct
import sys

OFF = 1795993439000000000
KINDS = {"kernel": 41, "memcpy": 42, "memset": 43, "sync": 44, "api": 45, "overhead": 49, "graph": 50}


def hdr(size, kind, ts, tid=0):
    return struct.pack("<HHIQIHH", size, kind, tid, ts, 1, 0xFFFF, 0)


def span(kind, start, dur, body=40):
    return hdr(32 + body, kind, OFF + start, 77) + struct.pack("<Q", OFF + start + dur) + bytes(body)


def clock(mono):
    return hdr(48, 46, mono) + struct.pack("<QQQ", (OFF + mono) % (1 << 64), 100, 0)


def string(sid, text):
    data = text.encode()
    data += bytes(-len(data) % 8)
    return hdr(32 + len(data), 60, 0) + struct.pack("<II", sid, 0) + data


def rounds(start, *parts, move=None):
    out = struct.pack("<I", start)
    for i, part in enumerate(parts):
        out += struct.pack("<iH", len(part) if move is None else move[i], len(part)) + part
    return out


def seeds():
    good = clock(1000) + string(1, "k") + b"".join(span(k, 2000 + k, 50) for k in KINDS.values()) + clock(90000)
    yield "all-kinds", rounds(0, good)
    yield "two-rounds", rounds(4096, good, good)
    yield "wrap", rounds(8192 - 96, span(41, 5, 5) + hdr(24, 0, 0) + clock(10000))
    yield "short-rest", rounds(8192 - 16, good)
    yield "filler", rounds(0, hdr(4096, 0, 0) + bytes(4072) + clock(9))
    yield "size-zero", rounds(0, hdr(0, 41, 1) + bytes(100))
    yield "size-huge", rounds(0, hdr(65528, 41, 1) + bytes(100))
    yield "head-back", rounds(4096, good, good, move=(400, -4096))
    yield "head-far", rounds(0, good, move=(1 << 30,))
    yield "clock-mad", rounds(0, clock(1) + clock(0) + clock((1 << 64) - 1) + clock(5) + good)
    yield "clock-step", rounds(0, clock(10**9) + span(41, 10**9 + 5, 10) + hdr(48, 46, 2 * 10**9)
                               + struct.pack("<QQQ", 5, 1, 1) + span(41, 3, 3) + clock(3 * 10**9))
    yield "text", rounds(0, string(2, "\x1b[2J\x07" + "x" * 300) + hdr(40, 40, 1) + struct.pack("<IIII", 9, 9, 9, 9))


if __name__ == "__main__":
    where = sys.argv[1]
    os.makedirs(where, exist_ok=True)
    for name, data in seeds():
        with open(os.path.join(where, name), "wb") as f:
            f.write(data)
