"""What the runs below one root have in common, kept in its `study.json`: the scale and the corpora."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from albert.experiments.tables.scales import SCALES, Scale, ScaleName
from albert.pretraining.corpus_record import CorpusRecord, record_of
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.strict_json import load_json, save_json
from albert.text.preparation.shards import TokenCorpus

STUDY_NAME = "study.json"


@dataclass(frozen=True, kw_only=True)
class Study:
    """Runs that may be compared."""

    scale: ScaleName
    corpora: tuple[CorpusRecord, ...] = ()
    """The first one is the tables' text; with all of them arms learn that read additional text (Table 7)."""

    @property
    def declared(self) -> Scale:
        """The scale."""
        return SCALES[self.scale]

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Of the corpora, as keys of runs are made of them."""
        return tuple(corpus.manifest for corpus in self.corpora)


def study_of(root: Path, scale: ScaleName, corpora: Sequence[Path]) -> Study:
    """The study below a root, or that which is to be begun there; nothing is written.

    Args:
        root: the folder.
        scale: as it is asked for.
        corpora: what `albert prepare` wrote; none: those that the root's runs have read.

    Raises:
        InvalidConfiguration: the root holds another scale, or runs of another first corpus.
        MissingInput, DamagedData: a corpus cannot be opened.
    """
    opened = [TokenCorpus.open(corpus, verify=False) for corpus in corpora]
    asked = Study(scale=scale, corpora=record_of(opened).corpora)
    if not (root / STUDY_NAME).is_file():
        return asked
    kept = load_json(Study, root / STUDY_NAME)
    if kept.scale != scale:
        raise InvalidConfiguration(root, f"holds runs of the scale {kept.scale}", f"give --scale {kept.scale}")
    if not corpora:
        return kept
    if kept.fingerprints[:1] != asked.fingerprints[:1]:
        why = f"holds runs on {kept.corpora[0]}, --data is {asked.corpora[0]}"
        raise InvalidConfiguration(root, why, "give the same corpus, or another --output")
    return asked


def keep_study(root: Path, study: Study) -> None:
    """Write down what the runs below a root are of."""
    save_json(root / STUDY_NAME, study)
