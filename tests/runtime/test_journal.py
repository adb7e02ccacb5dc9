"""JSON files, journals and error messages."""

import dataclasses
import json
import math
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, did_you_mean
from albert.runtime.json_files import Journal, from_json, load_json, read_journal, read_json_object, save_json, to_json
from albert.training.run_folder import Stopped

# ---- journals ------------------------------------------------------------------------------------------------------


def append(path: Path, *records: dict[str, Any]) -> None:
    journal = Journal(path)
    for record in records:
        journal.write(**record)
    journal.close()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run" / "journal.jsonl"
    append(path, *(dict(event="train", step=step, loss=1 / step) for step in (1, 2, 3)))
    append(path, dict(event="note", text="ähm\nzwei"))
    return path


def steps(records) -> list[int | None]:
    return [record.get("step") for record in records]


def test_events_are_read_in_order_with_their_time(path):
    records = read_journal(path)
    assert all(record.pop("time") > 1.6e9 for record in records)
    train = [{"event": "train", "step": step, "loss": 1 / step} for step in (1, 2, 3)]
    assert records == [*train, {"event": "note", "text": "ähm\nzwei"}]


@pytest.mark.parametrize("kept", [1, 10, -2, -1])
def test_incomplete_last_line_is_dropped(path, kept):
    complete = path.read_bytes()
    line = b'{"event": "train", "time": 1.0, "step": 4, "loss": 0.2}\n'
    path.write_bytes(complete + line[:kept])
    assert steps(read_journal(path))[:4] == [1, 2, 3, None]
    append(path)
    assert path.read_bytes() == complete
    append(path, dict(event="train", step=4))
    assert steps(read_journal(path)) == [1, 2, 3, None, 4]


def test_last_record_for_a_step_wins(path):
    repeated = dict(event="train", step=2, loss=7.0)
    append(path, repeated, dict(event="evaluation", step=2, loss=8.0), dict(event="note", text="again"))
    records = [(record["event"], record.get("step"), record.get("loss")) for record in read_journal(path)]
    assert records == [
        ("train", 1, 1.0),
        ("train", 3, 1 / 3),
        ("note", None, None),
        ("train", 2, 7.0),
        ("evaluation", 2, 8.0),
        ("note", None, None),
    ]


@pytest.mark.parametrize("line", [b"{", b"3", b"[]", b'"text"', b'{"step": 2}', b'{"event": "\xff"}', b"\0\0\0\0"])
def test_damaged_line_in_the_middle_is_named_by_its_number(path, line):
    lines = path.read_bytes().splitlines()
    lines[1] = line
    path.write_bytes(b"\n".join(lines) + b"\n")
    with refusal(DamagedData, f"{path.name}:2"):
        read_journal(path)


def test_non_finite_numbers_are_written_as_strict_json(tmp_path):
    path = tmp_path / "journal.jsonl"
    append(path, dict(event="train", step=1, loss=math.nan, more={"up": [math.inf], "down": -math.inf}))
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    record = read_journal(path)[0]
    assert math.isnan(record["loss"]) and record["more"]["down"] == -math.inf


FULL_DISK = """
import resource, sys
from pathlib import Path
from albert.runtime.errors import WriteFailed
from albert.runtime.json_files import Journal

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
journal = Journal(Path(sys.argv[1]))
try:
    try:
        for step in range(100):
            journal.write("train", step=step)
    finally:
        journal.close()
except WriteFailed as failure:
    print(step, failure.exit_code, failure)
"""


def test_full_disk_is_one_error_and_loses_only_the_last_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    result = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, timeout=60)
    step, code, message = result.stdout.strip().split(" ", 2)
    assert (code, message) == ("74", f"{path}: File too large; free space or choose another disk"), result.stderr
    assert steps(read_journal(path)) == list(range(int(step)))


