"""Stock onnxruntime on a decoder folder: session creation and the first token of a prompt, as one JSON object.

Arguments: the folder, the prompt's tokens with commas between, when this process was started (ns since 1970).
"""
import json
import os
import resource
import sys
import time

import numpy as np
import onnxruntime as ort

folder, tokens, spawned = sys.argv[1], [int(t) for t in sys.argv[2].split(",")], int(sys.argv[3])
model = json.load(open(os.path.join(folder, "genai_config.json")))["model"]
decoder = model["decoder"]

start = time.perf_counter()
options = ort.SessionOptions()
options.log_severity_level = 3
session = ort.InferenceSession(os.path.join(folder, decoder["filename"]), options, providers=["CPUExecutionProvider"])
ready_ms = (time.perf_counter() - start) * 1e3
usage = resource.getrusage(resource.RUSAGE_SELF)

types = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
n, feed = len(tokens), {}
for value in session.get_inputs():
    if value.name.startswith("past_key_values."):
        shape = [1, decoder["num_key_value_heads"], 0, decoder["head_size"]]
        feed[value.name] = np.zeros(shape, types[value.type])
    elif value.name == "attention_mask":
        feed[value.name] = np.ones((1, n), np.int64)
    elif value.name == "position_ids":
        feed[value.name] = np.arange(n, dtype=np.int64)[None]
    else:
        feed[value.name] = np.array([tokens], np.int64)
session.run(["logits"], feed)[0][0, -1].argmax()
first_token_ms = (time.time_ns() - spawned) / 1e6

peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({
    "who": "onnxruntime", "ready_ms": ready_ms, "prefill_ready_ms": ready_ms, "decode_ready_ms": ready_ms,
    "constructor_ms": ready_ms, "first_token_ms": first_token_ms, "cpu_s": usage.ru_utime + usage.ru_stime,
    "minor_faults": usage.ru_minflt, "major_faults": usage.ru_majflt, "peak_rss_bytes": peak_kib * 1024,
    "engines": ["onnxruntime " + ort.__version__],
}))
