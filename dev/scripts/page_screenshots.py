"""Screenshots of the page of `albert serve` for docs/: on a desktop in light colours, on a phone in dark ones.

    python dev/scripts/page_screenshots.py --model models/tiny

Needs playwright and a Chromium, named in $CHROMIUM or on the path.
"""

import io
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from albert.cli.command_line import parse
from albert.cli.main import run

COLOURS = 64
"""Colours of a picture, to keep it small."""
PICTURES = (("page.png", 1280, 860, "light"), ("page-phone.png", 390, 844, "dark"))
"""Name, width, height and colours."""


@dataclass(frozen=True, kw_only=True)
class Screenshots:
    """Take screenshots of the page.

    Example: python dev/scripts/page_screenshots.py --model runs/stars/model --output docs
    """

    model: str = "models/tiny"
    """A model directory, a run, or a Hub id."""
    output: Path = Path("docs")
    """The folder of the pictures, which are replaced."""


def main(arguments: list[str]) -> None:
    """Serve the model and take the screenshots."""
    args = parse(Screenshots, arguments, "page_screenshots.py")
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    command = [sys.executable, "-m", "albert", "serve", args.model, "--port", "0", "--device", "cpu"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        line = next(line for line in server.stderr if "listening at " in line)
        address = line.split("listening at ")[1].split(",")[0]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for name, width, height, colours in PICTURES:
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=colours)
                take(page, address, args.output / name)
            browser.close()
    finally:
        server.terminate()
        server.wait()
        server.stderr.close()


def take(page: Page, address: str, output: Path) -> None:
    """Save the page with its first answer, in few colours."""
    page.goto(address)
    page.wait_for_selector("#copies:not([hidden])", timeout=120_000)
    page.wait_for_timeout(500)  # the bars are animated
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(COLOURS)
    picture.save(output, optimize=True)
    print(f"{output}: {output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    sys.exit(run(command=main))
