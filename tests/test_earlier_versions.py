"""Corpora and runs that earlier versions made with what was removed since (`tests/earlier`): they open."""

import shutil
from pathlib import Path

import pytest

from albert.cli.main import run

EARLIER = Path(__file__).parent / "earlier"
TINY = (
    "--hidden-size 8 --embedding-size 8 --num-attention-heads 1 --intermediate-size 16 --num-hidden-layers 1 "
    "--max-position-embeddings 32 --max-length 32 --batch-size 4 --micro-batch-size 4 --steps 6 --warmup-steps 1 "
    "--log-every 1 --keep-checkpoints 1 --precision fp32 --evaluation-sequences 4 --device cpu --anneal steps"
)
"""The options of all runs in `tests/earlier`, which ended after one step, by --max-tokens 1."""


@pytest.fixture
def earlier(tmp_path):
    """A copy of a directory in `tests/earlier`."""

    def copy(name):
        shutil.copytree(EARLIER / name, tmp_path / name)
        return tmp_path / name

    return copy


def pretrain(corpus, output, *options):
    return run(["pretrain", "small", "--data", str(corpus), "--output", str(output), *TINY.split(), *options])


def test_a_merged_corpus_to_which_text_was_appended_opens(earlier, tmp_path, capsys):
    corpus = earlier("merged-corpus")
    for command in (["verify"], ["info"], ["show", "--max-length", "32"]):
        assert run([command[0], str(corpus), *command[1:]]) == 0
    assert "24 train documents" in capsys.readouterr().out
    assert pretrain(corpus, tmp_path / "run", "--max-tokens", "1") == 0
