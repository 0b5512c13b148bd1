#!/usr/bin/env python3
"""Read small files that claim, or decompress to, very much; print a Markdown table.

    hostile.py OLD NEW [--keep FOLDER] [--runs N] [--only SUBSTRING]

OLD and NEW are two stplan binaries. Each file is made by this script and given to `stplan
replay --no-plan` of both. The table has the seconds and the peak resident memory of each,
and the exit code of NEW; the figures are medians of N runs (default 1). OLD may take 9 GB
and a minute for a file. Needs Python 3 and the command zstd.
"""
import argparse
import os
import pathlib
import pickle
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib

INT32, INT64, TEXT = 1, 2, 6  # Parquet's physical types
PLAIN, RLE, BY_DICTIONARY = 0, 3, 8  # its encodings
DATA, DICTIONARY = 0, 2  # its pages
ZSTD = 6  # its number for the compression


def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out) + bytes([n])


class Record:
    """A struct of Thrift's compact protocol."""

    def __init__(self):
        self.data, self.last = b"", 0

    def head(self, field, kind):
        self.data += bytes([field - self.last << 4 | kind])
        self.last = field

    def number(self, field, n, kind=5):
        self.head(field, kind)
        self.data += varint(n << 1)
        return self

    def long(self, field, n):
        return self.number(field, n, 6)

    def text(self, field, text):
        self.head(field, 8)
        self.data += varint(len(text)) + text
        return self

    def record(self, field, of):
        self.head(field, 12)
        self.data += of.bytes()
        return self

    def list(self, field, kind, elements):
        self.head(field, 9)
        self.data += bytes([0xF0 | kind]) + varint(len(elements)) + b"".join(elements)
        return self

    def bytes(self):
        return self.data + b"\0"


def zstd(body):
    return subprocess.run(["zstd", "-q", "-19", "-c"], input=body, capture_output=True, check=True).stdout


def page(kind, values, encoding, body):
    packed = zstd(body)
    header = Record().number(1, kind).number(2, len(body)).number(3, len(packed))
    of = Record().number(1, values).number(2, encoding)
    if kind == DATA:
        header.record(5, of.number(3, RLE).number(4, RLE))
    else:
        header.record(7, of)
    return header.bytes() + packed


def plain_text(text):
    return struct.pack("<I", len(text)) + text


def parquet(path, groups, rows):
    """Write a trace: groups row groups of rows rows, whose column "stack" has the given pages."""
    alloc = page(DATA, rows, PLAIN, plain_text(b"alloc") * rows)
    number = lambda values, form: page(DATA, rows, PLAIN, b"".join(struct.pack(form, v) for v in values))
    data, chunks = b"PAR1", []
    for i, stack in enumerate(groups):
        columns = [
            (b"device", INT32, number([0] * rows, "<i")),
            (b"action", TEXT, alloc),
            (b"addr", INT64, number([(i * rows + k + 1) << 20 for k in range(rows)], "<q")),
            (b"size", INT64, number([512] * rows, "<q")),
            (b"stream", INT64, number([0] * rows, "<q")),
            (b"stack", TEXT, stack),
        ]
        group = []
        for name, kind, pages in columns:
            meta = Record().number(1, kind).list(2, 5, []).list(3, 8, [varint(len(name)) + name]).number(4, ZSTD)
            meta.long(5, rows).long(6, len(pages)).long(7, len(pages)).long(9, len(data))
            group.append(Record().long(2, 0).record(3, meta).bytes())
            data += pages
        chunks.append(Record().list(1, 12, group).long(2, 0).long(3, rows).bytes())
    schema = [Record().text(4, b"trace").number(5, len(columns)).bytes()]
    schema += [Record().number(1, kind).number(3, 0).text(4, name).bytes() for name, kind, _ in columns]
    finish(path, data, schema, rows * len(groups), chunks)


def finish(path, data, schema, rows, chunks):
    footer = Record().number(1, 2).list(2, 12, schema).long(3, rows).list(4, 12, chunks).bytes()
    path.write_bytes(data + footer + struct.pack("<I", len(footer)) + b"PAR1")


