"""`albert analyze`: what happens inside a model."""

from pathlib import Path

from rich.console import Console

from albert.cli.analyze_options import AnalyzeLayers
from albert.cli.console import open_console
from albert.cli.light_tables import table
from albert.experiments.layer_figure import draw_layers
from albert.experiments.layer_similarity import LayerSimilarity, cut_passages, measure_layers, write_layers
from albert.experiments.sample_corpus import split_chapters
from albert.runtime.devices import pick_device
from albert.runtime.errors import UsageError
from albert.runtime.progress import progress
from albert.text.readers.corpus import read_corpus


def layers(asked: AnalyzeLayers) -> int:
    """Run `albert analyze layers`."""
    if not asked.models:
        raise UsageError("albert analyze layers", "no model is named", "albert analyze layers MODEL...")
    if asked.output.suffix.lower() != ".png":
        raise UsageError(f"--output {asked.output}", "is no PNG", "choose a name that ends in .png")
    for option in ("passages", "words"):
        if getattr(asked, option) < 1:
            raise UsageError(f"--{option}", f"is {getattr(asked, option)}, at least 1 is needed")
    texts = (
        (document.text for document in read_corpus([Path(place) for place in asked.text]))
        if asked.text
        else (chapter.text for chapter in split_chapters().held_out)
    )
    passages, device = cut_passages(texts, asked.passages, asked.words), pick_device(asked.device)
    measured = []
    for model in asked.models:
        with progress(f"Reading with {model}", len(passages), "passages") as bar:
            measured.append(measure_layers(model, passages, device=device, advance=bar.advance))
    draw_layers(measured, asked.output)
    if asked.csv is not None:
        write_layers(measured, asked.csv)
    _show(open_console(), measured, asked)
    return 0


def _show(console: Console, measured: list[LayerSimilarity], asked: AnalyzeLayers) -> None:
    for title, values in (("L2 distance", "distance"), ("angle, degrees", "angle")):
        made = table(f"{title} of a layer's input and output", "", "first", "least", "median", "most", "last")
        for one in measured:
            each = getattr(one, values)
            ranked = sorted(each)
            shown = (each[0], ranked[0], ranked[len(ranked) // 2], ranked[-1], each[-1])
            made.add_row(f"{one.model}: {one.layers}", *(f"{value:,.2f}" for value in shown))
        console.print(made)
    console.print(" and ".join(str(path) for path in (asked.output, asked.csv) if path), markup=False)
