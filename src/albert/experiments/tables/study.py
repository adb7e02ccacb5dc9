"""What the runs below one root have in common, kept in its `study.json`: the scale, the corpora, the precision."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from albert.experiments.tables.scales import SCALES, Scale, ScaleName
from albert.pretraining.corpus_record import CorpusRecord, record_of
from albert.runtime.devices import default_precision, pick_device
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.precisions import Precision
from albert.runtime.strict_json import load_json, save_json
from albert.text.preparation.shards import TokenCorpus

STUDY_NAME = "study.json"


@dataclass(frozen=True, kw_only=True)
class Study:
    """Runs that may be compared."""

    scale: ScaleName
    corpora: tuple[CorpusRecord, ...] = ()
    """The first one is the tables' text; with all of them arms learn that read additional text (Table 7)."""
    precision: Precision | None = None
    """Of all pre-trainings that leave it open, on whichever machine they go on; part of their keys. None: the study was
    begun before it was kept, and the keys of its runs were made of "auto"."""

    @property
    def declared(self) -> Scale:
        """The scale, with the study's precision in its recipe."""
        scale = SCALES[self.scale]
        if self.precision is None or scale.recipe.precision != "auto":
            return scale
        return replace(scale, recipe=replace(scale.recipe, precision=self.precision))

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Of the corpora, as keys of runs are made of them."""
        return tuple(corpus.manifest for corpus in self.corpora)


def study_of(root: Path, scale: ScaleName, corpora: Sequence[Path], device: str = "auto") -> Study:
    """The study below a root, or that which is to be begun there; nothing is written.

    Args:
        root: the folder.
        scale: as it is asked for.
        corpora: what `albert prepare` wrote; none: those that the root's runs have read.
        device: what a study that is to be begun computes on, which decides its precision.

    Raises:
        InvalidConfiguration: the root holds another scale, or runs of another first corpus.
        MissingInput, DamagedData: a corpus cannot be opened.
    """
    opened = [TokenCorpus.open(corpus, verify=False) for corpus in corpora]
    asked = Study(scale=scale, corpora=record_of(opened).corpora)
    if not (root / STUDY_NAME).is_file():
        return replace(asked, precision=default_precision(pick_device(device)))
    kept = load_json(Study, root / STUDY_NAME)
    if kept.scale != scale:
        raise InvalidConfiguration(root, f"holds runs of the scale {kept.scale}", f"give --scale {kept.scale}")
    if not corpora:
        return kept
    if kept.fingerprints[:1] != asked.fingerprints[:1]:
        why = f"holds runs on {kept.corpora[0]}, --data is {asked.corpora[0]}"
        raise InvalidConfiguration(root, why, "give the same corpus, or another --output")
    return replace(asked, precision=kept.precision)


def keep_study(root: Path, study: Study) -> None:
    """Write down what the runs below a root are of."""
    save_json(root / STUDY_NAME, study)
