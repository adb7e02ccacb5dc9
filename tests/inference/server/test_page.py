"""The web page in a browser: input, results, keyboard, phone width, and no requests to other hosts."""

import csv
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.inference.server.running_servers import proxy

from albert.commands.predict import predict_main
from albert.inference.predictor import Predictor
from albert.tasks.table_task import TASK_FILE, TableTask, save_table_task

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright, and a Chromium")

DISABLED = ("gpu", "quic", "background-networking", "component-update", "sync")
ARGUMENTS = ["--headless=new", "--no-sandbox", "--no-first-run", "--hide-scrollbars"]
ARGUMENTS += [f"--disable-{name}" for name in DISABLED]
SLOW = 60_000  # milliseconds; a browser on a busy machine


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[sync_api.BrowserContext]:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs a Chromium (apt-get install chromium, or name one in $CHROMIUM)")
    # Chromium makes a socket in TMPDIR, whose path may have 107 characters.
    with tempfile.TemporaryDirectory(dir="/tmp") as short, sync_api.sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("browser"),
            executable_path=chromium,
            headless=False,  # --headless=new replaces it
            args=ARGUMENTS,
            env={**os.environ, "TMPDIR": short},
            timeout=2 * SLOW,
            color_scheme="light",
        )
        context.set_default_timeout(SLOW)
        sync_api.expect.set_options(timeout=SLOW)  # the timeout of the context does not count for it
        yield context
        context.close()


