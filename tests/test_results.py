"""The figures in README and docs/ are those of rows in results/."""

import csv
import re
from pathlib import Path

import pytest

from albert.pretraining.recipe import PretrainingRecipe
from albert.runtime.json_files import load_json

ROOT = Path(__file__).parent.parent
README, STARTING, OWN_TASK, MODELS, PERFORMANCE = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("README.md", "docs/getting-started.md", "docs/own-task.md", "docs/models.md", "docs/performance.md")
)


def _rows_of(name: str) -> list[dict[str, str]]:
    with open(ROOT / "results" / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def milliseconds(benchmark: str, *columns: str) -> dict[tuple[str, ...], float]:
    """The times of a benchmark by these columns of its rows."""
    rows = _rows_of(f"benchmark-{benchmark}.csv")
    return {tuple(row[column] for column in columns): float(row["milliseconds"]) for row in rows}


def figures(run: str) -> dict[str, dict[str, str]]:
    return {row["figure"]: row for row in _rows_of("results.csv") if row["run"] == run}


def percent(value: str) -> str:
    return f"{float(value):.1%}".replace("%", " %")


@pytest.mark.parametrize("figure", ["masked_tokens_accuracy", "authorship_accuracy"])
def test_the_figures_of_the_quickstart_were_measured(figure):
    row = figures("2026-11-23-quickstart")[figure]
    assert f"| {percent(row['value'])} | {percent(row['baseline'])}" in STARTING
    assert row["commit"] in STARTING
    shipped = figures("2026-11-23-quickstart")["authorship_accuracy_tiny"]["value"]
    assert f"| {percent(shipped)} |" in STARTING


def test_the_scores_of_the_own_table_were_measured():
    found = figures("2026-11-26-reviews")
    for score in ("accuracy", "f1"):
        value, constant = (float(found[score][key]) for key in ("value", "baseline"))
        line = f"{score:<10}{value:.2f} {constant:>21.2f} "
        assert line in README and line in OWN_TASK
    assert found["f1"]["commit"] in README and f"in {float(found['seconds']['value']):.0f} s\n" in README


def test_the_figures_of_the_models_were_measured():
    words = " ".join(MODELS.split())
    tiny, earlier = (figures(run)["masked_tokens_accuracy"] for run in ("2026-11-22-tiny-128", "2026-11-20-small"))
    assert f"gets {percent(tiny['value'])} of held-out masked" in words
    assert f"a constant answer: {percent(tiny['baseline'])}" in words
    assert f"got {percent(earlier['value'])};" in words


def test_the_inference_rates_were_measured():
    found = milliseconds("inference", "load", "system")
    rows = re.findall(
        r"^\| (mixed|sorted|fixed|single-32|single-128): .+? \| (.+?) \| (.+?) \| (.+?) \|$", PERFORMANCE, re.M
    )
    assert len(rows) == 5
    for load, *cells in rows:
        for precision, cell in zip(("fp32", "bf16", "int8"), cells, strict=True):
            ours, theirs, system = re.fullmatch(r"([\d,.]+) / ([\d,.]+) (\w+)", cell).groups()
            assert float(ours.replace(",", "")) == round(found[load, f"albert {precision}"], 1)
            peer = system.replace("transformers", "transformers sdpa")
            assert float(theirs.replace(",", "")) == round(found[load, f"{peer} {precision}"], 1)


def test_the_times_of_single_texts_more_peers_and_latencies_were_measured():
    alone: dict[tuple[str, str], float] = {}
    for row in _rows_of("benchmark-inference-alone.csv"):
        key, took = (row["load"].removeprefix("single-"), row["system"]), float(row["milliseconds"])
        alone[key] = min(took, alone.get(key, took))
    systems = [f"albert {kind}" for kind in ("fp32", "bf16", "int8")]
    systems += ["openvino fp32", "openvino bf16", "onnxruntime fp32", "onnxruntime int8"]
    more = milliseconds("inference-more-peers", "load", "system")
    peers = {"fp32": "transformers compiled fp32", "bf16": "transformers compiled bf16", "int8": "openvino int8"}
    lines = [f"| {n} | " + " | ".join(f"{alone[n, name]:.1f}" for name in systems) + " |" for n in ("32", "128")]
    for load in dict.fromkeys(load for load, _ in more):
        cells = (f"{more[load, f'albert {kind}']:,.1f} / {more[load, peer]:,.1f}" for kind, peer in peers.items())
        lines.append(f"| {load} | " + " | ".join(cells) + " |")
    latencies = {(row["system"], row["clients"]): row for row in _rows_of("benchmark-latency.csv")}
    for system in dict.fromkeys(system for system, _ in latencies):
        rows = [latencies[system, clients] for clients in ("1", "4", "16")]
        cells = (" / ".join(f"{float(row[f'p{part}_ms']):,.0f}" for part in (50, 95, 99)) for row in rows)
        lines.append(f"| {system} | " + " | ".join((*cells, rows[-1]["texts_per_second"])) + " |")
    assert len(lines) == 12
    assert [line for line in lines if line not in PERFORMANCE] == []


def test_the_rates_beside_a_busy_core_were_measured():
    found = milliseconds("inference-amx", "busy", "load", "system")
    rows = re.findall(r"^\| (quiet|busy), ([a-z\d-]+) \| (.+?) \| (.+?) \| (.+?) \|$", PERFORMANCE, re.M)
    assert len(rows) == 10
    for state, load, *cells in rows:
        busy = {"quiet": "", "busy": "one core taken"}[state]
        for precision, cell in zip(("fp32", "bf16", "int8"), cells, strict=True):
            took = {key[2].split()[0]: t for key, t in found.items() if key[:2] == (busy, load) and precision in key[2]}
            ours = took.pop("albert")
            peer = min(took, key=took.__getitem__)
            assert cell == f"{ours:,.1f} / {took[peer]:,.1f} {peer}"
    words = " ".join(README.split())
    for busy, sentence in (("", "take {} ms in bf16 (OpenVINO: {})"), ("one core taken", "another program, {} ({})")):
        times = (f"{found[busy, 'mixed', f'{system} bf16']:.0f}" for system in ("albert", "openvino"))
        assert sentence.format(*times) in words
    rates = {(row["case"], row["load"], row["system"], row["number"]): row for row in _rows_of("benchmark-workers.csv")}
    for case in {case for case, *_ in rates}:
        quiet, busy = (rates[case, load, "workers", "2"] for load in ("quiet", "one core taken"))
        figures = [f"{int(row['tokens_per_second']):,}" for row in (quiet, busy)]
        assert f"| {case} | {figures[0]} | {figures[1]} | {busy['slower_than_quiet']} |" in PERFORMANCE


def test_the_speeds_were_measured():
    for row in _rows_of("benchmark-pretraining-step.csv") + _rows_of("benchmark-pretraining-step-amx.csv"):
        what = f"{row['shape']} | {row['precision']}"
        ours, theirs = int(row["albert_tokens_per_second"]), int(row["transformers_tokens_per_second"])
        assert f"| {what} | {ours:,} | {theirs:,} | {float(row['ratio']):.1f} |" in PERFORMANCE


def test_the_other_rates_were_measured():
    words = " ".join(PERFORMANCE.split())
    tokenizer = _rows_of("benchmark-tokenizer-speed.csv")
    rate = {(row["texts"], row["work"], row["tokenizer"]): float(row["megabytes_per_cpu_second"]) for row in tokenizer}
    for work, peer in (("ids", "tokenizers, encode_batch_fast"), ("ids and offsets", "tokenizers, encode_batch")):
        ours, theirs = rate["documents", work, "albert, new text"], rate["documents", work, peer]
        assert f"| {ours:.1f} | {theirs:.1f} (`tokenizers`" in words and f"| {ours / theirs:.1f} |" in words
    raw = rate["plain documents", "ids", "sentencepiece, text as it is"]
    assert f"encodes {rate['documents', 'ids', 'sentencepiece, text as it is']:.1f} MB/s" in words
    for state in ("new text", "known words"):
        assert f"{rate['plain documents', 'ids', f'albert, {state}'] / raw:.0%}".replace("%", " %") in words
    row = next(row for row in _rows_of("benchmark-pretraining-samples.csv") if row["shape"].startswith("length 512"))
    ours = int(row["albert, tokens/s"])
    for peer in ("collator, whole words, tokens/s", "reference, complete, tokens/s"):
        assert f"| {ours / 1e6:.1f} M | {int(row[peer]) / 1e6:.2f} M" in words
        assert f"| {ours / int(row[peer]):.0f} |" in words


def test_the_figures_of_the_readme_were_measured():
    words = " ".join(README.split())
    row = next(
        row for row in _rows_of("benchmark-pretraining-step.csv") if row["shape"] == "H768 L12 length 128 batch 32"
    )
    ours, theirs = int(row["albert_tokens_per_second"]), int(row["transformers_tokens_per_second"])
    assert f"| {ours:,} tokens/s | {theirs:,} tokens/s (transformers)" in words
    assert f"in {float(row['peak_ratio']):.2f} of its memory" in words
    found = milliseconds("inference", "load", "system")
    ours, openvino, *others = (
        found["mixed", f"{system} fp32"] for system in ("albert", "openvino", "transformers sdpa", "transformers eager")
    )
    assert f"| {ours:,.0f} ms | {openvino:,.0f} ms (OpenVINO), {min(others):,.0f}" in words
    last = {row["system"]: row for row in _rows_of("benchmark-pretraining-efficiency.csv")}
    loss, seconds = (
        tuple(float(last[system][column]) for system in ("albert", "trainer"))
        for column in ("whole_words_loss", "seconds")
    )
    assert f"| {loss[0]:.2f} nats | {loss[1]:.2f} nats (transformers' Trainer)" in words
    assert f"in {seconds[0] / seconds[1]:.2f} of the time" in words


def test_published_recipes_are_those_of_this_version():
    for path in (ROOT / "results").glob("**/recipe*.json"):
        load_json(PretrainingRecipe, path)
