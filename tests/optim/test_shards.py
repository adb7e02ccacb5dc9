"""Tensors cut up over two processes move as they do in one: a trust ratio is that of the whole tensor."""

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

SHAPES = {"even": (4, 3), "uneven": (5, 2), "on one process alone": (1, 7), "by columns": (3, 4), "copied": (6,)}
CUTS = {"by columns": Shard(1), "copied": Replicate()}


def drawn(seed: int) -> dict[str, torch.Tensor]:
    """A tensor of each shape."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def train(place) -> dict[str, torch.Tensor]:
    """Weights, first moments and statistics after some steps with tensors that are put where `place` says."""
    parameters = {name: nn.Parameter(place(name, weight)) for name, weight in drawn(0).items()}
    whole = nn.Parameter(torch.ones(8))
    optimizer = Lamb([*parameters.values(), whole], lr=0.1)
    for step in range(1, 4):
        for name, gradient in drawn(step).items():
            parameters[name].grad = place(name, gradient)
        whole.grad = torch.full((8,), float(step))
        optimizer.step()

    def gather(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().full_tensor() if hasattr(tensor, "full_tensor") else tensor.detach()

    kept = {name: gather(parameter) for name, parameter in parameters.items()} | {"whole": whole.detach()}
    means = {f"{name}, mean": gather(optimizer.state[parameter]["exp_avg"]) for name, parameter in parameters.items()}
    figures = {name: torch.tensor(value, dtype=torch.float64) for name, value in optimizer.statistics().items()}
    return kept | means | figures


def train_one_of_two(folder: Path) -> None:
    """What each process does."""
    torch_distributed.init_process_group("gloo")
    for name, sizes in (("one dimension", (2,)), ("two dimensions", (1, 2))):
        mesh = init_device_mesh("cpu", sizes)
        copied = [Replicate()] * (len(sizes) - 1)
        found = train(
            lambda name, tensor, mesh=mesh, copied=copied: distribute_tensor(
                tensor, mesh, [*copied, CUTS.get(name, Shard(0))]
            )
        )
        save_file(found, folder / f"{name} {torch_distributed.get_rank()}.safetensors")
    torch_distributed.destroy_process_group()


def test_two_processes_with_a_part_each_move_a_tensor_as_one_does(fork_server, tmp_path):
    for process in fork_server.start_world([["python", __file__, str(tmp_path)]] * 2):
        assert process.finish() == 0, process.printed
    expected = train(lambda _, tensor: tensor)
    for mesh in ("one dimension", "two dimensions"):
        first, second = (load_file(tmp_path / f"{mesh} {rank}.safetensors") for rank in range(2))
        assert first.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(first[name], tensor, rtol=1e-6, atol=1e-7)
            assert torch.equal(first[name], second[name]), name


def test_sums_of_whole_tensors_stay():
    sums = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert torch.equal(sum_over_shards(sums, [torch.ones(2), torch.ones(3)]), sums)
    assert sum_over_shards(torch.zeros(0, 2), []).shape == (0, 2)


if __name__ == "__main__":
    train_one_of_two(Path(sys.argv[1]))
    os._exit(0)  # one time in ten, torch's threads for meshes abort a process that ends right after its last sum