@pytest.fixture
def opened(browser, predictors, serve):
    """Open the page of a model of some kind; errors, warnings and requests to other hosts fail the test."""
    problems, pages, proxies = [], [], ExitStack()

    def open_page(kind: str, address: str = "/", width: int = 1280, below: str | None = None) -> sync_api.Page:
        server = serve(predictors(kind))
        port = server.port if below is None else proxies.enter_context(proxy(server.port, below))
        page = browser.new_page()
        pages.append(page)
        page.set_viewport_size({"width": width, "height": 800})
        page.on("console", lambda message: problems.append(message.text) if is_problem(message) else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        host = f"127.0.0.1:{port}"
        page.on("request", lambda request: urlsplit(request.url).netloc == host or problems.append(request.url))
        page.goto(f"http://{host}{address}")
        page.wait_for_selector("[role=tab], article")
        return page

    yield open_page
    for page in pages:
        page.close()
    proxies.close()
    assert problems == []


def is_problem(message: sync_api.ConsoleMessage) -> bool:
    """Errors and warnings, but for the refused request of a test."""
    return message.type in ("error", "warning") and not re.search("status of (422|503)", message.text)


def fits(page: sync_api.Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_probabilities_of_a_text_are_shown(opened, tmp_path):
    page = opened("classify")
    page.get_by_label("Text", exact=True).fill("the ship in a storm")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_selector("#answer .bars")
    labels = page.locator("#answer .label").all_inner_texts()
    shares = [float(each.split()[0]) for each in page.locator("#answer .share").all_inner_texts()]
    assert sorted(labels) == ["calm", "storm", "wreck"]
    assert shares == sorted(shares, reverse=True) and sum(shares) == pytest.approx(100, abs=0.2)
    assert "ms" in page.locator("#latency").inner_text()
    assert page.locator("#answer .notice").count() == 0
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert (tmp_path / "page.png").stat().st_size > 5_000


def test_result_of_a_blank_text_says_that_it_means_nothing(opened):
    page = opened("classify")
    page.get_by_label("Text", exact=True).fill(" ")
    page.get_by_role("button", name="Run", exact=True).click()
    sync_api.expect(page.locator("#answer .notice")).to_have_text("The text is empty: this result means nothing.")


def test_page_works_by_keyboard_alone(opened):
    page = opened("pretrain")
    page.get_by_role("tab", name="Fill a mask").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", selected=True).inner_text() == "Order"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("the [MASK] of the ship")
    page.keyboard.press("Control+Enter")
    sync_api.expect(page.locator("#answer .context").first).to_contain_text("of the ship")
    assert page.locator("#answer li").count() == 5
    assert page.evaluate("document.activeElement.id") == "field-text"
    assert page.locator("#answer").get_attribute("aria-live") == "polite"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_layers_are_shown(opened):
    page = opened("pretrain")
    page.get_by_label("Text").fill("the [MASK] of the ship")
    page.get_by_role("button", name="Show layers").click()
    page.wait_for_selector("#layers .lens")
    assert page.locator("#layers .lens tr").count() == 3
    assert page.locator("#layers .lens tr").last.locator("td").first.inner_text() != ""
    page.get_by_label("Text").fill("the deck of the ship")
    page.get_by_role("button", name="Show layers").click()
    sync_api.expect(page.locator("#layers-view")).to_contain_text("the text has no [MASK]")
    page.get_by_role("tab", name="Compare").click()
    assert page.get_by_role("button", name="Show layers").is_hidden()


@pytest.mark.parametrize("kind", ["answer", "tag", "choose", "score"])
def test_every_kind_of_result_fits_a_phone(kind, opened):
    page = opened(kind, width=360)
    page.locator("#examples button").first.click()
    page.wait_for_selector("#answer .bars, #answer .passage, #answer .big")
    assert fits(page) and page.locator("#error").is_hidden()
    if kind == "answer":
        context = page.locator("#field-context").input_value()
        assert page.locator("mark").inner_text() in context
        assert page.locator("#answer .passage").inner_text() == context
    assert page.get_by_role("button", name="Show layers").is_hidden()


def test_texts_are_compared_and_ordered(opened):
    page = opened("pretrain", "/#embed")
    page.get_by_label("One text").fill("a storm")
    page.get_by_label("Another").fill("a storm")
    page.get_by_role("button", name="Run", exact=True).click()
    sync_api.expect(page.locator("#answer .big")).to_have_text("1.000")
    assert page.locator(".segments li").all_inner_texts() == ["a storm", "a storm"]
    page.get_by_role("tab", name="Order").click()
    page.locator("#examples button").first.click()
    page.wait_for_selector(".segments li")
    assert page.locator(".segments li").count() == 2


def test_page_of_a_model_of_pairs_asks_for_the_second_text(opened, predictors, monkeypatch):
    monkeypatch.setattr(predictors("score"), "reads_pairs", True)
    page = opened("score")
    page.wait_for_selector("#answer .big")  # of the example, which has both texts
    assert page.locator("#examples button").count() == 1
    assert page.locator("#field-pair").evaluate("field => field.required")
    page.locator("#field-pair").fill("")
    page.get_by_role("button", name="Run").click()
    assert page.locator("#field-pair").evaluate("field => field.validity.valueMissing")
    assert not page.locator("#error").is_visible()


def test_page_opens_with_a_result_and_names_model_and_labels(opened, predictors, monkeypatch):
    monkeypatch.setattr(predictors("classify"), "reads_pairs", False)
    page = opened("classify")
    page.wait_for_selector("#answer .bars")
    assert page.title() == "classify: calm, storm, wreck · albert"
    assert page.get_by_role("heading", level=1).inner_text() == "classify"
    assert page.locator("#model strong").inner_text() == "calm, storm, wreck"
    assert page.evaluate("scrollY") == 0
    assert page.locator("#field-text").input_value() and page.locator("#field-pair").count() == 0
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.get_by_role("button", name="Copy as curl").click()
    sync_api.expect(page.locator("#copied")).to_have_text("Copied.")
    assert page.evaluate("window.copied").startswith(f"curl {page.url.split('/#')[0]}/classify -H")
    page.get_by_role("button", name="Copy as JSON").click()
    page.wait_for_function("window.copied.startsWith('[')")
    assert len(json.loads(page.evaluate("window.copied"))[0]) == 3


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("classify", {"text": "the sea is calm", "pair": "and the ship " + "sails " * 40}),
        ("answer", {"question": "Who sails?", "context": "The captain sails."}),
        ("choose", {"question": "", "context": "The captain sails.", "options": "a ship\na storm"}),
        ("tag", {"text": "the captain of the ship"}),
    ],
)
def test_examples_are_those_of_the_model_folder(kind, row, opened, predictors):
    examples = Path(predictors(kind).name) / "examples.json"
    examples.write_text(json.dumps({"examples": [row, {**row, "context" if "context" in row else "text": "x" * 200}]}))
    try:
        page = opened(kind)
        page.wait_for_selector("#answer .bars, #answer .passage")
    finally:
        examples.unlink()
    for name, value in row.items():
        assert page.locator(f"#field-{name}").input_value() == value
    names = page.locator("#examples button").all_inner_texts()
    assert len(names) == 2 and all(0 < len(name) <= 80 for name in names) and page.locator("#error").is_hidden()
    page.get_by_role("tab", name="Compare").click()
    assert "A storm at sea. · Wind and high waves." in page.locator("#examples button").all_inner_texts()
    assert page.locator("#copies").is_hidden()


