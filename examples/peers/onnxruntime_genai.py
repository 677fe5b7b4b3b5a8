"""Stock onnxruntime-genai on a decoder folder: load and the first token of a prompt, as one JSON object.

Arguments: the folder, the prompt's tokens with commas between, when this process was started (ns since 1970).
"""
import json
import resource
import sys
import time

import numpy as np
import onnxruntime_genai as og

folder, tokens, spawned = sys.argv[1], [int(t) for t in sys.argv[2].split(",")], int(sys.argv[3])

start = time.perf_counter()
model = og.Model(folder)
ready_ms = (time.perf_counter() - start) * 1e3
usage = resource.getrusage(resource.RUSAGE_SELF)

params = og.GeneratorParams(model)
params.set_search_options(do_sample=False, max_length=len(tokens) + 2)
generator = og.Generator(model, params)
generator.append_tokens(np.array(tokens, np.int32))
generator.generate_next_token()
generator.get_next_tokens()[0]
first_token_ms = (time.time_ns() - spawned) / 1e6

peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({
    "who": "onnxruntime-genai", "ready_ms": ready_ms, "prefill_ready_ms": ready_ms, "decode_ready_ms": ready_ms,
    "constructor_ms": ready_ms, "first_token_ms": first_token_ms, "cpu_s": usage.ru_utime + usage.ru_stime,
    "minor_faults": usage.ru_minflt, "major_faults": usage.ru_majflt, "peak_rss_bytes": peak_kib * 1024,
    "engines": ["onnxruntime-genai " + og.__version__],
}))
