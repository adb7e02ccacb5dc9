"""Malicious files are refused with one line and the right exit code, without executing or writing anything.

The set is fixed. Each file is generated and given to the `albert` command that reads it; no code may run, no network be
reached, and no file be written outside of the folder of the try. Valid models are checked in the same way."""

import gzip
import importlib
import io
import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dev.reliability.confined import Broken, Limits, Verdict, confined
from dev.reliability.material import TENSORFLOW, Material, albert
from dev.reliability.report import CHECKOUT, LOADING_RUNS_NOTHING
from dev.reliability.trials import Tries, trial
from packaging.version import Version

from albert.cli.main import COMMANDS

LONGEST_LINE = 300
"""Most characters of an error message, without paths."""
SECONDS, SECONDS_OF_A_VALID_ONE = 20.0, 120.0
ABSENT = ("out", "out.jsonl", "pickle-was-run", "../evil.index")
"""Files that must not exist after a refusal, relative to the folder of the try."""
_PROGRESS = re.compile(r"(Reading|Preparing|Training|Unpacking|Encoding|Checking)\b")
"""Progress lines that may precede the error on a slow machine."""

Content = bytes | str | dict | Callable[[], bytes]
"""The content of a file: as it is, as JSON, or generated on demand."""


@dataclass(frozen=True)
class Place:
    """An empty folder for malicious files, and valid material that must not be changed."""

    here: Path
    material: Material

    def words(self, command: str) -> list[str]:
        """The words of a command; `{here}` is the folder, `{m.NAME}` a part of the material."""
        return [word.format(here=self.here, m=self.material) for word in command.split()]

    def write(self, name: str, content: Content) -> None:
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = content() if callable(content) else json.dumps(content) if isinstance(content, dict) else content
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def model(self, files: dict[str, Content | None]) -> None:
        """A copy of a model under `m`, without its manifest, with other files; None removes one."""
        shutil.copytree(self.material.pretrained, self.here / "m")
        for name, content in {"MANIFEST.json": None, **files}.items():
            if content is None:
                (self.here / "m" / name).unlink()
            else:
                self.write(f"m/{name}", content)


Make = Callable[[Place], object]


@dataclass(frozen=True)
class Hostile:
    """A malicious file and the expected refusal."""

    name: str
    make: Make  # creates it in the folder
    command: str  # of `albert`, as `Place.words` takes it
    code: int  # the exit code of docs/troubleshooting.md
    message: str  # regular expression of the message
    absent: tuple[str, ...] = ABSENT  # files that must not exist afterwards


# ---- generators ------------------------------------------------------------------------------------------------------


class _Command:
    """Creates a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch pickle-was-run",)


PICKLE = pickle.dumps(_Command(), protocol=4)
OLD_PICKLE = pickle.dumps(_Command(), protocol=0)
BROKEN_TAIL = PICKLE[:-1] + b"\xff" * 40  # the command comes before the damage


def _file(name: str, content: Content) -> Make:
    return lambda place: place.write(name, content)


def _put(name: str, put: Callable[[Path], object]) -> Make:
    def make(place: Place) -> None:
        (place.here / name).parent.mkdir(exist_ok=True)
        put(place.here / name)

    return make


def _link(name: str, to: str) -> Make:
    return _put(name, lambda path: path.symlink_to(to))


def pipe(name: str) -> Make:
    """A pipe without a writer."""
    return _put(name, os.mkfifo)


def _all(*makes: Make) -> Make:
    return lambda place: [make(place) for make in makes]


def _model(files: dict[str, Content | None]) -> Make:
    return lambda place: place.model(files)


def _instead(name: str, content: Content) -> Make:
    """A model with another file instead of its weights."""
    return _model({"model.safetensors": None, name: content})


def _weights(content: bytes) -> Make:
    return _model({"model.safetensors": content})


def _config(twice: bool = False, **changes: str) -> Make:
    """A model whose configuration has other values (as JSON text), or these keys twice."""

    def make(place: Place) -> None:
        content = json.loads((place.material.pretrained / "config.json").read_bytes())
        kept = {key: value for key, value in content.items() if twice or key not in changes}
        more = ", ".join(f'"{key}": {text}' for key, text in changes.items())
        place.model({"config.json": f"{json.dumps(kept)[:-1]}, {more}}}"})

    return make


def _header(content: object, data: bytes = b"", length: int | None = None) -> Make:
    """A model whose safetensors file has the given header."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return _weights(struct.pack("<Q", len(text) if length is None else length) + text + data)


