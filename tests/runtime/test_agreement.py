import shutil
from pathlib import Path

import pytest
import torch

import albert
from albert.runtime.distributed import code_fingerprint, require_same_on_ranks
from albert.runtime.environment import Ranks
from albert.runtime.errors import InvalidConfiguration

CPU = torch.device("cpu")
FACTS = {"code": "a", "recipe": "b", "corpus": "c"}


@pytest.fixture
def of_three(monkeypatch):
    """Rank 0 of three; the others have what is given for them."""

    def of_three(*others: dict[str, str]) -> None:
        digests = []

        def gather(into, mine):
            if not digests:
                into[0].copy_(mine)
                digests.append(mine)
                for place, facts in zip(into[1:], others, strict=True):
                    require_same_on_ranks(facts, Ranks(1, 3), CPU)
                    place.copy_(digests[-1])
            else:  # another rank's share, noted on its way
                digests.append(mine)
                for place in into:
                    place.copy_(mine)

        monkeypatch.setattr(torch.distributed, "all_gather", gather)
        require_same_on_ranks(FACTS, Ranks(0, 3), CPU)

    return of_three


def test_one_process_agrees_with_itself():
    require_same_on_ranks(FACTS, Ranks(), CPU)


def test_ranks_that_were_given_the_same_go_on(of_three):
    of_three(FACTS, dict(FACTS))


@pytest.mark.parametrize("name", FACTS)
def test_the_rank_and_what_it_has_are_named(of_three, name):
    with pytest.raises(
        InvalidConfiguration, match=f"rank 2: has another {name} than rank 0; start all with"
    ) as refused:
        of_three(FACTS, FACTS | {name: "other"})
    assert refused.value.exit_code == 78


def test_every_source_file_counts_as_code(monkeypatch, tmp_path):
    root = tmp_path / "albert"
    shutil.copytree(Path(albert.__file__).parent, root, ignore=shutil.ignore_patterns("__pycache__"))
    before = code_fingerprint()
    monkeypatch.setattr(albert, "__file__", str(root / "__init__.py"))
    assert code_fingerprint() == before
    with open(root / "model" / "attention.py", "a", encoding="utf-8") as file:
        file.write("\n")
    assert code_fingerprint() != before
