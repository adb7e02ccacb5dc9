"""Write the figures of README and docs/ that come from results/, into the pages.

    python -m dev.scripts.figures            # writes
    python -m dev.scripts.figures --check    # compares only, and ends with 1 if a page differs

A passage stands between `<!-- figures: NAME -->` and `<!-- /figures -->`, as lines of its own or inside a line. The
function below with that name returns its text. Inside a line, line breaks do not count.
"""

import argparse
import csv
import json
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from dev.reliability.report import Report, table_of

from albert.model.cost import count_parameters
from albert.recipes.architecture import PRESETS
from albert.runtime.json_files import load_json

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
PAGES = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in ("getting-started", "own-task", "which-model", "models", "performance", "promises")
    ),
)
PASSAGE = re.compile(r"(<!-- figures: (\S+) -->)(.*?)(<!-- /figures -->)", re.DOTALL)
PRECISIONS = ("fp32", "bf16", "int8")
LOADS = {
    "mixed": "mixed: 32 sentences as they come",
    "sorted": "sorted: the same, sorted into four batches for the peers",
    "fixed": "fixed: 32 × 128 tokens",
    "single-32": "single-32: one of 32 tokens",
    "single-128": "single-128: one of 128 tokens",
}
PASSAGES: dict[str, Callable[[], str]] = {}
"""The functions that write passages, by the name in the marker."""


def passage(function: Callable[[], str]) -> Callable[[], str]:
    """Declare a function as the writer of the passage with its name, with - for _."""
    PASSAGES[function.__name__.replace("_", "-")] = function
    return function


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a CSV file of results/."""
    with open(RESULTS / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run_figures(run: str) -> dict[str, dict[str, str]]:
    """The rows of a run in results.csv, by figure."""
    return {row["figure"]: row for row in rows_of("results.csv") if row["run"] == run}


def percent(value: str | float) -> str:
    """A share with one decimal."""
    return f"{100 * float(value):.1f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(line)} |".replace("|  |", "| |") for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


# --------------------------------------------------------------------------------------------------------------------
# README and the first pages.


@passage
def readme_speed() -> str:
    """The table of README."""
    (step,) = (r for r in rows_of("benchmark-pretraining-step.csv") if r["shape"] == "H768 L12 length 128 batch 32")
    times = inference_times("inference")["mixed", "fp32"]
    transformers = min(time for system, time in times.items() if system.startswith("transformers"))
    last = {row["system"]: row for row in rows_of("benchmark-pretraining-efficiency.csv")}
    ours = f"{int(step['albert_tokens_per_second']):,} tokens/s"
    theirs = f"{int(step['transformers_tokens_per_second']):,} tokens/s (transformers)"
    loss = {name: f"{float(row['whole_words_loss']):.2f} nats" for name, row in last.items()}
    return table(
        ["two cores of an AMD EPYC, 21 and 22 November 2026", "albert", "other"],
        [
            ["pre-training step of ALBERT-base, 128 tokens, bf16", ours, theirs],
            [
                "ALBERT-base on 32 sentences of mixed lengths, fp32",
                f"{times['albert']:,.0f} ms",
                f"{times['openvino']:,.0f} ms (OpenVINO), {transformers:,.0f} ms (transformers)",
            ],
            [
                "held-out loss after 6 million tokens, H 128, 4 layers",
                loss["albert"],
                f"{loss['trainer']} (transformers' Trainer)",
            ],
            mixed_encoders(),
            file_of_texts(),
        ],
    )


def mixed_encoders() -> list[str]:
    """The row of all-MiniLM-L6-v2 on texts of mixed lengths, beside the two fastest peers of the same precision."""
    rates = {
        row["system"].removesuffix(" fp32"): float(row["texts_per_second"])
        for row in rows_of("benchmark-encoders.csv")
        if (row["model"], row["load"], row["busy"]) == ("minilm", "mixed", "") and row["system"].endswith(" fp32")
    }
    ours = rates.pop("albert")
    peers = sorted(rates, key=lambda name: -rates[name])[:2]
    shown = ", ".join(f"{rates[name]:.0f} (`{name}`)" for name in peers)
    return ["all-MiniLM-L6-v2, texts of mixed lengths, fp32, 28 November, AVX2 only", f"{ours:.0f} texts/s", shown]


def file_of_texts() -> list[str]:
    """The row of a file of short texts to vectors, beside the two fastest backends of sentence-transformers."""
    rates = {
        row["system"]: float(row["texts_per_second"])
        for row in rows_of("benchmark-encoders.csv")
        if (row["model"], row["load"], row["texts"]) == ("minilm", "file to .npy", "10000")
    }
    ours = rates.pop("albert predict")
    peers = sorted(rates, key=lambda name: -rates[name])[:2]
    names = {name: name.removesuffix(" fp32").removeprefix("sentence-transformers-") for name in peers}
    shown = ", ".join(f"{rates[name]:.0f} (`{names[name]}`)" for name in peers)
    return ["the same, a file of short texts to vectors in `.npy`", f"{ours:.0f} texts/s", shown]


@passage
def readme_memory() -> str:
    """Peak memory of a pre-training step, as a share of transformers'."""
    (step,) = (r for r in rows_of("benchmark-pretraining-step.csv") if r["shape"] == "H768 L12 length 128 batch 32")
    return f"{100 * float(step['peak_ratio']):.0f} % of the memory of transformers"


