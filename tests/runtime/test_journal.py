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

from albert.runtime import errors
from albert.runtime.errors import AlbertError, DamagedData, InvalidConfiguration, MissingInput, did_you_mean
from albert.runtime.json_files import Journal, from_json, load_json, read_journal, read_json_object, save_json, to_json
from albert.training.run_folder import Stopped

# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    journal = Journal(tmp_path / "run" / "journal.jsonl")
    for step in (1, 2, 3):
        journal.write("train", step=step, loss=1 / step)
    journal.write("note", text="ähm\nzwei")
    journal.close()
    return journal.path


def steps(records) -> list[int | None]:
    return [record.get("step") for record in records]


def test_events_are_read_in_order(path):
    records = read_journal(path)
    assert [(r["event"], r.get("step"), r.get("loss"), r.get("text")) for r in records] == [
        ("train", 1, 1.0, None),
        ("train", 2, 0.5, None),
        ("train", 3, 1 / 3, None),
        ("note", None, None, "ähm\nzwei"),
    ]
    assert all(record["time"] > 1.6e9 for record in records)


def test_a_line_can_be_read_as_soon_as_it_is_written(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("train", step=1)
    assert steps(read_journal(journal.path)) == [1]
    journal.close()


@pytest.mark.parametrize("kept", [1, 10, -2, -1])
def test_a_torn_last_line_is_dropped(path, kept):
    whole = path.read_bytes()
    line = b'{"event": "train", "time": 1.0, "step": 4, "loss": 0.2}\n'
    path.write_bytes(whole + line[:kept])
    assert steps(read_journal(path))[:4] == [1, 2, 3, None]
    Journal(path).close()
    assert path.read_bytes() == whole
    journal = Journal(path)
    journal.write("train", step=4)
    journal.close()
    assert steps(read_journal(path)) == [1, 2, 3, None, 4]


def test_of_a_step_told_twice_the_last_telling_counts(path):
    journal = Journal(path)
    journal.write("train", step=2, loss=7.0)
    journal.write("evaluation", step=2, loss=8.0)
    journal.write("note", text="again")
    journal.close()
    records = read_journal(path)
    assert [(r["event"], r.get("step")) for r in records] == [
        ("train", 1),
        ("train", 3),
        ("note", None),
        ("train", 2),
        ("evaluation", 2),
        ("note", None),
    ]
    assert records[3]["loss"] == 7.0


@pytest.mark.parametrize("line", [b"{", b"3", b"[]", b'"text"', b'{"step": 2}', b'{"event": "\xff"}', b"\0\0\0\0"])
def test_a_damaged_line_in_the_middle_is_named_by_its_number(path, line):
    lines = path.read_bytes().splitlines()
    lines[1] = line
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(DamagedData, match=rf"{path.name}:2: "):
        read_journal(path)


def test_a_number_that_is_not_finite_is_kept_in_lines_that_any_program_reads(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("train", step=1, loss=math.nan, more={"up": [math.inf], "down": -math.inf})
    journal.close()

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    json.loads(journal.path.read_text(), parse_constant=refuse)
    record = read_journal(journal.path)[0]
    assert math.isnan(record["loss"]) and record["more"]["down"] == -math.inf
    journal.path.write_text('{"event": "train", "step": 2, "loss": NaN}\n')  # as earlier versions wrote it
    assert math.isnan(read_journal(journal.path)[0]["loss"])


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


def test_a_full_disk_is_one_error_and_costs_the_last_line_alone(tmp_path):
    path = tmp_path / "journal.jsonl"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, timeout=60)
    step, code, message = done.stdout.strip().split(" ", 2)
    assert (code, message) == ("74", f"{path}: File too large"), done.stderr
    assert steps(read_journal(path)) == list(range(int(step)))


# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Inner:
    name: str
    share: float = 0.5
    on: bool = False

    def __post_init__(self) -> None:
        if self.share < 0:
            raise InvalidConfiguration("share", "is negative")
        if self.name == "forbidden":
            raise ValueError("this name cannot be")


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner
    steps: int = 1
    kind: Literal["lamb", "adamw"] = "lamb"
    clamp: tuple[float, float] | None = None
    parts: tuple[Inner, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    place: Path | None = None
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
    place=st.none() | st.just(Path("a/b")),
    maybe=st.none() | INNERS,
    anything=st.none() | st.lists(st.integers(), max_size=2) | st.text(),
)


@given(OUTERS)
def test_what_is_written_is_read_back_equal(value):
    text = json.dumps(to_json(value))
    assert from_json(Outer, json.loads(text), "file") == value


def test_a_file_round_trip_keeps_the_order_of_the_fields(tmp_path):
    value = Outer(inner=Inner(name="größe"), clamp=(0.0, 10.0))
    save_json(tmp_path / "value.json", value)
    assert load_json(Outer, tmp_path / "value.json") == value
    assert list(json.loads((tmp_path / "value.json").read_text())) == [f.name for f in dataclasses.fields(Outer)]
    assert "größe" in (tmp_path / "value.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stepz": 3}, r"file: stepz: unknown key; did you mean 'steps'\?"),
        ({"inner": {"name": "a", "shore": 1}}, r"file: inner: shore: unknown key; did you mean 'share'\?"),
        ({"steps": "3"}, "file: steps: is a string, int is expected"),
        ({"steps": 3.0}, "file: steps: is float 3.0, int is expected"),
        ({"steps": True}, "file: steps: is a truth value, int is expected"),
        ({"steps": None}, "file: steps: is null, int is expected"),
        ({"inner": {"name": "a", "share": "0.5"}}, "file: inner: share: is a string, float is expected"),
        ({"inner": {"name": "a", "share": False}}, "file: inner: share: is a truth value, float is expected"),
        ({"inner": {"name": "a", "on": 1}}, "file: inner: on: is int 1, bool is expected"),
        ({"inner": []}, "file: inner: is a list, an object is expected"),
        ({"kind": "lam"}, r"file: kind: 'lam' is not a choice; did you mean 'lamb'\?"),
        ({"kind": ["lamb"]}, "file: kind: .* is not a choice"),
        ({"clamp": [1]}, "file: clamp: has 1 items, 2 are expected"),
        ({"clamp": 1}, "file: clamp: is int 1, a list is expected"),
        ({"parts": [{"name": "a"}, {"nome": "b"}]}, r"file: parts: nome: unknown key; did you mean 'name'\?"),
        ({"counts": {"a": "b"}}, "file: counts: a: is a string, int is expected"),
        ({"place": 3}, "file: place: is int 3, Path is expected"),
        ({"maybe": {"name": 3}}, "file: maybe: name: is int 3, str is expected"),
        ({"inner": {"name": "a", "share": -1}}, "share: is negative"),
        ({"inner": {"name": "forbidden"}}, "file: inner: this name cannot be"),
        ({"inner": {}}, "file: inner: name: is missing"),
    ],
)
def test_what_is_wrong_is_refused_by_its_key(change, message):
    with pytest.raises(InvalidConfiguration, match=f"^{message}") as refusal:
        from_json(Outer, {"inner": {"name": "a"}} | change, "file")
    assert refusal.value.exit_code == 78


