"""Tensors that are sharded over two processes are updated as in one process: trust ratios are those of whole
tensors."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as torch_distributed
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from albert.optim.lamb import Lamb, sum_over_shards

SHAPES = {"even": (4, 3), "uneven": (5, 2), "on one process only": (1, 7), "by columns": (3, 4), "replicated": (6,)}
PLACEMENTS = {"by columns": Shard(1), "replicated": Replicate()}


def random_tensors(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def train(distribute) -> dict[str, torch.Tensor]:
    """Weights, first moments and statistics after some steps with tensors distributed by a function of name and
    tensor."""
    parameters = {name: nn.Parameter(distribute(name, weight)) for name, weight in random_tensors(0).items()}
    local = nn.Parameter(torch.ones(8))
    optimizer = Lamb([*parameters.values(), local], lr=0.1)
    for step in range(1, 4):
        for name, gradient in random_tensors(step).items():
            parameters[name].grad = distribute(name, gradient)
        local.grad = torch.full((8,), float(step))
        optimizer.step()

    def gather(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().full_tensor() if hasattr(tensor, "full_tensor") else tensor.detach()

    weights = {name: gather(parameter) for name, parameter in parameters.items()} | {"local": local.detach()}
    means = {f"{name}, mean": gather(optimizer.state[parameter]["exp_avg"]) for name, parameter in parameters.items()}
    statistics = {name: torch.tensor(value, dtype=torch.float64) for name, value in optimizer.statistics().items()}
    return weights | means | statistics


def run_one_rank(directory: Path) -> None:
    torch_distributed.init_process_group("gloo")
    for name, sizes in (("one dimension", (2,)), ("two dimensions", (1, 2))):
        mesh = init_device_mesh("cpu", sizes)
        others = [Replicate()] * (len(sizes) - 1)
        result = train(
            lambda name, tensor, mesh=mesh, others=others: distribute_tensor(
                tensor, mesh, [*others, PLACEMENTS.get(name, Shard(0))]
            )
        )
        save_file(result, directory / f"{name} {torch_distributed.get_rank()}.safetensors")
    torch_distributed.destroy_process_group()


def test_two_processes_with_shards_give_the_result_of_one(fork_server, tmp_path):
    for process in fork_server.start_world([["python", __file__, str(tmp_path)]] * 2):
        assert process.finish() == 0, process.printed
    expected = train(lambda _, tensor: tensor)
    for mesh in ("one dimension", "two dimensions"):
        first, second = (load_file(tmp_path / f"{mesh} {rank}.safetensors") for rank in range(2))
        assert first.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(first[name], tensor, rtol=1e-6, atol=1e-7)
            assert torch.equal(first[name], second[name]), name


def test_sums_of_unsharded_tensors_do_not_change():
    sums = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert torch.equal(sum_over_shards(sums, [torch.ones(2), torch.ones(3)]), sums)
    assert sum_over_shards(torch.zeros(0, 2), []).shape == (0, 2)


if __name__ == "__main__":
    run_one_rank(Path(sys.argv[1]))
    os._exit(0)  # one time in ten, torch's mesh threads abort a process that ends right after its last sum