# ---- dataclasses ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Inner:
    name: str
    share: float = 0.5
    on: bool = False

    def __post_init__(self) -> None:
        if self.share < 0:
            raise InvalidConfiguration("share", "is negative")
        if self.name == "forbidden":
            raise ValueError("this name is forbidden")


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner
    steps: int = 1
    kind: Literal["lamb", "adamw"] = "lamb"
    clamp: tuple[float, float] | None = None
    parts: tuple[Inner, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    path: Path | None = None
    maybe: Inner | None = None
    anything: Any = None


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INNERS = st.builds(
    Inner,
    name=st.text().filter(lambda name: name != "forbidden"),
    share=st.floats(0, allow_infinity=False),
    on=st.booleans(),
)
OUTERS = st.builds(
    Outer,
    inner=INNERS,
    steps=st.integers(),
    kind=st.sampled_from(["lamb", "adamw"]),
    clamp=st.none() | st.tuples(FLOATS, FLOATS),
    parts=st.lists(INNERS, max_size=3).map(tuple),
    counts=st.dictionaries(st.text(), st.integers(), max_size=3),
    path=st.none() | st.just(Path("a/b")),
    maybe=st.none() | INNERS,
    anything=st.none() | st.lists(st.integers(), max_size=2) | st.text(),
)


@given(OUTERS)
def test_json_round_trip_is_exact(value):
    text = json.dumps(to_json(value))
    assert from_json(Outer, json.loads(text), "file") == value


def test_file_keeps_the_order_of_the_fields(tmp_path):
    value = Outer(inner=Inner(name="größe"), clamp=(0.0, 10.0))
    save_json(tmp_path / "value.json", value)
    assert load_json(Outer, tmp_path / "value.json") == value
    assert list(json.loads((tmp_path / "value.json").read_text())) == [f.name for f in dataclasses.fields(Outer)]
    assert "größe" in (tmp_path / "value.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "subjects"),
    [
        ({"stepz": 3}, "file stepz 'steps'"),
        ({"inner": {"name": "a", "shore": 1}}, "file inner shore 'share'"),
        ({"steps": "3"}, "file: steps: is '3', a whole number is expected"),
        ({"steps": 3.0}, "file: steps: is 3.0, a whole number is expected"),
        ({"steps": True}, "file: steps: is True, a whole number is expected"),
        ({"steps": None}, "file: steps: is None (null), a whole number is expected"),
        ({"inner": {"name": "a", "share": "0.5"}}, "file: inner: share: is '0.5', a number is expected"),
        ({"inner": {"name": "a", "share": False}}, "file: inner: share: is False, a number is expected"),
        ({"inner": {"name": "a", "on": 1}}, "file inner on 1"),
        ({"inner": []}, "file inner list"),
        ({"kind": "lam"}, "file kind 'lam' 'lamb'"),
        ({"kind": ["lamb"]}, "file kind"),
        ({"clamp": [1]}, "file clamp 1 2"),
        ({"clamp": 1}, "file clamp 1"),
        ({"parts": [{"name": "a"}, {"nome": "b"}]}, "file parts nome 'name'"),
        ({"counts": {"a": "b"}}, "file: counts: a: is 'b', a whole number is expected"),
        ({"path": 3}, "file path 3"),
        ({"maybe": {"name": 3}}, "file maybe name 3"),
        ({"inner": {"name": "a", "share": -1}}, "share negative"),
        ({"inner": {"name": "forbidden"}}, "file inner name"),
        ({"inner": {}}, "file inner name"),
        *(({"inner": {"name": "a", "share": number}}, "file inner share")
          for number in (math.inf, -math.inf, math.nan, 10**400)),
        *(({"path": name}, "file path") for name in ("a\0b", "\ud800.csv")),
    ],
)  # fmt: skip
def test_invalid_value_is_named_by_its_key(change, subjects):
    with refusal(InvalidConfiguration, *subjects.split()) as error:
        from_json(Outer, {"inner": {"name": "a"}} | change, "file")
    assert error.value.exit_code == 78


def test_integers_are_converted_to_floats():
    value = from_json(Outer, {"inner": {"name": "a", "share": 1}, "clamp": [0, 10]}, "file")
    assert (value.inner.share, value.clamp) == (1.0, (0.0, 10.0))
    assert isinstance(value.inner.share, float)


REPEATED = "'a' twice"


@pytest.mark.parametrize(
    ("content", "subjects"),
    [
        *((content, "file.json") for content in (b"", b"{", b"[1]", b"3", b'{"a": "\xff"}', b"[" * 100_000)),
        (b'{"a": 1, "a": 2}', REPEATED),
        (b'{"b": [{"a": 1, "a": 1}]}', REPEATED),
    ],
)
def test_files_without_a_json_object_are_refused(tmp_path, content, subjects):
    with refusal(MissingInput, "file.json"):
        read_json_object(tmp_path / "file.json")
    (tmp_path / "file.json").write_bytes(content)
    with refusal(DamagedData, *subjects.split()):
        read_json_object(tmp_path / "file.json")


@given(
    st.recursive(
        st.none() | st.booleans() | FLOATS | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)
    )
)
def test_any_json_is_converted_or_refused(data):
    for key in ("inner", "steps", "kind", "clamp", "parts", "counts", "path", "maybe"):
        try:
            value = from_json(Outer, {"inner": {"name": "a"}, key: data}, "file")
        except InvalidConfiguration:
            continue
        if key == "path":  # paths have several spellings
            assert data is None or value.path == Path(data)
        else:
            assert to_json(value)[key] == data or isinstance(data, dict)


def test_file_with_nan_can_be_read(tmp_path):
    save_json(tmp_path / "figures.json", {"loss": math.nan})
    assert math.isnan(read_json_object(tmp_path / "figures.json")["loss"])


# ---- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (None, 143)])
def test_stopped_run_exits_with_the_code_of_the_signal(number, code):
    assert Stopped("run", number).exit_code == code


def test_message_has_subject_reason_and_remedy():
    assert str(MissingInput("data", "no such directory")) == "data: no such directory"
    error = MissingInput("data", "no such directory", "run albert prepare")
    assert str(error) == "data: no such directory; run albert prepare"
    assert (error.subject, error.why, error.remedy) == ("data", "no such directory", "run albert prepare")


def test_control_characters_in_messages_are_escaped():
    error = DamagedData("a\nb", "holds \x1b[2J and \u2028", "look\r")
    assert str(error) == r"a\nb: holds \x1b[2J and \u2028; look\r"


def test_similar_word_is_suggested_else_known_words_are_listed():
    assert did_you_mean("stepz", ["steps", "seed"]) == "did you mean 'steps'?"
    assert did_you_mean("zzz", ["steps", "seed"]) == "known: steps, seed"
    assert did_you_mean("zzz", []) == ""
    hint = did_you_mean("nothing alike", [f"option-{number:03d}" for number in range(100)])
    assert hint.startswith("known: option-000, option-001, ") and hint.endswith(" and 87 more")
    assert len(hint) < 200
