"""Defects by which training would take other steps than it should, lose its place, or end in the wrong way."""

from reliability.defects.defect import Defect

_UPDATE, _STEPS, _STATE = "training/update.py", "training/loop.py", "training/state.py"
_SIGNALS, _LAMB, _CHUNKED = "training/run_folder.py", "optim/lamb.py", "optim/lamb.py"
_DIED = "training/test_resume.py::test_a_run_that_died_goes_on_as_if_it_had_not"

TRAINING = (
    Defect(
        name="losses are means of the means of micro-batches",
        file=_UPDATE,
        old="loss / max(counts[name], 1) for",
        new="loss / max(batch.counts[name], 1) / len(batches) for",
        tests=(
            "training/test_update.py::test_accumulation_does_not_change_the_weights",
            "training/test_update.py::test_unequal_counts_are_divided_once_by_the_count_of_all",
        ),
    ),
    Defect(
        name="gradients are the mean over processes",
        file=_UPDATE,
        old="(torch.stack(terms).sum() * ranks.size).backward()",
        new="torch.stack(terms).sum().backward()",
        tests=("pretraining/test_two_processes.py::test_several_processes_train_what_one_trains",),
    ),
    Defect(
        name="gradients are not clipped",
        file=_UPDATE,
        old="nn.utils.clip_grad_norm_(model.parameters(), clip_norm)",
        new='nn.utils.clip_grad_norm_(model.parameters(), float("inf"))',
        tests=("training/test_update.py::test_clipping_bounds_the_global_norm",),
    ),
    Defect(
        name="gradients are carried into the next update",
        file=_UPDATE,
        old="    optimizer.zero_grad(set_to_none=True)\n",
        new="",
        tests=("training/test_update.py::test_no_gradient_is_carried_into_the_next_update",),
    ),
    Defect(
        name="the step is taken before it is judged",
        file=_UPDATE,
        old="    if alarm is None:\n        for group",
        new="    if True:\n        for group",
        tests=("training/test_update.py::test_a_loss_that_is_not_finite_leaves_the_weights_untouched",),
    ),
    Defect(
        name="each process judges by its own losses",
        file=_UPDATE,
        old="    alarm = judge(figures)\n",
        new="    own = {name: float(value) for name, value in losses.items()}\n"
        "    alarm = judge(replace(figures, losses=own, gradient_norm=own[min(own)]))\n",
        tests=("training/test_divergence.py::test_a_number_that_is_not_finite_on_one_rank_is_answered_alike_by_both",),
    ),
    Defect(
        name="a checkpoint is saved without looking for numbers that are not finite",
        file=_STEPS,
        old="            damage = self._damage()\n",
        new="            damage = None\n",
        tests=("training/test_divergence.py::test_numbers_that_are_not_finite_reach_no_checkpoint",),
    ),
    Defect(
        name="a rolled-back run meets the data again that led it astray",
        file=_STEPS,
        old="ahead = self.state.incidents.batches_passed_over",
        new="ahead = 0",
        tests=("training/test_divergence.py::test_a_rolled_back_run_passes_over_the_data_that_led_astray",),
    ),
    Defect(
        name="a run that goes on skips a batch",
        file=_STEPS,
        old="numbers = range(self.state.step + ahead, plan.total_steps + ahead)",
        new="ahead += self.state.step > 0\n"
        "            numbers = range(self.state.step + ahead, plan.total_steps + ahead)",
        tests=(_DIED,),
    ),
    Defect(
        name="dropout is drawn from wherever the generator stands",
        file=_STEPS,
        old='        seed_torch("dropout", plan.seed, state.step, self.ranks.rank)\n',
        new="",
        tests=(_DIED,),
    ),
    Defect(
        name="moments are not restored",
        file=_STATE,
        old="        optimizer.state[parameters[name]][key] = kept.clone()\n",
        new="        del kept\n",
        tests=(_DIED,),
    ),
    Defect(
        name="a checkpoint of another recipe or corpus is taken",
        file=_STATE,
        old="if kept.get(key) != value and (key in kept or key not in _RECORDED_LATER):",
        new="if False:",
        tests=("training/test_resume.py::test_a_run_of_another_recipe_or_corpus_is_refused_by_what_differs",),
    ),
    Defect(
        name="tokens are not counted on over a resume",
        file=_STATE,
        old="        self.step += 1\n        self.tokens += figures.tokens\n",
        new="        self.step += 1\n        self.tokens = figures.tokens\n",
        tests=("training/test_limits.py::test_tokens_end_a_run_with_the_step_that_reaches_them",),
    ),
    Defect(
        name="a run that SIGTERM ended says that all is well",
        file=_SIGNALS,
        old="self.exit_code = 128 + number",
        new="self.exit_code = 0",
        tests=("runtime/test_errors.py::test_a_run_that_was_stopped_ends_like_the_signal",),
    ),
    Defect(
        name="the handler of a signal ends the run, wherever it is",
        file=_SIGNALS,
        old="        self.number = number\n        if self._attempt",
        new='        self.number = number\n        raise Stopped("the run", number)\n        if self._attempt',
        tests=("training/test_resume.py::test_a_signal_saves_at_that_step_and_the_same_command_ends_bit_identical",),
    ),
    Defect(
        name="an evaluation that a signal cut short is told as a whole one",
        file=_STEPS,
        old="            given_up = attempt.given_up\n",
        new="            given_up = False\n",
        tests=(
            "training/test_resume.py::test_a_signal_during_an_evaluation_drops_it_and_the_run_that_goes_on_evaluates",
        ),
    ),
    Defect(
        name="LAMB divides by a norm of zero",
        file=_LAMB,
        old="return torch.where(usable, shaped / update_norms, torch.ones_like(shaped))",
        new="return shaped / update_norms",
        tests=("optim/test_lamb.py::test_the_trust_ratio_is_one_where_a_norm_is_zero",),
    ),
    Defect(
        name="LAMB corrects its bias unasked",
        file=_CHUNKED,
        old='[step if group["bias_correction"] else _STEP_WITHOUT_BIAS]',
        new="[step]",
        tests=("optim/test_lamb.py::test_lamb_follows_its_equations_in_random_cases",),
    ),
    Defect(
        name="LAMB decays weights outside of the adapted update",
        file=_CHUNKED,
        old='weight_decay=group["weight_decay"] - 1)',
        new="weight_decay=-1)",
        tests=("optim/test_lamb.py::test_lamb_follows_its_equations_in_random_cases",),
    ),
    Defect(
        name="LayerNorm and biases decay",
        file="optim/optimizer.py",
        old='"weight_decay": 0.0, "adapt": False',
        new='"weight_decay": weight_decay, "adapt": False',
        tests=("optim/test_lamb.py::test_layer_norm_and_biases_neither_decay_nor_adapt",),
    ),
    Defect(
        name="the first update of the warm-up does not move",
        file="optim/recipe.py",
        old="return peak * (step + 1) / warmup_steps",
        new="return peak * step / warmup_steps",
        tests=("optim/test_schedule.py::test_every_update_moves_the_first_one_too",),
    ),
    Defect(
        name="only what is an Exception becomes one line",
        file="cli/main.py",
        old="    except BaseException as error:\n        known",
        new="    except Exception as error:\n        known",
        tests=("cli/test_main.py::test_failures_of_libraries_are_translated_at_the_boundary",),
    ),
    Defect(
        name="a lost process is an internal error",
        file="runtime/distributed.py",
        old="if isinstance(error, torch_distributed.DistError) or _PEER_LOST.search(str(error)):",
        new="if False:",
        tests=("runtime/test_distributed.py::test_a_lost_peer_is_a_reason_to_try_again",),
    ),
)