def gzipped(path, begin, again, times):
    z = zlib.compressobj(9, wbits=31)
    path.write_bytes(z.compress(begin) + b"".join(z.compress(again * 10_000) for _ in range(times // 10_000)) + z.flush())


def texts(path):
    long = plain_text(b"x" * 120_000_000) + plain_text(b"y" * 120_000_000)
    parquet(path, [page(DICTIONARY, 2, PLAIN, long) + page(DATA, 2, BY_DICTIONARY, bytes([1, 3, 2]))] * 8, 2)


def dictionaries(path):
    one = page(DICTIONARY, 1 << 22, PLAIN, bytes(4 << 22))
    parquet(path, [one * 50 + page(DATA, 1, BY_DICTIONARY, bytes([0, 2]))], 1)


def dictionaries_in_groups(path):
    one = page(DICTIONARY, 1 << 22, PLAIN, bytes(4 << 22))
    parquet(path, [one + page(DATA, 1, BY_DICTIONARY, bytes([0, 2]))] * 50, 1)


def empty_pages(path):
    empty = page(DATA, 0, PLAIN, bytes(1 << 20))
    parquet(path, [empty * (823_000 // len(empty)) + page(DATA, 1, PLAIN, plain_text(b""))], 1)


def deep_schema(path):
    group = Record().text(4, b"a").number(5, 1).bytes()
    finish(path, b"PAR1", [group] * 11_000_000 + [Record().number(1, INT64).number(3, 0).text(4, b"b").bytes()], 0, [])


def lists(path):
    noise = random.Random(1).randbytes(800_000)  # takes room, so that the rest may decompress to 256 times the file
    gzipped(path, b"\x80\x04B" + struct.pack("<I", len(noise)) + noise + b"0", b"]", 240_000_000)


def one_block(path):
    entry = {"action": "alloc", "addr": 1 << 40, "size": 1 << 46, "stream": 0, "time_us": 1, "frames": []}
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[entry]]}, protocol=4))


FILES = {
    "Parquet: 8 row groups of 2 texts of 120 MB": texts,
    "Parquet: 50 dictionaries of 2^22 empty texts": dictionaries,
    "Parquet: the same in 50 row groups": dictionaries_in_groups,
    "Parquet: pages without values, of 1 MiB each": empty_pages,
    "Parquet: a schema 11 million deep": deep_schema,
    "gzip of a pickle of 240 million `]`": lists,
    "a pickle of one allocation of 2^46 B": one_block,
}


def in_child(make, path):
    """Make a file in a process of its own: the peak of this one counts for those it starts."""
    pid = os.fork()
    if pid == 0:
        try:
            make(path)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    if not path.exists():
        sys.exit(f"{path.name} was not made")


def run(binary, path):
    """Seconds, peak resident MiB and exit code of one process."""
    began = time.perf_counter()
    quiet = [(os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_WRONLY, 0) for n in (1, 2)]
    pid = os.posix_spawn(binary, [binary, "--quiet", "replay", "--no-plan", str(path)], os.environ, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    return time.perf_counter() - began, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("old")
    args.add_argument("new")
    args.add_argument("--keep", type=pathlib.Path, help="make the files in this folder and leave them there")
    args.add_argument("--runs", type=int, default=1)
    args.add_argument("--only", default="")
    args = args.parse_args()
    print("| file | bytes | s before | s after | MiB before | MiB after | exit before | after |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or pathlib.Path(scratch)
        for name, make in FILES.items():
            if args.only not in name:
                continue
            path = folder / make.__name__
            in_child(make, path)
            old, new = zip(*[(run(args.old, path), run(args.new, path)) for _ in range(args.runs)])
            mid = lambda rows, i: statistics.median(r[i] for r in rows)
            print(f"| {name} | {path.stat().st_size:,} | {mid(old, 0):.2f} | {mid(new, 0):.2f} "
                  f"| {mid(old, 1):,.0f} | {mid(new, 1):,.0f} | {old[0][2]} | {new[0][2]} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
