"""What pretraining_efficiency.py compares: this project's pre-training, and transformers' Trainer and its own collator.

A learner learns a slice of tokens when it is its turn and waits for the next; what it does meanwhile is timed, being
measured is not. Ours is `training.loop.train` on the main thread and gives the others their turns; each Trainer runs in
a thread of its own, one at a time. A step is what lies between two requests for a batch: making it, forward, backward,
clipping, update.

Trainer is fed as transformers' example `run_mlm.py` does by default: every document is [CLS] document [SEP], all are
put one after the other and cut into blocks of the length, so that nothing is padded; `DataCollatorForLanguageModeling`
masks 15 % of the tokens, each by itself; AdamW, linear warm-up and decay are those of Trainer. Where E is H, its model
has a projection all the same, and learns it.
"""

import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from transformers import AlbertConfig as TheirConfig
from transformers import (
    AlbertForMaskedLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from albert.checkpoints.model_directory import open_model, write_model
from albert.model.albert import AlbertForPreTraining
from albert.optim.optimizer import build_optimizer
from albert.optim.recipe import warmup_then_linear
from albert.pretraining.batches import PretrainingBatch, PretrainingBatches, pretraining_objective
from albert.pretraining.recipe import PretrainingRecipe
from albert.pretraining.run import plan_of, untrained_model
from albert.pretraining.sampling import PretrainingSamples
from albert.text.shards import TokenCorpus
from albert.training.loop import train
from albert.training.run_folder import RunFolder

System = Literal["albert", "trainer", "trainer, our start"]
Measure = Callable[[AlbertForPreTraining], dict[str, float]]
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Point:
    """How far a learner was, and what it knew."""

    system: System
    step: int
    tokens: int
    seconds: float
    figures: dict[str, float]


@dataclass
class Progressed:
    """What all learners tell: their points, in the order of their turns."""

    measure: Measure
    advance: Callable[[int], None]
    points: list[Point] = field(default_factory=list)

    def add(self, system: System, step: int, tokens: int, seconds: float, model: AlbertForPreTraining) -> None:
        """Measure a model at a pause."""
        before = max((point.tokens for point in self.points if point.system == system), default=0)
        self.points.append(Point(system, step, tokens, seconds, self.measure(model)))
        self.advance(tokens - before)


class Blocks(torch.utils.data.Dataset[dict[str, list[int]]]):
    """Documents one after the other, cut into blocks; what is left over at the end is left out."""

    def __init__(self, corpus: TokenCorpus, length: int) -> None:
        tokenizer = corpus.tokenizer()
        self._length, self._special = length, (tokenizer.cls_id, tokenizer.sep_id)
        ends = corpus.sentence_starts[corpus.document_starts]
        run = np.empty(corpus.n_tokens + 2 * corpus.n_documents, dtype=np.int32)
        for number, (start, stop) in enumerate(itertools.pairwise(ends)):
            place = int(start) + 2 * number
            run[place] = tokenizer.cls_id
            run[place + 1 : place + 1 + stop - start] = corpus.read(int(start), int(stop))
            run[place + 1 + stop - start] = tokenizer.sep_id
        self._blocks = run[: len(run) // length * length].reshape(-1, length)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, number: int) -> dict[str, list[int]]:
        block = self._blocks[number]
        special = np.isin(block, self._special).astype(np.int64)
        return {"input_ids": block.tolist(), "special_tokens_mask": special.tolist()}


def collator(corpus: TokenCorpus, seed: int, whole_words: bool = False) -> DataCollatorForLanguageModeling:
    """transformers' own, with the corpus's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(corpus.directory)
    return DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15, whole_word_mask=whole_words, seed=seed)


@dataclass(frozen=True)
class Contest:
    """What all learners have in common.

    `recipe` is settled, and its schedule ours. Blocks are full, sequences of ours are not: Trainer's batch has fewer,
    so that an update sees as many tokens, and there are about as many updates.
    """

    recipe: PretrainingRecipe
    corpus: TokenCorpus
    their_batch_size: int
    their_steps: int
    their_rate: float
    slices: int
    whole_words: bool

    def run(self, systems: Sequence[System], told: Progressed) -> None:
        """Let all learn to the end, a slice at a time in turns."""
        with tempfile.TemporaryDirectory() as folder:
            start = Path(folder) / "start"
            start.mkdir()
            write_model(start, untrained_model(self.recipe), self.corpus.directory)
            others = [_TrainerThread(self, system, start, told) for system in systems if system != "albert"]
            _learn(self, Path(folder) / "run", told, others)

    def is_pause(self, step: int, steps: int) -> bool:
        """Whether a learner of so many steps waits after this one."""
        return step * self.slices // steps > (step - 1) * self.slices // steps


def _learn(contest: Contest, folder: Path, told: Progressed, others: Sequence["_TrainerThread"]) -> None:
    recipe = contest.recipe
    samples = PretrainingSamples(contest.corpus, recipe.sequences, recipe.masking, recipe.seed)
    model = untrained_model(recipe)
    optimizer = build_optimizer(recipe.optimizer, model)
    turns = _Turns(
        contest, PretrainingBatches(samples, recipe.batch_size, recipe.micro_batch_size), model, told, others
    )
    plan = replace(plan_of(recipe), log_every=10**9, evaluate_every=None, checkpoint_minutes=1e9, checkpoint_every=None)
    train(
        model,
        optimizer,
        lambda step, _: warmup_then_linear(
            step, recipe.optimizer.learning_rate, recipe.schedule.warmup_steps, recipe.schedule.total_steps
        ),
        turns,
        pretraining_objective,
        plan,
        RunFolder(folder),
        device=CPU,
        identity={},
        save_model=lambda directory: None,
    )
    turns.pause(recipe.schedule.total_steps)
    for other in others:
        other.finish()


class _Turns:
    """Our batches; between two slices the others learn."""

    def __init__(
        self,
        contest: Contest,
        batches: PretrainingBatches,
        model: AlbertForPreTraining,
        told: Progressed,
        others: Sequence["_TrainerThread"],
    ) -> None:
        self._contest, self._batches, self._model, self._told, self._others = contest, batches, model, told, others
        self._tokens, self._seconds, self._went_on = 0, 0.0, time.perf_counter()

    def micro_batches(self, step: int, rank: int, world_size: int) -> Sequence[PretrainingBatch]:
        if step and self._contest.is_pause(step, self._contest.recipe.schedule.total_steps):
            self.pause(step)
        found = self._batches.micro_batches(step, rank, world_size)
        self._tokens += sum(batch.n_tokens for batch in found)
        return found

    def pause(self, step: int) -> None:
        self._seconds += time.perf_counter() - self._went_on
        state = torch.get_rng_state()
        self._model.eval()
        self._told.add("albert", step, self._tokens, self._seconds, self._model)
        self._model.train()
        for other in self._others:
            other.take_turn()
        torch.set_rng_state(state)
        self._went_on = time.perf_counter()


class _TrainerThread(TrainerCallback):
    """A Trainer that learns when it is told to."""

    def __init__(self, contest: Contest, system: System, start: Path, told: Progressed) -> None:
        self._contest, self._told = contest, told
        self._system: System = system
        self._folder = start.parent / system
        torch.manual_seed(contest.recipe.seed)
        drawn = AlbertForMaskedLM(TheirConfig.from_pretrained(start))
        self._model = AlbertForMaskedLM.from_pretrained(start) if system == "trainer, our start" else drawn
        self._model.config.embedding_projection = True  # which is what ours needs to be told when it reads the weights
        self._threads = torch.get_num_threads()
        self._may_learn, self._has_paused = threading.Semaphore(0), threading.Semaphore(0)
        self._failure: BaseException | None = None
        self._seconds, self._went_on, self._ended = 0.0, 0.0, False
        self._random = torch.get_rng_state()
        self._thread = threading.Thread(target=self._learn, name=system, daemon=True)
        self._thread.start()

    def take_turn(self) -> None:
        """Learn one slice; returns when it is learnt and measured."""
        if not self._ended:
            torch.set_rng_state(self._random)
            self._may_learn.release()
            self._has_paused.acquire()
            self._random = torch.get_rng_state()
            if self._failure is not None:
                raise self._failure

    def finish(self) -> None:
        """Learn what is left."""
        while not self._ended:
            self.take_turn()
        self._thread.join()

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._went_on = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        step, contest = state.global_step, self._contest
        if not contest.is_pause(step, contest.their_steps):
            return
        self._seconds += time.perf_counter() - self._went_on
        tokens = step * contest.their_batch_size * contest.recipe.sequences.max_length
        self._model.save_pretrained(self._folder)
        opened = open_model(self._folder, "pretraining").model
        assert isinstance(opened, AlbertForPreTraining)
        self._told.add(self._system, step, tokens, self._seconds, opened)
        self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        self._has_paused.release()
        self._may_learn.acquire()
        self._went_on = time.perf_counter()

    def _learn(self) -> None:
        self._may_learn.acquire()
        torch.set_num_threads(self._threads)  # which is a thread's own
        try:
            self._trainer().train()
        except BaseException as error:  # told by the thread that waits for this one
            self._failure = error
        self._ended = True
        self._has_paused.release()

    def _trainer(self) -> Trainer:
        contest, recipe = self._contest, self._contest.recipe
        arguments = TrainingArguments(
            output_dir=str(self._folder),
            per_device_train_batch_size=contest.their_batch_size,
            max_steps=contest.their_steps,
            learning_rate=contest.their_rate,
            lr_scheduler_type="linear",
            warmup_steps=round(contest.their_steps * recipe.schedule.warmup_steps / recipe.schedule.total_steps),
            weight_decay=recipe.optimizer.weight_decay,
            adam_beta1=recipe.optimizer.beta1,
            adam_beta2=recipe.optimizer.beta2,
            adam_epsilon=recipe.optimizer.eps,
            max_grad_norm=recipe.clip_norm,
            bf16=recipe.precision == "bf16",
            use_cpu=True,
            seed=recipe.seed,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        return Trainer(
            model=self._model,
            args=arguments,
            train_dataset=Blocks(contest.corpus, recipe.sequences.max_length),
            data_collator=collator(contest.corpus, recipe.seed, contest.whole_words),
            callbacks=[self],
        )