@passage
def readme_time() -> str:
    """Time of the run of the last row, as a share of the Trainer's."""
    last = {row["system"]: float(row["seconds"]) for row in rows_of("benchmark-pretraining-efficiency.csv")}
    return f"{100 * last['albert'] / last['trainer']:.0f} % of the Trainer's time"


@passage
def reviews() -> str:
    """What `albert finetune` prints for a table of 8,000 rows of SST-2."""
    report = json.loads((RESULTS / "2026-11-28-reviews.json").read_text(encoding="utf-8"))
    lines = [f"750 steps over 8,000 of 8,000 training rows (3 epochs) in {report['training']['seconds']:.0f} s"]
    columns = ("score", "majority baseline", "TF-IDF with logistic regression", "frozen model with a linear head")
    lines.append(" " * 15 + "  ".join(columns))
    lines.append("─" * 105)
    for score in ("accuracy", "f1 (negative)", "macro_f1"):
        others = (report["baseline"], report["linear_baseline"]["scores"], report["frozen_head"]["scores"])
        constant, classical, frozen = (each[score] for each in others)
        lines.append(f"{score:<15}{report['scores'][score]:.2f} {constant:>18.2f} {classical:>32.2f} {frozen:>32.2f}")
    return "\n".join(["```text", *lines, "runs/reviews/model is ready", "```"])


@passage
def quickstart() -> str:
    """Scores of the quickstart, and the time of an earlier run on a quiet machine."""
    found = run_figures("2026-11-29-quickstart-2")
    quiet = run_figures("2026-11-23-quickstart")["seconds"]
    rows = [
        ("masked tokens", "masked_tokens_accuracy", ""),
        ("which of six authors, unseen chapters", "authorship_accuracy", "authorship_accuracy_tiny"),
    ]
    lines = [
        [
            what,
            percent(found[name]["value"]),
            percent(found[name]["baseline"]),
            percent(found[other]["value"]) if other else "",
        ]
        for what, name, other in rows
    ]
    scores = table(["held out", "score", "majority baseline", "`tiny`"], lines)
    commits = f"the encoder and `tiny` at {found['seconds']['commit']}, the classifier at {found[rows[1][1]]['commit']}"
    taken = f"{float(quiet['value']):.0f} seconds on two quiet cores of such a processor, without the installation"
    return f"{scores}\n\nIntel Xeon with AMX; {commits}. At {quiet['commit']} it took {taken}."


@passage
def tiny_masked() -> str:
    """Masked tokens at the end of the run of `tiny`."""
    row = run_figures("2026-11-22-tiny-128")["masked_tokens_accuracy"]
    return f"{percent(row['value'])} of held-out masked tokens (majority baseline: {percent(row['baseline'])})"


@passage
def earlier_masked() -> str:
    """Masked tokens of the first model of the scale."""
    return percent(run_figures("2026-11-20-small")["masked_tokens_accuracy"]["value"])


# --------------------------------------------------------------------------------------------------------------------
# docs/which-model.md.


