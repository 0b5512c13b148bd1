"""The integer program of docs/packing.md, solved by HiGHS.

Reads a JSON list of problems on standard input, each a list of buffers
[start, end, size, offset], live in [start, end). An offset of -1 is free, any
other is fixed. Writes the list of the least makespans, null if HiGHS does not prove
one.
"""
import json
import os
import sys

import highspy

# HiGHS prints its banner on standard output, whatever output_flag says (1.16). Its lines go to
# standard error, so that only the answers are on standard output.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def least_makespan(buffers):
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("mip_rel_gap", 0.0)
    model.setOptionValue("mip_abs_gap", 0.5)  # offsets are sums of sizes, which are integers
    model.setOptionValue("time_limit", 60.0)
    inf = highspy.kHighsInf
    big = sum(size for _, _, size, _ in buffers) + max([0] + [o for *_, o in buffers])
    model.addVar(0, big)  # column 0 is the makespan
    model.changeColCost(0, 1)
    for i, (_, _, size, offset) in enumerate(buffers):
        model.addVar(max(0, offset), big if offset < 0 else offset)
        model.addRow(size, inf, 2, [0, 1 + i], [1, -1])  # makespan >= o_i + s_i
    for i, (start, end, size, offset) in enumerate(buffers):
        for j, (other_start, other_end, other_size, other_offset) in enumerate(buffers[:i]):
            if start >= other_end or other_start >= end or (offset >= 0 and other_offset >= 0):
                continue
            z = model.getNumCol()
            model.addVar(0, 1)
            model.changeColIntegrality(z, highspy.HighsVarType.kInteger)
            # z = 1: j lies on i or higher, o_j - o_i >= s_i; z = 0: the reverse
            model.addRow(size - big, inf, 3, [1 + j, 1 + i, z], [1, -1, -big])
            model.addRow(other_size, inf, 3, [1 + i, 1 + j, z], [1, -1, big])
    instants = {start for start, *_ in buffers}
    load = max(sum(s for a, b, s, _ in buffers if a <= t < b) for t in instants)
    if all(offset < 0 for *_, offset in buffers):
        model.changeColBounds(0, load, big)
    model.run()
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return round(model.getInfo().objective_function_value)


with answers:
    json.dump([least_makespan(p) for p in json.load(sys.stdin)], answers)
