"""Reads traces that stplan wrote, and writes traces as other tools would.

    interop.py read TRACE.parquet    one JSON object per row, as pyarrow reads it
    interop.py duckdb TRACE.parquet  the same, as DuckDB reads it
    interop.py pandas OUT.parquet    a trace from pandas: five columns, pandas' types
    interop.py arrow OUT.parquet     all columns, in pyarrow's other encodings

The Go tests run it and compare every value.
"""
import json
import sys

COLUMNS = ["device", "action", "addr", "size", "stream"]

# The rows of the written traces; parquet_interop_test.go has the same.
ROWS = [
    (0, "alloc", 4096, 100, 0),
    (0, "alloc", 8192, 200, 7),
    (0, "free_requested", 4096, 100, 0),
    (0, "free_completed", 4096, 100, 0),
    (1, "alloc", 2**63 - 512, 2**40, 0),
]
MORE = {
    "time_us": [1, None, 3, 4, 5],
    "stack": ["a.py:1:f\nb.py:2:g", None, "", "a.py:1:f\nb.py:2:g", None],
    "user_metadata": ["", "é", None, None, ""],
    "compile_context": ["N/A"] * 5,
    "pool": ["0,0", "0,1", None, None, "0,1"],
    "name": [None] * 5,
}


def show(rows):
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))


def read(path):
    import pyarrow.parquet as pq

    show(pq.read_table(path).to_pylist())


def duckdb(path):
    import duckdb

    result = duckdb.sql(f"SELECT * FROM '{path}'")
    show(dict(zip(result.columns, row)) for row in result.fetchall())


def pandas(path):
    import pandas as pd

    pd.DataFrame(ROWS, columns=COLUMNS).to_parquet(path)


def arrow(path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = dict(zip(COLUMNS, zip(*ROWS)))
    table = pa.table(
        {
            "device": pa.array(columns["device"], pa.int8()),
            "action": pa.array(columns["action"]).dictionary_encode(),
            "addr": pa.array(columns["addr"], pa.uint64()),
            "size": pa.array(columns["size"], pa.int64()),
            "stream": pa.array(columns["stream"], pa.uint32()),
            "time_us": pa.array(MORE["time_us"], pa.int64()),
            "stack": pa.array(MORE["stack"], pa.large_string()),
            "user_metadata": MORE["user_metadata"],
            "compile_context": MORE["compile_context"],
            "pool": MORE["pool"],
            "name": pa.nulls(5),
            "note": [[1, 2], None, [], [3], [4]],
        }
    )
    pq.write_table(
        table,
        path,
        compression="gzip",
        data_page_version="2.0",
        use_dictionary=["action", "pool"],
        column_encoding={"addr": "DELTA_BINARY_PACKED", "size": "DELTA_BINARY_PACKED", "stack": "DELTA_LENGTH_BYTE_ARRAY"},
        row_group_size=2,
    )


if __name__ == "__main__":
    {"read": read, "duckdb": duckdb, "pandas": pandas, "arrow": arrow}[sys.argv[1]](sys.argv[2])
