"""Running the jobs of tables until all are done or given up, with a progress bar over all of them.

Everything that is finished lies in its folder, and a job under way goes on from its newest checkpoint: a killed table
is continued by the same command. Several processes may work below one root: each takes the first job that nobody else
has claimed, and they end together. A claim is a lock of the system, and dies with its owner."""

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from albert.experiments.cost import Plan, share_done
from albert.experiments.jobs import Finetuning, Folders, HeldOut, Job, Pretraining, Speed, TaskFiles, done_jobs
from albert.experiments.sizes import measure_throughput
from albert.finetuning.model import PretrainedEncoder
from albert.finetuning.run import finetune
from albert.pretraining.evaluation import evaluate_pretraining
from albert.pretraining.run import pretrain
from albert.pretraining.run_identity import Init
from albert.runtime.devices import default_precision, pick_device
from albert.runtime.errors import Diverged
from albert.runtime.files import LOCK_NAME, claimed, remove_directory
from albert.runtime.json_files import save_json
from albert.runtime.progress import Bar, progress

LOOK_AGAIN_SECONDS = 2.0
"""Between looks at what other processes have done, when there is nothing else to do."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """What jobs need to run.

    Args:
        folders: where results lie.
        jobs: in the order in which they are tried.
        corpora: prepared corpora, the first one first; additional text is read by the arms that want it.
        data: where each task's files are, by its name.
        device: "auto", "cpu" or "cuda".
        report: told, for people, of what is begun, waited for and given up.
    """

    folders: Folders
    jobs: Sequence[Job]
    corpora: Sequence[Path]
    data: Mapping[str, TaskFiles]
    device: str = "auto"
    report: Callable[[str], None] = lambda line: print(line, file=sys.stderr)

    def complete(self) -> None:
        """Run what is not done, until nothing is left that can be.

        Raises:
            Stopped: SIGTERM or SIGINT came during training; a checkpoint was saved.
            WriteFailed, MissingInput, DamagedData and whatever else a run may raise but divergence.
        """
        waiting = False
        while open_jobs := self.open_jobs():
            if self._work_on_one_of(open_jobs):
                waiting = False
                continue
            if not waiting:
                self.report(f"waiting for other processes, which work on {len(open_jobs)} of the jobs left")
                waiting = True
            time.sleep(LOOK_AGAIN_SECONDS)

    def open_jobs(self) -> list[Job]:
        """What is neither done nor given up, nor waits for something that is."""
        done, lost = done_jobs(self.jobs, self.folders), set[str]()
        found = []
        for job in self.jobs:
            if self.folders.failure(job.name).exists() or lost.intersection(job.needs):
                lost.add(job.name)
            elif job.name not in done:
                found.append(job)
        return found

    def _work_on_one_of(self, open_jobs: Sequence[Job]) -> bool:
        """Claim the first job that can be had, and do it; whether there was one."""
        names = {job.name for job in open_jobs}
        for job in open_jobs:
            if names.intersection(job.needs):
                continue
            with self._claimed(job) as mine:
                if not mine:
                    continue
                if job.name not in done_jobs(self.jobs, self.folders):  # another process may have ended it a moment ago
                    self._do(job)
                return True
        return False

    @contextmanager
    def _claimed(self, job: Job) -> Iterator[bool]:
        """Whether a job is this process's now, and nobody is at its run by hand."""
        with ExitStack() as held:
            mine = held.enter_context(claimed(self.folders.claim(job.name))) is not None
            if mine and isinstance(job, Pretraining):
                run = self.folders.pretraining(job.key).path
                if (run / LOCK_NAME).exists():
                    with claimed(run) as free:
                        mine = free is not None
            yield mine

    def _do(self, job: Job) -> None:
        self.report(job.title)
        try:
            match job:
                case Pretraining():
                    self._pretrain(job)
                case HeldOut():
                    self._ask(job)
                case Finetuning():
                    self._finetune(job)
                case Speed():
                    self._time(job)
        except Diverged as error:
            save_json(self.folders.failure(job.name), {"job": job.title, "why": str(error)})
            self.report(f"given up: {error}")

    def _pretrain(self, job: Pretraining) -> None:
        save_json(self.folders.arm(job.key), {"name": job.arm.name, "seed": job.arm.recipe.seed, "start": job.start})
        run = self.folders.pretraining(job.key)
        init = None if job.start is None else Init(model=str(self.folders.pretraining(job.start).model_path))
        corpora = list(self.corpora) if job.arm.additional_text else [self.corpora[0]]
        pretrain(job.arm.recipe, corpora, run.path, self.device, init=init)
        gc.collect()  # the model is part of a cycle: the next one would come on top of it

    def _ask(self, job: HeldOut) -> None:
        model = self.folders.pretraining(job.key).model_path
        recipe = job.arm.recipe
        found = evaluate_pretraining(
            [model],
            self.corpora[0],
            max_length=recipe.sequences.max_length,
            keep_pairs=recipe.sequences.keep_pairs,
            masking=recipe.masking,
            limit=job.sequences,
            device=self.device,
            precision="fp32",  # of one table figures are compared that several machines may have made
        )
        save_json(self.folders.intrinsic(job.key), found.to_json())

    def _finetune(self, job: Finetuning) -> None:
        model = self.folders.pretraining(job.key).model_path
        if job.intermediate is not None:
            model = self.folders.finetuning(job.key, job.intermediate, job.seed).model_path
        run, files = job.run(self.folders), self.data[job.task.task]
        start, settings = PretrainedEncoder(str(model)), job.task.settings(job.seed)
        finetune(files.task, start, files.folder, run.path, job.task.settled_recipe, settings)
        if run.checkpoints_path.is_dir():  # nothing goes on from them, and they are most of the disk
            remove_directory(run.checkpoints_path)

    def _time(self, job: Speed) -> None:
        device = pick_device(self.device)
        found = measure_throughput(
            dict(job.architectures),
            sequence_length=job.sequence_length,
            device=device,
            precision=default_precision(device),
        )
        seconds = {name: one.training_seconds / one.tokens for name, one in found.results.items()}
        about = {"device": found.device, "precision": found.precision, "threads": found.threads}
        save_json(self.folders.speed(job.table), {**about, "seconds_a_token": seconds})


# --------------------------------------------------------------------------------------------------------------------
# A bar over all jobs of some tables, with the time that is left: it follows what lies on the disk.
#
# So it also shows what other processes do below the same root, and starts where an earlier command was stopped.

LOOK_SECONDS = 5.0


@contextmanager
def overall_progress(plan: Plan, folders: Folders, description: str) -> Iterator[None]:
    """Show how much of a plan is done, counted in minutes of this machine, while the block works on it."""
    begun = _minutes_done(plan, folders)
    total = plan.seconds / 60
    over = threading.Event()
    with progress(description, total, "minutes of work", done=begun) as bar:
        watcher = threading.Thread(target=_follow, args=(plan, folders, bar, begun, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _follow(plan: Plan, folders: Folders, bar: Bar, seen: float, over: threading.Event) -> None:
    ended = False
    while not ended:
        ended = over.wait(LOOK_SECONDS)
        now = _minutes_done(plan, folders)
        if now > seen:
            bar.advance(now - seen)
            seen = now


def _minutes_done(plan: Plan, folders: Folders) -> float:
    done = done_jobs([one.job for one in plan.jobs], folders)
    return sum(share_done(one.job, one.cost, folders, done) * one.cost.seconds for one in plan.jobs) / 60