@pytest.mark.parametrize("data", [[], None, 3, "text"])
def test_what_is_no_object_is_refused(data):
    with pytest.raises(InvalidConfiguration, match="an object is expected"):
        from_json(Outer, data, "file")


def test_a_whole_number_will_do_for_a_float():
    value = from_json(Outer, {"inner": {"name": "a", "share": 1}, "clamp": [0, 10]}, "file")
    assert (value.inner.share, value.clamp) == (1.0, (0.0, 10.0))
    assert isinstance(value.inner.share, float)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"3", b'{"a": "\xff"}', b"[" * 100_000])
def test_a_file_that_is_no_object_is_damaged(tmp_path, content):
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(DamagedData, match=r"file\.json"):
        read_json_object(tmp_path / "file.json")


def test_a_missing_file_is_missing_input(tmp_path):
    with pytest.raises(MissingInput, match="No such file"):
        read_json_object(tmp_path / "file.json")


@given(
    st.recursive(
        st.none() | st.booleans() | FLOATS | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)
    )
)
def test_any_json_is_read_or_refused(data):
    keys = ("inner", "steps", "kind", "clamp", "parts", "counts", "place", "maybe")
    for key in keys:
        try:
            value = from_json(Outer, {"inner": {"name": "a"}, key: data}, "file")
        except InvalidConfiguration:
            continue
        if key == "place":  # paths have several spellings
            assert data is None or value.place == Path(data)
        else:
            assert to_json(value)[key] == data or isinstance(data, dict)


