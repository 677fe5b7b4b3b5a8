"""Checks what `generate --json` printed: one object, all fields, an answer that is real English.

    python3 .ci/check_generate.py FILE
"""
import json
import sys

text = open(sys.argv[1], encoding="utf-8").read()
answer, end = json.JSONDecoder().raw_decode(text)
assert not text[end:].strip(), f"more than one object on stdout: {text[end:]!r}"

for field in "prompt_tokens tokens text init first_token_ms decode_tokens_per_s engines peak_rss_bytes".split():
    assert field in answer, f"no {field}"
for field in "mode constructor_ms prefill_ready_ms decode_ready_ms ready_ms".split():
    assert field in answer["init"], f"no init.{field}"

# SmolLM2-135M-Instruct, "What is gravity?", greedy. The margins of these first tokens are wide.
expected = [22007, 6463, 314, 253]
assert answer["tokens"][: len(expected)] == expected, answer["tokens"]
assert answer["text"].startswith("Gravity is a"), answer["text"]
assert answer["engines"]["prefill"] and answer["engines"]["decode"], answer["engines"]
print(f"main job: {len(answer['tokens'])} tokens in mode {answer['init']['mode']}: {answer['text']!r}")
