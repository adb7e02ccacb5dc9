"""Write a table for `albert finetune` from the raw export of an annotation tool.

    python examples/convert_annotations.py EXPORT train.jsonl

EXPORT is Label Studio's raw JSON (`albert` reads its JSON-MIN as it is), or a folder of BRAT with `1.txt` and `1.ann`.
Every line of the table is a text with its marked parts, `{"text": ..., "label": [[0, 4, "PER"]]}`, or with the choices
under the name of their control. Only the standard library is needed. What is left out is counted.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = re.compile(r"T\S+\t(\S+) (\d+) (\d+)(;[\d ;]+)?(\t.*)?\r?$")
"""A marked part of BRAT: `T1<tab>PER 0 4<tab>Anna`; with `;` it is in several pieces."""


def rows_of_label_studio(tasks: list[dict[str, Any]], counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """A row for each task: its columns, and the first annotation that was not cancelled."""
    for task in tasks:
        annotations = task.get("annotations") or task.get("completions") or []
        made = [each for each in annotations if not each.get("was_cancelled")]
        if not made:
            counts["tasks without an annotation, left out"] += 1
            continue
        counts["further annotations of a task, left out"] += len(made) - 1
        row = dict(task["data"])
        marks = []
        choices: dict[str, list[str]] = {}
        for result in made[0]["result"]:
            value = result.get("value", {})
            if result["type"] in ("labels", "hypertextlabels"):
                place = value.get("globalOffsets", value)
                marks += [[place["start"], place["end"], label] for label in value[result["type"]]]
            elif result["type"] == "choices":
                choices[result["from_name"]] = value["choices"]
            else:
                counts[f"results of the type {result['type']}, left out"] += 1
        if marks or not choices:
            row["label"] = marks
        row.update(choices)
        yield row


def rows_of_brat(folder: Path, counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """A row for each text with an `.ann` file."""
    for path in sorted(folder.glob("*.txt")):
        annotations = path.with_suffix(".ann")
        if not annotations.is_file():
            counts["texts without an .ann file, left out"] += 1
            continue
        # bytes, because open() would turn \r\n into one character, and BRAT counts two
        text = path.read_bytes().decode()
        marks = []
        for number, line in enumerate(annotations.read_bytes().decode().split("\n"), start=1):
            if not line.startswith("T"):
                continue
            found = MARK.match(line)
            if found is None:
                sys.exit(f"{annotations}:{number}: is not a marked part, such as T1, a tab, PER 0 4, a tab, Anna")
            label, start, end, pieces, written = found.groups()
            if pieces:
                counts["marked parts in several pieces, left out"] += 1
                continue
            if written and text[int(start) : int(end)].split() != written.split():
                sys.exit(f"{annotations}:{number}: {written.strip()!r} is not at this place in {path.name}")
            marks.append([int(start), int(end), label])
        yield {"text": text, "label": marks, "file": path.name}


def main(export: Path, output: Path) -> None:
    """Write the table, and print what was left out."""
    counts = Counter[str]()
    if export.is_dir():
        rows = list(rows_of_brat(export, counts))
    else:
        rows = list(rows_of_label_studio(json.loads(export.read_text(encoding="utf-8")), counts))
    if not rows:
        sys.exit(f"{export}: has no annotated texts")
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    output.write_text("".join(lines), encoding="utf-8")
    print(f"{output}: {len(rows):,} rows")
    for what, count in counts.items():
        if count:
            print(f"{count:,} {what}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/convert_annotations.py EXPORT train.jsonl")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
