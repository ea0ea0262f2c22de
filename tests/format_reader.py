#!/usr/bin/env python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A second reader of trace files, written from docs/FORMAT.md alone.

    format_reader.py FILE             every event as one line of JSON, in the order of time
    format_reader.py --info FILE      metadata and totals as JSON

Needs the standard library and, for decompression, the command `zstd`. Slow; it is here to hold the
description of the format and the program to each other.
"""
import json
import struct
import subprocess
import sys
import zlib

MASK = (1 << 64) - 1
INT_SIZES = {1: 2, 2: 4, 3: 8, 4: 4, 5: 8}
SIGNED = {4, 5}
BYTE_SIZES = {6: 16, 7: 32}


class Damaged(Exception):
    pass


class Cursor:
    def __init__(self, data, pos=0, end=None):
        self.data, self.pos, self.end = data, pos, len(data) if end is None else end

    def take(self, size):
        if size > self.end - self.pos:
            raise Damaged("too short")
        self.pos += size
        return self.data[self.pos - size:self.pos]

    def num(self, size):
        return int.from_bytes(self.take(size), "little")

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            if shift == 63 and byte > 1:
                raise Damaged("varint of more than 64 bits")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def more(self):
        return self.pos < self.end


def unzigzag(z):
    return ((z >> 1) ^ -(z & 1)) & MASK


def slot(v):
    return (v * 0x9E3779B97F4A7C15 & MASK) >> 54


def check_crc(data, what):
    if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise Damaged(f"{what}: wrong crc")


class Trace:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        self.meta, self.schema, self.frames = {}, None, []
        self.damaged_bytes = 0
        self.complete = False
        self.read_header()
        self.find_frames()

    # --- header

    def read_header(self):
        if self.data[:8] != b"\x89DLBPF\r\n":
            raise Damaged("not a trace")
        c = Cursor(self.data, 8)
        major, self.minor, size = c.num(2), c.num(2), c.num(4)
        if major != 1:
            raise Damaged(f"format {major}")
        if not 36 <= size <= 1 << 20 or size > len(self.data):
            raise Damaged("header is cut off")
        check_crc(self.data[:size], "header")
        self.trace_id = c.num(8)
        c.num(4)
        sections = c.num(4)
        c.end = size - 4
        self.header_sz = size
        for _ in range(sections):
            tag, length = c.num(4), c.num(4)
            body = Cursor(c.take(length))
            if tag == 1:
                self.read_meta(body)
            elif tag == 2:
                self.read_schema(body)
        if self.schema is None or c.more():
            raise Damaged("header without schema")

    def read_meta(self, c):
        while c.more():
            key_len, kind, size = c.num(1), c.num(1), c.num(4)
            key, value = c.take(key_len).decode(), c.take(size)
            if kind == 1 and size == 8:
                self.meta[key] = int.from_bytes(value, "little")
            elif kind == 2:
                self.meta[key] = value.decode(errors="replace")

    def read_schema(self, c):
        self.schema = {}
        for _ in range(c.num(2)):
            kind, _size, group, tail, fields, name_len = (c.num(n) for n in (2, 2, 1, 1, 1, 1))
            event = {"name": c.take(name_len).decode(), "group": group, "tail": tail, "fields": []}
            for _ in range(fields):
                _off, ftype, unit, name_len = (c.num(n) for n in (2, 1, 1, 1))
                event["fields"].append((c.take(name_len).decode(), ftype, unit))
            self.schema[kind] = event

    # --- frames

    def frame_at(self, off):
        """The frame header at off, or None."""
        d = self.data
        if d[off:off + 8] != b"\xd5DLFRAME" or len(d) - off < 76:
            return None
        names = ("header_sz", "comp_sz", "payload_sz", "struct_sz", "events", "kinds", "seq",
                 "first_ts", "last_ts", "trace_id", "crc", "codec")
        h = dict(zip(names, struct.unpack_from("<6I4Q2I", d, off + 8)))
        if h["trace_id"] != self.trace_id or h["header_sz"] != 76 + 8 * h["kinds"]:
            return None
        raw = d[off:off + h["header_sz"]]
        if len(raw) < h["header_sz"] or zlib.crc32(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
            return None
        h["kind_list"] = [struct.unpack_from("<2I", raw, 72 + 8 * i) for i in range(h["kinds"])]
        if off + h["header_sz"] + h["comp_sz"] > len(d):
            return None
        h["off"] = off
        return h

    def footer_at(self, off):
        f = self.data[off:off + 32]
        if len(f) < 32 or f[:8] != b"\xd5DLFOOT\n" or zlib.crc32(f[:28]) != struct.unpack("<I", f[28:])[0]:
            return None
        return struct.unpack_from("<QQI", f, 8)

    def index_at(self, off):
        """The size of the sound index at off, or 0."""
        d = self.data[off:]
        if d[:8] != b"\xd5DLINDEX" or len(d) < 68:
            return 0
        size = struct.unpack_from("<I", d, 8)[0]
        if not 68 <= size <= len(d) or zlib.crc32(d[:size - 4]) != struct.unpack_from("<I", d, size - 4)[0]:
            return 0
        return size

    def find_frames(self):
        """Looks at every frame; the index is compared with what was found."""
        off = self.header_sz
        while off < len(self.data):
            frame = self.frame_at(off)
            if frame:
                self.frames.append(frame)
                off += frame["header_sz"] + frame["comp_sz"]
            elif self.index_at(off):
                self.check_index(off)
                off += self.index_at(off)
            elif self.footer_at(off):
                self.complete = True
                off += 32
            else:
                hits = [self.data.find(m, off + 1)
                        for m in (b"\xd5DLFRAME", b"\xd5DLINDEX", b"\xd5DLFOOT\n")]
                after = min([h for h in hits if h >= 0], default=len(self.data))
                self.damaged_bytes += after - off
                off = after

    def check_index(self, off):
        c = Cursor(self.data, off + 12)
        kinds, frames = c.num(4), c.num(8)
        totals = [c.num(8) for _ in range(4)]
        if c.num(8) != self.trace_id:
            raise Damaged("index of another trace")
        by_kind = {c.num(8): c.num(8) for _ in range(kinds)}
        want = {}
        for f in self.frames:
            for kind, cnt in f["kind_list"]:
                want[kind] = want.get(kind, 0) + cnt
        listed = [tuple(c.num(n) for n in (8, 4, 4, 4, 4, 8, 8)) for _ in range(frames)]
        keys = ("off", "header_sz", "comp_sz", "events", "struct_sz", "first_ts", "last_ts")
        found = [tuple(f[k] for k in keys) for f in self.frames]
        if by_kind != want or listed != found:
            raise Damaged("the index does not agree with the frames")
        if totals[:2] != [sum(f["events"] for f in self.frames),
                          sum(f["struct_sz"] for f in self.frames)]:
            raise Damaged("the index does not agree with the frames")
        if self.frames and totals[2:] != [min(f["first_ts"] for f in self.frames),
                                          max(f["last_ts"] for f in self.frames)]:
            raise Damaged("the index does not agree with the frames")
        footer = self.footer_at(off + c.pos + 4 - off)
        if footer and footer[0] != off:
            raise Damaged("the footer does not agree with the index")

    def payload(self, frame):
        at = frame["off"] + frame["header_sz"]
        comp = self.data[at:at + frame["comp_sz"]]
        if frame["codec"] != 1 or zlib.crc32(comp) != frame["crc"]:
            raise Damaged("wrong crc of a payload")
        raw = subprocess.run(["zstd", "-dc"], input=comp, capture_output=True, check=True).stdout
        if len(raw) != frame["payload_sz"]:
            raise Damaged("wrong size of a payload")
        return Cursor(raw)

    def events(self):
        """All events, by time; of equal times those of earlier frames first."""
        found = []
        for frame in self.frames:
            found += Frame(self.schema, frame, self.payload(frame)).events()
        found.sort(key=lambda e: e["ts"])
        return found


class Frame:
    def __init__(self, schema, frame, c):
        self.schema, self.c = schema, c
        n = frame["events"]
        self.threads = [(c.varint(), c.varint()) for _ in range(c.varint())]
        self.order = c.take(n)
        ts, self.times = frame["first_ts"], []
        for _ in range(n):
            ts += c.varint()
            self.times.append(ts)
        if self.times[0] != frame["first_ts"] or ts != frame["last_ts"]:
            raise Damaged("times")
        self.kinds = []
        for i, (kind, cnt) in enumerate(frame["kind_list"]):
            times = [t for t, k in zip(self.times, self.order) if k == i]
            if len(times) != cnt:
                raise Damaged("order")
            self.kinds.append(Kind(self, kind, times))
        if c.more():
            raise Damaged("something behind the last column")

    def events(self):
        rows = [iter(k.events()) for k in self.kinds]
        return [next(rows[i]) for i in self.order]


class Kind:
    def __init__(self, frame, kind, times):
        self.c, self.kind, self.times, self.n = frame.c, kind, times, len(times)
        self.desc = frame.schema[kind]
        self.slots = {0: [0] * self.n}
        self.tids = None
        self.cpu_slots = None
        if self.desc["tail"]:
            self.tails = self.get_tails()
        index = self.integers(0)
        self.thread = [frame.threads[i] for i in index]
        self.slots[1] = index
        self.slots[2] = [0] * self.n
        self.cpu = self.integers(1)
        self.cpu_slots = self.slots[2] = [slot(v) for v in self.cpu]
        self.tids = [t[0] for t in self.thread]
        self.flags = self.integers(1)
        self.fields = []
        for name, ftype, _unit in self.desc["fields"]:
            if ftype in INT_SIZES:
                self.fields.append((name, self.integers(ftype)))
            elif ftype in BYTE_SIZES:
                self.fields.append((name, self.raw(ftype)))
            else:
                self.column()

    def column(self):
        enc = self.c.num(1)
        return enc, Cursor(self.c.take(self.c.varint()))

    def raw(self, ftype):
        enc, c = self.column()
        size = BYTE_SIZES[ftype]
        if enc != 2 or c.end != size * self.n:
            raise Damaged("bytes")
        return [c.take(size) for _ in range(self.n)]

    def get_tails(self):
        lengths = self.integers(0)
        enc, c = self.column()
        if enc != 2:
            raise Damaged("tails")
        if self.desc["tail"] == 1:
            tails = [c.take(n) for n in lengths]
        else:
            addr, tails = 0, []
            for n in lengths:
                one = []
                for _ in range(n // 8):
                    addr = (addr + unzigzag(c.varint())) & MASK
                    one.append(addr)
                tails.append(one)
        if c.more():
            raise Damaged("tails")
        return tails

    def neighbours(self):
        dt, after = [0] * self.n, [0] * self.n
        if self.cpu_slots is None:
            return dt, after
        last = {}
        for i, s in enumerate(self.cpu_slots):
            dt[i] = self.times[i] - last[s] if last.get(s) else 0
            last[s] = self.times[i]
        last = {}
        for i in reversed(range(self.n)):
            after[i] = last.get(self.cpu_slots[i], 0)
            last[self.cpu_slots[i]] = self.tids[i]
        return dt, after

    def integers(self, ftype):
        enc, c = self.column()
        if enc == 0:
            values = [c.varint()] * self.n
        elif enc == 1:
            model = c.num(1)
            residuals = [c.varint() for _ in range(self.n)] if c.more() else [0] * self.n
            values = self.unmap(model & 3, self.unpredict(model >> 2 & 7, model >> 5, residuals))
        else:
            raise Damaged("integers")
        if c.more():
            raise Damaged("integers")
        self.slots[3] = [slot(v) for v in values]
        if ftype in SIGNED:
            return [v - (1 << 64) if v >> 63 else v for v in values]
        return values

    def unpredict(self, order, key, residuals):
        if order == 0:
            return residuals
        dt, after = self.neighbours()
        a, b, out = {}, {}, []
        for i, (r, s) in enumerate(zip(residuals, self.slots[key])):
            last, last2 = a.get(s, 0), b.get(s, 0)
            predicted = {1: last, 2: 2 * last - last2, 3: last + (dt[i] if last != last2 else 0),
                         4: after[i]}[order]
            x = (unzigzag(r) + predicted) & MASK
            a[s], b[s] = x, last
            out.append(x)
        return out

    def unmap(self, how, xs):
        if how == 0:
            return xs
        if how == 1:
            return [unzigzag(x) for x in xs]
        if how == 2:
            return [(unzigzag(x - 1) + ts) & MASK if x else 0 for x, ts in zip(xs, self.times)]
        raise Damaged("map")

    def events(self):
        for i in range(self.n):
            ev = {"kind": self.desc["name"], "ts": self.times[i], "tid": self.thread[i][0],
                  "pid": self.thread[i][1], "cpu": self.cpu[i], "flags": self.flags[i], "fields": {}}
            for name, values in self.fields:
                v = values[i]
                ev["fields"][name] = v.hex() if isinstance(v, bytes) else v
            if self.desc["tail"]:
                tail = self.tails[i]
                ev["tail"] = tail.hex() if isinstance(tail, bytes) else tail
            yield ev


def main():
    args = [a for a in sys.argv[1:] if a != "--info"]
    if len(args) != 1:
        sys.exit(__doc__)
    try:
        trace = Trace(args[0])
        if "--info" in sys.argv:
            print(json.dumps({"meta": trace.meta, "frames": len(trace.frames),
                              "events": sum(f["events"] for f in trace.frames),
                              "complete": trace.complete, "damaged_bytes": trace.damaged_bytes}))
            return
        for ev in trace.events():
            print(json.dumps(ev))
    except Damaged as why:
        sys.exit(f"{args[0]}: {why}")
    except BrokenPipeError:
        sys.stderr.close()


if __name__ == "__main__":
    main()