@passage
def which_own_table() -> str:
    """Scores and times for 8,000 rows of SST-2."""
    reports = {
        model: json.loads((RESULTS / f"2026-11-28-reviews{suffix}.json").read_text(encoding="utf-8"))
        for model, suffix in (("small", "-small"), ("small-vectors", ""))
    }
    report = reports["small"]
    linear = report["linear_baseline"]
    rows = [
        ["majority baseline", f"{report['baseline']['accuracy']:.1f} %", "none"],
        [linear["method"], f"{linear['scores']['accuracy']:.1f} %", f"{linear['seconds']:.0f} s"],
    ]
    for model, each in reports.items():
        rows.append([f"`{model}`", f"{each['scores']['accuracy']:.1f} %", f"{each['training']['seconds']:.0f} s"])
    return table(["model", "accuracy", "training"], rows)


@passage
def which_scores() -> str:
    """Scores of the models of the package, from the table of results/README.md."""
    section = (RESULTS / "README.md").read_text(encoding="utf-8").partition("## Scores of today's models")[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    names, *found = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if "---" not in line)
    rows = []
    for cells in found:
        row = dict(zip(names, cells, strict=True))
        task = row["task"].partition(",")[0]
        scores = [row[name].partition(" (")[0] for name in ("constant", "classical", "tiny", "small")]
        rows.append([f"{task} ({row['score']})", *scores])
    return table(["task (score)", "majority", "TF-IDF", "`tiny`", "`small`"], rows)


@passage
def which_published() -> str:
    """Table 2 of the paper, and the parameters as counted here."""
    source = ROOT / "experiments" / "paper.toml"
    tables = {entry["name"]: entry for entry in tomllib.loads(source.read_text(encoding="utf-8"))["table"]}
    rows = []
    for row in tables["2"]["rows"]:
        _, squad, _, squad_2, _, mnli, sst_2, race, average = row["figures"]
        millions = count_parameters(PRESETS[row["preset"]]).model / 1e6
        scores = (sst_2, mnli, squad, squad_2, race, average)
        rows.append([row["label"], f"{millions:.0f} M", *(f"{score:.1f}" for score in scores)])
    return table(["model", "parameters", "SST-2", "MNLI", "SQuAD 1.1", "SQuAD 2.0", "RACE", "average"], rows)


# --------------------------------------------------------------------------------------------------------------------
# docs/performance.md.


def inference_times(name: str, busy: str = "") -> dict[tuple[str, str], dict[str, float]]:
    """Milliseconds by load and precision, then by system: the faster of several variants of one system."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows_of(f"benchmark-{name}.csv"):
        if row.get("busy", "") != busy:
            continue
        *words, precision = row["system"].split()
        times = found.setdefault((row["load"], precision), {})
        system, took = " ".join(words), float(row["milliseconds"])
        times[system] = min(took, times.get(system, took))
    return found


def beside_the_fastest(times: dict[str, float]) -> str:
    """Ours, and the time and name of the fastest other system."""
    peer = min((system for system in times if system != "albert"), key=times.__getitem__)
    return f"{times['albert']:,.1f} / {times[peer]:,.1f} {peer.split()[0]}"


def steps(name: str) -> str:
    """Training steps beside transformers'."""
    rows = []
    for row in rows_of(name):
        ours, theirs = int(row["albert_tokens_per_second"]), int(row["transformers_tokens_per_second"])
        rows.append([row["shape"], row["precision"], f"{ours:,}", f"{theirs:,}", f"{float(row['ratio']):.1f}"])
    return table(["shape", "precision", "albert, tokens/s", "transformers, tokens/s", "ratio"], rows)


@passage
def pretraining_steps() -> str:
    """On an AMD EPYC."""
    return steps("benchmark-pretraining-step.csv")


@passage
def pretraining_steps_amx() -> str:
    """On an Intel Xeon with AMX."""
    return steps("benchmark-pretraining-step-amx.csv")


@passage
def inference() -> str:
    """On an AMD EPYC."""
    times = inference_times("inference")
    rows = [[text, *(beside_the_fastest(times[load, kind]) for kind in PRECISIONS)] for load, text in LOADS.items()]
    return table(["", *PRECISIONS], rows)


@passage
def inference_amx() -> str:
    """On an Intel Xeon with AMX, quiet and beside a busy core."""
    rows = []
    for state, busy in (("quiet", ""), ("busy", "one core taken")):
        times = inference_times("inference-amx", busy)
        rows += [
            [f"{state}, {load}", *(beside_the_fastest(times[load, kind]) for kind in PRECISIONS)] for load in LOADS
        ]
    return table(["", *PRECISIONS], rows)


