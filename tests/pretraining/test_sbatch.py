"""The Slurm job examples/pretrain.sbatch, with fake scripts in place of Slurm's commands."""

import re
import subprocess

import pytest


@pytest.fixture
def submit(checkout, tmp_path):
    """Run the job; returns its calls of Slurm. `script` is what the run does, in shell."""

    def submit(script: str, *words: str, code: int = 0) -> list[str]:
        calls = tmp_path / "calls"
        calls.write_text("")
        commands = tmp_path / "commands"
        commands.mkdir(exist_ok=True)
        for name, body in {
            "srun": f'echo "srun $*" >> {calls}\n{script}',
            "scontrol": f'echo "scontrol $*" >> {calls}\n[ "$1" = show ] && printf "node7\\nnode8\\n"',
        }.items():
            (commands / name).write_text(f"#!/bin/bash\n{body}\n")
            (commands / name).chmod(0o755)
        environment = {"SLURM_JOB_NODELIST": "node[7-8]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "12"}
        done = subprocess.run(
            ["bash", checkout / "examples" / "pretrain.sbatch", *words],
            env={"PATH": f"{commands}:/usr/bin:/bin", "RUN": "run", **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (code, "")
        return calls.read_text().splitlines()

    return submit


def test_every_node_starts_one_launcher_with_the_first_node_as_rendezvous(submit):
    lookup, launch = submit("mkdir -p run/model", "steps=7")
    assert lookup == "scontrol show hostnames node[7-8]"
    assert launch.startswith("srun --kill-on-bad-exit=1 torchrun --nnodes=2 --nproc-per-node=gpu")
    assert "--rdzv-endpoint=node7:29500 --rdzv-id=12-0" in launch
    assert launch.endswith("-m albert pretrain xxlarge --data corpus --output run parallelism=sharded steps=7")


def test_an_unfinished_job_is_requeued_while_it_makes_progress(submit):
    assert submit("mkdir -p run/checkpoints/step-00000100; exit 1", code=1)[2:] == ["scontrol requeue 12"]
    assert submit("mkdir -p run/checkpoints/step-00000200; exit 1", code=1)[2:] == ["scontrol requeue 12"]


def test_a_finished_or_stuck_job_is_not_requeued(submit):
    assert not submit("exit 78", code=78)[2:]
    assert not submit("mkdir -p run/checkpoints/step-00000100 run/model")[2:]


def test_the_job_requests_a_signal_before_its_end_and_requeueing(checkout):
    text = (checkout / "examples" / "pretrain.sbatch").read_text()
    assert "#SBATCH --signal=USR1@300\n" in text and "#SBATCH --requeue\n" in text
    assert re.search(r"--signals-to-handle=\S*\bSIGUSR1\b", text)  # torchrun would end without its processes
