"""Names that a command does not have: those of transformers and of other commands, and misspelt ones."""

from pathlib import Path

import pytest

from albert.cli.command_line import all_commands
from albert.cli.main import COMMANDS
from albert.cli.parsing import read_command_line

WITH_OPTIONS = [name for name in COMMANDS if name not in ("tokenizer", "export")]
WITH_OPTIONS += ["tokenizer train", "tokenizer convert", "export onnx"]
TABLE = "finetune --train a --model m"
CORPUS = "pretrain small --data d --output o"


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (f"{TABLE} --epochs 3", "is a key; write epochs=3"),
        (f"{TABLE} --learning-rate=1e-4", "is a key; write learning_rate=1e-4"),
        (f"{TABLE} --num_train_epochs 3", "write epochs=3"),
        (f"{TABLE} --num-train-epochs=3", "write epochs=3"),
        (f"{TABLE} --lr 1e-3", "write learning_rate=1e-3"),
        (f"{TABLE} --per-device-train-batch-size 8", "write batch_size=8"),
        (f"{TABLE} --bf16", "write precision=bf16"),
        (f"{TABLE} --load-best-model-at-end", "write select=best"),
        (f"{TABLE} --no-cuda", "write --device cpu"),
        (f"{TABLE} --output-dir runs/mine", "write --output runs/mine"),
        (f"{TABLE} --format csv", "write reading.format=csv"),
        (f"{TABLE} --columns a b", "write reading.columns=a,b"),
        (f"{TABLE} --keep-head", "write keep_head=true"),
        (f"{TABLE} --num-hidden-layers 3", "write depth=3"),
        (f"{TABLE} num_train_epochs=3", "unknown key; write epochs=3"),
        (f"{TABLE} output=runs/mine", "is an option; write --output runs/mine"),
        (f"{TABLE} learnin_rate=1", "unknown key; did you mean learning_rate=1?"),
        (f"{TABLE} nothing=1", "unknown key; see albert finetune --help"),
        ("finetune --task sst-2 --model m", "albert finetune sst-2, without --task"),
        (f"{CORPUS} --hidden-size 192", "write architecture.hidden_size=192"),
        (f"{CORPUS} hidden_size=192", "write architecture.hidden_size=192"),
        (f"{CORPUS} model.hidden_size=192", "did you mean architecture.hidden_size=192?"),
        (f"{CORPUS} schedule.total_steps=9", "did you mean steps=9?"),
        (f"{CORPUS} --mlm_probability 0.3", "write masking.share=0.3"),
        (f"{CORPUS} --steps 100", "is a key; write steps=100"),
        (f"{CORPUS} --model tiny", "write --init tiny"),
        (f"{CORPUS} --optimizer lamb", "write optimizer.kind=lamb"),
        ("predict --model tiny --fill-mask a", "albert predict tiny, without --model"),
        ("predict tiny --input a.csv --delimiter ;", "write 'reading.delimiter=;'"),
        ("evaluate sst-2 --model m --evaluation-sequences 5", "write --sequences 5"),
        ("quantize tiny --output o --force", "write --replace"),
    ],
)
def test_an_unknown_name_is_answered_with_what_to_write(words, remedy, refused):
    assert remedy in refused(words.split(), 2)


def test_blanks_around_an_equals_sign_are_forgiven_and_lists_have_commas():
    options = [option for option in all_commands()["pretrain"].options if not option.is_positional]
    words = "--data d1 d2 steps = 7 max_length =32 batch_size= 4 mixture=0.7,0.3 --output o masking.favor_shorter=false"
    values = read_command_line(options, words.split(), "albert pretrain small")
    assert values == {
        "steps": 7,
        "max_length": 32,
        "batch_size": 4,
        "mixture": (0.7, 0.3),
        "masking.favor_shorter": False,
        "data": (Path("d1"), Path("d2")),
        "output": Path("o"),
    }
    values = read_command_line(options, ["architecture.sharing=none"], "albert pretrain small")
    assert values == {"architecture.sharing": "none"}


@pytest.mark.parametrize("command", WITH_OPTIONS)
def test_misspelt_options_and_keys_get_a_suggestion(command, refused):
    """Each third option or key of each command, without its last letter."""
    options = all_commands()[command].options
    words = [*command.split(), *(["small"] if command == "pretrain" else [])]
    known = {option.typed for option in options}
    for option in options[::3]:
        typed = option.typed[:-1]
        if len(option.name) > 5 and typed not in known and not option.is_positional:
            error = refused([*words, f"{typed}=1" if option.is_key else typed], 2, typed)
            assert "did you mean" in error or "write" in error