@passage
def inference_alone() -> str:
    """Single texts, each system in a process of its own: the better of two."""
    times = inference_times("inference-alone")
    systems = [("albert", kind) for kind in PRECISIONS]
    systems += [("openvino", "fp32"), ("openvino", "bf16"), ("onnxruntime", "fp32"), ("onnxruntime", "int8")]
    rows = [
        [tokens, *(f"{times[f'single-{tokens}', kind][system]:.1f}" for system, kind in systems)]
        for tokens in ("32", "128")
    ]
    head = ["tokens", "albert fp32", "bf16", "int8", "openvino fp32", "bf16", "onnxruntime fp32", "int8"]
    return table(head, rows)


@passage
def inference_more_peers() -> str:
    """Compiled transformers, and OpenVINO's int8."""
    times = inference_times("inference-more-peers")
    peers = {"fp32": "transformers compiled", "bf16": "transformers compiled", "int8": "openvino"}
    rows = []
    for load in LOADS:
        cells = [times[load, kind] for kind in PRECISIONS]
        both = zip(cells, peers.values(), strict=True)
        rows.append([load, *(f"{cell['albert']:,.1f} / {cell[peer]:,.1f}" for cell, peer in both)])
    return table(["", "compiled fp32", "compiled bf16", "openvino int8"], rows)


ENCODER_LOADS = ("sts-b", "sst-2", "paragraphs", "mixed", "one sentence", "one paragraph")


@passage
def encoders() -> str:
    """Encoders of texts: albert and the fastest peer of the same precision, quiet and beside a busy core."""
    if not (RESULTS / "benchmark-encoders.csv").exists():
        return "Not measured yet."
    found: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for row in rows_of("benchmark-encoders.csv"):
        if row["load"] in ENCODER_LOADS:
            system, precision = row["system"].split()
            key = (row["model"], row["busy"] or "quiet", row["load"], precision)
            found.setdefault(key, {})[system] = float(row["milliseconds"])
    lines = []
    for model, busy, load in dict.fromkeys(key[:3] for key in found):
        cells = [found.get((model, busy, load, precision), {}) for precision in PRECISIONS]
        compared = ["albert" in cell and len(cell) > 1 for cell in cells]
        both = [beside_the_fastest(cell) if is_full else "" for cell, is_full in zip(cells, compared, strict=True)]
        lines.append([model, busy, load, *both])
    return table(["model", "machine", "texts", *PRECISIONS], lines)


@passage
def encoder_files() -> str:
    """Files of short texts to vectors: rate and peak memory."""
    if not (RESULTS / "benchmark-encoders.csv").exists():
        return "Not measured yet."
    rows = [
        [
            row["load"],
            row["system"].removesuffix(" fp32"),
            f"{int(row['texts']):,}",
            f"{float(row['texts_per_second']):,.0f}",
            row["peak_mb"],
        ]
        for row in rows_of("benchmark-encoders.csv")
        if row["load"].startswith("file to ")
    ]
    return table(["", "system", "texts", "texts a second", "peak memory, MB"], rows)


@passage
def samples() -> str:
    """Tokenizer and training samples."""
    rate = tokenizer_rates()
    rows = []
    for what, work, peer, name in (
        ("tokenizer, ids of new text, MB/s", "ids", "tokenizers, encode_batch_fast", "`tokenizers`, its fastest call"),
        ("the same with offsets", "ids and offsets", "tokenizers, encode_batch", "`tokenizers`"),
    ):
        ours, theirs = rate["documents", work, "albert, new text"], rate["documents", work, peer]
        rows.append([what, f"{ours:.1f}", f"{theirs:.1f} ({name})", f"{ours / theirs:.1f}"])
    (row,) = (r for r in rows_of("benchmark-pretraining-samples.csv") if r["shape"].startswith("length 512"))
    made = int(row["albert, tokens/s"])
    for what, column, name in (
        ("training samples, length 512, tokens/s", "collator, whole words, tokens/s", "transformers, whole words"),
        ("the same", "reference, complete, tokens/s", "google-research/albert"),
    ):
        other = int(row[column])
        rows.append([what, f"{made / 1e6:.1f} M", f"{other / 1e6:.2f} M ({name})", f"{made / other:.0f}"])
    return table(["", "albert", "peer", "ratio"], rows)


