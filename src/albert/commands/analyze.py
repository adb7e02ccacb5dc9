"""`albert analyze layers`: input and output of each layer compared (the paper's Figure 1)."""

from pathlib import Path
from typing import Annotated, Literal

from albert.api.options import Argument, check_png
from albert.cli.main import imports
from albert.cli.options import CommandGroup, command
from albert.cli.render import open_console, table
from albert.runtime.errors import MissingInput, UsageError
from albert.runtime.progress import progress


def layers(
    models: Annotated[tuple[str, ...], Argument(metavar="MODEL...")],
    *,
    text: tuple[str, ...] = (),
    passages: int = 200,
    words: int = 100,
    output: Path = Path("layers.png"),
    csv: Path | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> None:
    """Draw L2 distance and angle between input and output of every layer (the paper's Figure 1), for any models.

    All models read the same passages, each with its own tokenizer; figures are means over all tokens.

    Example: albert analyze layers albert/albert-base-v2 runs/mine --text my_text/

    Args:
        models: Model directories, runs, or Hub ids.
        text: Files or folders with text; the held-out chapters of the embedded sample by default.
        passages: Number of passages, from the beginning of the text.
        words: Words of a passage.
        output: The picture, a PNG; an existing one is replaced.
        csv: Also write the figures to this file, a row for each model and layer.
    """
    check_png("--output", output, csv)
    for option, number in (("--passages", passages), ("--words", words)):
        if number < 1:
            raise UsageError(option, f"is {number}, at least 1 is needed")
    for path in text:
        if not Path(path).exists():
            raise MissingInput(path, "No such file or directory")
    with imports():
        from albert.paper.layer_pictures import draw_layers
        from albert.paper.layers import cut_passages, measure_layers, write_layers
        from albert.paper.quickstart import split_chapters
        from albert.runtime.devices import pick_device
        from albert.text.corpus import read_corpus

    texts = read_corpus([Path(path) for path in text]) if text else (chapter.text for chapter in split_chapters().dev)
    read = cut_passages(texts, passages, words)
    chosen = pick_device(device)
    results = []
    for model in models:
        with progress(f"Reading with {model}", len(read), "passages") as bar:
            results.append(measure_layers(model, read, device=chosen, advance=bar.advance))
    draw_layers(results, output)
    if csv is not None:
        write_layers(results, csv)
    console = open_console()
    for title, name in (("L2 distance", "distance"), ("angle, degrees", "angle")):
        rows = []
        for result in results:
            values = getattr(result, name)
            ranked = sorted(values)
            figures = (values[0], ranked[0], ranked[len(ranked) // 2], ranked[-1], values[-1])
            rows.append((f"{result.model}: {result.layers}", *(f"{value:,.2f}" for value in figures)))
        columns = ("", "first", "least", "median", "most", "last")
        console.print(table(f"{title} of a layer's input and output", columns, rows))
    console.print(" and ".join(str(path) for path in (output, csv) if path))


analyze_main = CommandGroup("albert analyze", {"layers": command(layers, "albert analyze layers")})