def choose_file(page: sync_api.Page, content: bytes, name: str = "mine.csv") -> None:
    page.locator("#file").set_input_files({"name": name, "mimeType": "text/csv", "buffer": content})


def chosen(page: sync_api.Page, field: str) -> str:
    """The column that is chosen for a field."""
    return page.locator(f"#column-{field}").evaluate("select => select.selectedOptions[0].textContent")


def answered_rows(page: sync_api.Page, delimiter: str = ",") -> list[dict[str, str]]:
    """The rows of the file that the page makes of the chosen one."""
    with page.expect_download() as download:
        page.locator("#columns button").click()
    assert download.value.suggested_filename == "mine-answered.csv"
    with open(download.value.path(), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def test_csv_file_gets_columns_of_predictions(opened, classifier):
    page = opened("classify")
    texts = ["the ship", 'a storm, and "a wreck"', "the sea\nis calm"] * 4
    quoted = (text.replace('"', '""') for text in texts)
    rows = "".join(f'{number},"{text}"\r\n' for number, text in enumerate(quoted))
    choose_file(page, f"number,Text\r\n{rows}".encode())
    assert chosen(page, "text") == "Text"
    answered = answered_rows(page)
    best = [labels[0]["label"] for labels in classifier.classify_batch(texts)]
    assert [row["predicted_label"] for row in answered] == best
    assert [row["Text"] for row in answered] == texts
    sync_api.expect(page.locator("#file-state")).to_contain_text("12 rows answered")


MESSAGES = ["the ship", "", " the  sea is calm ", 'a storm, "a wreck"', "the captain", "海 and ship", "a wreck", "1.50"]
LONG = "the ship in a storm " * 40


def predicted(path: Path, model: Path, *options: str, delimiter: str = ",") -> list[dict[str, str]]:
    """The rows that `albert predict` writes."""
    output = path.with_name("predicted.csv")
    predict_main(
        [str(model), "--input", str(path), "--output", str(output), "--replace", "--precision", "fp32", *options]
    )
    with open(output, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


@pytest.fixture
def learnt(predictors, monkeypatch):
    """Let a model be one that was trained on a table with the named columns; gives its directory."""

    def learn(kind: str, **columns: str) -> Path:
        predictor = predictors(kind)
        path = Path(predictor.name)
        run = path.parent
        save_table_task(run, TableTask(name="mine", kind=KIND_OF[kind], train=run / "train.csv", **columns))
        files.append(run / TASK_FILE)
        predictor.__dict__.pop("columns", None)
        return path

    files: list[Path] = []
    yield learn
    for file in files:
        file.unlink()
    for kind in KIND_OF:
        predictors(kind).__dict__.pop("columns", None)


KIND_OF = {
    "classify": "classification",
    "score": "regression",
    "answer": "question-answering",
    "tag": "token-classification",
}


@pytest.mark.parametrize(
    ("kind", "columns", "table", "separator"),
    [
        ("classify", {"text": "message"}, {"id": None, "text": None, "message": MESSAGES}, ","),
        (
            "classify",
            {"text": "message", "pair": "reply"},
            {"reply": MESSAGES[::-1], "id": None, "message": MESSAGES},
            ";",
        ),
        ("score", {"text": "message"}, {"message": [*MESSAGES, LONG], "text": None}, "\t"),
        ("answer", {"question": "q", "context": "c"}, {"question": None, "c": MESSAGES[2:5], "q": ["who?"] * 3}, ","),
        ("classify", {}, {"id": None, "text": MESSAGES}, "|"),
    ],
)
def test_answers_of_a_file_are_those_of_predict(kind, columns, table, separator, opened, learnt, predictors, tmp_path):
    model = learnt(kind, **columns) if columns else Path(predictors(kind).name)
    path = tmp_path / "mine.csv"
    count = max(len(values) for values in table.values() if values)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(table)
        writer.writerows(zip(*(values or range(count) for values in table.values()), strict=True))
    page = opened(kind)
    choose_file(page, path.read_bytes())
    assert {field: chosen(page, field) for field in columns} == columns
    written = ";" if separator == ";" else ","
    rows = answered_rows(page, written)
    expected = predicted(path, model, delimiter=written)
    assert len(rows) == len(expected) == count
    for row, other in zip(rows, expected, strict=True):
        for name in ("label", "answer"):
            assert row.get(f"predicted_{name}") == other.get(f"predicted_{name}")
        if "predicted_score" in other:
            assert float(row["predicted_score"]) == pytest.approx(float(other["predicted_score"]), abs=1e-5)


def test_columns_of_a_file_are_shown_and_may_be_chosen(opened, classifier):
    page = opened("classify")
    choose_file(page, b"id,Body\n1,a storm\n2,the ship\n")
    button = page.locator("#columns button")
    assert chosen(page, "text") == "(choose a column)" and button.is_disabled()
    assert chosen(page, "pair") == "(none)" and button.inner_text() == "Predict 2 rows"
    assert "1 · a storm" in page.locator("#columns .hint").inner_text()
    page.get_by_label("Column of “Text”").select_option("Body")
    best = [labels[0]["label"] for labels in classifier.classify_batch(["a storm", "the ship"])]
    assert [row["predicted_label"] for row in answered_rows(page)] == best
    page.get_by_label("The first row holds the names").uncheck()
    page.get_by_label("Column of “Text”").select_option("column 2")
    rows = answered_rows(page)
    assert [row["column 2"] for row in rows] == ["Body", "a storm", "the ship"]
    assert [row["predicted_label"] for row in rows[1:]] == best


def test_text_of_marked_spans_is_found(opened, learnt):
    learnt("tag", spans=("body", "entities"))
    page = opened("tag")
    choose_file(page, b"id,text,body\n1,2,the captain of the ship\n")
    assert chosen(page, "text") == "body"
    (row,) = answered_rows(page)
    assert json.loads(row["predicted_entities"])


def test_table_without_names_is_read_as_in_training(opened, learnt):
    learnt("classify", text="column 2", no_header=True)
    page = opened("classify")
    choose_file(page, b"ham,a storm\nspam,the ship\n")
    assert not page.get_by_label("The first row holds the names").is_checked() and chosen(page, "text") == "column 2"
    assert [row["column 2"] for row in answered_rows(page)] == ["a storm", "the ship"]


def test_tab_whose_answers_are_no_columns_takes_no_file(opened):
    page = opened("choose")
    assert page.locator("#table").is_hidden()
    choose_file(page, b"text\na\n")
    sync_api.expect(page.get_by_role("alert")).to_contain_text("albert predict --input")


def test_csv_file_gets_every_label_of_a_model_of_several(opened, classifier, monkeypatch):
    labels = [
        {"label": "calm", "score": 0.9, "predicted": True},
        {"label": "storm", "score": 0.3, "predicted": True},
        {"label": "fog", "score": 0.1, "predicted": False},
    ]
    monkeypatch.setitem(classifier.extra, "problem_type", "multi_label_classification")
    monkeypatch.setattr(Predictor, "replies", lambda predictor, pipeline, examples: [labels] * len(examples))
    page = opened("classify")
    choose_file(page, b"text\na\n")
    (row,) = answered_rows(page)
    assert json.loads(row["predicted_labels"]) == ["calm", "storm"] and "predicted_label" not in row
    assert json.loads(row["predicted_scores"]) == {each["label"]: each["score"] for each in labels}


def test_file_without_rows_is_refused_and_a_broken_server_ends_it(opened):
    page = opened("classify")
    page.wait_for_selector("#answer .bars")
    for content, message in (
        (b"text\n", "no rows"),
        (b'text\nA 5" disk\n"open\n', "ends inside a quoted cell"),
        (b"text\na,b\n", "Row 2 has 2 fields where the header has 1"),
        (b'[{"text": "a"}]', "is JSON"),
        (b'text,predicted_label\nA 5" disk,x\n', "already has a column predicted_label"),
    ):
        choose_file(page, content)
        if b"disk,x" in content:
            page.locator("#columns button").click()
        sync_api.expect(page.get_by_role("alert")).to_contain_text(message)
    broken = {"status": 503, "headers": {"retry-after": "0"}, "json": {"error": "broken"}}
    page.route("**/classify", lambda route: route.fulfill(**broken))
    choose_file(page, b"text\na\n")
    page.locator("#columns button").click()
    sync_api.expect(page.locator("#file-state")).to_contain_text("1 row answered, 1 without an answer")


def test_adjacent_words_of_an_entity_are_merged(opened, monkeypatch):
    words = [("Nemo", "B-PER"), ("Ahab", "I-PER"), ("saw", "O"), ("Lisbon", "B-LOC")]
    text = " ".join(word for word, _ in words)
    tags = [
        {"word": word, "entity": tag, "score": 0.9, "start": text.index(word), "end": text.index(word) + len(word)}
        for word, tag in words
    ]
    monkeypatch.setattr(Predictor, "replies", lambda predictor, pipeline, examples: [tags] * len(examples))
    page = opened("tag")
    page.get_by_label("Text").fill(text)
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_selector("#answer .legend")
    sync_api.expect(page.locator("#answer .word").first).to_have_text("Nemo AhabPER")
    assert page.locator("#answer .word").count() == 2
    assert page.locator("#answer .legend li").all_inner_texts() == ["LOC (1)", "PER (1)"]


def test_refusal_is_shown_and_markup_is_text(opened):
    page = opened("pretrain")
    page.get_by_label("Text").fill("<b onclick=alert(1)>no mask</b>")
    page.get_by_role("button", name="Run", exact=True).click()
    error = page.get_by_role("alert")
    sync_api.expect(error).to_contain_text("[MASK]")
    page.get_by_label("Text").fill("<b>the [MASK]</b>")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_selector("#answer .bars")
    assert page.locator("#answer b").count() == 0 and error.is_hidden()


def test_dark_colours_and_documentation(opened):
    page = opened("classify", "/docs", width=360)
    assert page.locator("article").count() >= 5 and fits(page)
    assert "curl http://127.0.0.1" in page.locator("pre").first.inner_text()
    page = opened("classify")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_page_and_documentation_work_below_a_path_of_a_proxy(opened):
    page = opened("classify", "/models/", below="/models/")
    page.wait_for_selector("#answer .bars")
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.get_by_role("button", name="Copy as curl").click()
    sync_api.expect(page.locator("#copied")).to_have_text("Copied.")
    below = page.url.split("#")[0]
    assert below.endswith("/models/") and page.evaluate("window.copied").startswith(f"curl {below}classify -H")
    page.get_by_role("link", name="API").click()
    page.wait_for_selector("article")
    assert page.url == f"{below}docs" and f"curl {below}" in page.locator("pre").first.inner_text()
    assert page.get_by_role("link", name="openapi.json").evaluate("link => link.href") == f"{below}openapi.json"
    page.get_by_role("link", name="Try it").click()
    page.wait_for_selector("#answer .bars")
    assert page.url.split("#")[0] == below
