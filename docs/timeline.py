"""Draws a trace as lanes: python3 docs/timeline.py TRACE.json OUT.svg   (TRACE.json: `generate --trace`)"""
import json
import sys
from html import escape

WIDTH, LEFT, ROW, TOP = 1100, 170, 18, 34
COLOURS = {"host": "#c0762f", "npu": "#2f6fc0", "igpu": "#3a9a5b"}

events = json.load(open(sys.argv[1]))["traceEvents"]
names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
spans = [e for e in events if e["ph"] == "X"]
barriers = [e for e in events if e["ph"] == "i" and e["name"].startswith("barrier")]
end = max([e["ts"] + e["dur"] for e in spans] + [b["ts"] for b in barriers])
x = lambda ts: LEFT + ts / end * (WIDTH - LEFT - 12)
rows = {tid: i for i, tid in enumerate(sorted(names))}
height = TOP + len(rows) * ROW + 10

out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11">',
       f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
for tid, row in rows.items():
    y = TOP + row * ROW
    out.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 12}" height="{ROW - 2}" fill="#f1f1f1"/>')
    out.append(f'<text x="{LEFT - 6}" y="{y + 12}" text-anchor="end" fill="#222222">{escape(names[tid])}</text>')
for e in spans:
    kind = "host" if e["cat"] == "host" else "igpu" if names[e["tid"]].startswith("igpu") else "npu"
    y, width = TOP + rows[e["tid"]] * ROW, max(x(e["ts"] + e["dur"]) - x(e["ts"]), 0.6)
    out.append(f'<rect x="{x(e["ts"]):.1f}" y="{y}" width="{width:.1f}" height="{ROW - 2}" fill="{COLOURS[kind]}" '
               f'stroke="#ffffff" stroke-width="0.3"><title>{escape(e["name"])}: {e["dur"] / 1e3:.2f} ms</title></rect>')
for i, b in enumerate(sorted(barriers, key=lambda b: b["ts"])):
    label = f'{b["name"].removeprefix("barrier ").removesuffix(" ready")} {b["ts"] / 1e3:.0f} ms'
    out.append(f'<line x1="{x(b["ts"]):.1f}" x2="{x(b["ts"]):.1f}" y1="{TOP - 4}" y2="{height - 8}" stroke="#b00020" stroke-width="1"/>')
    if not label.startswith("all"):
        anchor = "end" if x(b["ts"]) > WIDTH / 2 else "start"
        out.append(f'<text x="{x(b["ts"]):.1f}" y="{12 + 12 * (i % 2)}" text-anchor="{anchor}" fill="#b00020">{escape(label)}</text>')
out.append("</svg>")
open(sys.argv[2], "w").write("\n".join(out) + "\n")
