"""What every test stands on: a fixed number of threads, no network, fixed seeds, and real data.

Nothing here imports `albert`: the hook that executes the package's annotations must be installed first.
"""

import dataclasses
import functools
import importlib.util
import inspect
import os
import random
import stat
import sys
import typing
from collections.abc import Callable
from pathlib import Path

# Before anything imports them: workers share the cores, and nothing may be fetched.
os.environ["OMP_NUM_THREADS"] = "1"  # also of processes that tests start: the number of threads is that of workers
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)

# Other examples every time, so that many runs try many; `--hypothesis-profile=thorough` tries many in one.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40)
settings.register_profile("thorough", parent=settings.get_profile("here"), max_examples=1000)
settings.register_profile("ci", parent=settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

check_shapes = jaxtyping.jaxtyped


def check_annotations(decorated, typechecker: Callable):
    """What the import hook puts onto every function and class, in place of `jaxtyped`: the same checks in less time.

    Annotations without shapes are left to the type checker alone, and nothing is prepared before the first call.
    """
    if inspect.isclass(decorated):
        if dataclasses.is_dataclass(decorated) and "__init__" in vars(decorated):
            decorated.__init__ = check_annotations(decorated.__init__, typechecker)
        return decorated
    checked = None

    @functools.wraps(decorated)
    def call(*args, **kwargs):
        nonlocal checked
        if checked is None:
            shaped = any(map(has_shape, decorated.__annotations__.values()))
            checked = check_shapes(decorated, typechecker=typechecker) if shaped else typechecker(decorated)
        return checked(*args, **kwargs)

    return call


def has_shape(annotation: object) -> bool:
    """Whether jaxtyping is needed: for an array with a shape, or for a name that is looked up later."""
    if isinstance(annotation, str | typing.ForwardRef):
        return True
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    if typing.get_origin(annotation) is typing.Literal:
        return False
    parts = annotation if isinstance(annotation, list | tuple) else typing.get_args(annotation)
    return any(map(has_shape, parts))


jaxtyping.jaxtyped = lambda typechecker: functools.partial(check_annotations, typechecker=typechecker)


flush_to_disk = os.fsync


def flush(descriptor: int) -> None:
    """`os.fsync` without waiting for the disk, whose content no test can see to be flushed; in this process only."""
    if not (stat.S_ISREG(mode := os.fstat(descriptor).st_mode) or stat.S_ISDIR(mode)):
        flush_to_disk(descriptor)


os.fsync = flush

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def seeds():
    """Every test starts from the same state of the global generators, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture
def workers():
    """Sets the number of torch's threads, which is that of the workers, until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def outside_a_launcher(monkeypatch):
    """No test sees the ranks of a launcher that happens to have started the suite."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session", autouse=True)
def end_of_forks():
    """The process that trials and tests fork from is started by the first that needs it and ends with the tests."""
    yield
    if runs := sys.modules.get("reliability.runs"):
        runs.close_fork_server()


@pytest.fixture(scope="session")
def fork_server():
    """Starts `albert` in children of a process that has imported everything."""
    from reliability.runs import fork_server

    return fork_server()


@pytest.fixture(scope="session")
def tokenizer():
    """A vocabulary of 400 pieces over the embedded sample."""
    from albert.experiments.quickstart import load_chapters
    from albert.text.sentencepiece import train_tokenizer

    return train_tokenizer([chapter.text[:20_000] for chapter in load_chapters()[:4]], vocab_size=400)


@pytest.fixture(scope="session")
def tokenizer_directory(tokenizer, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save(directory)
    return directory


@pytest.fixture(scope="session")
def other_tokenizer_directory(tmp_path_factory) -> Path:
    """One of 300 pieces over other chapters."""
    from albert.experiments.quickstart import load_chapters
    from albert.text.sentencepiece import train_tokenizer

    directory = tmp_path_factory.mktemp("other-tokenizer")
    train_tokenizer([chapter.text[:20_000] for chapter in load_chapters()[4:8]], vocab_size=300).save(directory)
    return directory


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the project."""
    return CHECKOUT


@pytest.fixture(scope="session")
def script() -> Callable:
    """Loads a script of benchmarks/ or scripts/ as a module, by its name."""

    @functools.cache
    def load(name: str):
        (file,) = (path for path in CHECKOUT.glob(f"*/{name}.py") if path.parent.name in ("benchmarks", "scripts"))
        spec = importlib.util.spec_from_file_location(f"script_{name}", file)
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(file.parent)  # where scripts find each other
            spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real corpora and task data, in ``$ALBERT_SHARED`` or ``../shared``; skipped without them."""
    place = Path(os.environ.get("ALBERT_SHARED") or CHECKOUT.parent / "shared")
    if not place.is_dir():
        pytest.skip("needs the shared material (set ALBERT_SHARED, or put it beside the checkout)")
    return place