def test_not_a_number_survives(tmp_path):
    """A diverged figure must not make a report unreadable."""
    save_json(tmp_path / "figures.json", {"loss": math.nan})
    assert math.isnan(read_json_object(tmp_path / "figures.json")["loss"])


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"b": [{"a": 1, "a": 1}]}'])
def test_a_key_that_is_there_twice_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DamagedData, match=r"is not JSON \(the key 'a' occurs twice\)"):
        read_json_object(tmp_path / "a.json")


@dataclass(frozen=True)
class _Placed:
    rate: float = 1.0
    place: Path = Path("a")


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "1" + "0" * 400])
def test_a_number_that_is_not_finite_is_refused(number):
    with pytest.raises(InvalidConfiguration, match=r"a\.json: rate: is (-?inf|nan), a finite number is expected"):
        from_json(_Placed, json.loads(f'{{"rate": {number}}}'), "a.json")


@pytest.mark.parametrize("name", ["a\0b", "\ud800.csv"])
def test_a_name_that_no_file_can_have_is_refused(name):
    with pytest.raises(InvalidConfiguration, match=r"a\.json: place: is not a valid file name"):
        from_json(_Placed, {"place": name}, "a.json")


# --------------------------------------------------------------------------------------------------------------------


CODES = {
    "UsageError": 2,
    "Diverged": 3,
    "CheckFailed": 4,
    "DamagedData": 65,
    "MissingInput": 66,
    "Unavailable": 69,
    "OutOfResources": 71,
    "CannotCreate": 73,
    "WriteFailed": 74,
    "TryAgain": 75,
    "InvalidConfiguration": 78,
}


def test_exit_codes_are_those_documented():
    assert {
        kind.__name__: kind.exit_code for kind in AlbertError.__subclasses__() if kind.__module__ == errors.__name__
    } == CODES
    assert {name for name in vars(errors) if name in CODES} == set(CODES)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (None, 143)])
def test_a_run_that_was_stopped_ends_like_the_signal(number, code):
    assert Stopped("run", number).exit_code == code


def test_an_error_is_one_line_of_subject_reason_and_remedy():
    assert str(MissingInput("data", "no such directory")) == "data: no such directory"
    error = MissingInput("data", "no such directory", "run albert prepare")
    assert str(error) == "data: no such directory; run albert prepare"
    assert (error.subject, error.why, error.remedy) == ("data", "no such directory", "run albert prepare")


def test_a_near_miss_is_offered_and_else_everything_known():
    assert did_you_mean("stepz", ["steps", "seed"]) == "did you mean 'steps'?"
    assert did_you_mean("zzz", ["steps", "seed"]) == "known: steps, seed"
    assert did_you_mean("zzz", []) == ""


def test_an_error_that_quotes_a_file_is_one_line():
    error = DamagedData("a\nb", "holds \x1b[2J and \u2028", "look\r")
    assert str(error) == r"a\nb: holds \x1b[2J and \u2028; look\r"


def test_a_long_list_of_what_is_known_is_cut_with_its_count():
    words = [f"option-{number:03d}" for number in range(100)]
    said = did_you_mean("nothing alike", words)
    assert said.startswith("known: option-000, option-001, ") and said.endswith(" and 87 more")
    assert len(said) < 200
