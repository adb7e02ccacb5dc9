r"""Write the first sentences of every article: text whose sentence order small models learn (docs/log.md).

    python results/tables-tiny-openings/openings.py britannica11.jsonl.gz openings.jsonl 6
    albert prepare openings.jsonl --tokenizer small --held-out 0.1 --output openings

Each line of the source is a JSON object with a `text`; articles of fewer than four sentences are left out and counted.
With `1:6` in place of `6` the first sentence is skipped, which names the subject and so gives itself away.
"""

import gzip
import json
import sys
from pathlib import Path

from albert.text.sentences import split_sentences


def main() -> None:
    """Write the file and print the number of articles."""
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, output = map(Path, sys.argv[1:3])
    skipped, count = map(int, ("0:" + sys.argv[3]).split(":")[-2:])
    kept = left_out = 0
    with gzip.open(source, "rt", encoding="utf-8") as read, output.open("w", encoding="utf-8") as written:
        for line in read:
            sentences = [str(sentence).strip() for sentence in split_sentences(json.loads(line)["text"])][skipped:]
            if len(sentences) < 4:
                left_out += 1
                continue
            kept += 1
            written.write(json.dumps({"text": " ".join(sentences[:count])}, ensure_ascii=False) + "\n")
    print(f"{output}: the openings of {kept:,} articles, {left_out:,} left out")


if __name__ == "__main__":
    main()
