"""`albert prepare`: text and a tokenizer to token shards.

The options are those of `albert.prepare`; both take them from `albert.api.options.Prepare`.
"""

import shlex

from albert.api.options import Prepare
from albert.cli.main import imports
from albert.cli.options import Subcommand
from albert.cli.render import bold_prefix, next_line, open_console, print_lines, table


def prepare(options: Prepare) -> None:
    """Prepare the corpus, and print what was read, held out and dropped."""
    with imports():
        from albert.api.text import preparation_rows, run_prepare, unknown_remarks

    console = open_console()
    report = run_prepare(options).report
    rate = report.bytes_in / 1e6 / max(report.seconds, 1e-9)
    processes = "1 process" if report.workers == 1 else f"{report.workers} processes"
    lines = [f"{report.files:,} files in {report.seconds:,.1f} s, {rate:,.1f} MB/s with {processes}"]
    lines += [*unknown_remarks(report), *report.remarks()]
    if report.shards_found:
        lines.append(f"{report.shards_found:,} shards were finished before")
    if report.sentences_dropped:
        lines.append(f"{report.sentences_dropped:,} sentences without a token left out")
    if report.splits["held_out"].documents == 0:
        lines.append("nothing is held out: the share is 0, all documents are equal, or there is a single sentence")
    elif report.held_out_fallback:
        what = {"document": "one document is", "sentences": "the last sentences of the only document are"}
        documents = f"{report.documents_in:,} document" + ("s" if report.documents_in != 1 else "")
        few = f"{options.held_out:.3g} of {documents} is less than one: {what[report.held_out_fallback]} held out"
        lines.append(f"{few}; --held-out 0 holds out nothing")
    ready = bold_prefix(options.output, " is ready")
    corpus = shlex.quote(str(options.output))
    following = next_line(f"pretrain small --data {corpus} --output runs/small --max-minutes 60")
    headings, *rows = preparation_rows(report)
    print_lines(console, table(None, headings, rows, boxed=True), *lines, ready, following)


prepare_main = Subcommand(Prepare, "albert prepare", prepare)
