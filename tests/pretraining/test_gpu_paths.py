"""A run tests the paths that only a GPU has: with stand-ins that agree, differ and fail."""

from dataclasses import replace

import pytest
import torch
from tests.pretraining.conftest import events

from albert.model import attention
from albert.model.albert import AlbertForPreTraining
from albert.model.attention import AttentionKernel
from albert.model.packing import PackedSequences
from albert.pretraining import gpu_paths, run
from albert.pretraining.fixed_shape import FixedBatches, FixedShape, PretrainingLoss, choose_shape
from albert.pretraining.gpu_paths import check_gpu_paths
from albert.pretraining.run import pretrain
from albert.recipes.pretraining import MaskingRecipe
from albert.runtime.environment import Ranks
from albert.runtime.errors import Unavailable
from albert.training.self_check import ATTENTION_KERNEL, COMPILED_LOSS, FIXED_SHAPE

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """Batches without groups, whose attention is the stand-in of the kernel; "compiled" is what was to be compiled."""
    monkeypatch.setattr(PackedSequences, "to", PackedSequences.without_groups)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    yield
    AttentionKernel.allowed = True


@pytest.fixture
def checked(tiny_samples, tiny_recipe):
    """A function that checks a model, and returns the decision and the checks by path."""

    def check(**config):
        torch.manual_seed(0)
        model = AlbertForPreTraining(replace(tiny_recipe.model, **config))
        shape = choose_shape(tiny_samples, MaskingRecipe().budgets, 24, 12, 1, 32)
        samples = FixedBatches(tiny_samples, 24, shape).samples_of(0, 0, 1)[0]
        before = [parameter.clone() for parameter in model.parameters()]
        paths = check_gpu_paths(model, PretrainingLoss(model, shape), True, samples, "fp32", CPU, Ranks())
        for parameter, value in zip(model.parameters(), before, strict=True):
            assert parameter.grad is None and torch.equal(parameter, value)
        return paths, {check.path: check for check in paths.checks}

    return check


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_paths_that_agree_are_used(checked, capsys, dropout):
    paths, checks = checked(hidden_dropout_prob=dropout)
    assert paths.fixed_shape and paths.compiled and AttentionKernel.allowed
    assert list(checks) == [ATTENTION_KERNEL, FIXED_SHAPE, COMPILED_LOSS]
    assert all(check.gradient_difference < 1e-4 for check in checks.values())
    assert capsys.readouterr().err == ""


def wrong_kernel(query, key, value, cu_seqlens, max_seqlen, scale):
    return attention_kernel(query, key, value, cu_seqlens, max_seqlen, 2 * scale)


def missing_kernel(*_):
    raise NotImplementedError("no kernel for this GPU")


attention_kernel = attention.varlen_attention


@pytest.mark.parametrize("kernel", [wrong_kernel, missing_kernel])
def test_a_kernel_that_differs_or_fails_is_left_out(checked, capsys, monkeypatch, kernel):
    monkeypatch.setattr(attention, "varlen_attention", kernel)
    paths, checks = checked()
    assert checks[ATTENTION_KERNEL].why_left_out and not AttentionKernel.allowed
    assert paths.fixed_shape and paths.compiled, "they do without the kernel"
    assert "attention kernel: left out of this run" in capsys.readouterr().err


def test_a_fixed_shape_that_differs_is_left_out_and_not_compiled(checked, monkeypatch):
    parts = FixedShape.parts

    def wrong_parts(shape, buffer):
        right = parts(shape, buffer)
        return right._replace(masked_positions=(right.masked_positions - 1).clamp(min=0))

    monkeypatch.setattr(FixedShape, "parts", wrong_parts)
    paths, checks = checked()
    assert not paths.fixed_shape and not paths.compiled and COMPILED_LOSS not in checks


def wrong_graph(function, **_):
    return lambda buffer: tuple(1.01 * value for value in function(buffer))


def no_compiler(function, **_):
    error = type("CompilerError", (RuntimeError,), {"__module__": "torch._inductor.exc"})

    def fail(_):
        raise error("no C++ compiler")

    return fail


@pytest.mark.parametrize("compiler", [wrong_graph, no_compiler])
def test_a_compiled_loss_that_differs_or_fails_is_left_out(checked, monkeypatch, compiler):
    monkeypatch.setattr(torch, "compile", compiler)
    paths, checks = checked()
    assert paths.fixed_shape and not paths.compiled
    assert checks[COMPILED_LOSS].why_left_out


@pytest.fixture
def checked_run(tiny_corpus, tiny_recipe, tmp_path, monkeypatch):
    """A function that pre-trains on a CPU and checks the paths as on a GPU."""

    decide = gpu_paths.trained_form
    check = gpu_paths.paths_of_recipe

    def check_on_cpu(*arguments):
        *values, _, ranks = arguments
        return check(*values, CPU, ranks)

    def decide_as_on_a_gpu(model, recipe, samples, device, ranks):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gpu_paths, "paths_of_recipe", check_on_cpu)
            patch.setattr(torch.nn.Module, "to", lambda module, *_: module)
            return decide(model, recipe, samples, torch.device("cuda"), ranks)

    monkeypatch.setattr(run, "trained_form", decide_as_on_a_gpu)

    def pretrain_with(**changes):
        return pretrain(replace(tiny_recipe, **changes), tiny_corpus, tmp_path / "run", "cpu").run

    return pretrain_with


def test_a_run_records_its_checks_and_trains_without_what_failed(checked_run, monkeypatch):
    monkeypatch.setattr(torch, "compile", no_compiler)
    run_directory = checked_run()
    (event,) = events(run_directory, "self_check")
    checks = event["checks"]
    assert [check["path"] for check in checks] == [ATTENTION_KERNEL, FIXED_SHAPE, COMPILED_LOSS]
    assert [check["why_left_out"] is None for check in checks] == [True, True, False]
    checked_run()  # it is finished: nothing is computed, and no path is needed
    assert len(events(run_directory, "self_check")) == 1


@pytest.mark.parametrize("option", ["compile", "fixed_shape"])
def test_a_path_that_was_asked_for_is_not_replaced(checked_run, monkeypatch, option):
    monkeypatch.setattr(torch, "compile", no_compiler)
    if option == "fixed_shape":
        monkeypatch.setattr("albert.pretraining.gpu_paths.fixed_objective", missing_kernel)
    with pytest.raises(Unavailable, match=f"^{option}"):
        checked_run(**{option: True})
