import pytest
import torch

from albert.inference import engine as precision
from albert.inference.engine import choose_precision
from albert.runtime.errors import Unavailable

CPU = torch.device("cpu")


@pytest.mark.parametrize("choice", ["fp32", "bf16", "int8"])
def test_what_is_asked_for_is_taken(monkeypatch: pytest.MonkeyPatch, choice: precision.PrecisionChoice) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_vnni": True})
    assert choose_precision(choice, CPU) == choice


@pytest.mark.parametrize(("instruction", "chosen"), [("amx_bf16", "bf16"), ("avx2", "fp32")])
def test_auto_is_bf16_only_where_the_processor_multiplies_it(
    monkeypatch: pytest.MonkeyPatch, instruction: str, chosen: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {instruction: True, "architecture": "x86_64"})
    assert choose_precision("auto", CPU) == chosen


def test_int8_that_would_overflow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True})
    with pytest.raises(Unavailable, match=r"int8: this processor has no instructions for it \(VNNI, AMX\); use fp32"):
        choose_precision("int8", CPU)


def test_int8_on_a_gpu_is_refused() -> None:
    with pytest.raises(Unavailable, match="int8: is made for CPUs"):
        choose_precision("int8", torch.device("cuda"))