def _tensor(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def _zip_archive(members: Iterable[tuple[str, bytes]]) -> bytes:
    """A zip file."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()


def _tar_with_link() -> bytes:
    """A tar file with a symbolic link to a file of the system."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        member = tarfile.TarInfo("model.ckpt.index")
        member.type = tarfile.SYMTYPE
        member.linkname = "/etc/passwd"
        archive.addfile(member)
    return stream.getvalue()


def _manifest(name: str) -> Make:
    listed = {"layout": 1, "files": {name: {"bytes": 6, "sha256": "0" * 64}}, "self": "0" * 64}
    return _all(_file("secret", b"secret"), _file("d/MANIFEST.json", listed))


# ---- the set ---------------------------------------------------------------------------------------------------------

OPEN = "predict {here}/m --fill-mask [MASK]"
CONVERT = "convert {here}/m --output {here}/out"
TRAIN = "tokenizer train {here}/text --output {here}/out --vocab-size 300"
ENCODE = "tokenizer encode word --tokenizer {here}/t"
FINETUNE = "finetune {here}/task.json --model {m.pretrained} --output {here}/out"
PRETRAIN = "pretrain {here}/r.json --data {m.corpus} --output {here}/out"
ASK = "predict {m.pretrained} --task embed --input {here}/in.jsonl --output {here}/out.jsonl"

_TORCH_ARCHIVE = _zip_archive([("archive/data.pkl", PICKLE), ("archive/version", b"3\n")])
_INDEX = "model.safetensors.index.json"
_GAP = {"a": _tensor(0, 4, [1]), "b": _tensor(8, 12, [1])}
_OVERLAP = {"a": _tensor(0, 8, [2]), "b": _tensor(4, 12, [2])}
_NAMED_TWICE = (
    b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}'
)
_PAIRS = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b", "ab c"]}, "added_tokens": []}
"""As in tokenizers#2094, where the Rust library panics."""
_LONG = ["x" * 500_000, -1.0]
_SPECIAL = [[piece, 0.0] for piece in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")]
_LONG_PIECES = {"model": {"type": "Unigram", "unk_id": 1, "vocab": [*_SPECIAL, _LONG, _LONG]}}
_NO_NUMBER = '{"model":{"type":"Unigram","unk_id":1,"vocab":[["<pad>",NaN]]}}'
_DEEP = '{"a":' * 200_000

_THEIRS = _all(_file("theirs/own", b""), _link("out", "theirs"), _file("text/a.txt", "It was a day. " * 50))
"""The output is a link into the folder of another user."""

_PICKLES_ARE = "is a pickle, which can run code and is never loaded"
_SAFETENSORS_PICKLE = "is a pickle, not safetensors"
_NO_WEIGHTS = "holds no model.safetensors"
_NOT_WHOLE = "is not a complete safetensors file"
_NOT_JSON = "is not JSON"
_LEADS_OUT = "not a file of this directory"
_OWN_HASH = "does not match its own hash"
_NO_FILE_NAME = "is not a valid file name"

_TABLE: dict[str, dict[str, tuple[Make, int, str]]] = {
    OPEN: {
        "pickle as pytorch_model.bin": (_instead("pytorch_model.bin", PICKLE), 66, _PICKLES_ARE),
        "zip of torch.save as pytorch_model.bin": (_instead("pytorch_model.bin", _TORCH_ARCHIVE), 66, _PICKLES_ARE),
        "pickle as model.pt": (_instead("model.pt", PICKLE), 66, _NO_WEIGHTS),
        "pickle as model.ckpt": (_instead("model.ckpt", PICKLE), 66, _NO_WEIGHTS),
        "pickle as model.safetensors": (_weights(PICKLE), 65, _SAFETENSORS_PICKLE),
        "zip of torch.save as model.safetensors": (_weights(_TORCH_ARCHIVE), 65, _SAFETENSORS_PICKLE),
        "pickle with a broken tail": (_weights(BROKEN_TAIL), 65, _SAFETENSORS_PICKLE),
        "pickle of protocol 0": (_weights(OLD_PICKLE), 65, _NOT_WHOLE),
        "7z around a pickle": (_weights(b"7z\xbc\xaf\x27\x1c\0\x04" + PICKLE), 65, _NOT_WHOLE),
        "pickle behind a header": (_header({}, PICKLE), 65, _NOT_WHOLE),
        "pickle as spiece.model": (_model({"spiece.model": PICKLE}), 65, "SentencePiece model"),
        "pickle as config.json": (_model({"config.json": PICKLE}), 65, _NOT_JSON),
        "weights of TensorFlow's pickle age": (_instead("tf_model.h5", b"\x89HDF\r\n"), 66, "holds TensorFlow weights"),
        "header of 2^63 bytes": (_header({}, length=2**63), 65, _NOT_WHOLE),
        "header longer than the file": (_header({}, length=3000), 65, _NOT_WHOLE),
        "header of no bytes": (_header(b"", length=0), 65, _NOT_WHOLE),
        "header of 200,000 brackets": (_header(b"[" * 200_000), 65, _NOT_WHOLE),
        "tensors that overlap": (_header(_OVERLAP, bytes(12)), 65, _NOT_WHOLE),
        "tensors with a gap": (_header(_GAP, bytes(12)), 65, _NOT_WHOLE),
        "tensor beyond the end": (_header({"a": _tensor(0, 400, [100])}, bytes(8)), 65, _NOT_WHOLE),
        "shape that its place contradicts": (_header({"a": _tensor(0, 8, [9])}, bytes(8)), 65, _NOT_WHOLE),
        "shape of 2^80 numbers": (_header({"a": _tensor(0, 8, [2**40, 2**40])}, bytes(8)), 65, _NOT_WHOLE),
        "negative shape": (_header({"a": _tensor(0, 8, [-2])}, bytes(8)), 65, _NOT_WHOLE),
        "name of a tensor twice": (_header(_NAMED_TWICE, bytes(8)), 65, _NOT_WHOLE),
        "number type that nobody knows": (_header({"a": _tensor(0, 8, [2], "O")}, bytes(8)), 65, _NOT_WHOLE),
        "name that paints the screen": (_header({"\x1b[2J": _tensor(0, 8, [2])}, bytes(8)), 65, "is called"),
        "index that leads out": (_instead(_INDEX, {"weight_map": {"a": "../../secret.safetensors"}}), 65, _LEADS_OUT),
        "index that names an absolute path": (_instead(_INDEX, {"weight_map": {"a": "/etc/passwd"}}), 65, _LEADS_OUT),
        "index of no files": (_instead(_INDEX, {"weight_map": {}}), 65, "holds no weight_map"),
        "vocabulary of 10^12 pieces": (_config(vocab_size="1000000000000"), 78, "vocab_size: is 1000000000000"),
        "10^9 layers": (_config(num_hidden_layers="1000000000"), 78, "num_hidden_layers"),
        "10^7 layers' worth of inner groups": (_config(inner_group_num="10000000"), 78, "layers, the limit"),
        "no heads": (_config(num_attention_heads="0"), 78, "num_attention_heads"),
        "dropout NaN": (_config(hidden_dropout_prob="NaN"), 78, "hidden_dropout_prob"),
        "dropout 1e999": (_config(hidden_dropout_prob="1e999"), 78, "hidden_dropout_prob"),
        "epsilon NaN": (_config(layer_norm_eps="NaN"), 78, "layer_norm_eps"),
        "size of 5,000 digits": (_config(hidden_size="9" * 5000), 65, _NOT_JSON),
        "configuration 200,000 deep": (_model({"config.json": _DEEP}), 65, _NOT_JSON),
        "configuration with a key twice": (_config(twice=True, hidden_size="8"), 65, "twice"),
        "class to import": (_config(model_type='"os.system"', auto_map='{"AutoModel": "evil.M"}'), 78, "'os.system'"),
        "half a character for an activation": (_config(hidden_act='"\\ud800"'), 78, "hidden_act"),
        "log injection by an activation": (_config(hidden_act='"gelu\\nalbert: error: well"'), 78, r"gelu\\n"),
    },
    CONVERT: {"pickle to convert": (_instead("pytorch_model.bin", PICKLE), 66, _PICKLES_ARE)},
    "predict {here}/m --classify x": {"labels that are no object": (_config(id2label='"positive"'), 78, "id2label")},
    "predict ../../no-such-model-here --fill-mask [MASK]": {
        "model by a path out of the hub": (lambda place: None, 66, "no such directory")
    },
    "predict a/b@../../x --fill-mask [MASK]": {
        "revision that leads out": (lambda place: None, 2, "is not a branch, tag or commit")
    },
    "convert {here}/a.tar.gz --output {here}/out": {
        "tar with a link out of it": (_file("a.tar.gz", _tar_with_link), 66, "unpack it"),
    },
    "convert {here}/a.zip --output {here}/out": {
        "zip of pickles": (_file("a.zip", _TORCH_ARCHIVE), 66, "unpack it"),
    },
    TRAIN: {
        "text that is a pickle": (_file("text/a.txt", PICKLE), 65, "a.txt: is not"),
        "text that leads to /dev/zero": (_link("text/a.txt", "/dev/zero"), 66, "is a device"),
        "text that leads to itself": (_link("text/a.txt", "a.txt"), 66, "a.txt"),
        "text that is a pipe": (pipe("text/a.txt"), 66, "is a pipe"),
        "JSON 200,000 deep": (_file("text/a.jsonl", '{"text":' * 200_000), 65, _NOT_JSON),
        "number of 5,000 digits": (_file("text/a.jsonl", '{"text": ' + "9" * 5000 + "}"), 65, _NOT_JSON),
        "field that writes its own line": (_file("text/a.jsonl", '{"a\\nalbert: b": 1}\n'), 65, "has no field"),
        "XML": (_file("text/a.xml", "<mediawiki/>"), 66, "dumps of Wikipedia are not read"),
        "zip of pickles as text": (_file("text/a.zip", _TORCH_ARCHIVE), 66, "unpack the archive"),
        "gzip in gzip as text": (
            _file("text/a.txt.gz", lambda: gzip.compress(gzip.compress(bytes(2**24)))),
            *(65, "is not text: it begins as a gzip file"),
        ),
        "gzip of 150 MB of one line": (
            _file("text/a.jsonl.gz", lambda: gzip.compress(b"x" * 150_000_000, 1)),
            *(65, "longer than 128 MB"),
        ),
        "gzip that is a pickle": (_file("text/a.txt.gz", PICKLE), 65, "damaged gzip"),
        "Parquet that is a pickle": (_file("text/a.parquet", PICKLE), 65, "damaged Parquet"),
    },
    ENCODE: {
        "SentencePiece model of noise": (_file("t/spiece.model", b"\x0a\xff" * 99), 65, "SentencePiece"),
        "byte pairs that panic": (_file("t/tokenizer.json", _PAIRS), 65, "is not a tokenizer"),
        "piece of 500,000 characters twice": (_file("t/tokenizer.json", _LONG_PIECES), 65, "tokenizer.json"),
        "score that is no number": (_file("t/tokenizer.json", _NO_NUMBER), 65, "is not a tokenizer"),
        "vocabulary of one piece a million times": (_file("t/vocab.txt", "a\n" * 10**6), 65, "twice"),
        "vocabulary that is a pipe": (pipe("t/spiece.model"), 66, "is a pipe"),
    },
    "info {here}/d --verify": {
        "manifest that leads out": (_manifest("../secret"), 65, _OWN_HASH),
        "manifest with an absolute path": (_manifest("/etc/passwd"), 65, _OWN_HASH),
    },
    PRETRAIN: {
        "recipe with a class to make": (_file("r.json", '{"_target_": "os.system"}'), 78, "unknown key"),
        "recipe with NaN": (_file("r.json", '{"optimizer": {"learning_rate": NaN}}'), 78, "learning_rate"),
        "recipe with 1e999": (_file("r.json", '{"optimizer": {"learning_rate": 1e999}}'), 78, "learning"),
        "recipe with a key twice": (_file("r.json", '{"seed": 1, "seed": 2}'), 65, "twice"),
        "recipe that is a pickle": (_file("r.json", PICKLE), 65, _NOT_JSON),
    },
    FINETUNE: {
        "task that is a device": (_link("task.json", "/dev/zero"), 66, "is a device"),
        "task with an unknown key": (_file("task.json", '{"__class__": "os.system"}'), 78, "unknown key"),
        "task with half a character": (_file("task.json", '{"train": "\\ud800.csv"}'), 78, _NO_FILE_NAME),
        "table with NUL in its name": (_file("task.json", '{"train": "a\\u0000.csv"}'), 78, _NO_FILE_NAME),
    },
    ASK: {
        "input with half a character": (_file("in.jsonl", '{"text": "\\ud800"}\n'), 65, "surrogate"),
        "input with a key twice": (_file("in.jsonl", '{"text": "a", "text": "b"}\n'), 65, "twice"),
    },
}
"""Command -> name -> generator, exit code, message."""
CASES: tuple[Hostile, ...] = (
    *(
        Hostile(name, make, command, code, message)
        for command, rows in _TABLE.items()
        for name, (make, code, message) in rows.items()
    ),
    Hostile("output through a link", _THEIRS, TRAIN, 73, "exists already", ("theirs/spiece.model",)),
)


@trial(LOADING_RUNS_NOTHING, "hostile files, each given to the command that reads it", len(CASES))
def hostile_files(tries: Tries) -> None:
    """The first `count` of the set."""
    for case, verdict in try_cases(CASES[: tries.count], Material(tries.folder / "material"), tries.folder):
        tries.record([f"{case.name}: {verdict.failure}"] if verdict.failure else [], verdict.kind)


def try_cases(cases: Sequence[Hostile], material: Material, folder: Path) -> Iterator[tuple[Hostile, Verdict]]:
    """Run each command in a new process, so that all have the same free memory."""
    for part in (material.pretrained, material.corpus):  # made before watching
        assert part.is_dir()
    for command in {case.command.split()[0] for case in cases}:
        importlib.import_module(COMMANDS[command].module)  # once, instead of in every process
    for number, case in enumerate(cases):
        place = Place(folder / "tries" / str(number), material)
        work = partial(_try_case, case, place, folder)
        (verdict,) = confined(lambda _, work=work: work(), 1, Limits(place.here.parent, SECONDS))
        yield case, verdict


def _try_case(case: Hostile, place: Place, folder: Path) -> str:
    """Run the command; returns its exit code as a kind, or raises Broken."""
    shutil.rmtree(place.here, ignore_errors=True)
    place.here.mkdir(parents=True)
    case.make(place)
    code, stderr = albert(place.words(case.command))
    lines = [line for line in stderr.splitlines() if not _PROGRESS.match(line)]
    if code != case.code:
        raise Broken(f"exit code {code}, {case.code} is expected: {stderr[:300]!r}")
    if len(lines) != 1 or not lines[0].startswith("albert: error: ") or not lines[0].isprintable():
        raise Broken(f"not one line: {lines!r}"[:300])
    message = lines[0].replace(str(folder), "")
    if len(message) > LONGEST_LINE:
        raise Broken(f"a line of {len(message)} characters: {message}")
    if not re.search(case.message, message):
        raise Broken(f"does not match {case.message!r}: {message}")
    if left := [name for name in case.absent if (place.here / name).exists()]:
        raise Broken(f"left {left} behind")
    return f"exit_code_{code}"


# ---- valid files -----------------------------------------------------------------------------------------------------

OPENINGS = (
    "info {m.pretrained}",
    "predict {m.pretrained} --fill-mask [MASK]",
    "predict {m.classifier} --classify day",
    "predict {m.answerer} --question Where --context Lisbon",
    "predict {m.quantized} --fill-mask [MASK]",
    "info {m.corpus} --verify",
    "tokenizer encode word --tokenizer {m.pretrained}",
    "convert {m.pretrained} --output {here}/converted",
    f"convert {TENSORFLOW} --output {{here}}/from-tensorflow --without-tokenizer",
    "quantize {m.pretrained} --output {here}/quantized",
    "predict {m.pretrained} --order First. Second.",
)
"""Commands that open a local model, corpus or tokenizer."""


@trial(LOADING_RUNS_NOTHING, "valid models, corpora and tokenizers opened under an audit hook", 4, len(OPENINGS))
def nothing_is_run(tries: Tries) -> None:
    """Run each command twice: modules may be imported the first time only."""
    openings = OPENINGS[: tries.count]
    folder = tries.folder / "tries"
    folder.mkdir()
    material = Material(tries.folder / "material")
    for part in (material.quantized, material.classifier, material.answerer, material.corpus):
        assert part.is_dir()  # made before watching, with the imports this needs
    commands = []
    for number, opening in enumerate(openings):
        importlib.import_module(COMMANDS[opening.split()[0]].module)
        commands += [Place(folder / f"{number}-{turn}", material).words(opening) for turn in range(2)]

    def opened(number: int) -> str:
        code, stderr = albert(commands[number])
        if code:
            raise Broken(f"exit code {code}: {stderr[-300:]}")
        return ""

    for verdict in confined(opened, len(commands), Limits(folder, SECONDS_OF_A_VALID_ONE, memory=2 << 30)):
        failure = [f"{openings[verdict.number // 2]}: {verdict.failure}"] if verdict.failure else []
        tries.record(failure, done=verdict.number % 2)


# ---- pinned versions and security advisories -------------------------------------------------------------------------

# Minimum versions are checked without a network. The advisory service is queried by `pip-audit`, if installed; the
# report says if it was not, since a missing audit is not a passed one.
CONSTRAINTS = CHECKOUT / "constraints.txt"
SECONDS_OF_THE_SERVICE = 240
NOT_ASKED = "not asked"
MINIMUM_VERSIONS = {
    "torch": ("2.10.0", "CVE-2026-24747 corrupts memory before it, CVE-2025-32434 breaks weights_only to 2.5.1"),
    "onnx": ("1.21.0", "external data left their directory, through links too (CVE-2026-34446, -34447)"),
    "sentencepiece": ("0.2.3", "0.2.1 ends the process on a damaged model (sentencepiece#1263, #1269)"),
    "starlette": ("1.3.1", "bodies of forms without a bound (CVE-2024-47874)"),
}
"""Package -> the lowest version without a known relevant vulnerability, and that vulnerability."""


def pinned() -> dict[str, str]:
    """Package -> version, from constraints.txt."""
    found = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    return {name.lower(): version for name, version in found}


def below_minimum(versions: dict[str, str]) -> list[str]:
    """The packages that are missing or too old, with the reason."""
    return [
        f"{name} {versions.get(name, 'is not pinned')}: at least {lowest}, {because}"
        for name, (lowest, because) in MINIMUM_VERSIONS.items()
        if name not in versions or Version(versions[name]) < Version(lowest)
    ]


def advisories() -> tuple[str, list[str]]:
    """The status of the query and the findings of the service."""
    words = ["pip-audit", "--requirement", str(CONSTRAINTS), "--no-deps", "--disable-pip", "--format", "json"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS_OF_THE_SERVICE, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        return f"{NOT_ASKED}: {error}", []
    return parse_audit(done.stdout, done.stderr)


def parse_audit(output: str, stderr: str) -> tuple[str, list[str]]:
    """The status and findings in the output of pip-audit."""
    try:
        packages = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return f"{NOT_ASKED}: {' '.join(stderr.split())[-120:] or 'no answer'}", []
    found = [(package, finding) for package in packages for finding in package.get("vulns", [])]
    findings = [f"{package['name']} {package['version']}: {finding['id']}" for package, finding in found]
    return f"asked about {len(packages)}", findings


@trial(LOADING_RUNS_NOTHING, "pinned versions compared with the lowest allowed ones", 1)
def dependencies(tries: Tries) -> None:
    """Check minimum versions, then query the service."""
    versions = pinned()
    service, findings = advisories()
    asked = not service.startswith(NOT_ASKED)
    tries.what += " and advisories" if asked else ""
    tries.details |= {"pinned": len(versions), "advisory_service": service}
    tries.record([*below_minimum(versions), *findings], tries=len(versions) if asked else len(MINIMUM_VERSIONS), done=1)