@passage
def raw_sentencepiece() -> str:
    """SentencePiece without normalisation, and how near albert comes to it."""
    rate = tokenizer_rates()
    raw = rate["plain documents", "ids", "sentencepiece, text as it is"]
    new, known = (rate["plain documents", "ids", f"albert, {state}"] / raw for state in ("new text", "known words"))
    encoded = rate["documents", "ids", "sentencepiece, text as it is"]
    sentences = (
        f"Raw sentencepiece without normalisation encodes {encoded:.1f} MB/s of the same documents.",
        f"On plain text albert reaches {100 * new:.0f} % of that rate for new words",
        f"and {100 * known:.0f} % for words it has seen.",
    )
    return "\n".join(sentences)


def tokenizer_rates() -> dict[tuple[str, str, str], float]:
    """MB per second of processor time, by texts, work and tokenizer."""
    return {
        (row["texts"], row["work"], row["tokenizer"]): float(row["megabytes_per_cpu_second"])
        for row in rows_of("benchmark-tokenizer-speed.csv")
    }


@passage
def workers() -> str:
    """Workers of one thread and torch's threads, quiet and beside a busy core."""
    found = {(r["case"], r["system"], r["load"]): r for r in rows_of("benchmark-workers.csv") if r["number"] == "2"}
    rows = []
    for case in dict.fromkeys(case for case, *_ in found):
        quiet, busy = (found[case, "workers", load] for load in ("quiet", "one core taken"))
        threads = [found.get((case, "threads", load)) for load in ("quiet", "one core taken")]
        cell = " / ".join(f"{int(row['tokens_per_second']):,}" for row in threads if row is not None)
        rates = [f"{int(row['tokens_per_second']):,}" for row in (quiet, busy)]
        rows.append([case, *rates, busy["slower_than_quiet"], cell])
    head = ["", "quiet", "one core taken", "times slower", "two threads, quiet / one core taken"]
    return table(head, rows)


@passage
def latency() -> str:
    """Latencies under load."""
    found = {(row["system"], row["clients"]): row for row in rows_of("benchmark-latency.csv")}
    rows = []
    for system in sorted({system for system, _ in found}):
        served = [found[system, clients] for clients in ("1", "4", "16")]
        cells = [" / ".join(f"{float(row[f'p{part}_ms']):,.0f}" for part in (50, 95, 99)) for row in served]
        rows.append([system, *cells, served[-1]["texts_per_second"]])
    return table(["", "1 client", "4 clients", "16 clients", "texts a second"], rows)


# --------------------------------------------------------------------------------------------------------------------
# docs/promises.md.


@passage
def promises() -> str:
    """The trials of `make reliability`."""
    return table_of(load_json(Report, RESULTS / "reliability.json")).rstrip()


# --------------------------------------------------------------------------------------------------------------------
# Pages.


def renewed(text: str) -> tuple[str, list[str]]:
    """A page with its passages written anew, and the names of those that were different."""
    different = []

    def write(match: re.Match[str]) -> str:
        begin, name, old, end = match.groups()
        if name not in PASSAGES:
            sys.exit(f"dev/scripts/figures.py has no passage {name!r}")
        new = PASSAGES[name]()
        if old.startswith("\n"):
            new = f"\n{new}\n"
            same = new == old
        else:
            same = new.split() == old.split()
        if same:
            return match[0]
        different.append(name)
        return f"{begin}{new}{end}"

    return PASSAGE.sub(write, text), different


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check every page; 1 if --check finds a difference."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.scripts.figures", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a passage differs")
    check = parser.parse_args(arguments).check
    used: set[str] = set()
    differences = 0
    for name in PAGES:
        page = ROOT / name
        old = page.read_text(encoding="utf-8")
        used |= {match[2] for match in PASSAGE.finditer(old)}
        new, different = renewed(old)
        for passage_name in different:
            print(f"{name}: {passage_name} {'differs from results/' if check else 'is written anew'}")
        differences += len(different)
        if different and not check:
            page.write_text(new, encoding="utf-8")
    unused = sorted(set(PASSAGES) - used)
    if unused:
        print(f"no page has the passages {', '.join(unused)}")
    if check and (differences or unused):
        print("`python -m dev.scripts.figures` writes them")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
