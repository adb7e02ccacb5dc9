"""Put one deliberate defect after the other into a copy of this project, and see a test fail for it.

A test that fails without any defect proves nothing, so all of them run once on the sound copy first. A defect counts as
caught when a test that ran to its end or to an error of ours says so; not when nothing could be imported, and not when
nothing ends.
"""

import os
import re
from collections import Counter

from albert.runtime.errors import CheckFailed
from reliability.copied_project import CopiedProject
from reliability.defects import DEFECTS, Defect
from reliability.promises import TESTS_CATCH
from reliability.trial import Asked, Outcome, Trial

SECONDS, SOUND_SECONDS = 300, 3600
"""After which a defect counts as one that nothing catches, and the tests without any as a failure of the trial."""
_BROKEN = re.compile(
    r'collection failure|(?:failed on \w+ with ")?(?:ImportError|ModuleNotFoundError|SyntaxError|NameError|Unbound)'
)
_ASSERTED = re.compile(r"assert|AssertionError|Failed: ")


def run(asked: Asked) -> Outcome:
    """Try the first so many defects."""
    chosen = DEFECTS[: asked.count]
    failures: list[str] = []
    ways: Counter[str] = Counter({"by an assertion": 0, "by an error": 0})
    with CopiedProject(asked.folder) as project:
        sound = {test for defect in chosen for test in defect.test_ids(project.place / "tests")}
        unsound = project.not_passed(sound, SOUND_SECONDS)
        if unsound:
            told = "; ".join(f"{test}: {why}" for test, why in unsound)
            raise CheckFailed("tests", f"fail or are skipped without any defect: {told}")
        for defect in chosen:
            survived, way = try_defect(defect, project)
            if survived:
                failures.append(f"{defect.name} (in {defect.symbol}): {survived}")
            else:
                ways[way] += 1
            asked.report(1)
    return Outcome(len(chosen), len(failures), "deliberate defects", dict(ways), tuple(failures))


def try_defect(defect: Defect, project: CopiedProject) -> tuple[str, str]:
    """Why a defect was not caught ("" where it was), and how it was."""
    path, wrong = defect.put_into(project.place / "src" / "albert")
    sound, before = path.read_bytes(), path.stat()
    try:
        path.write_text(wrong, encoding="utf-8")
        found = project.not_passed(defect.test_ids(project.place / "tests"), SECONDS, defect=True)
    except TimeoutError:
        return f"its tests did not end within {SECONDS} seconds", ""
    finally:
        path.write_bytes(sound)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # what was compiled of it is good again
    if not found:
        return "no test fails", ""
    test, why = found[0]
    if _BROKEN.match(why):
        return f"{test} could not even run: {why}", ""
    return "", "by an assertion" if _ASSERTED.match(why) else "by an error"


TRIAL = Trial(
    name="mutants",
    guarantee=TESTS_CATCH,
    counts={"quick": 2, "full": len(DEFECTS), "soak": len(DEFECTS)},
    run=run,
)
